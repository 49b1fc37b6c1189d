//! Virtual counters: requested names, their values at the end of each interval, and the rows to which the values belong.
//!
//! Input: counter names from -v and from formulas, and samples. Output: values for separate rows, for the record, and for
//! formulas.

mod derived;
mod derived_rows;
mod sums;

use std::path::{Path, PathBuf};

use countersteer_model::counters::{Outside, Sample, Samples};
use countersteer_model::metric::MetricDef;
use countersteer_report::readings::VirtualValue;
use countersteer_sysfs::sensors::{
    self, PROVIDERS, SensorColumn, SensorPlace, SensorRows, SensorValue,
};
use countersteer_sysfs::unavailable::Unavailable;

use self::derived::{Derived, OfRow};
use self::derived_rows::DerivedRows;
use crate::counted::CountedMetrics;
use crate::derivable::{self, derivable};
use crate::error::{FaultKind, failure};
use crate::modules::Modules;
use crate::modules::declared::column_of;

pub use sums::RunTotals;

/// Virtual counters requested with -v.
#[derive(Default)]
pub struct Wanted {
    pub columns: Vec<&'static SensorColumn>,
    /// Metrics of the core's table that are computed from PMU counts.
    pub derived: Vec<&'static MetricDef>,
}

/// Reader of the requested virtual counters, with the values of the current interval.
pub struct Bank {
    root: PathBuf,
    names: Vec<&'static str>,
    sensors: SensorRows,
    derived: Option<Derived>,
    modules: Modules,
    values: Vec<SensorValue>,
    of_rows: Vec<OfRow>,
    derived_rows: DerivedRows,
}

impl Wanted {
    pub fn find<S: AsRef<str>>(names: &[S]) -> anyhow::Result<Self> {
        let mut wanted = Self::default();
        for name in names.iter().map(AsRef::as_ref) {
            match (column_of(name), derivable(name)) {
                (Some((_, column)), _) => wanted.columns.push(column),
                (None, Some(metric)) => wanted.derived.push(metric),
                (None, None) => return Err(failure(FaultKind::Usage, unknown(name))),
            }
        }
        Ok(wanted)
    }

    /// Returns the name of the first requested counter that the machine's files have per thread; `None` if there is none.
    pub(crate) fn sensed_by_thread(&self) -> Option<&'static str> {
        let mut names = self.columns.iter().map(|column| column.name);
        names.find(|name| is_sensed_by_thread(name))
    }

    /// Returns the name of the first counter, requested or in a formula, that is read per thread; `None` if there is none.
    pub fn by_thread(&self, counted: &CountedMetrics) -> Option<&'static str> {
        let mut names = self
            .columns
            .iter()
            .map(|c| c.name)
            .chain(counted.outside.iter().copied());
        names.find(|name| is_sensed_by_thread(name)).or_else(|| {
            self.derived
                .iter()
                .chain(&counted.derived)
                .next()
                .map(|m| m.name)
        })
    }
}

fn is_sensed_by_thread(name: &str) -> bool {
    column_of(name).is_some_and(|(provider, _)| provider.by_thread)
}

fn unknown(name: &str) -> String {
    let known = PROVIDERS
        .iter()
        .flat_map(|p| p.columns)
        .map(|c| c.name)
        .chain(derivable::names());
    let known: Vec<&str> = known.collect();
    format!(
        "there is no virtual counter `{name}`; there are {}",
        known.join(", ")
    )
}

impl Bank {
    /// Opens the providers of all counters, requested or in formulas. Takes a first sample, as the base for differences. `root`
    /// is the folder of the machine's files.
    pub fn open(
        root: &Path,
        wanted: &Wanted,
        counted: &CountedMetrics,
        modules: Modules,
    ) -> anyhow::Result<Self> {
        let columns = || wanted.columns.iter().map(|c| c.name);
        let names = columns().chain(wanted.derived.iter().map(|m| m.name));
        let names: Vec<&'static str> = names.collect();
        let read: Vec<&'static str> = columns().chain(counted.outside.iter().copied()).collect();
        let sensors = SensorRows::open(root, &sensed(&read))
            .map_err(|why| failure(FaultKind::Missing, why.to_string()))?;
        let metrics: Vec<&MetricDef> = wanted
            .derived
            .iter()
            .chain(&counted.derived)
            .copied()
            .collect();
        let derived = Derived::open(&metrics)?;
        Ok(Self {
            root: root.to_owned(),
            names,
            sensors,
            derived,
            modules: modules.plan(&counted.plan),
            values: Vec::new(),
            of_rows: Vec::new(),
            derived_rows: DerivedRows::default(),
        })
    }

    /// Replaces the set of counters to read.
    pub fn turn_to(&mut self, names: &[&'static str]) -> Result<(), Unavailable> {
        if self.names != names {
            // Closes the current providers first, because the new ones may need the same resources.
            self.sensors = SensorRows::default();
            self.derived_rows = DerivedRows::default();
            names.clone_into(&mut self.names);
            self.sensors = SensorRows::open(&self.root, &sensed(names))?;
        }
        Ok(())
    }

    /// Returns true if there are no counters to read, as in most sessions.
    fn is_idle(&self) -> bool {
        self.sensors.is_empty() && self.derived.is_none() && self.modules.is_empty()
    }

    pub fn names(&self) -> &[&'static str] {
        &self.names
    }

    /// Reads all counters at the end of an interval, and starts to follow newly sampled threads until they exit.
    pub fn read(&mut self, readings: &Samples) {
        if !self.is_idle() {
            self.values = self.sensors.read(readings.rows(), Some, |_| true);
            self.count(readings);
        }
    }

    /// Updates the counters derived from counts in the middle of an interval; all other counters then have no values.
    pub fn read_counts(&mut self, readings: &Samples) {
        if !self.is_idle() {
            self.values.clear();
            self.sensors.begin(readings.rows());
            self.count(readings);
        }
    }

    fn count(&mut self, readings: &Samples) {
        self.of_rows.clear();
        let read = self.values.len();
        if let Some(derived) = &mut self.derived {
            derived.read(readings, &mut self.values, &mut self.of_rows);
        }
        self.modules.read(readings, &mut self.values);
        self.sensors.add(&self.values[read..]);
        self.derived_rows.replace(&self.of_rows, readings);
    }

    /// Returns the next message about a stopped module; `None` if there is none.
    pub fn complaint(&mut self) -> Option<String> {
        self.modules.complaint()
    }

    /// Returns a function that looks up the value of a counter for a row, for formulas.
    pub fn outside(&self) -> Box<Outside<'_>> {
        Box::new(|name: &str, row: &Sample| {
            if self.derived_rows.has(name) {
                self.derived_rows.of(name, row)
            } else {
                self.sensors.of(name, row)
            }
        })
    }

    /// Calls `take` for every value requested with -v; the first argument is the value's scope, e.g. `cpu` or `thread`.
    pub fn each<'n>(
        &self,
        name: impl Fn(u32) -> &'n str,
        take: impl FnMut(&str, &VirtualValue<'_>),
    ) {
        tell(self.asked_for(), name, take);
    }

    fn asked_for(&self) -> impl Iterator<Item = &SensorValue> {
        let has = |v: &&SensorValue| self.names.contains(&v.column.name);
        self.values.iter().filter(has)
    }
}

/// Returns the names of the counters that providers of the machine read, not modules.
fn sensed(names: &[&'static str]) -> Vec<&'static str> {
    let of_machine = names
        .iter()
        .filter(|name| sensors::column_of(name).is_some());
    of_machine.copied().collect()
}

/// Calls `take` for each value; the first argument is the value's scope, e.g. `cpu` or `thread`.
fn tell<'v, 'n>(
    values: impl IntoIterator<Item = &'v SensorValue>,
    name: impl Fn(u32) -> &'n str,
    mut take: impl FnMut(&str, &VirtualValue<'_>),
) {
    for value in values {
        let (scope, place, tid, cpu) = match &value.place {
            SensorPlace::Machine => ("machine", "machine", None, None),
            SensorPlace::Zone { name, .. } => ("zone", &**name, None, None),
            SensorPlace::Cpu(cpu) => ("cpu", "", None, Some(cpu.0)),
            SensorPlace::Thread(tid) => ("thread", name(*tid), Some(*tid), None),
        };
        take(
            scope,
            &VirtualValue {
                name: value.column.name,
                unit: value.column.unit,
                place,
                tid,
                cpu,
                value: value.value,
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_can_change_and_counts_from_then_on() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let zone = "sys/class/powercap/intel-rapl:0/energy_uj";
        let chip = "sys/class/hwmon/hwmon0/temp1_input";
        write(zone, "1000000");
        write(chip, "45000");
        let mut bank = Bank::open(
            root.path(),
            &Wanted::default(),
            &CountedMetrics::nothing(),
            Modules::default(),
        )
        .unwrap();
        let read = |bank: &mut Bank| {
            bank.read(&Samples::default());
            let mut seen = Vec::new();
            bank.each(
                |_| "",
                |_, value| seen.push((value.name.to_owned(), value.value)),
            );
            seen
        };
        assert_eq!(read(&mut bank), []);
        write(zone, "5000000");
        bank.turn_to(&["energy_j", "temperature_c"]).unwrap();
        write(zone, "7500000");
        assert_eq!(
            read(&mut bank),
            [
                ("energy_j".to_owned(), 2.5),
                ("temperature_c".to_owned(), 45.0)
            ]
        );
        bank.turn_to(&["temperature_c"]).unwrap();
        assert_eq!(read(&mut bank), [("temperature_c".to_owned(), 45.0)]);
        let error = bank
            .turn_to(&["llc_occupancy_bytes"])
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("`llc_occupancy_bytes` cannot be read"),
            "{error}"
        );
        assert_eq!(
            (read(&mut bank), bank.turn_to(&["llc_occupancy_bytes"])),
            (Vec::new(), Ok(())),
            "it is said once"
        );
    }
}
