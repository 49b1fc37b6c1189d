//! What commands look up: shipped files, machines, PMUs, records.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

use countersteer_counters::{Pmus, add_vendor_events, own_vendor_lists};
use countersteer_lab::LoadedMachine;
pub use countersteer_lab::library::*;
use countersteer_model::machine::Machine;
use countersteer_report::record::Record;

/// A record; what is to be known of one that ends early is said.
pub fn record(dir: &Path) -> anyhow::Result<Record> {
    let record = Record::load(dir)?;
    if record.manifest.unfinished {
        let dir = dir.display();
        let end = record.end().as_secs_f64();
        eprintln!(
            "steer: {dir} was cut short (its run was killed, its disk was full, or it goes on): it ends at {end:.3} s"
        );
    }
    Ok(record)
}

/// A file's bytes, or those of stdin, whose name is `-`.
pub fn stream(path: &Path) -> anyhow::Result<Box<dyn BufRead>> {
    Ok(if path.as_os_str() == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(BufReader::with_capacity(1 << 20, open(path)?))
    })
}

/// A machine by name or file, with models that were found for it, which are said.
pub fn loaded(name: &str) -> anyhow::Result<Arc<LoadedMachine>> {
    let (machine, text) = machine(name)?;
    with_models(machine, Some(text))
}

/// A machine, with its file if there is one, and with models that were found for it, which are said.
pub fn with_models(machine: Machine, text: Option<Text>) -> anyhow::Result<Arc<LoadedMachine>> {
    let loaded = LoadedMachine::with_models(machine, text)?;
    for path in &loaded.models {
        eprintln!("steer: with the model {}", path.display());
    }
    Ok(Arc::new(loaded))
}

/// The PMUs below a root, with events of vendors' lists: those of `lists`, or else of the user's own folder.
pub fn pmus(root: &Path, lists: Option<&Path>) -> anyhow::Result<Pmus> {
    let mut pmus = Pmus::read(root)?;
    if let Some(folder) = lists.map(Path::to_owned).or_else(own_vendor_lists) {
        add_vendor_events(&folder, root, &mut pmus)?;
    }
    Ok(pmus)
}
