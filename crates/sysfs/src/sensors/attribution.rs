//! Energy of packages, attributed to threads.
//!
//! Input: energy of packages (powercap), busy time of their CPUs (`/proc/stat`), and run time of threads on them. Run times come
//! from counters for counted threads, and from the kernel for followed threads (`/proc/TID/schedstat`). Output: for each thread,
//! joules and its share of the energy of all packages.
//!
//! A package's energy, including that of its idle CPUs, is divided in proportion to run time on its CPUs. Clock frequency, core
//! type and energy per instruction are not distinguished. The energy of threads that are not followed is attributed to no
//! thread.

use std::collections::BTreeMap;
use std::path::Path;

use countersteer_model::units::{CpuId, Nanos};

use super::powercap::{self, Powercap};
use super::{Growing, Provider, ProviderDef, SensorColumn, SensorPlace, SensorValue, ValueKind};
use crate::procfs::Procfs;
use crate::unavailable::Unavailable;

pub(super) const DEF: ProviderDef = ProviderDef {
    name: "attribution",
    by_thread: true,
    prose: "energy of packages by thread, by its part of the time that their CPUs were busy (powercap)",
    columns: &[ENERGY, SHARE],
    open: |root| Attribution::open(root).map(|p| Box::new(p) as Box<dyn Provider>),
};

const ENERGY: SensorColumn = SensorColumn {
    name: "thread_energy_j",
    unit: "J",
    kind: ValueKind::Since,
    prose: "a thread's share of its packages' energy, by its part of the time that their CPUs were busy",
};
const SHARE: SensorColumn = SensorColumn {
    name: "energy_share_percent",
    unit: "%",
    kind: ValueKind::Level,
    prose: "the same as a part of the energy of all packages in the interval",
};

/// Ticks of `/proc/stat` per second, on every architecture.
const TICKS_PER_S: f64 = 100.0;

struct Attribution {
    proc: Procfs,
    packages: Powercap,
    /// Seconds for which each CPU was busy.
    busy: BTreeMap<CpuId, Growing>,
    /// Seconds by thread and CPU since the last sample.
    ran: BTreeMap<(u32, CpuId), f64>,
    /// Threads whose run time is read from /proc, unless run times come from counters.
    followed: BTreeMap<u32, Growing>,
    /// True if run times come from counters.
    counted: bool,
}

impl Attribution {
    fn open(root: &Path) -> Result<Self, Unavailable> {
        let packages = Powercap::open(root)?.of_packages().ok_or_else(|| {
            Unavailable::new(
                "no RAPL zone is a package's",
                "`energy_j` has the zones that there are",
            )
        })?;
        let busy = BTreeMap::new();
        let ran = BTreeMap::new();
        let followed = BTreeMap::new();
        Ok(Self {
            proc: Procfs::below(root),
            packages,
            busy,
            ran,
            followed,
            counted: false,
        })
    }

    /// Returns the seconds for which each CPU was busy since the last sample.
    fn busy(&mut self) -> BTreeMap<CpuId, f64> {
        let ticks = self.proc.busy_ticks().into_iter();
        let since = |(cpu, ticks): (CpuId, f64)| {
            let new = self.busy.entry(cpu).or_default().since(ticks, None)?;
            Some((cpu, new / TICKS_PER_S))
        };
        ticks.filter_map(since).collect()
    }

    /// Adds the run time of followed threads without counters.
    fn look_up(&mut self) {
        for (tid, total) in &mut self.followed {
            let ns = self.proc.sums(*tid).map(|sums| sums.ran_ns as f64);
            let cpu = self.proc.process_stat(*tid).map(|stat| stat.cpu);
            if let (Some(ns), Some(cpu)) = (ns.and_then(|ns| total.since(ns, None)), cpu) {
                *self.ran.entry((*tid, cpu)).or_default() += ns * 1e-9;
            }
        }
    }
}

impl Provider for Attribution {
    fn read(&mut self, into: &mut Vec<SensorValue>) {
        // The zones advance all the time: the values just read by another provider are the ones to divide.
        let mut zones: Vec<SensorValue> = into
            .iter()
            .filter(|v| powercap::is_package(v))
            .cloned()
            .collect();
        let mut own = Vec::new();
        self.packages.read(&mut own);
        if zones.is_empty() {
            zones = own;
        }
        let busy = self.busy();
        self.look_up();
        let ran = std::mem::take(&mut self.ran);
        let all_j: f64 = zones.iter().map(|z| z.value).sum();
        let mut of_threads: BTreeMap<u32, f64> = BTreeMap::new();
        for zone in &zones {
            let SensorPlace::Zone { cpus, .. } = &zone.place else {
                continue;
            };
            let inside = |cpu: &CpuId| cpus.as_ref().is_none_or(|cpus| cpus.contains(*cpu));
            let threads = || ran.iter().filter(|((_, cpu), _)| inside(cpu));
            let of_cpus: f64 = busy
                .iter()
                .filter(|(cpu, _)| inside(cpu))
                .map(|(_, s)| s)
                .sum();
            // The kernel's ticks are coarse; run times are more exact.
            let all_s = of_cpus.max(threads().map(|(_, s)| s).sum());
            for ((tid, _), s) in threads().filter(|(_, s)| **s > 0.0) {
                *of_threads.entry(*tid).or_default() += zone.value * s / all_s;
            }
        }
        for (tid, joules) in of_threads {
            let value = |column, value| SensorValue {
                column,
                place: SensorPlace::Thread(tid),
                value,
            };
            into.push(value(ENERGY, joules));
            into.extend((all_j > 0.0).then(|| value(SHARE, 100.0 * joules / all_j)));
        }
    }

    fn follow(&mut self, tid: u32) {
        if !self.counted {
            self.followed.entry(tid).or_default();
        }
    }

    fn leave(&mut self, tid: u32) {
        self.followed.remove(&tid);
    }

    fn ran(&mut self, tid: u32, cpu: CpuId, time: Nanos) {
        if !std::mem::replace(&mut self.counted, true) {
            self.followed.clear();
        }
        *self.ran.entry((tid, cpu)).or_default() += time.as_secs_f64();
    }
}

#[cfg(test)]
mod tests {
    use countersteer_fuzz::fake_root::write;

    use super::*;

    /// Writes two packages of two CPUs each, with their energy and the ticks of each CPU.
    fn machine(root: &Path, joules: [u32; 2], busy: [u32; 4]) {
        let cpus = "sys/devices/system/cpu";
        let stat: String = (0..)
            .zip(busy)
            .map(|(cpu, ticks)| format!("cpu{cpu} {ticks} 0 0 70 7 0 0 5 0 0\n"))
            .collect();
        write(
            root,
            &[(
                "proc/stat",
                &format!("cpu  9 9 9 9 9 9 9 9 9 9\n{stat}intr 5\n"),
            )],
        );
        for (nth, joules) in joules.iter().enumerate() {
            let zone = format!("sys/class/powercap/intel-rapl:{nth}");
            write(
                root,
                &[(&format!("{zone}/name"), &format!("package-{nth}"))],
            );
            write(
                root,
                &[(&format!("{zone}/energy_uj"), &format!("{joules}000000"))],
            );
            write(
                root,
                &[
                    (&format!("{zone}:0/name"), "core"),
                    (&format!("{zone}:0/energy_uj"), "5"),
                ],
            );
            for cpu in [2 * nth, 2 * nth + 1] {
                write(
                    root,
                    &[(
                        &format!("{cpus}/cpu{cpu}/topology/physical_package_id"),
                        &nth.to_string(),
                    )],
                );
            }
        }
    }

    fn read(own: &mut Attribution) -> Vec<(&'static str, SensorPlace, f64)> {
        let mut values = Vec::new();
        own.read(&mut values);
        values
            .into_iter()
            .map(|v| (v.column.name, v.place, v.value))
            .collect()
    }

    fn opened(root: &Path) -> Attribution {
        let mut own = Attribution::open(root).unwrap();
        assert_eq!(read(&mut own), []);
        own
    }

    #[test]
    fn energy_goes_by_the_part_of_the_time_that_the_packages_cpus_were_busy() {
        let root = tempfile::tempdir().unwrap();
        machine(root.path(), [1, 1], [0; 4]);
        let mut own = opened(root.path());
        own.ran(7, CpuId(0), Nanos::from_millis(300));
        own.ran(7, CpuId(2), Nanos::from_millis(500));
        own.ran(8, CpuId(1), Nanos::from_millis(100));
        // Of the first package's 80 ticks, half belong to no followed thread. The second's ticks are fewer than the run times.
        machine(root.path(), [9, 3], [50, 30, 20, 0]);
        let energy = "thread_energy_j";
        let share = "energy_share_percent";
        let of = |tid| (SensorPlace::Thread(tid), SensorPlace::Thread(tid));
        let ((a, b), (c, d)) = (of(7), of(8));
        assert_eq!(
            read(&mut own),
            [
                (energy, a, 5.0),
                (share, b, 50.0),
                (energy, c, 1.0),
                (share, d, 10.0)
            ]
        );
        machine(root.path(), [19, 13], [50, 30, 20, 0]);
        assert_eq!(read(&mut own), [], "no known thread ran");
    }

    #[test]
    fn threads_that_nobody_tells_of_are_looked_up() {
        let root = tempfile::tempdir().unwrap();
        machine(root.path(), [1, 1], [0; 4]);
        let ran = |ns: &str| {
            let after: Vec<String> = (4..53)
                .map(|field| if field == 39 { "3".into() } else { "0".into() })
                .collect();
            let stat = format!("7 (a) b (c)) S {}\n", after.join(" "));
            write(
                root.path(),
                &[("proc/7/schedstat", ns), ("proc/7/stat", &stat)],
            );
        };
        ran("1000000000 5 6\n");
        let mut own = opened(root.path());
        own.follow(7);
        assert_eq!(read(&mut own), []);
        ran("1500000000 5 6\n");
        machine(root.path(), [5, 5], [0, 0, 0, 100]);
        let thread = || SensorPlace::Thread(7);
        assert_eq!(
            read(&mut own),
            [
                ("thread_energy_j", thread(), 2.0),
                ("energy_share_percent", thread(), 25.0)
            ],
            "half of what the second package spent"
        );
        own.leave(7);
        ran("2500000000 5 6\n");
        machine(root.path(), [6, 6], [0, 0, 0, 200]);
        assert_eq!(read(&mut own), []);
    }

    #[test]
    fn what_was_read_of_packages_just_before_is_what_is_shared_out() {
        let root = tempfile::tempdir().unwrap();
        machine(root.path(), [1, 1], [0; 4]);
        let mut own = opened(root.path());
        own.ran(7, CpuId(0), Nanos::from_millis(100));
        let mut powercap = Powercap::open(root.path()).unwrap();
        powercap.read(&mut Vec::new());
        machine(root.path(), [9, 1], [10, 0, 0, 0]);
        let mut values = Vec::new();
        powercap.read(&mut values);
        machine(root.path(), [10, 1], [10, 0, 0, 0]);
        own.read(&mut values);
        let shared = values.iter().find(|v| v.column == ENERGY).map(|v| v.value);
        assert_eq!(
            shared,
            Some(8.0),
            "not what was spent between the two looks as well"
        );
    }
}
