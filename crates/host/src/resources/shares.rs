//! Cache partitions and of memory bandwidth: classes of threads as control groups of resctrl.
//!
//! Input: a root directory, classes, threads. Output: a group per class with its ways and its bandwidth, and its threads in it.
//! Threads that somebody else has put into a group of resctrl stay there.
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use countersteer_model::cpunumbers::CpuNumbers;
use countersteer_model::engine::ThreadInfo;
use countersteer_model::placement::{CacheClass, CacheShare, Members};
use countersteer_model::topology::{Group, GroupBy, Topology};
use countersteer_model::units::{CpuId, GroupId};
use countersteer_sysfs::resctrl::{Groups, Masks, PREFIX, mount, numbers, unavailable};
use countersteer_sysfs::unavailable::Unavailable;

use crate::undo::entry::Entry;
use crate::undo::{Journal, JournalError};

/// What could not be done, in words that are told once, with how often.
pub(super) type Refused = BTreeMap<String, u32>;

/// A class with its group.
struct Class {
    path: PathBuf,
    members: Members,
    schemata: String,
    threads: BTreeSet<u32>,
}

/// resctrl's way of limiting bandwidth.
struct Bandwidth {
    least: u32,
    memories: Vec<u32>,
}

pub(super) struct Shares {
    mount: PathBuf,
    groups: Box<dyn Groups>,
    masks: Masks,
    bandwidth: Option<Bandwidth>,
    /// The kernel's number of a cache, and its ways as the topology counts them, by group of CPUs.
    caches: BTreeMap<GroupId, (u32, u32)>,
    classes: BTreeMap<String, Class>,
    made: u32,
    /// Threads that somebody else has in a group.
    left: BTreeSet<u32>,
}

impl Shares {
    pub(super) fn open(
        root: &Path,
        topology: &Topology,
        os: &CpuNumbers,
        groups: Box<dyn Groups>,
    ) -> Result<Self, Unavailable> {
        let mount = mount(root);
        let lacks = (
            "resctrl does not divide caches here",
            "the processor or the firmware lacks cache allocation",
        );
        let masks = Masks::read(&mount)
            .ok()
            .filter(|m| !m.resources.is_empty() && m.ways > m.least);
        let masks = masks.ok_or_else(|| unavailable(root, lacks))?;
        let of_group = |group: &Group| {
            let cpu = group.cpus.lowest()?;
            let ways = topology.caches.get(topology.llc_of(cpu).index())?.ways;
            Some((group.id, (cache_number(root, os.os(cpu)?)?, ways)))
        };
        let llcs = topology.groups_by(GroupBy::Llc);
        let caches = llcs.iter().filter_map(of_group).collect();
        let bandwidth = bandwidth(&mount);
        Ok(Self {
            mount,
            groups,
            masks,
            bandwidth,
            caches,
            classes: BTreeMap::new(),
            made: 0,
            left: BTreeSet::new(),
        })
    }

    /// Makes these the classes.
    ///
    /// # Errors
    /// The journal cannot be written; nothing is changed from then on.
    pub(super) fn divide(
        &mut self,
        classes: &[CacheClass],
        threads: &[ThreadInfo],
        journal: &mut Journal,
        refused: &mut Refused,
    ) -> Result<(), JournalError> {
        let named: BTreeSet<&str> = classes.iter().map(|c| &*c.name).collect();
        let gone: Vec<String> = self
            .classes
            .keys()
            .filter(|name| !named.contains(name.as_str()))
            .cloned()
            .collect();
        for name in gone {
            self.give_back(&name, refused);
        }
        let mut next = BTreeMap::new();
        for class in classes {
            let schemata = self.schemata(&class.shares, &mut next, refused);
            if !self.classes.contains_key(&*class.name) {
                let path =
                    self.mount
                        .join(format!("{PREFIX}{}-share{}", std::process::id(), self.made));
                self.made += 1;
                journal.write(Entry::Group(path.clone()))?;
                if let Err(error) = self.groups.make(&path) {
                    refuse(refused, made_none(&self.mount, &error));
                    continue;
                }
                let members = class.members.clone();
                let threads = BTreeSet::new();
                self.classes.insert(
                    class.name.to_string(),
                    Class {
                        path,
                        members,
                        schemata: String::new(),
                        threads,
                    },
                );
            }
            let Some(known) = self.classes.get_mut(&*class.name) else {
                continue;
            };
            known.members.clone_from(&class.members);
            if known.schemata != schemata {
                match std::fs::write(known.path.join("schemata"), &schemata) {
                    Ok(()) => known.schemata = schemata,
                    Err(error) => refuse(refused, not_taken(&self.mount, &schemata, &error)),
                }
            }
        }
        self.seat(threads, refused);
        Ok(())
    }

    /// Puts threads into their classes' groups, and takes out those that are in no class any more.
    pub(super) fn seat(&mut self, threads: &[ThreadInfo], refused: &mut Refused) {
        if self.classes.is_empty() {
            return;
        }
        let mut foreign = None;
        for info in threads {
            let tid = info.id.0;
            let is_member = |class: &Class| match &class.members {
                Members::Programs(programs) => programs.contains(&info.program),
                Members::Threads(ids) => ids.contains(&info.id),
            };
            let wanted = self
                .classes
                .iter()
                .find(|(_, class)| is_member(class))
                .map(|(name, _)| name.clone());
            let present = self
                .classes
                .iter()
                .find(|(_, class)| class.threads.contains(&tid))
                .map(|(name, _)| name.clone());
            if wanted == present || self.left.contains(&tid) {
                continue;
            }
            if present.is_none()
                && foreign
                    .get_or_insert_with(|| foreign_threads(&self.mount))
                    .contains(&tid)
            {
                refuse(
                    refused,
                    "threads are in groups of resctrl that somebody else made, and stay there"
                        .into(),
                );
                self.left.insert(tid);
                continue;
            }
            if let Some(class) = present.and_then(|name| self.classes.get_mut(&name)) {
                class.threads.remove(&tid);
            }
            let path = wanted
                .as_ref()
                .and_then(|name| self.classes.get(name))
                .map_or(&self.mount, |class| &class.path);
            match self.groups.assign(path, tid) {
                Ok(()) => {}
                // It ended in the meantime.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => continue,
                Err(error) => refuse(
                    refused,
                    format!("a thread could not be put into a group of resctrl ({error})"),
                ),
            }
            if let Some(class) = wanted.and_then(|name| self.classes.get_mut(&name)) {
                class.threads.insert(tid);
            }
        }
        let living: BTreeSet<u32> = threads.iter().map(|t| t.id.0).collect();
        self.classes
            .values_mut()
            .for_each(|class| class.threads.retain(|tid| living.contains(tid)));
        self.left.retain(|tid| living.contains(tid));
    }

    /// A thread is in no class any more.
    pub(super) fn let_go(&mut self, tid: u32) {
        for class in self.classes.values_mut() {
            if class.threads.remove(&tid) {
                // One that has ended is not missed.
                let _ = self.groups.assign(&self.mount, tid);
            }
        }
    }

    fn give_back(&mut self, name: &str, refused: &mut Refused) {
        let Some(class) = self.classes.remove(name) else {
            return;
        };
        if let Err(error) = self.groups.remove(&class.path) {
            refuse(
                refused,
                format!("{} could not be removed ({error})", class.path.display()),
            );
        }
    }

    pub(super) fn groups(&mut self) -> &mut dyn Groups {
        &mut *self.groups
    }

    /// The lines of a group's `schemata` file; `next` is the first way that no class has yet, by cache.
    fn schemata(
        &self,
        shares: &[CacheShare],
        next: &mut BTreeMap<GroupId, u32>,
        refused: &mut Refused,
    ) -> String {
        let all = self.masks.mask(0, self.masks.ways);
        let mut masks: BTreeMap<u32, u64> = self
            .masks
            .caches
            .iter()
            .map(|cache| (*cache, all))
            .collect();
        let mut percents = BTreeMap::new();
        for share in shares {
            let Some((cache, known)) = self
                .caches
                .get(&share.llc)
                .filter(|c| masks.contains_key(&c.0))
                .copied()
            else {
                refuse(
                    refused,
                    "resctrl does not divide a cache that a policy wants divided".into(),
                );
                continue;
            };
            if let Some(ways) = share.ways {
                // The machine's file and the processor may count otherwise.
                let scale = |n: u32| (n * self.masks.ways + known / 2) / known.max(1);
                let free = next.entry(share.llc).or_insert(0);
                let first = ways.first.map_or(*free, scale);
                let count = scale(ways.count);
                *free = first + count;
                masks.insert(cache, self.masks.mask(first, count));
            }
            match (&self.bandwidth, share.bandwidth) {
                (_, None) => {}
                (Some(limits), Some(percent)) if limits.memories.contains(&cache) => {
                    percents.insert(cache, percent.clamp(limits.least, 100));
                }
                _ => refuse(refused, "memory bandwidth cannot be limited here".into()),
            }
        }
        let joined = |parts: Vec<String>| parts.join(";");
        let masks = joined(
            masks
                .iter()
                .map(|(cache, mask)| format!("{cache}={mask:x}"))
                .collect(),
        );
        let mut lines: Vec<String> = self
            .masks
            .resources
            .iter()
            .map(|name| format!("{name}:{masks}\n"))
            .collect();
        if let Some(limits) = &self.bandwidth {
            let of = |memory: &u32| format!("{memory}={}", percents.get(memory).unwrap_or(&100));
            lines.push(format!(
                "MB:{}\n",
                joined(limits.memories.iter().map(of).collect())
            ));
        }
        lines.concat()
    }
}

fn refuse(refused: &mut Refused, why: String) {
    *refused.entry(why).or_default() += 1;
}

fn made_none(mount: &Path, error: &io::Error) -> String {
    let mend = match error.raw_os_error() {
        Some(libc::ENOSPC) => "the processor tells no more classes apart",
        _ => "only root may",
    };
    format!(
        "no group could be made in {} ({error}): {mend}",
        mount.display()
    )
}

fn not_taken(mount: &Path, schemata: &str, error: &io::Error) -> String {
    let said = std::fs::read_to_string(mount.join("info/last_cmd_status")).unwrap_or_default();
    let wanted = schemata.trim().replace('\n', ", ");
    let said = said.trim().to_owned();
    format!(
        "resctrl refuses `{wanted}` ({error}{}{said})",
        if said.is_empty() { "" } else { ": " }
    )
}

/// The number of the last-level cache of a CPU.
fn cache_number(root: &Path, cpu: CpuId) -> Option<u32> {
    let folder = root.join(format!("sys/devices/system/cpu/cpu{}/cache", cpu.0));
    let number = |path: PathBuf| {
        std::fs::read_to_string(path)
            .ok()?
            .trim()
            .parse::<u32>()
            .ok()
    };
    let mut last = None;
    for entry in std::fs::read_dir(folder).ok()?.flatten() {
        let level = number(entry.path().join("level"));
        if let (Some(3), Some(id)) = (level, number(entry.path().join("id"))) {
            last = Some(id);
        }
    }
    last
}

fn bandwidth(mount: &Path) -> Option<Bandwidth> {
    let schemata = std::fs::read_to_string(mount.join("schemata")).ok()?;
    let line = schemata
        .lines()
        .map(str::trim)
        .find(|line| line.starts_with("MB:"))?;
    // AMD counts in eighths of a GB/s, not in parts: that would need the memory's own figure.
    let whole = line
        .split(['=', ';'])
        .skip(1)
        .step_by(2)
        .all(|v| v.trim() == "100");
    let least = std::fs::read_to_string(mount.join("info/MB/min_bandwidth"))
        .ok()?
        .trim()
        .parse()
        .ok()?;
    whole.then(|| Bandwidth {
        least,
        memories: numbers(line),
    })
}

/// Threads in groups that others have made.
fn foreign_threads(mount: &Path) -> BTreeSet<u32> {
    let folders = std::fs::read_dir(mount).into_iter().flatten().flatten();
    let own = format!("{PREFIX}{}-", std::process::id());
    let foreign = folders.filter(|e| !e.file_name().to_string_lossy().starts_with(&own));
    let tasks = foreign.filter_map(|e| std::fs::read_to_string(e.path().join("tasks")).ok());
    tasks
        .flat_map(|text| {
            text.lines()
                .filter_map(|l| l.trim().parse().ok())
                .collect::<Vec<u32>>()
        })
        .collect()
}
