//! Virtual counters: what is read together with the counters of an interval but no PMU counts.
//!
//! Input: a root directory (`/`, or a fake one) and the threads that are followed. Output: [`Value`]s by column and place.
//! Several providers run at once, each from one row of [`PROVIDERS`]; one that this machine lacks gives the reason and the remedy.

mod attribution;
mod frequency;
mod hwmon;
mod powercap;
mod pressure;
mod resctrl;
mod runqueue;
mod set;

use std::path::Path;
use std::sync::Arc;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::{CpuId, Nanos};

use crate::unavailable::Unavailable;

pub use set::SensorSet;

/// How values of a column relate to time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What happened since the last reading.
    Since,
    /// What holds at the moment.
    Level,
}

/// What a value is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name; records and command lines use it.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// How it relates to time.
    pub kind: Kind,
    pub prose: &'static str,
}

/// What a value is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Machine,
    /// A part of it that the kernel names, with its CPUs where they are known.
    Zone {
        /// The name, unique within the column.
        name: Arc<str>,
        cpus: Option<Arc<CpuSet>>,
    },
    Cpu(CpuId),
    Thread(u32),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    pub column: &'static Column,
    pub place: Place,
    /// The value, in the column's unit.
    pub value: f64,
}

/// A source of virtual counters. What it changed on the machine it undoes when dropped.
pub trait Provider: Send {
    /// Adds what is known now; values of providers that stand before it in the table are there already. Of columns that tell what
    /// happened since the last reading, the first has nothing to say.
    fn read(&mut self, into: &mut Vec<Value>);

    /// A thread is to be observed.
    fn follow(&mut self, _tid: u32) {}

    /// A thread ended, or is no longer to be observed.
    fn leave(&mut self, _tid: u32) {}

    /// A thread ran on a CPU for so long since the last reading. Who counts that says so; of others' threads a provider that
    /// goes by it looks it up.
    fn ran(&mut self, _tid: u32, _cpu: CpuId, _time: Nanos) {}
}

/// A row of the table of providers.
pub struct ProviderDef {
    pub name: &'static str,
    /// Its values are of threads that are followed.
    pub by_thread: bool,
    pub prose: &'static str,
    pub columns: &'static [Column],
    /// Opens it on a machine whose file systems are under the path.
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

/// Removes what providers of processes that were killed have left on the machine whose file systems are below `root`: groups of
/// resctrl; how many. Providers do the same when they are opened.
pub fn remove_stale(root: &Path) -> usize {
    crate::resctrl::Resctrl::at(root).remove_stale()
}

/// The provider that has a column, and the column; the unit at the end of its name may be left out.
#[must_use]
pub fn column_of(name: &str) -> Option<(&'static ProviderDef, &'static Column)> {
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

/// Totals that only grow, until they wrap.
#[derive(Clone, Copy, Debug, Default)]
struct Growing(Option<f64>);

impl Growing {
    /// What was added since the last time; `range` is where the total wraps, if it does.
    fn since(&mut self, total: f64, range: Option<f64>) -> Option<f64> {
        let before = self.0.replace(total)?;
        // A total that shrank without a known range was reset: nothing is known of the time in between.
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
