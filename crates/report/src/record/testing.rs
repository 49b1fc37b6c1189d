//! Record for tests.

use std::collections::BTreeMap;

use countersteer_model::units::Nanos;

use super::{Manifest, Record};

const MACHINE: &str = include_str!("../../../../machines/core2-quad.toml");

impl Record {
    /// Returns a record without rows, of a machine with four CPUs.
    pub(crate) fn empty() -> Self {
        Self::new(Manifest::new(
            ("core2-quad", MACHINE),
            ("w", ""),
            "linux",
            0,
            Nanos(1),
            [],
            BTreeMap::new(),
        ))
    }
}
