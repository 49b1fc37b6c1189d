//! Sum of a journal's entries. For each attribute, it has the changed threads with their former values, and all values that
//! were set. It also has lines of files, groups and helper processes.
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::placement::Clamp;
use countersteer_sysfs::task::sched_policy::SchedPolicy;

use super::entry::{JournalEntry, ProcessIdentity, Touched};

/// Changes of one attribute of threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Changed<V> {
    /// Changed threads with their former values, by TID.
    pub(crate) before: BTreeMap<u32, Touched<V>>,
    /// All values that were set on threads.
    pub(crate) set: BTreeSet<V>,
}

impl<V> Default for Changed<V> {
    fn default() -> Self {
        Self {
            before: BTreeMap::new(),
            set: BTreeSet::new(),
        }
    }
}

/// Line of a file: its former content, and all contents that were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChangedLine {
    pub(crate) before: String,
    pub(crate) set: BTreeSet<String>,
}

/// All changes in a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Start of the engine, in clock ticks since boot.
    pub(crate) since: u64,
    /// Changes of affinity masks.
    pub(crate) affinity: Changed<CpuSet>,
    /// Changes of nice values.
    pub(crate) nice: Changed<i8>,
    /// Changes of frequency hints.
    pub(crate) clamp: Changed<Clamp>,
    /// Changes of scheduling policies.
    pub(crate) sched_policy: Changed<SchedPolicy>,
    /// Changes of lines, by the path of the file.
    pub(crate) lines: BTreeMap<PathBuf, ChangedLine>,
    pub(crate) groups: BTreeSet<PathBuf>,
    /// Helper processes that must not live longer than this one.
    pub(crate) helpers: BTreeSet<ProcessIdentity>,
    /// Processes that are stopped and continued by signals.
    pub(crate) stopped: BTreeSet<ProcessIdentity>,
}

impl Changes {
    /// True if an entry is already contained in the changes.
    pub(crate) fn has(&self, entry: &JournalEntry) -> bool {
        match entry {
            JournalEntry::Affinity(touched) => {
                self.affinity.before.get(&touched.tid) == Some(touched)
            }
            JournalEntry::AffinitySet(cpus) => self.affinity.set.contains(cpus),
            JournalEntry::Nice(touched) => self.nice.before.get(&touched.tid) == Some(touched),
            JournalEntry::NiceSet(nice) => self.nice.set.contains(nice),
            JournalEntry::Clamp(touched) => self.clamp.before.get(&touched.tid) == Some(touched),
            JournalEntry::ClampSet(clamp) => self.clamp.set.contains(clamp),
            JournalEntry::SchedPolicy(touched) => {
                self.sched_policy.before.get(&touched.tid) == Some(touched)
            }
            JournalEntry::SchedPolicySet(policy) => self.sched_policy.set.contains(policy),
            JournalEntry::Line { file, set, .. } => {
                self.lines.get(file).is_some_and(|l| l.set.contains(set))
            }
            JournalEntry::Group(folder) => self.groups.contains(folder),
            JournalEntry::Helper(process) => self.helpers.contains(process),
            JournalEntry::Stopped(process) => self.stopped.contains(process),
        }
    }

    /// Adds an entry to the changes.
    pub(crate) fn take(&mut self, entry: JournalEntry) {
        match entry {
            JournalEntry::Affinity(touched) => note(&mut self.affinity, touched),
            JournalEntry::AffinitySet(cpus) => {
                self.affinity.set.insert(cpus);
            }
            JournalEntry::Nice(touched) => note(&mut self.nice, touched),
            JournalEntry::NiceSet(nice) => {
                self.nice.set.insert(nice);
            }
            JournalEntry::Clamp(touched) => note(&mut self.clamp, touched),
            JournalEntry::ClampSet(clamp) => {
                self.clamp.set.insert(clamp);
            }
            JournalEntry::SchedPolicy(touched) => note(&mut self.sched_policy, touched),
            JournalEntry::SchedPolicySet(policy) => {
                self.sched_policy.set.insert(policy);
            }
            JournalEntry::Line { file, before, set } => {
                let line = self.lines.entry(file).or_default();
                if line.set.is_empty() {
                    line.before = before;
                }
                line.set.insert(set);
            }
            JournalEntry::Group(folder) => {
                self.groups.insert(folder);
            }
            JournalEntry::Helper(process) => {
                self.helpers.insert(process);
            }
            JournalEntry::Stopped(process) => {
                self.stopped.insert(process);
            }
        }
    }

    /// Removes the entries of a thread that has ended or has been restored.
    pub(crate) fn forget(&mut self, tid: u32) {
        self.affinity.before.remove(&tid);
        self.nice.before.remove(&tid);
        self.clamp.before.remove(&tid);
        self.sched_policy.before.remove(&tid);
    }

    /// Returns a minimal list of entries with the same sum.
    pub(crate) fn entries(&self) -> Vec<JournalEntry> {
        let mut entries = Vec::new();
        add(
            &mut entries,
            &self.affinity,
            JournalEntry::Affinity,
            JournalEntry::AffinitySet,
        );
        add(
            &mut entries,
            &self.nice,
            JournalEntry::Nice,
            JournalEntry::NiceSet,
        );
        add(
            &mut entries,
            &self.clamp,
            JournalEntry::Clamp,
            JournalEntry::ClampSet,
        );
        add(
            &mut entries,
            &self.sched_policy,
            JournalEntry::SchedPolicy,
            JournalEntry::SchedPolicySet,
        );
        for (file, line) in &self.lines {
            entries.extend(line.set.iter().map(|set| JournalEntry::Line {
                file: file.clone(),
                before: line.before.clone(),
                set: set.clone(),
            }));
        }
        entries.extend(self.groups.iter().cloned().map(JournalEntry::Group));
        entries.extend(self.helpers.iter().copied().map(JournalEntry::Helper));
        entries.extend(self.stopped.iter().copied().map(JournalEntry::Stopped));
        entries
    }
}

fn note<V>(changed: &mut Changed<V>, touched: Touched<V>) {
    changed.before.insert(touched.tid, touched);
}

fn add<V: Clone>(
    entries: &mut Vec<JournalEntry>,
    changed: &Changed<V>,
    touched: fn(Touched<V>) -> JournalEntry,
    set: fn(V) -> JournalEntry,
) {
    entries.extend(changed.before.values().cloned().map(touched));
    entries.extend(changed.set.iter().cloned().map(set));
}
