//! Occupancy of the last-level cache and memory traffic by thread, through resctrl's monitoring groups.
//!
//! Input: followed threads. Output: bytes held and moved per thread, summed over the machine's caches.
//!
//! The hardware distinguishes a limited number of groups at once (RMIDs). Each followed thread has a group. A free group is
//! reused as late as possible, because cache lines of its former thread count for it until they are evicted. If no group is
//! left, the thread that was followed for longest loses its group. Group names contain this process's PID. The groups are
//! removed when the provider is dropped; the next start removes those of a killed process.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};

use super::{Growing, Provider, ProviderDef, SensorColumn, SensorPlace, SensorValue, ValueKind};
use crate::procfs::Procfs;
use crate::resctrl::{self, Resctrl};
use crate::unavailable::Unavailable;

pub(super) const DEF: ProviderDef = ProviderDef {
    name: "resctrl",
    by_thread: true,
    prose: "last-level cache occupancy and memory traffic by thread (resctrl monitoring)",
    columns: &[OCCUPANCY, TRAFFIC, LOCAL_TRAFFIC],
    open: |root| {
        Monitoring::open(root, Resctrl::at(root)).map(|p| Box::new(p) as Box<dyn Provider>)
    },
};

const OCCUPANCY: SensorColumn = SensorColumn {
    name: "llc_occupancy_bytes",
    unit: "B",
    kind: ValueKind::Level,
    prose: "bytes a thread holds in last-level caches",
};
const TRAFFIC: SensorColumn = SensorColumn {
    name: "memory_traffic_bytes",
    unit: "B",
    kind: ValueKind::Since,
    prose: "bytes moved between last-level caches and memory for a thread",
};
const LOCAL_TRAFFIC: SensorColumn = SensorColumn {
    name: "memory_local_traffic_bytes",
    unit: "B",
    kind: ValueKind::Since,
    prose: "the part of a thread's memory traffic that stayed on its node",
};

/// Files of a cache's folder, their columns, and the kernel's names of the features.
static FILES: &[(&str, &SensorColumn)] = &[
    ("llc_occupancy", &OCCUPANCY),
    ("mbm_total_bytes", &TRAFFIC),
    ("mbm_local_bytes", &LOCAL_TRAFFIC),
];

struct MonitorGroup {
    path: PathBuf,
    totals: Vec<Growing>,
}

struct Monitoring {
    resctrl: Resctrl,
    proc: Procfs,
    of: HashMap<u32, MonitorGroup>,
    /// Followed threads; the one followed for longest comes first.
    order: VecDeque<u32>,
    /// Groups without a thread; the one free for longest comes first.
    free: VecDeque<PathBuf>,
    exhausted: bool,
}

impl Monitoring {
    fn open(root: &Path, mut resctrl: Resctrl) -> Result<Self, Unavailable> {
        resctrl.monitors(|name| FILES.iter().any(|(file, _)| *file == name))?;
        resctrl.remove_stale();
        let mut own = Self {
            resctrl,
            proc: Procfs::below(root),
            of: HashMap::new(),
            order: VecDeque::new(),
            free: VecDeque::new(),
            exhausted: false,
        };
        // The first group is made now, so that an error appears at once and not at the first thread.
        let first = own.make()?;
        own.free.push_back(first);
        Ok(own)
    }

    fn make(&mut self) -> Result<PathBuf, Unavailable> {
        let path = self.resctrl.another_monitoring_group();
        self.resctrl.make(&path)?;
        Ok(path)
    }

    /// Finds a group for another thread, as a last resort another thread's.
    fn find(&mut self) -> Option<PathBuf> {
        // New groups come first. A group that was free for long has lost most of its former thread's lines.
        if !self.exhausted {
            match self.make() {
                Ok(path) => return Some(path),
                Err(_) => self.exhausted = true,
            }
        }
        if let Some(path) = self.free.pop_front() {
            return Some(path);
        }
        let longest = self.order.pop_front()?;
        self.of.remove(&longest).map(|g| g.path)
    }
}

impl Provider for Monitoring {
    fn read(&mut self, into: &mut Vec<SensorValue>) {
        // A thread that was moved into another control group is no longer counted here; the occupancy of its group decays. A
        // thread that has exited is in no group, and its values count.
        let has = |group: &MonitorGroup, tid: &u32| resctrl::tasks(&group.path).contains(tid);
        let is_there = |tid: &u32| self.of.get(tid).is_some_and(|group| has(group, tid));
        let is_moved = |tid: &u32| !is_there(tid) && self.proc.has(*tid);
        for moved in self
            .order
            .iter()
            .copied()
            .filter(is_moved)
            .collect::<Vec<_>>()
        {
            self.leave(moved);
        }
        for tid in &self.order {
            let Some(group) = self.of.get_mut(tid) else {
                continue;
            };
            for ((file, column), total) in FILES.iter().zip(&mut group.totals) {
                let sum = resctrl::monitored(&group.path, file).map(|sum| sum as f64);
                let value = match column.kind {
                    ValueKind::Level => sum,
                    ValueKind::Since => sum.and_then(|s| total.since(s, None)),
                };
                into.extend(value.map(|value| SensorValue {
                    column: **column,
                    place: SensorPlace::Thread(*tid),
                    value,
                }));
            }
        }
    }

    fn follow(&mut self, tid: u32) {
        if self.of.contains_key(&tid) {
            return;
        }
        let Some(path) = self.find() else { return };
        if !self.resctrl.assign(&path, tid).is_ok_and(|lives| lives) {
            self.free.push_back(path);
            return;
        }
        self.of.insert(
            tid,
            MonitorGroup {
                path,
                totals: vec![Growing::default(); FILES.len()],
            },
        );
        self.order.push_back(tid);
    }

    fn leave(&mut self, tid: u32) {
        if let Some(group) = self.of.remove(&tid) {
            self.order.retain(|t| *t != tid);
            self.free.push_back(group.path);
        }
    }
}

impl Drop for Monitoring {
    fn drop(&mut self) {
        let paths = self
            .free
            .drain(..)
            .chain(self.of.drain().map(|(_, g)| g.path));
        for path in paths {
            // Its threads return to the group they came from.
            let _ = self.resctrl.remove(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use countersteer_fuzz::fake_root::write;

    use super::*;
    use crate::files::{folders, name};
    use crate::resctrl::testing::Pretend;

    const GROUPS: &str = "sys/fs/resctrl/mon_groups";

    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let features = "sys/fs/resctrl/info/L3_MON/mon_features";
        write(
            root.path(),
            &[
                (features, "llc_occupancy\nmbm_total_bytes\n"),
                ("proc/1/comm", "init"),
            ],
        );
        std::fs::create_dir_all(root.path().join(GROUPS)).unwrap();
        root
    }

    fn open(root: &tempfile::TempDir, kernel: Pretend) -> Monitoring {
        let resctrl = Resctrl::over(root.path(), Box::new(kernel));
        Monitoring::open(root.path(), resctrl).unwrap()
    }

    /// Returns the group into which a thread was moved last.
    fn group_of(root: &Path, tid: u32) -> Option<PathBuf> {
        folders(&root.join(GROUPS))
            .into_iter()
            .find(|g| resctrl::tasks(g).last() == Some(&tid))
    }

    #[test]
    fn a_thread_has_the_sum_over_the_caches() {
        let root = machine();
        let mut resctrl = open(&root, Pretend::new(8));
        resctrl.follow(70);
        let group = group_of(root.path(), 70).unwrap();
        let traffic = |bytes: &str| write(&group, &[("mon_data/mon_L3_01/mbm_total_bytes", bytes)]);
        write(
            &group,
            &[
                ("mon_data/mon_L3_00/llc_occupancy", "4096"),
                ("mon_data/mon_L3_01/llc_occupancy", "8192"),
            ],
        );
        traffic("1000");
        write(
            &group,
            &[("mon_data/mon_L3_00/mbm_total_bytes", "Unavailable")],
        );
        let mut values = Vec::new();
        resctrl.read(&mut values);
        traffic("1500");
        resctrl.read(&mut values);
        let seen: Vec<_> = values.iter().map(|v| (v.column.name, v.value)).collect();
        let held = ("llc_occupancy_bytes", 12288.0);
        assert_eq!(seen, [held, held, ("memory_traffic_bytes", 500.0)]);
    }

    #[test]
    fn a_thread_that_was_put_elsewhere_holds_nothing_that_is_known() {
        let root = machine();
        let mut resctrl = open(&root, Pretend::new(2));
        resctrl.follow(70);
        let group = group_of(root.path(), 70).unwrap();
        write(
            &group,
            &[("mon_data/mon_L3_00/llc_occupancy", "4096"), ("tasks", "")],
        );
        let read = |resctrl: &mut Monitoring| {
            let mut values = Vec::new();
            resctrl.read(&mut values);
            values.len()
        };
        assert_eq!(read(&mut resctrl), 1, "it has ended, and held so much");
        write(root.path(), &[("proc/70/comm", "p")]);
        assert_eq!(read(&mut resctrl), 0);
        resctrl.follow(71);
        resctrl.follow(72);
        assert!(
            group_of(root.path(), 71).is_some() && group_of(root.path(), 72).is_some(),
            "its group is free"
        );
    }

    #[test]
    fn without_numbers_left_the_longest_followed_gives_up_its_own() {
        let root = machine();
        let mut resctrl = open(&root, Pretend::new(2));
        resctrl.follow(1);
        resctrl.follow(2);
        let first = group_of(root.path(), 1).unwrap();
        let second = group_of(root.path(), 2).unwrap();
        resctrl.follow(3);
        assert_eq!(
            (group_of(root.path(), 3), group_of(root.path(), 2)),
            (Some(first.clone()), Some(second.clone()))
        );
        resctrl.leave(2);
        resctrl.leave(3);
        resctrl.follow(4);
        assert_eq!(
            group_of(root.path(), 4),
            Some(second),
            "the one that was free for longest"
        );
    }

    #[test]
    fn groups_are_removed_at_the_end_and_those_of_the_dead_at_the_start() {
        let root = machine();
        let kernel = Pretend::new(8);
        let dead = "countersteer-4194305-0";
        let living = "countersteer-1-0";
        let foreign = "somebody";
        for group in [dead, living, foreign] {
            std::fs::create_dir(root.path().join(GROUPS).join(group)).unwrap();
        }
        let mut resctrl = open(&root, kernel.clone());
        assert_eq!(*kernel.removed.lock().unwrap(), [dead]);
        (1..4).for_each(|tid| resctrl.follow(tid));
        drop(resctrl);
        let left: Vec<String> = folders(&root.path().join(GROUPS))
            .iter()
            .map(|g| name(g).to_owned())
            .collect();
        assert_eq!(left, [living, foreign]);
    }
}
