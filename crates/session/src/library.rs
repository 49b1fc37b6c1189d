//! Functions that find and load shipped files, machines, PMUs and records.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

use countersteer_counters::{Pmus, add_vendor_events, own_vendor_lists};
use countersteer_lab::LoadedMachine;
pub use countersteer_lab::library::*;
use countersteer_model::machine::Machine;
use countersteer_report::record::Record;

/// Loads a record from a folder; prints a warning if the record ends early.
pub fn record(dir: &Path) -> anyhow::Result<Record> {
    record_by(Record::load, dir)
}

/// Loads a record as [`record`] does, by a function that may read a part of it.
pub fn record_by<E>(
    load: impl FnOnce(&Path) -> Result<Record, E>,
    dir: &Path,
) -> anyhow::Result<Record>
where
    anyhow::Error: From<E>,
{
    let record = load(dir)?;
    if let Some(note) = record.cut_short(dir) {
        say!("{note}");
    }
    Ok(record)
}

/// Opens a file, or stdin if the path is `-`.
pub fn stream(path: &Path) -> anyhow::Result<Box<dyn BufRead>> {
    Ok(if path.as_os_str() == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(BufReader::with_capacity(1 << 20, open(path)?))
    })
}

/// Loads a machine by name or file, with the trained models found for it. Prints the models' paths.
pub fn loaded(name: &str) -> anyhow::Result<Arc<LoadedMachine>> {
    let (machine, text) = machine(name)?;
    with_models(machine, Some(text))
}

/// Loads the trained models found for a machine, and prints their paths. `text` is the machine's file, if any.
pub fn with_models(
    machine: Machine,
    text: Option<LibraryText>,
) -> anyhow::Result<Arc<LoadedMachine>> {
    let loaded = LoadedMachine::with_models(machine, text)?;
    for path in &loaded.models {
        say!("with the model {}", path.display());
    }
    Ok(Arc::new(loaded))
}

/// Reads the PMUs below a root folder, and adds the events of vendors' lists. The lists are in folder `lists`, or by default in
/// the user's folder of event lists.
pub fn pmus(root: &Path, lists: Option<&Path>) -> anyhow::Result<Pmus> {
    let mut pmus = Pmus::read(root)?;
    if let Some(folder) = lists.map(Path::to_owned).or_else(own_vendor_lists) {
        add_vendor_events(&folder, root, &mut pmus)?;
    }
    Ok(pmus)
}
