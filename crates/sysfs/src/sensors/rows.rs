//! Assignment of virtual counters' values to rows of samples.
//!
//! Input: the rows of an interval, and values. Output: one number by counter and row. A process has the sum over its threads. A
//! level is that of each row of its thread or process. A difference since the last interval is divided among these rows by run time. A row with a CPU has that CPU's clock frequency and the energy of the CPU's package. A thread's row has the CPU
//! on which the thread last ran. Every row has the values of the whole machine.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::sample::{Owner, Sample};
use countersteer_model::units::{CpuId, Nanos};

use super::{SensorColumn, SensorPlace, SensorSet, SensorValue, ValueKind};
use crate::unavailable::Unavailable;

/// Virtual counters whose values are joined to rows of samples.
#[derive(Debug, Default)]
pub struct SensorRows {
    sensors: SensorSet,
    /// Sampled threads, by TID.
    threads: BTreeMap<u32, SampledThread>,
    /// Run time and number of rows in the interval, by thread, process and in total.
    ran: HashMap<Owner, (Nanos, u32)>,
    /// Values of the interval, by counter name.
    columns: HashMap<&'static str, ColumnValues>,
}

#[derive(Debug, Default)]
struct SampledThread {
    pid: u32,
    /// True while the virtual counters observe the thread.
    followed: bool,
    ended: bool,
}

#[derive(Debug)]
struct ColumnValues {
    column: SensorColumn,
    threads: HashMap<u32, f64>,
    processes: HashMap<u32, f64>,
    cpus: HashMap<u32, f64>,
    /// Values of zones (e.g. packages), with the CPUs of each zone. The CPUs are `None` if unknown, and for the whole machine.
    zones: Vec<(Option<CpuSet>, f64)>,
}

impl SensorRows {
    /// Opens virtual counters, see [`SensorSet::open`].
    ///
    /// # Errors
    /// Fails if a name is unknown, or if this machine has no values for it.
    pub fn open(root: &Path, names: &[&str]) -> Result<Self, Unavailable> {
        Ok(Self {
            sensors: SensorSet::open(root, names)?,
            ..Self::default()
        })
    }

    /// True if no virtual counters are open.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.sensors.is_empty()
    }

    /// Begins the next interval with its rows. All values of the former interval are dropped.
    pub fn begin(&mut self, rows: &[Sample]) {
        self.columns.clear();
        self.ran.clear();
        self.threads.retain(|_, t| t.followed || !t.ended);
        for row in rows {
            if let Owner::Thread { pid, tid } = row.owner {
                let thread = self.threads.entry(tid).or_default();
                thread.pid = pid;
                thread.ended |= row.last;
                for owner in [row.owner, Owner::Process { pid }, Owner::Total] {
                    let (ran, rows) = self.ran.entry(owner).or_default();
                    *ran += row.ran();
                    *rows += 1;
                }
            }
        }
    }

    /// Begins the next interval with its rows, and reads all counters at its end. From then on, new threads of the rows are
    /// followed until their last row, or until `is_alive` is false for them. `os_cpu` returns the kernel's number of a row's CPU.
    pub fn read(
        &mut self,
        rows: &[Sample],
        os_cpu: impl Fn(CpuId) -> Option<CpuId>,
        is_alive: impl Fn(u32) -> bool,
    ) -> Vec<SensorValue> {
        self.begin(rows);
        for row in rows {
            if let (Some(thread), Some(cpu)) = (row.thread(), row.cpu.and_then(&os_cpu)) {
                self.sensors.ran(thread.0, cpu, row.ran());
            }
        }
        let values = self.sensors.read().to_vec();
        self.add(&values);
        for (tid, thread) in &mut self.threads {
            thread.ended |= !is_alive(*tid);
            if thread.ended && std::mem::take(&mut thread.followed) {
                self.sensors.leave(*tid);
            }
        }
        // Threads that have ended have made room for new ones.
        for (tid, thread) in &mut self.threads {
            if !thread.ended && !std::mem::replace(&mut thread.followed, true) {
                self.sensors.follow(*tid);
            }
        }
        values
    }

    /// Adds values of the interval; those of [`Self::read`] are added already.
    pub fn add(&mut self, values: &[SensorValue]) {
        for value in values {
            let column = value.column;
            let of = self.columns.entry(column.name).or_insert(ColumnValues {
                column,
                threads: HashMap::new(),
                processes: HashMap::new(),
                cpus: HashMap::new(),
                zones: Vec::new(),
            });
            match &value.place {
                SensorPlace::Machine => of.zones.push((None, value.value)),
                SensorPlace::Cpu(cpu) => drop(of.cpus.insert(cpu.0, value.value)),
                SensorPlace::Thread(tid) => {
                    of.threads.insert(*tid, value.value);
                    let pid = self.threads.get(tid).map_or(*tid, |thread| thread.pid);
                    let of_process = of.processes.entry(pid).or_insert(0.0);
                    *of_process = joined(column.unit, *of_process, value.value);
                }
                SensorPlace::Zone { name, cpus } if counts_once(column.name, name, values) => {
                    of.zones.push((cpus.as_deref().cloned(), value.value));
                }
                SensorPlace::Zone { .. } => {}
            }
        }
    }

    /// Returns the value of a counter for a row of the interval, or for a sum of rows; `None` if the row has none.
    #[must_use]
    pub fn of(&self, name: &str, row: &Sample) -> Option<f64> {
        let values = self.columns.get(name)?;
        if !values.threads.is_empty() {
            return self.of_threads(values, row);
        }
        let unit = values.column.unit;
        let Some(cpu) = row.cpu else {
            let zones = values.zones.iter().map(|zone| zone.1);
            return together(unit, values.cpus.values().copied().chain(zones));
        };
        if !values.cpus.is_empty() {
            return values.cpus.get(&cpu.0).copied();
        }
        let is_near = |cpus: &Option<CpuSet>| cpus.as_ref().is_none_or(|c| c.contains(cpu));
        let zones = values.zones.iter().filter(|(cpus, _)| is_near(cpus));
        together(unit, zones.map(|zone| zone.1))
    }

    fn of_threads(&self, values: &ColumnValues, row: &Sample) -> Option<f64> {
        let value = match row.owner {
            Owner::Thread { tid, .. } => *values.threads.get(&tid)?,
            Owner::Process { pid } => *values.processes.get(&pid)?,
            Owner::Total => {
                let threads = values.threads.values();
                threads.fold(0.0, |all, value| joined(values.column.unit, all, *value))
            }
            Owner::Rest | Owner::Cpu => return None,
        };
        Some(match values.column.kind {
            ValueKind::Since => value * self.part(row),
            ValueKind::Level => value,
        })
    }

    /// Returns the part of its owner's run time that is in a row. Rows of a thread that did not run have equal parts.
    fn part(&self, row: &Sample) -> f64 {
        match self.ran.get(&row.owner) {
            Some((ran, _)) if *ran > Nanos::ZERO => row.ran().0 as f64 / ran.0 as f64,
            Some((_, rows)) if row.thread().is_some() => 1.0 / f64::from(*rows),
            _ => 1.0,
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

/// Returns true if a zone's energy may be added to that of other zones. If there are packages, only these count: subzones are
/// contained in them, and larger zones contain them.
fn counts_once(name: &str, zone: &str, values: &[SensorValue]) -> bool {
    let is_package = |zone: &str| zone.starts_with("package-") && !zone.contains('/');
    let packages = |v: &SensorValue| {
        v.column.name == name
            && matches!(&v.place, SensorPlace::Zone { name, .. } if is_package(name))
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
    use std::sync::Arc;

    use countersteer_fuzz::fake_root::write;
    use countersteer_model::units::CoreTypeId;

    use super::super::column_of;
    use super::*;

    fn value(name: &str, place: SensorPlace, value: f64) -> SensorValue {
        let (_, column) = column_of(name).unwrap();
        SensorValue {
            column: *column,
            place,
            value,
        }
    }

    fn row(owner: Owner, cpu: Option<u32>) -> Sample {
        Sample::new(owner, cpu.map(CpuId), CoreTypeId(0), 0)
    }

    fn thread(pid: u32, tid: u32, ms: u64) -> Sample {
        Sample {
            enabled: Nanos::from_millis(ms),
            ..row(Owner::Thread { pid, tid }, None)
        }
    }

    /// Joins the values of threads for one counter to rows.
    fn joined_to(rows: &[Sample], name: &str, values: &[(u32, f64)]) -> SensorRows {
        let mut joined = SensorRows::default();
        joined.begin(rows);
        let of_thread = |(tid, v): &(u32, f64)| value(name, SensorPlace::Thread(*tid), *v);
        joined.add(&values.iter().map(of_thread).collect::<Vec<_>>());
        joined
    }

    #[test]
    fn energy_is_that_of_the_rows_package_and_counts_once() {
        let mut joined = SensorRows::default();
        let zone = |name: &str, cpus: Option<&str>, joules| {
            let cpus = cpus.map(|c| Arc::new(c.parse().unwrap()));
            let name = name.into();
            value("energy_j", SensorPlace::Zone { name, cpus }, joules)
        };
        joined.begin(&[]);
        joined.add(&[
            zone("package-0", Some("0-1"), 2.0),
            zone("package-0/core", Some("0-1"), 1.5),
            zone("package-1", Some("2-3"), 4.0),
            zone("psys", None, 9.0),
        ]);
        let thread = Owner::Thread { pid: 1, tid: 1 };
        let of = |owner, cpu| joined.of("energy_j", &row(owner, cpu));
        assert_eq!(
            [
                of(thread, Some(1)),
                of(Owner::Cpu, Some(2)),
                of(Owner::Total, None)
            ],
            [2.0, 4.0, 6.0].map(Some)
        );
        assert_eq!(joined.of("temperature_c", &row(thread, None)), None);
    }

    #[test]
    fn a_process_has_what_its_threads_have() {
        let rows = [(1, 1), (1, 2), (3, 3)].map(|(pid, tid)| thread(pid, tid, 0));
        let name = "llc_occupancy_bytes";
        let held = joined_to(&rows, name, &[(1, 10.0), (2, 5.0), (3, 1.0)]);
        let of = |owner| held.of(name, &row(owner, None));
        assert_eq!(of(Owner::Thread { pid: 1, tid: 2 }), Some(5.0));
        assert_eq!(
            (of(Owner::Process { pid: 1 }), of(Owner::Total)),
            (Some(15.0), Some(16.0))
        );
        assert_eq!(
            (of(Owner::Thread { pid: 1, tid: 9 }), of(Owner::Rest)),
            (None, None)
        );
        let name = "runqueue_wait_mean_us";
        let mean = joined_to(&rows, name, &[(1, 30.0), (2, 50.0)]);
        let of = |owner| mean.of(name, &row(owner, None));
        assert_eq!(
            (of(Owner::Process { pid: 1 }), of(Owner::Total)),
            (Some(50.0), Some(50.0))
        );
    }

    #[test]
    fn a_threads_energy_is_divided_among_its_rows_by_time_and_a_level_is_not() {
        let rows = [thread(1, 7, 30), thread(1, 7, 10), thread(1, 8, 5)];
        let spent = joined_to(&rows, "thread_energy_j", &[(7, 8.0), (8, 1.0)]);
        let of = |row: &Sample| spent.of("thread_energy_j", row);
        assert_eq!(rows.map(|row| of(&row)), [6.0, 2.0, 1.0].map(Some));
        assert_eq!(of(&thread(1, 7, 40)), Some(8.0), "a sum of both rows");
        let process = |ms| Sample {
            owner: Owner::Process { pid: 1 },
            ..thread(1, 0, ms)
        };
        assert_eq!([45, 15].map(|ms| of(&process(ms))), [9.0, 3.0].map(Some));
        let total = Sample {
            owner: Owner::Total,
            ..process(30)
        };
        assert_eq!(of(&total), Some(6.0));
        let share = joined_to(&rows, "energy_share_percent", &[(7, 80.0)]);
        let of = |row: &Sample| share.of("energy_share_percent", row);
        assert_eq!(rows.map(|row| of(&row)), [Some(80.0), Some(80.0), None]);
        let asleep = [thread(1, 7, 0), thread(1, 7, 0)];
        let waited = joined_to(&asleep, "runqueue_wait_ms", &[(7, 3.0)]);
        let of = |row: &Sample| waited.of("runqueue_wait_ms", row);
        assert_eq!(asleep.map(|row| of(&row)), [Some(1.5), Some(1.5)]);
    }

    #[test]
    fn threads_are_followed_from_their_first_row_to_their_last_or_until_they_leave() {
        let root = tempfile::tempdir().unwrap();
        let waited = |tid: u32, ns: u32| {
            let path = format!("proc/{tid}/schedstat");
            write(root.path(), &[(&path, &format!("0 {ns}000000 1"))]);
        };
        write(root.path(), &[("proc/self/schedstat", "1 1 1")]);
        (7..10).for_each(|tid| waited(tid, 1));
        let mut joined = SensorRows::open(root.path(), &["runqueue_wait_ms"]).unwrap();
        let mut read = |rows: &[Sample], gone: u32| {
            let mut values = joined.read(rows, Some, |tid| tid != gone);
            values.sort_by(|a, b| a.place.cmp(&b.place));
            let known = |v: SensorValue| (v.place, v.value);
            values.into_iter().map(known).collect::<Vec<_>>()
        };
        let rows = [7, 8, 9].map(|tid| thread(1, tid, 1));
        assert_eq!(read(&rows, 0), [], "they are new");
        (7..10).for_each(|tid| waited(tid, 3));
        let mut last = rows;
        last[0].last = true;
        let all = [7, 8, 9].map(|tid| (SensorPlace::Thread(tid), 2.0));
        assert_eq!(read(&last, 8), all, "the last values are read");
        waited(9, 4);
        assert_eq!(read(&[], 0), [(SensorPlace::Thread(9), 1.0)]);
    }
}
