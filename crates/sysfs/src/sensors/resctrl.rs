//! Occupancy of the last-level cache and memory traffic by thread, through resctrl's monitoring groups.
//!
//! Input: threads to follow. Output: bytes held and moved per thread, summed over the machine's caches.
//!
//! The hardware tells apart only so many groups at once (RMIDs). Each followed thread has one; a group that is free again is
//! used again after all that were free before it, since lines of its former thread count for it until they are evicted.
//! When there are none left, the thread that was followed for longest loses its own. Groups bear this process's number: they
//! are removed when the provider is dropped, and the next start removes those of a process that was killed.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};

use super::files::{folders, name, number, text};
use super::{Column, Growing, Kind, Place, Provider, ProviderDef, Value};
use crate::resctrl::{Groups, Kernel, PREFIX, mount, unavailable};
use crate::unavailable::Unavailable;

pub(super) const DEF: ProviderDef = ProviderDef {
    name: "resctrl",
    by_thread: true,
    prose: "last-level cache occupancy and memory traffic by thread (resctrl monitoring)",
    columns: &[OCCUPANCY, TRAFFIC, LOCAL_TRAFFIC],
    open: |root| Resctrl::open(root, Kernel).map(|p| Box::new(p) as Box<dyn Provider>),
};

const OCCUPANCY: Column = Column {
    name: "llc_occupancy_bytes",
    unit: "B",
    kind: Kind::Level,
    prose: "bytes a thread holds in last-level caches",
};
const TRAFFIC: Column = Column {
    name: "memory_traffic_bytes",
    unit: "B",
    kind: Kind::Since,
    prose: "bytes moved between last-level caches and memory for a thread",
};
const LOCAL_TRAFFIC: Column = Column {
    name: "memory_local_traffic_bytes",
    unit: "B",
    kind: Kind::Since,
    prose: "the part of a thread's memory traffic that stayed on its node",
};

/// Files of a cache's folder, what they tell, and the name by which the kernel lists the feature.
static FILES: &[(&str, &Column)] = &[
    ("llc_occupancy", &OCCUPANCY),
    ("mbm_total_bytes", &TRAFFIC),
    ("mbm_local_bytes", &LOCAL_TRAFFIC),
];

struct Group {
    path: PathBuf,
    totals: Vec<Growing>,
}

struct Resctrl<G: Groups> {
    folder: PathBuf,
    processes: PathBuf,
    groups: G,
    of: HashMap<u32, Group>,
    /// Followed threads, the longest first.
    order: VecDeque<u32>,
    /// Groups without a thread, the longest first.
    free: VecDeque<PathBuf>,
    made: u32,
    exhausted: bool,
}

impl<G: Groups> Resctrl<G> {
    fn open(root: &Path, mut groups: G) -> Result<Self, Unavailable> {
        let mount = mount(root);
        let features = text(&mount.join("info/L3_MON/mon_features")).unwrap_or_default();
        let knows = |file: &str| features.lines().any(|f| f == file);
        if !FILES.iter().any(|(file, _)| knows(file)) {
            let mend = "the processor or the firmware lacks cache monitoring";
            return Err(unavailable(
                root,
                ("resctrl does not monitor caches here", mend),
            ));
        }
        sweep(root, &mut groups);
        let folder = mount.join("mon_groups");
        let mut own = Self {
            folder,
            processes: root.join("proc"),
            groups,
            of: HashMap::new(),
            order: VecDeque::new(),
            free: VecDeque::new(),
            made: 0,
            exhausted: false,
        };
        // Whether groups can be made is found out now, not at the first thread.
        let first = own.make().map_err(|e| {
            let mend = if e.kind() == io::ErrorKind::PermissionDenied {
                "run as root"
            } else {
                "remove monitoring groups that nobody needs"
            };
            Unavailable::new(
                format!("no group can be made in {} ({e})", own.folder.display()),
                mend,
            )
        })?;
        own.free.push_back(first);
        Ok(own)
    }

    fn make(&mut self) -> io::Result<PathBuf> {
        let path = self
            .folder
            .join(format!("{PREFIX}{}-{}", std::process::id(), self.made));
        self.groups.make(&path)?;
        self.made += 1;
        Ok(path)
    }

    /// A group for one more thread, the last resort being another thread's.
    fn find(&mut self) -> Option<PathBuf> {
        // New groups first: what was free for long has lost most of its former thread's lines.
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

/// Removes the groups of processes that were killed; how many.
pub(super) fn sweep(root: &Path, groups: &mut impl Groups) -> usize {
    let is_stale = |group: &PathBuf| {
        let owner = name(group)
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split('-').next());
        owner.is_some_and(|pid| !root.join("proc").join(pid).exists())
    };
    let stale = folders(&mount(root).join("mon_groups"))
        .into_iter()
        .filter(is_stale);
    // Somebody else may be doing the same.
    stale.filter(|group| groups.remove(group).is_ok()).count()
}

/// Whether a thread is in a group.
fn has(group: &Path, tid: u32) -> bool {
    text(&group.join("tasks"))
        .unwrap_or_default()
        .lines()
        .any(|line| line.parse() == Ok(tid))
}

impl<G: Groups> Provider for Resctrl<G> {
    fn read(&mut self, into: &mut Vec<Value>) {
        // Who was put into a control group by somebody is not counted here any more: what its group still has goes away. Who has
        // ended is in no group, and what it did counts.
        let is_there = |tid: &u32| self.of.get(tid).is_some_and(|group| has(&group.path, *tid));
        let is_moved = |tid: &u32| !is_there(tid) && self.processes.join(tid.to_string()).exists();
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
            let caches = folders(&group.path.join("mon_data"));
            for ((file, column), total) in FILES.iter().zip(&mut group.totals) {
                // "Unavailable" and "Error" are what the kernel writes where it has no number.
                let sum = caches
                    .iter()
                    .filter_map(|c| number(&c.join(file)))
                    .reduce(|a, b| a + b);
                let value = match column.kind {
                    Kind::Level => sum,
                    Kind::Since => sum.and_then(|s| total.since(s, None)),
                };
                into.extend(value.map(|value| Value {
                    column,
                    place: Place::Thread(*tid),
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
        if self.groups.assign(&path, tid).is_err() {
            // It ended in the meantime.
            self.free.push_back(path);
            return;
        }
        self.of.insert(
            tid,
            Group {
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

impl<G: Groups> Drop for Resctrl<G> {
    fn drop(&mut self) {
        let paths = self
            .free
            .drain(..)
            .chain(self.of.drain().map(|(_, g)| g.path));
        for path in paths {
            // Its threads fall back to the group they came from.
            let _ = self.groups.remove(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use countersteer_fuzz::fake_root::write;

    use super::*;

    /// Makes what the kernel makes in a new group; has `limit` RMIDs.
    #[derive(Clone)]
    struct Pretend {
        limit: usize,
        removed: Arc<Mutex<Vec<String>>>,
    }

    impl Groups for Pretend {
        fn make(&mut self, group: &Path) -> io::Result<()> {
            if folders(group.parent().unwrap()).len() >= self.limit {
                return Err(io::Error::from_raw_os_error(libc::ENOSPC));
            }
            write(
                group,
                &[
                    ("mon_data/mon_L3_00/llc_occupancy", "0"),
                    ("mon_data/mon_L3_01/llc_occupancy", "0"),
                ],
            );
            Ok(())
        }

        fn remove(&mut self, group: &Path) -> io::Result<()> {
            self.removed.lock().unwrap().push(name(group).to_owned());
            std::fs::remove_dir_all(group)
        }

        fn assign(&mut self, group: &Path, tid: u32) -> io::Result<()> {
            std::fs::write(group.join("tasks"), tid.to_string())
        }
    }

    const GROUPS: &str = "sys/fs/resctrl/mon_groups";

    fn machine(limit: usize) -> (tempfile::TempDir, Pretend) {
        let root = tempfile::tempdir().unwrap();
        write(
            root.path(),
            &[
                (
                    "sys/fs/resctrl/info/L3_MON/mon_features",
                    "llc_occupancy\nmbm_total_bytes\n",
                ),
                ("proc/1/comm", "init"),
            ],
        );
        std::fs::create_dir_all(root.path().join(GROUPS)).unwrap();
        (
            root,
            Pretend {
                limit,
                removed: Arc::default(),
            },
        )
    }

    fn group_of(root: &Path, tid: u32) -> Option<PathBuf> {
        folders(&root.join(GROUPS))
            .into_iter()
            .find(|g| number(&g.join("tasks")) == Some(f64::from(tid)))
    }

    #[test]
    fn a_thread_has_the_sum_over_the_caches() {
        let (root, kernel) = machine(8);
        let mut resctrl = Resctrl::open(root.path(), kernel).unwrap();
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
        let (root, kernel) = machine(2);
        let mut resctrl = Resctrl::open(root.path(), kernel).unwrap();
        resctrl.follow(70);
        let group = group_of(root.path(), 70).unwrap();
        write(
            &group,
            &[("mon_data/mon_L3_00/llc_occupancy", "4096"), ("tasks", "")],
        );
        let read = |resctrl: &mut Resctrl<Pretend>| {
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
        let (root, kernel) = machine(2);
        let mut resctrl = Resctrl::open(root.path(), kernel).unwrap();
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
        let (root, kernel) = machine(8);
        let dead = "countersteer-4194305-0";
        let living = "countersteer-1-0";
        let foreign = "somebody";
        for group in [dead, living, foreign] {
            std::fs::create_dir(root.path().join(GROUPS).join(group)).unwrap();
        }
        let mut resctrl = Resctrl::open(root.path(), kernel.clone()).unwrap();
        assert_eq!(*kernel.removed.lock().unwrap(), [dead]);
        (1..4).for_each(|tid| resctrl.follow(tid));
        drop(resctrl);
        let left: Vec<String> = folders(&root.path().join(GROUPS))
            .iter()
            .map(|g| name(g).to_owned())
            .collect();
        assert_eq!(left, [living, foreign]);
    }

    #[test]
    fn what_is_missing_is_told_apart() {
        let root = tempfile::tempdir().unwrap();
        let why = |root: &Path| Resctrl::open(root, Kernel).err().unwrap().why;
        assert!(why(root.path()).contains("no resctrl"));
        write(
            root.path(),
            &[("proc/filesystems", "nodev\tsysfs\nnodev\tresctrl\n")],
        );
        assert!(why(root.path()).contains("not mounted"));
        write(root.path(), &[("sys/fs/resctrl/info/L3/cbm_mask", "fff")]);
        assert!(why(root.path()).contains("does not monitor"));
    }
}
