//! Assignment of virtual counters' values to rows of samples.
//!
//! Input: the values and samples of an interval. Output: one number by counter name and row. A thread's row has the thread's
//! value, and a process's row the sum over its threads. Values derived from counts are averaged over time instead of summed. A
//! row with a CPU has that CPU's clock frequency and the energy of the CPU's package. A thread's row has the CPU on which the
//! thread last ran. Every row has the values of the whole machine.

use std::collections::HashMap;

use countersteer_model::counters::{Owner, Sample, Samples};
use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::{CoreTypeId, CpuId, Nanos};
use countersteer_sysfs::sensors::SensorPlace;

use super::derived::OfRow;
use super::named::Named;

/// Values of an interval, grouped by thread, process, CPU and zone.
#[derive(Debug, Default)]
pub struct Belongings {
    columns: HashMap<&'static str, OwnedColumn>,
    /// Values derived from counts: by counter name, and by the rows that may include them.
    derived: HashMap<&'static str, HashMap<RowKey, Vec<DerivedValue>>>,
    /// PIDs of all sampled threads, with TIDs as keys.
    pids: HashMap<u32, u32>,
}

#[derive(Debug, Default)]
struct OwnedColumn {
    unit: &'static str,
    threads: HashMap<u32, f64>,
    processes: HashMap<u32, f64>,
    cpus: HashMap<u32, f64>,
    /// Values of zones (e.g. packages), with the CPUs of each zone. The CPUs are `None` if unknown, and for the whole machine.
    zones: Vec<(Option<CpuSet>, f64)>,
}

/// Key of a row that is the same in every interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowKey {
    owner: Owner,
    /// CPU of a per-CPU row; `None` for other rows, since a thread may migrate.
    cpu: Option<CpuId>,
    core_type: CoreTypeId,
    set: u32,
}

/// Derived value of one thread's row, with the row's time.
#[derive(Debug)]
struct DerivedValue {
    end: Nanos,
    enabled: Nanos,
    value: f64,
}

impl RowKey {
    pub fn of(row: &Sample) -> Self {
        let cpu = row.cpu.filter(|_| row.owner == Owner::Cpu);
        Self {
            owner: row.owner,
            cpu,
            core_type: row.core_type,
            set: row.set,
        }
    }
}

impl Belongings {
    /// Replaces the stored values by those of an interval, grouped by thread, process, CPU and zone.
    pub fn sort(&mut self, values: &[Named], of_rows: &[OfRow], readings: &Samples) {
        self.columns.clear();
        self.derived.values_mut().for_each(HashMap::clear);
        for OfRow { row, name, value } in of_rows {
            self.derive(name, &readings.rows()[*row], *value);
        }
        for row in readings.rows() {
            if let Owner::Thread { pid, tid } = row.owner {
                self.pids.insert(tid, pid);
            }
        }
        for value in values {
            let column = self.columns.entry(value.name).or_default();
            column.unit = value.unit;
            match &value.place {
                SensorPlace::Machine => column.zones.push((None, value.value)),
                SensorPlace::Cpu(cpu) => drop(column.cpus.insert(cpu.0, value.value)),
                SensorPlace::Thread(tid) => {
                    column.threads.insert(*tid, value.value);
                    let pid = self.pids.get(tid).copied().unwrap_or(*tid);
                    let of_process = column.processes.entry(pid).or_insert(0.0);
                    *of_process = joined(value.unit, *of_process, value.value);
                }
                SensorPlace::Zone { name, cpus } if counts_once(value.name, name, values) => {
                    column.zones.push((cpus.as_deref().cloned(), value.value));
                }
                SensorPlace::Zone { .. } => {}
            }
        }
        for row in readings.rows().iter().filter(|row| row.last) {
            if let Owner::Thread { tid, .. } = row.owner {
                self.pids.remove(&tid);
            }
        }
    }

    /// Stores a derived value for its thread's row, and for all rows that may include this thread.
    fn derive(&mut self, name: &'static str, row: &Sample, value: f64) {
        let Owner::Thread { pid, .. } = row.owner else {
            return;
        };
        let rows = self.derived.entry(name).or_default();
        for owner in [row.owner, Owner::Process { pid }, Owner::Cpu, Owner::Total] {
            let part = DerivedValue {
                end: row.end,
                enabled: row.enabled,
                value,
            };
            rows.entry(RowKey::of(&Sample { owner, ..*row }))
                .or_default()
                .push(part);
        }
    }

    /// Returns the value of a counter for a row; `None` if the row has none.
    pub fn of(&self, name: &str, row: &Sample) -> Option<f64> {
        if let Some(rows) = self.derived.get(name) {
            let parts = rows.get(&RowKey::of(row))?;
            let same = parts
                .iter()
                .find(|p| (p.end, p.enabled) == (row.end, row.enabled));
            return same.map_or_else(|| mean_by_time(parts), |part| Some(part.value));
        }
        let column = self.columns.get(name)?;
        if !column.threads.is_empty() {
            return match row.owner {
                Owner::Thread { tid, .. } => column.threads.get(&tid).copied(),
                Owner::Process { pid } => column.processes.get(&pid).copied(),
                Owner::Total => {
                    let threads = column.threads.values();
                    Some(threads.fold(0.0, |all, value| joined(column.unit, all, *value)))
                }
                Owner::Rest | Owner::Cpu => None,
            };
        }
        if !column.cpus.is_empty() {
            return match row.cpu {
                Some(cpu) => column.cpus.get(&cpu.0).copied(),
                None => together(column.unit, column.cpus.values().copied()),
            };
        }
        let near = |cpu: CpuId| {
            move |zone: &&(Option<CpuSet>, f64)| zone.0.as_ref().is_none_or(|c| c.contains(cpu))
        };
        match row.cpu {
            Some(cpu) => together(
                column.unit,
                column.zones.iter().filter(near(cpu)).map(|z| z.1),
            ),
            None => together(column.unit, column.zones.iter().map(|z| z.1)),
        }
    }
}

/// Combines the values of two threads: their sum, or their maximum if the unit is µs, because mean times cannot be added.
fn joined(unit: &str, all: f64, value: f64) -> f64 {
    if unit == "us" {
        all.max(value)
    } else {
        all + value
    }
}

fn mean_by_time(parts: &[DerivedValue]) -> Option<f64> {
    let all_ns: f64 = parts.iter().map(|p| p.enabled.0 as f64).sum();
    let sum: f64 = parts.iter().map(|p| p.value * p.enabled.0 as f64).sum();
    (all_ns > 0.0).then(|| sum / all_ns)
}

/// Returns true if a zone's energy may be added to that of other zones. If there are packages, only these count: subzones are
/// contained in them, and larger zones contain them.
fn counts_once(name: &str, zone: &str, values: &[Named]) -> bool {
    let is_package = |zone: &str| zone.starts_with("package-") && !zone.contains('/');
    let packages = |v: &Named| {
        v.name == name && matches!(&v.place, SensorPlace::Zone { name, .. } if is_package(name))
    };
    name != "energy_j" || is_package(zone) || !values.iter().any(packages) && !zone.contains('/')
}

/// Combines several values by unit: the maximum temperature, the mean clock frequency, or the sum. Returns `None` if there are
/// no values.
fn together(unit: &str, values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut n = 0;
    let mut sum = 0.0;
    let mut most = f64::NEG_INFINITY;
    for value in values {
        (n, sum, most) = (n + 1, sum + value, f64::max(most, value));
    }
    (n > 0).then(|| match unit {
        "°C" => most,
        "MHz" => sum / f64::from(n),
        _ => sum,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &str, cpus: Option<&str>, value: f64) -> Named {
        let cpus = cpus.map(|c| std::sync::Arc::new(c.parse().unwrap()));
        Named {
            name: "energy_j",
            unit: "J",
            place: SensorPlace::Zone {
                name: name.into(),
                cpus,
            },
            value,
        }
    }

    fn row(owner: Owner, cpu: Option<u32>) -> Sample {
        Sample::new(owner, cpu.map(CpuId), CoreTypeId(0), 0)
    }

    #[test]
    fn energy_is_that_of_the_rows_package_and_counts_once() {
        let mut belongings = Belongings::default();
        let values = [
            zone("package-0", Some("0-1"), 2.0),
            zone("package-0/core", Some("0-1"), 1.5),
            zone("package-1", Some("2-3"), 4.0),
            zone("psys", None, 9.0),
        ];
        belongings.sort(&values, &[], &Samples::default());
        let thread = Owner::Thread { pid: 1, tid: 1 };
        let of = |owner, cpu| belongings.of("energy_j", &row(owner, cpu));
        assert_eq!(
            [
                of(thread, Some(1)),
                of(Owner::Cpu, Some(2)),
                of(Owner::Total, None)
            ],
            [2.0, 4.0, 6.0].map(Some)
        );
        assert_eq!(belongings.of("temperature_c", &row(thread, None)), None);
    }

    #[test]
    fn a_process_has_what_its_threads_have() {
        let mut belongings = Belongings::default();
        let held = |tid, value| Named {
            name: "llc_occupancy_bytes",
            unit: "B",
            place: SensorPlace::Thread(tid),
            value,
        };
        let mut readings = Samples::default();
        for (pid, tid) in [(1, 1), (1, 2), (3, 3)] {
            readings.push(row(Owner::Thread { pid, tid }, None), []);
        }
        belongings.sort(&[held(1, 10.0), held(2, 5.0), held(3, 1.0)], &[], &readings);
        let of = |owner| belongings.of("llc_occupancy_bytes", &row(owner, None));
        assert_eq!(of(Owner::Thread { pid: 1, tid: 2 }), Some(5.0));
        assert_eq!(
            (of(Owner::Process { pid: 1 }), of(Owner::Total)),
            (Some(15.0), Some(16.0))
        );
        assert_eq!(
            (of(Owner::Thread { pid: 1, tid: 9 }), of(Owner::Rest)),
            (None, None)
        );
        let mean = |tid, value| Named {
            name: "runqueue_wait_mean_us",
            unit: "us",
            place: SensorPlace::Thread(tid),
            value,
        };
        belongings.sort(&[mean(1, 30.0), mean(2, 50.0)], &[], &readings);
        let of = |owner| belongings.of("runqueue_wait_mean_us", &row(owner, None));
        assert_eq!(
            (of(Owner::Process { pid: 1 }), of(Owner::Total)),
            (Some(50.0), Some(50.0))
        );
    }

    #[test]
    fn what_is_derived_is_its_rows_own_and_a_mean_by_time_in_sums() {
        let mut belongings = Belongings::default();
        let mut readings = Samples::default();
        let thread = |tid| Owner::Thread { pid: 1, tid };
        let ran = |tid, cpu, core_type, ms| {
            let enabled = Nanos::from_millis(ms);
            Sample {
                enabled,
                end: enabled,
                core_type: CoreTypeId(core_type),
                ..row(thread(tid), Some(cpu))
            }
        };
        let rows = [
            ran(1, 0, 0, 10),
            ran(1, 1, 0, 30),
            ran(1, 2, 1, 5),
            ran(2, 0, 0, 40),
        ];
        rows.iter().for_each(|row| readings.push(*row, []));
        let of_rows: Vec<OfRow> = (0..)
            .zip([2.0, 1.0, 9.0, 3.0])
            .map(|(row, value)| OfRow {
                row,
                name: "sf",
                value,
            })
            .collect();
        belongings.sort(&[], &of_rows, &readings);
        let sum = |owner, cpu, core_type| Sample {
            core_type: CoreTypeId(core_type),
            ..row(owner, cpu)
        };
        let of = |row: &Sample| belongings.of("sf", row);
        assert_eq!(
            (of(&rows[0]), of(&rows[1]), of(&rows[2])),
            (Some(2.0), Some(1.0), Some(9.0))
        );
        assert_eq!(
            (
                of(&sum(thread(1), Some(1), 0)),
                of(&sum(thread(1), Some(2), 1))
            ),
            (Some(1.25), Some(9.0))
        );
        assert_eq!(
            (
                of(&sum(Owner::Process { pid: 1 }, None, 0)),
                of(&sum(Owner::Total, None, 1))
            ),
            (Some(2.125), Some(9.0))
        );
        assert_eq!(
            (
                of(&sum(Owner::Cpu, Some(0), 0)),
                of(&sum(thread(3), None, 0))
            ),
            (Some(2.8), None)
        );
        belongings.sort(&[], &[], &Samples::default());
        assert_eq!(
            belongings.of("sf", &rows[0]),
            None,
            "the next period has nothing to say"
        );
    }
}
