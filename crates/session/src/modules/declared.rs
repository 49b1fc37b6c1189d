//! Table of the virtual counters that running modules declared, beside those of this program.

use std::sync::{Mutex, PoisonError};

use countersteer_sysfs::sensors::{self, ProviderDef, SensorColumn};

/// Counters of the modules that were started, as a table of providers.
static DECLARED: Mutex<Vec<&'static ProviderDef>> = Mutex::new(Vec::new());

/// Returns the virtual counter with this name, of a module or of this program, and its provider.
pub fn column_of(name: &str) -> Option<(&'static ProviderDef, &'static SensorColumn)> {
    let of_modules = declared()
        .into_iter()
        .flat_map(|p| p.columns.iter().map(move |c| (p, c)));
    let own = sensors::column_of(name);
    own.or_else(|| {
        of_modules
            .into_iter()
            .find(|(_, column)| column.name == name)
    })
}

/// Returns the counters of all modules.
pub fn declared() -> Vec<&'static ProviderDef> {
    DECLARED
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

/// Adds the counters of a module. They stay until the program ends, because columns refer to them.
pub(super) fn declare(provider: ProviderDef) {
    let mut all = DECLARED.lock().unwrap_or_else(PoisonError::into_inner);
    all.push(Box::leak(Box::new(provider)));
}
