//! Hints at frequencies and cache partitions for an engine of this machine.

use std::sync::Arc;

use countersteer_host::hints::{HintConfig, Hinted};
use countersteer_host::live::LiveEngine;
use countersteer_host::undo::journal_folder;

use super::here::Here;

/// The engine, with what policies say beside places.
pub fn hinted<E: LiveEngine>(engine: E, here: &Here, dry: bool) -> Hinted<E> {
    let config = HintConfig {
        topology: Arc::clone(&here.topology),
        numbers: here.numbers.clone(),
        journals: journal_folder(),
        root: "/".into(),
        dry,
        say: |what| eprintln!("steer: {what}"),
    };
    Hinted::new(engine, config)
}
