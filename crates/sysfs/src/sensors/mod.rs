//! Virtual counters: values that are read together with the counters of an interval, but are no PMU events.
//!
//! Input: a root directory (`/`, or a fake one), and the followed threads. Output: [`SensorValue`]s by column and place. Several
//! providers run at once, one for each row of [`PROVIDERS`]. A provider that this machine lacks returns the reason and the
//! remedy.

mod attribution;
mod frequency;
mod hwmon;
mod powercap;
mod pressure;
mod resctrl;
mod rows;
mod runqueue;
mod set;

use std::path::Path;
use std::sync::Arc;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::{CpuId, Nanos};

use crate::unavailable::Unavailable;

pub use rows::SensorRows;
pub use set::SensorSet;

/// Relation of a column's values to time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// Difference since the last sample.
    Since,
    /// Current value.
    Level,
}

/// Name, unit and kind of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SensorColumn {
    /// Name in records and on command lines.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Relation to time.
    pub kind: ValueKind,
    pub prose: &'static str,
}

/// Subject of a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SensorPlace {
    Machine,
    /// Part of the machine that the kernel names, with its CPUs if they are known.
    Zone {
        /// Name, unique within the column.
        name: Arc<str>,
        cpus: Option<Arc<CpuSet>>,
    },
    Cpu(CpuId),
    Thread(u32),
}

#[derive(Clone, Debug, PartialEq)]
pub struct SensorValue {
    pub column: SensorColumn,
    pub place: SensorPlace,
    /// Value, in the column's unit.
    pub value: f64,
}

/// Source of virtual counters. Dropping it undoes its changes to the machine.
pub trait Provider: Send {
    /// Adds the current values; values of earlier providers in the table are already present. In a column of differences, the
    /// first read yields no value.
    fn read(&mut self, into: &mut Vec<SensorValue>);

    /// Begins to observe a thread.
    fn follow(&mut self, _tid: u32) {}

    /// Ends the observation of a thread, which may have exited.
    fn leave(&mut self, _tid: u32) {}

    /// Adds `_time` that a thread ran on a CPU since the last sample. Callers that count threads report it. For other threads, a
    /// provider that needs run times reads them itself.
    fn ran(&mut self, _tid: u32, _cpu: CpuId, _time: Nanos) {}
}

/// Row of the table of providers.
pub struct ProviderDef {
    pub name: &'static str,
    /// True if its values are by followed thread.
    pub by_thread: bool,
    pub prose: &'static str,
    pub columns: &'static [SensorColumn],
    /// Opens the provider on a machine whose file systems are under the path.
    pub open: fn(&Path) -> Result<Box<dyn Provider>, Unavailable>,
}

pub static PROVIDERS: &[ProviderDef] = &[
    powercap::DEF,
    attribution::DEF,
    hwmon::DEF,
    frequency::DEF,
    resctrl::DEF,
    pressure::DEF,
    runqueue::DEF,
];

/// Removes resctrl groups that providers of killed processes left on the machine whose file systems are below `root`. Returns
/// their number. Providers do the same when they are opened.
pub fn remove_stale(root: &Path) -> usize {
    crate::resctrl::Resctrl::at(root).remove_stale()
}

/// Returns the column of this name and its provider; the unit at the end of the name may be omitted.
#[must_use]
pub fn column_of(name: &str) -> Option<(&'static ProviderDef, &'static SensorColumn)> {
    let columns = || {
        PROVIDERS
            .iter()
            .flat_map(|p| p.columns.iter().map(move |c| (p, c)))
    };
    let without_unit = |column: &str| {
        column
            .rsplit_once('_')
            .is_some_and(|(stem, _)| stem == name)
    };
    columns()
        .find(|(_, c)| c.name == name)
        .or_else(|| columns().find(|(_, c)| without_unit(c.name)))
}

/// Total that only grows, until it wraps.
#[derive(Clone, Copy, Debug, Default)]
struct Growing(Option<f64>);

impl Growing {
    /// Returns the increase since the last call; `range` is the value at which the total wraps, if it does.
    fn since(&mut self, total: f64, range: Option<f64>) -> Option<f64> {
        let before = self.0.replace(total)?;
        // A total that shrank without a known range was reset: the increase is unknown.
        if total >= before {
            Some(total - before)
        } else {
            range.map(|r| total + r - before).filter(|d| *d >= 0.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn providers_and_columns_have_names_of_their_own() {
        let names: BTreeSet<_> = PROVIDERS.iter().map(|p| p.name).collect();
        assert_eq!(names.len(), PROVIDERS.len());
        for provider in PROVIDERS {
            let columns: BTreeSet<_> = provider.columns.iter().map(|c| c.name).collect();
            assert_eq!(columns.len(), provider.columns.len(), "{}", provider.name);
            for column in provider.columns {
                assert_eq!(column_of(column.name).map(|(_, c)| c), Some(column));
                let stem = column.name.rsplit_once('_').unwrap().0;
                assert_eq!(
                    column_of(stem).map(|(p, c)| (p.name, c)),
                    Some((provider.name, column))
                );
            }
        }
    }

    #[test]
    fn a_machine_without_any_of_it_says_what_is_missing() {
        let root = tempfile::tempdir().unwrap();
        for provider in PROVIDERS {
            let Err(why) = (provider.open)(root.path()) else {
                panic!("{}", provider.name)
            };
            assert!(
                !why.why.is_empty() && !why.remedy.is_empty(),
                "{}",
                provider.name
            );
        }
    }

    #[test]
    fn growth_survives_a_wrap_and_a_reset() {
        let mut growing = Growing::default();
        assert_eq!(growing.since(10.0, Some(100.0)), None);
        assert_eq!(growing.since(90.0, Some(100.0)), Some(80.0));
        assert_eq!(growing.since(5.0, Some(100.0)), Some(15.0));
        assert_eq!(growing.since(1.0, None), None);
        assert_eq!(growing.since(3.0, None), Some(2.0));
    }
}
