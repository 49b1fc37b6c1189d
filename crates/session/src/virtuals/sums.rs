//! Totals and means of virtual counters over a whole run.
//!
//! Input: the values and the rows of each interval. Output: totals of additive counters, and means of the others. A row's mean
//! is weighted by its run time.

use std::collections::{BTreeMap, HashMap};

use countersteer_model::counters::{Sample, Samples};
use countersteer_report::readings::VirtualValue;
use countersteer_sysfs::sensors::{SensorPlace, ValueKind};

use crate::modules::declared::column_of;

use super::belongs::RowKey;
use super::named::Named;
use super::{Bank, tell};
use crate::counted::CountedMetrics;

/// Totals accumulated since the start of the run.
pub struct RunTotals {
    columns: HashMap<&'static str, SumColumn>,
    /// Values requested with -v, by counter and place: the sum of the values, and their number.
    values: BTreeMap<(&'static str, SensorPlace), (Named, f64)>,
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
                    Named {
                        value: 0.0,
                        ..value.clone()
                    },
                    0.0,
                )
            };
            let (sum, n) = self
                .values
                .entry((value.name, value.place.clone()))
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
        let whole = |(sum, n): &(Named, f64)| {
            let value = if adds_up(sum.name) {
                sum.value
            } else {
                sum.value / n
            };
            Named {
                value,
                ..sum.clone()
            }
        };
        let values: Vec<Named> = self.values.values().map(whole).collect();
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
}
