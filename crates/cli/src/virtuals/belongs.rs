//! What of the virtual counters' values belongs to a row of readings.
//!
//! Input: the values of a period and its readings. Output: by name and row, one number. A thread's value is its own, and a
//! process has the sum of its threads'. A row of a CPU, or of a thread by the CPU it ran on last, has that CPU's clock and its
//! package's energy. What is the whole machine's is the machine's in every row.

use std::collections::HashMap;

use countersteer_core::counters::{Owner, Reading, Readings};
use countersteer_core::cpuset::CpuSet;
use countersteer_core::units::CpuId;
use countersteer_host::virtuals::Place;

use super::Named;

/// The values of a period, sorted by what they are about.
#[derive(Debug, Default)]
pub struct Belongings {
    columns: HashMap<&'static str, Column>,
    /// Processes of the threads that were ever read.
    pids: HashMap<u32, u32>,
}

#[derive(Debug, Default)]
struct Column {
    unit: &'static str,
    threads: HashMap<u32, f64>,
    processes: HashMap<u32, f64>,
    cpus: HashMap<u32, f64>,
    /// Of parts of the machine, with their CPUs where they are known, and of the machine itself.
    zones: Vec<(Option<CpuSet>, f64)>,
}

impl Belongings {
    /// Sorts the values of a period.
    pub fn sort(&mut self, values: &[Named], readings: &Readings) {
        self.columns.clear();
        for row in readings.rows() {
            if let Owner::Thread { pid, tid } = row.owner {
                self.pids.insert(tid, pid);
            }
        }
        for value in values {
            let column = self.columns.entry(value.name).or_default();
            column.unit = value.unit;
            match &value.place {
                Place::Machine => column.zones.push((None, value.value)),
                Place::Cpu(cpu) => drop(column.cpus.insert(cpu.0, value.value)),
                Place::Thread(tid) => {
                    column.threads.insert(*tid, value.value);
                    let pid = self.pids.get(tid).copied().unwrap_or(*tid);
                    *column.processes.entry(pid).or_insert(0.0) += value.value;
                }
                Place::Zone { name, cpus } if counts_once(value.name, name, values) => {
                    column.zones.push((cpus.as_deref().cloned(), value.value));
                }
                Place::Zone { .. } => {}
            }
        }
        for row in readings.rows().iter().filter(|row| row.last) {
            if let Owner::Thread { tid, .. } = row.owner {
                self.pids.remove(&tid);
            }
        }
    }

    /// The value that belongs to a row.
    pub fn of(&self, name: &str, row: &Reading) -> Option<f64> {
        let column = self.columns.get(name)?;
        if !column.threads.is_empty() {
            return match row.owner {
                Owner::Thread { tid, .. } => column.threads.get(&tid).copied(),
                Owner::Process { pid } => column.processes.get(&pid).copied(),
                Owner::Total => Some(column.threads.values().sum()),
                Owner::Rest | Owner::Cpu => None,
            };
        }
        if !column.cpus.is_empty() {
            return match row.cpu {
                Some(cpu) => column.cpus.get(&cpu.0).copied(),
                None => together(column.unit, column.cpus.values().copied()),
            };
        }
        let near = |cpu: CpuId| move |zone: &&(Option<CpuSet>, f64)| zone.0.as_ref().is_none_or(|c| c.contains(cpu));
        match row.cpu {
            Some(cpu) => together(column.unit, column.zones.iter().filter(near(cpu)).map(|z| z.1)),
            None => together(column.unit, column.zones.iter().map(|z| z.1)),
        }
    }
}

/// Whether a zone's energy is in no other zone that there is: packages, without their parts and what stands around them.
fn counts_once(name: &str, zone: &str, values: &[Named]) -> bool {
    let is_package = |zone: &str| zone.starts_with("package-") && !zone.contains('/');
    let packages = |v: &Named| v.name == name && matches!(&v.place, Place::Zone { name, .. } if is_package(name));
    name != "energy_j" || is_package(zone) || !values.iter().any(packages) && !zone.contains('/')
}

/// Several values as one: the highest temperature, the mean clock, the sum of what can be added up.
fn together(unit: &str, values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut n, mut sum, mut most) = (0, 0.0, f64::NEG_INFINITY);
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
        Named { name: "energy_j", unit: "J", place: Place::Zone { name: name.into(), cpus }, value }
    }

    fn row(owner: Owner, cpu: Option<u32>) -> Reading {
        Reading::new(owner, cpu.map(CpuId), 0, 0)
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
        belongings.sort(&values, &Readings::default());
        let thread = Owner::Thread { pid: 1, tid: 1 };
        let of = |owner, cpu| belongings.of("energy_j", &row(owner, cpu));
        assert_eq!([of(thread, Some(1)), of(Owner::Cpu, Some(2)), of(Owner::Total, None)], [2.0, 4.0, 6.0].map(Some));
        assert_eq!(belongings.of("temperature_c", &row(thread, None)), None);
    }

    #[test]
    fn a_process_has_what_its_threads_have() {
        let mut belongings = Belongings::default();
        let held = |tid, value| Named { name: "llc_occupancy_bytes", unit: "B", place: Place::Thread(tid), value };
        let mut readings = Readings::default();
        for (pid, tid) in [(1, 1), (1, 2), (3, 3)] {
            readings.push(row(Owner::Thread { pid, tid }, None), []);
        }
        belongings.sort(&[held(1, 10.0), held(2, 5.0), held(3, 1.0)], &readings);
        let of = |owner| belongings.of("llc_occupancy_bytes", &row(owner, None));
        assert_eq!(of(Owner::Thread { pid: 1, tid: 2 }), Some(5.0));
        assert_eq!((of(Owner::Process { pid: 1 }), of(Owner::Total)), (Some(15.0), Some(16.0)));
        assert_eq!((of(Owner::Thread { pid: 1, tid: 9 }), of(Owner::Rest)), (None, None));
    }
}
