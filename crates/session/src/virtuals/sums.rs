//! Totals and means of virtual counters over a whole run.
//!
//! Input: the values and the rows of each interval. Output: totals of additive counters, and means of the others. A row's mean
//! is weighted by its run time.

use std::collections::{BTreeMap, HashMap};

use countersteer_model::counters::{Sample, Samples};
use countersteer_report::readings::VirtualValue;
use countersteer_sysfs::sensors::{SensorPlace, SensorValue, ValueKind};

use crate::modules::declared::column_of;

use super::derived_rows::RowKey;
use super::{Bank, tell};
use crate::counted::CountedMetrics;

/// Totals accumulated since the start of the run.
pub struct RunTotals {
    columns: HashMap<&'static str, SumColumn>,
    /// Values requested with -v, by counter and place: the sum of the values, and their number.
    values: BTreeMap<(&'static str, SensorPlace), (SensorValue, f64)>,
}

struct SumColumn {
    /// True if the counter's values can be added (e.g. energy), false if it is a level (e.g. temperature).
    adds_up: bool,
    /// Sum of weighted values and sum of weights, by row.
    rows: HashMap<RowKey, (f64, f64)>,
}

impl RunTotals {
    /// Creates empty sums for the virtual counters in formulas.
    pub fn new(counted: &CountedMetrics) -> Self {
        let names = counted
            .outside
            .iter()
            .copied()
            .chain(counted.derived.iter().map(|m| m.name));
        let column = |name| {
            (
                name,
                SumColumn {
                    adds_up: adds_up(name),
                    rows: HashMap::new(),
                },
            )
        };
        Self {
            columns: names.map(column).collect(),
            values: BTreeMap::new(),
        }
    }

    /// Adds the values of an interval, those of -v and those of the interval's rows.
    pub fn add(&mut self, readings: &Samples, bank: &Bank) {
        for value in bank.asked_for() {
            let new = || {
                (
                    SensorValue {
                        value: 0.0,
                        ..value.clone()
                    },
                    0.0,
                )
            };
            let (sum, n) = self
                .values
                .entry((value.column.name, value.place.clone()))
                .or_insert_with(new);
            sum.value += value.value;
            *n += 1.0;
        }
        let outside = bank.outside();
        for (name, column) in &mut self.columns {
            for row in readings.rows() {
                let Some(value) = outside(name, row) else {
                    continue;
                };
                let weight = if column.adds_up {
                    1.0
                } else {
                    row.enabled.0 as f64
                };
                let (sum, weights) = column.rows.entry(RowKey::of(row)).or_default();
                *sum += value * weight;
                *weights += weight;
            }
        }
    }

    pub fn each<'n>(
        &self,
        name: impl Fn(u32) -> &'n str,
        take: impl FnMut(&str, &VirtualValue<'_>),
    ) {
        let whole = |(sum, n): &(SensorValue, f64)| {
            let value = if sum.column.kind == ValueKind::Since {
                sum.value
            } else {
                sum.value / n
            };
            SensorValue {
                value,
                ..sum.clone()
            }
        };
        let values: Vec<SensorValue> = self.values.values().map(whole).collect();
        tell(&values, name, take);
    }

    /// Returns the total or mean of a counter for a row; `None` if the row has no values.
    pub fn of(&self, name: &str, row: &Sample) -> Option<f64> {
        let column = self.columns.get(name)?;
        let (sum, weights) = column.rows.get(&RowKey::of(row))?;
        if column.adds_up {
            Some(*sum)
        } else {
            (*weights > 0.0).then(|| sum / weights)
        }
    }
}

/// Returns true if a virtual counter's values can be added, false if it is a level.
fn adds_up(name: &str) -> bool {
    column_of(name).is_some_and(|(_, column)| column.kind == ValueKind::Since)
}

#[cfg(test)]
mod tests {
    use countersteer_model::counters::Owner;
    use countersteer_model::units::{CoreTypeId, CpuId, Nanos};

    use super::*;
    use crate::virtuals::Wanted;

    #[test]
    fn what_is_spent_adds_up_and_what_holds_is_a_mean_by_time() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let zone = "sys/class/powercap/intel-rapl:0/energy_uj";
        let chip = "sys/class/hwmon/hwmon0/temp1_input";
        let holds = |joules: u32, degrees: u32| {
            write(zone, &format!("{joules}000000"));
            write(chip, &format!("{degrees}000"));
        };
        holds(1, 0);
        let wanted = Wanted::find(&["energy", "temperature"]).unwrap();
        let counted = CountedMetrics {
            outside: vec!["energy_j", "temperature_c"],
            ..CountedMetrics::nothing()
        };
        let mut bank = Bank::open(
            root.path(),
            &wanted,
            &counted,
            crate::modules::Modules::default(),
        )
        .unwrap();
        let mut sums = RunTotals::new(&counted);
        let row = |cpu, ms| {
            let owner = Owner::Thread { pid: 1, tid: 1 };
            Sample {
                enabled: Nanos::from_millis(ms),
                ..Sample::new(owner, Some(CpuId(cpu)), CoreTypeId(0), 0)
            }
        };
        for (cpu, ms, joules, degrees) in [(0, 30, 3, 20), (1, 10, 7, 60)] {
            holds(joules, degrees);
            let mut readings = Samples::default();
            readings.push(row(cpu, ms), []);
            bank.read(&readings);
            sums.add(&readings, &bank);
        }
        assert_eq!(
            (
                sums.of("energy_j", &row(1, 40)),
                sums.of("temperature_c", &row(0, 40))
            ),
            (Some(6.0), Some(30.0))
        );
        assert_eq!(
            sums.of(
                "temperature_c",
                &Sample {
                    core_type: CoreTypeId(1),
                    ..row(0, 40)
                }
            ),
            None
        );
        let mut seen = Vec::new();
        sums.each(
            |_| "",
            |_, value| seen.push((value.name.to_owned(), value.value)),
        );
        assert_eq!(
            seen,
            [
                ("energy_j".to_owned(), 6.0),
                ("temperature_c".to_owned(), 40.0)
            ]
        );
    }

    #[test]
    fn a_thread_with_rows_of_two_core_types_has_its_energy_once() {
        let root = tempfile::tempdir().unwrap();
        let holds = |joules: u32, ticks: u32| {
            let zone = "sys/class/powercap/intel-rapl:0";
            let package = "sys/devices/system/cpu/cpu0/topology/physical_package_id";
            let files = [
                (&*format!("{zone}/name"), "package-0"),
                (&format!("{zone}/energy_uj"), &format!("{joules}000000")),
                ("proc/stat", &format!("cpu0 {ticks} 0 0 0 0 0 0 0 0 0\n")),
                (package, "0"),
            ];
            countersteer_fuzz::fake_root::write(root.path(), &files);
        };
        holds(1, 0);
        let counted = CountedMetrics {
            outside: vec!["thread_energy_j"],
            ..CountedMetrics::nothing()
        };
        let modules = crate::modules::Modules::default();
        let mut bank = Bank::open(root.path(), &Wanted::default(), &counted, modules).unwrap();
        let mut sums = RunTotals::new(&counted);
        let row = |core_type, ms| {
            let owner = Owner::Thread { pid: 1, tid: 1 };
            Sample {
                enabled: Nanos::from_millis(ms),
                ..Sample::new(owner, Some(CpuId(0)), CoreTypeId(core_type), 0)
            }
        };
        let rows = [row(0, 30), row(1, 10)];
        let mut readings = Samples::default();
        rows.iter().for_each(|row| readings.push(*row, []));
        for (joules, ticks) in [(9, 4), (13, 8)] {
            holds(joules, ticks);
            bank.read(&readings);
            sums.add(&readings, &bank);
        }
        let name = "thread_energy_j";
        let last = rows.map(|row| bank.outside()(name, &row));
        assert_eq!(last, [Some(3.0), Some(1.0)]);
        assert_eq!(rows.map(|row| sums.of(name, &row)), [Some(9.0), Some(3.0)]);
    }
}
