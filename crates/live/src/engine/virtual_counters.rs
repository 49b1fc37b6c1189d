//! Virtual counters of threads for policies: energy, and occupancy of the last-level caches.
//!
//! Input: observations, and the metrics that are read. Output: the same observations, with these events in their samples. The
//! values come from [`countersteer_sysfs::sensors`] with any placer, and are read only while a metric needs them.
//!
//! A thread's energy is divided among its samples by time. Its current occupancy is in its last sample. A thread without a
//! sample did not run, and has neither. Threads are observed from their first sample on.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use countersteer_model::cpunumbers::CpuNumbers;
use countersteer_model::engine::Observation;
use countersteer_model::events::{EVENTS, Event, EventOrigin};
use countersteer_model::metric::events_of;

use countersteer_sysfs::sensors::{SensorColumn, SensorRows, SensorSet, ValueKind, column_of};
use countersteer_sysfs::unavailable::Unavailable;

/// Event whose values come from a virtual counter.
#[derive(Clone, Copy, PartialEq)]
struct VirtualCounter {
    event: Event,
    column: &'static SensorColumn,
    /// Number of event units per unit of the virtual counter.
    units: f64,
}

/// Iterates over the events of the event table that are virtual counters.
fn virtual_counters() -> impl Iterator<Item = VirtualCounter> {
    EVENTS.iter().filter_map(|row| match row.source {
        EventOrigin::Virtual { counter, factor } => Some(VirtualCounter {
            event: row.event,
            column: column_of(counter)?.1,
            units: factor as f64,
        }),
        _ => None,
    })
}

/// Reader of the virtual counters of all steered threads.
pub struct VirtualCounters {
    root: PathBuf,
    numbers: CpuNumbers,
    wanted: Vec<VirtualCounter>,
    sensors: SensorRows,
}

impl VirtualCounters {
    /// Creates a reader of the virtual counters that these metrics need and the machine has. `root` is the root directory of
    /// its file systems.
    #[must_use]
    pub fn new(root: &Path, numbers: CpuNumbers, metrics: &[&str]) -> Self {
        let mut counters = Self {
            root: root.to_owned(),
            numbers,
            wanted: Vec::new(),
            sensors: SensorRows::default(),
        };
        counters.turn_to(metrics);
        counters
    }

    /// Checks that a virtual counter can be read on the machine whose file systems are below `root`.
    ///
    /// # Errors
    /// Fails with the missing interface.
    pub fn offers(root: &Path, event: Event) -> Result<(), Unavailable> {
        let Some(counter) = virtual_counters().find(|g| g.event == event) else {
            let why = format!("no virtual counter is `{event}`");
            return Err(Unavailable {
                why,
                remedy: "another parameter of the policy may do without".into(),
            });
        };
        SensorSet::open(root, &[counter.column.name]).map(drop)
    }

    /// Opens the virtual counters that these metrics need, and closes the others.
    pub(super) fn turn_to(&mut self, metrics: &[&str]) {
        let events = events_of(metrics);
        let offered = |g: &VirtualCounter| {
            events.contains(&g.event) && Self::offers(&self.root, g.event).is_ok()
        };
        let wanted: Vec<VirtualCounter> = virtual_counters().filter(offered).collect();
        if wanted == self.wanted {
            return;
        }
        let columns: Vec<&str> = wanted.iter().map(|g| g.column.name).collect();
        // The old sensors are closed first, so that they release their resctrl groups.
        self.sensors = SensorRows::default();
        self.sensors = SensorRows::open(&self.root, &columns).unwrap_or_default();
        self.wanted = wanted;
    }

    /// Adds energy and occupancy to the samples of an observation.
    pub(super) fn read(&mut self, seen: &mut Observation) {
        if self.sensors.is_empty() {
            return;
        }
        let alive: BTreeSet<u32> = seen.threads.iter().map(|t| t.id.0).collect();
        let numbers = &self.numbers;
        let is_alive = |tid| alive.contains(&tid);
        self.sensors
            .read(seen.samples.rows(), |cpu| numbers.os(cpu), is_alive);
        // The loop runs backwards, so that the last sample of each thread comes first.
        let mut last_seen = BTreeSet::new();
        for row in (0..seen.samples.len()).rev() {
            let sample = seen.samples.rows()[row];
            let is_last = last_seen.insert(sample.owner);
            for counter in &self.wanted {
                // A level is that at the end of the interval, where only the last sample ends.
                if is_last || counter.column.kind == ValueKind::Since {
                    let value = self.sensors.of(counter.column.name, &sample);
                    if let Some(value) = value {
                        seen.samples.set(row, counter.event, value * counter.units);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use countersteer_fuzz::fake_root::write;
    use countersteer_model::engine::ThreadInfo;
    use countersteer_model::sample::{Sample, Samples};
    use countersteer_model::units::{CoreTypeId, CpuId, Nanos, ThreadId};

    use super::*;

    fn thread(id: u32) -> ThreadInfo {
        let name = "p".into();
        let allowed = Arc::default();
        let cpu = CpuId(0);
        let id = ThreadId(id);
        let program = Default::default();
        let nice = 0;
        let hint = None;
        ThreadInfo {
            id,
            program,
            name,
            cpu,
            runnable: true,
            nice,
            allowed,
            hint,
        }
    }

    fn sample(id: u32, core_type: u32, ms: u64) -> Samples {
        let (thread, core_type, ran) =
            (ThreadId(id), CoreTypeId(core_type), Nanos::from_millis(ms));
        let sample = Sample::of_thread(thread, CpuId(0), core_type, Nanos(ms), ran);
        Samples::of(sample, 1, &[])
    }

    /// Thread 7, which ran on two core types, and thread 8, which slept.
    fn observed() -> Observation {
        let samples = [sample(7, 0, 30), sample(7, 1, 10)].into_iter().collect();
        Observation {
            threads: vec![thread(7), thread(8)],
            samples,
            ..Observation::default()
        }
    }

    fn read(counters: &mut VirtualCounters, event: Event) -> Vec<Option<f64>> {
        let mut seen = observed();
        counters.read(&mut seen);
        seen.samples.iter().map(|s| s.counts.get(event)).collect()
    }

    #[test]
    fn energy_is_shared_by_time_among_a_threads_samples() {
        let root = tempfile::tempdir().unwrap();
        let machine = |uj: &str, busy: &str| {
            let zone = "sys/class/powercap/intel-rapl:0";
            let stat = format!("cpu0 {busy} 0 0 70 7 0 0 5 0 0\n");
            let package = "sys/devices/system/cpu/cpu0/topology/physical_package_id";
            write(
                root.path(),
                &[
                    (&format!("{zone}/name"), "package-0"),
                    (&format!("{zone}/energy_uj"), uj),
                ],
            );
            write(root.path(), &[("proc/stat", &stat), (package, "0")]);
        };
        machine("1000000", "0");
        let numbers = CpuNumbers::new(vec![CpuId(0)]);
        let mut counters = VirtualCounters::new(root.path(), numbers, &["power", "ipc"]);
        machine("5000000", "4");
        let joules = read(&mut counters, Event::EnergyNj)
            .into_iter()
            .map(|nj| (nj.unwrap() / 1e9).round());
        assert!(joules.eq([3.0, 1.0]));
        counters.turn_to(&["ipc"]);
        machine("9000000", "8");
        assert_eq!(
            read(&mut counters, Event::EnergyNj),
            [None, None],
            "it is no longer requested"
        );
    }

    #[test]
    fn what_is_held_stands_in_the_last_sample_as_long_as_somebody_reads_it() {
        let root = tempfile::tempdir().unwrap();
        let groups = root.path().join("sys/fs/resctrl/mon_groups");
        write(
            root.path(),
            &[("sys/fs/resctrl/info/L3_MON/mon_features", "llc_occupancy\n")],
        );
        std::fs::create_dir_all(&groups).unwrap();
        assert!(VirtualCounters::offers(root.path(), Event::EnergyNj).is_err());
        assert!(VirtualCounters::offers(root.path(), Event::SfTrue).is_err());
        let mut counters = VirtualCounters::new(
            root.path(),
            CpuNumbers::new(vec![CpuId(0)]),
            &["llc_occupancy", "power"],
        );
        assert_eq!(
            read(&mut counters, Event::LlcOccupancyBytes),
            [None, None],
            "the kernel has no number yet"
        );
        let of = |tid: &str| {
            let group = |g: &PathBuf| {
                std::fs::read_to_string(g.join("tasks")).is_ok_and(|tasks| tasks.trim() == tid)
            };
            std::fs::read_dir(&groups)
                .unwrap()
                .map(|g| g.unwrap().path())
                .find(group)
                .unwrap()
        };
        write(&of("7"), &[("mon_data/mon_L3_00/llc_occupancy", "4096")]);
        assert_eq!(
            read(&mut counters, Event::LlcOccupancyBytes),
            [None, Some(4096.0)]
        );
    }
}
