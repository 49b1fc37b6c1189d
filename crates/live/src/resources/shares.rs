//! Partitions of caches and of memory bandwidth: classes of threads as control groups of resctrl.
//!
//! Input: a root directory, classes, threads. Output: one group per class with its ways, its bandwidth and its threads. Threads
//! that another program has put into a resctrl group stay there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use countersteer_model::cpunumbers::CpuNumbers;
use countersteer_model::engine::ThreadInfo;
use countersteer_model::placement::{CacheShare, Members, WayClass};
use countersteer_model::topology::{Group, GroupBy, Topology};
use countersteer_model::units::{CpuId, GroupId};
use countersteer_sysfs::files;
use countersteer_sysfs::resctrl::{
    Allocation, GroupFolders, MemoryBandwidthLimits, Resctrl, SchemataLine,
};
use countersteer_sysfs::unavailable::Unavailable;

use crate::undo::entry::JournalEntry;
use crate::undo::{Journal, JournalError};

/// Numbers of failed requests by message; each message is reported once.
pub(super) type Refused = BTreeMap<String, u32>;

/// Cache class with its resctrl group.
struct ResctrlClass {
    path: PathBuf,
    members: Members,
    schemata: Vec<SchemataLine>,
    threads: BTreeSet<u32>,
}

pub(super) struct ResourceShares {
    resctrl: Resctrl,
    allocation: Allocation,
    bandwidth: Option<MemoryBandwidthLimits>,
    /// Kernel's number of each last-level cache, and its number of ways in the topology, by core group.
    caches: BTreeMap<GroupId, (u32, u32)>,
    /// Classes by name.
    classes: BTreeMap<String, ResctrlClass>,
    /// Threads that another program has put into a resctrl group.
    left: BTreeSet<u32>,
}

impl ResourceShares {
    pub(super) fn open(
        root: &Path,
        topology: &Topology,
        os: &CpuNumbers,
        resctrl: Resctrl,
    ) -> Result<Self, Unavailable> {
        let allocation = resctrl.allocation()?;
        let bandwidth = resctrl.bandwidth()?;
        let of_group = |group: &Group| {
            let cpu = group.cpus.lowest()?;
            let ways = topology.caches.get(topology.llc_of(cpu).index())?.ways;
            Some((group.id, (cache_number(root, os.os(cpu)?)?, ways)))
        };
        let llcs = topology.groups_by(GroupBy::Llc);
        let caches = llcs.iter().filter_map(of_group).collect();
        Ok(Self {
            resctrl,
            allocation,
            bandwidth,
            caches,
            classes: BTreeMap::new(),
            left: BTreeSet::new(),
        })
    }

    /// Replaces the classes by these: creates, changes and removes groups.
    ///
    /// # Errors
    /// Fails if the journal cannot be written; nothing is changed after that.
    pub(super) fn divide(
        &mut self,
        classes: &[WayClass],
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
        let mut free_ways = BTreeMap::new();
        for class in classes {
            let schemata = self.schemata(&class.shares, &mut free_ways, refused);
            if !self.classes.contains_key(&*class.name) {
                let path = self.resctrl.another_control_group("share");
                journal.write(JournalEntry::Group(path.clone()))?;
                if let Err(error) = self.resctrl.make(&path) {
                    refuse(refused, error);
                    continue;
                }
                let new = ResctrlClass {
                    path,
                    members: class.members.clone(),
                    schemata: Vec::new(),
                    threads: BTreeSet::new(),
                };
                self.classes.insert(class.name.to_string(), new);
            }
            let Some(known) = self.classes.get_mut(&*class.name) else {
                continue;
            };
            known.members.clone_from(&class.members);
            if known.schemata != schemata {
                match self.resctrl.set(&known.path, &schemata) {
                    Ok(()) => known.schemata = schemata,
                    Err(error) => refuse(refused, error),
                }
            }
        }
        self.assign(threads, refused);
        Ok(())
    }

    /// Puts threads into the groups of their classes, and moves threads without a class back to the root group.
    pub(super) fn assign(&mut self, threads: &[ThreadInfo], refused: &mut Refused) {
        if self.classes.is_empty() {
            return;
        }
        let mut foreign = None;
        for info in threads {
            let tid = info.id.0;
            let is_member = |class: &ResctrlClass| match &class.members {
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
                    .get_or_insert_with(|| self.resctrl.foreign_threads())
                    .contains(&tid)
            {
                refuse(
                    refused,
                    "threads are in resctrl groups that another process made, and stay there",
                );
                self.left.insert(tid);
                continue;
            }
            if let Some(class) = present.and_then(|name| self.classes.get_mut(&name)) {
                class.threads.remove(&tid);
            }
            let class = wanted.as_ref().and_then(|name| self.classes.get(name));
            let path = class.map_or_else(
                || self.resctrl.root_group().to_owned(),
                |class| class.path.clone(),
            );
            match self.resctrl.assign(&path, tid) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => refuse(refused, error),
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

    /// Moves a thread from its class back to the root group.
    pub(super) fn let_go(&mut self, tid: u32) {
        let root_group = self.resctrl.root_group().to_owned();
        for class in self.classes.values_mut() {
            if class.threads.remove(&tid) {
                // A failure is ignored, because the group is removed at the end in any case.
                let _ = self.resctrl.assign(&root_group, tid);
            }
        }
    }

    fn give_back(&mut self, name: &str, refused: &mut Refused) {
        let Some(class) = self.classes.remove(name) else {
            return;
        };
        if let Err(error) = self.resctrl.remove(&class.path) {
            refuse(refused, error);
        }
    }

    pub(super) fn groups(&mut self) -> &mut dyn GroupFolders {
        self.resctrl.groups()
    }

    /// Returns the lines of a group's `schemata` file. `next` holds the first way of each cache that no class has yet; it is
    /// advanced.
    fn schemata(
        &self,
        shares: &[CacheShare],
        next: &mut BTreeMap<GroupId, u32>,
        refused: &mut Refused,
    ) -> Vec<SchemataLine> {
        let Allocation { ways, lines, .. } = &self.allocation;
        let all = self.allocation.mask(0, *ways);
        let mut lines: Vec<SchemataLine> = lines.iter().map(|line| line.with(all)).collect();
        let mut limits = self.bandwidth.as_ref().map(|b| b.line.with(100));
        for share in shares {
            let known = self.caches.get(&share.llc);
            let is_divided = |(cache, _): &&(u32, u32)| lines[0].domains.contains_key(cache);
            let Some((cache, known)) = known.filter(is_divided).copied() else {
                refuse(
                    refused,
                    "resctrl does not divide a cache that a policy wants divided",
                );
                continue;
            };
            if let Some(part) = share.ways {
                // The machine's file and the processor may have different numbers of ways, so these are rescaled.
                let scale = |n: u32| (n * ways + known / 2) / known.max(1);
                let free = next.entry(share.llc).or_insert(0);
                let first = part.first.map_or(*free, scale);
                let count = scale(part.count);
                *free = first + count;
                let mask = self.allocation.mask(first, count);
                for line in &mut lines {
                    line.domains.insert(cache, mask);
                }
            }
            let limit = limits.as_mut().and_then(|l| l.domains.get_mut(&cache));
            match (&self.bandwidth, limit, share.bandwidth) {
                (_, _, None) => {}
                (Some(bandwidth), Some(limit), Some(percent)) => *limit = bandwidth.limit(percent),
                _ => refuse(refused, "memory bandwidth cannot be limited here"),
            }
        }
        lines.extend(limits);
        lines
    }
}

fn refuse(refused: &mut Refused, why: impl ToString) {
    *refused.entry(why.to_string()).or_default() += 1;
}

/// Returns the kernel's number of a CPU's last-level cache; `None` if it has no L3.
fn cache_number(root: &Path, cpu: CpuId) -> Option<u32> {
    let indices = files::folders(&files::cpu(root, cpu.0).join("cache"));
    let is_last = |index: &&PathBuf| files::value(&index.join("level")) == Some(3);
    let mut last = indices.iter().filter(is_last);
    last.find_map(|index| files::value(&index.join("id")))
}
