//! Scan of /proc for threads, if counters do not report forks.
//!
//! Input: processes. Output: forks, execs and exits of their threads and of processes that they start, by comparing two scans.
//! A scan misses threads that are created and exit between two scans, and processes whose parents exit between two scans. It
//! also misses an exec of the same file.
use std::collections::{BTreeMap, BTreeSet};

use countersteer_model::units::Nanos;
use countersteer_sysfs::procfs::{FileId, PROC};

use countersteer_counters::TaskEvent;

/// Process as of the last scan.
#[derive(Debug, Default)]
struct Process {
    threads: BTreeSet<u32>,
    /// Parent, if that is followed too.
    parent: Option<u32>,
    executable: Option<FileId>,
}

/// Processes of the last scan.
#[derive(Debug, Default)]
pub(super) struct Scan {
    known: BTreeMap<u32, Process>,
    /// Detached processes: not followed any more, although their parents may be.
    left: BTreeSet<u32>,
    /// Parents of processes that are not followed. Reading them costs more than the rest of a scan, so it is done once.
    strangers: BTreeMap<u32, u32>,
    looks: u32,
}

/// Number of scans after which the parents of all strangers are read again: another process may have reused a PID between two
/// scans.
const ASKED_AGAIN: u32 = 64;

impl Scan {
    /// Adds a known thread of a process that is followed from now on.
    pub(super) fn knows(&mut self, pid: u32, tid: u32) {
        self.left.remove(&pid);
        let found = || Process {
            executable: PROC.executable_id(pid),
            ..Process::default()
        };
        let process = self.known.entry(pid).or_insert_with(found);
        process.threads.insert(tid);
    }

    /// Stops following a process and its future children.
    pub(super) fn forget(&mut self, pid: u32) {
        if self.known.remove(&pid).is_some() {
            self.left.insert(pid);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    pub(super) fn look(&mut self, at: Nanos, events: &mut Vec<(Nanos, u32, TaskEvent)>) {
        if self.is_empty() {
            return;
        }
        self.find_children();
        self.known.retain(|pid, known| {
            let now: BTreeSet<u32> = PROC.threads(*pid).into_iter().collect();
            let ended = known.threads.difference(&now);
            events.extend(ended.map(|tid| (at, *tid, TaskEvent::Exited)));
            let forked = now.difference(&known.threads);
            let fork = TaskEvent::Forked {
                pid: *pid,
                parent: known.parent.unwrap_or(*pid),
            };
            events.extend(forked.map(|tid| (at, *tid, fork)));
            // A process that was just created has executed its program by the time of the scan.
            let executable = PROC.executable_id(*pid);
            if !known.threads.is_empty() && known.executable != executable && executable.is_some() {
                events.push((at, *pid, TaskEvent::Exec));
            }
            known.executable = executable.or(known.executable);
            known.threads = now;
            !known.threads.is_empty()
        });
    }

    /// Finds processes whose parents are followed.
    fn find_children(&mut self) {
        let processes = PROC.processes();
        self.left.retain(|pid| processes.binary_search(pid).is_ok());
        let before = std::mem::take(&mut self.strangers);
        let before = if self.looks.is_multiple_of(ASKED_AGAIN) {
            BTreeMap::new()
        } else {
            before
        };
        self.looks = self.looks.wrapping_add(1);
        let parent_of = |pid: u32| {
            before
                .get(&pid)
                .copied()
                .or_else(|| Some(PROC.stat(pid, pid)?.parent))
        };
        let unknown = processes
            .into_iter()
            .filter(|pid| !self.known.contains_key(pid));
        self.strangers = unknown
            .filter_map(|pid| Some((pid, parent_of(pid)?)))
            .collect();
        loop {
            let before = self.known.len();
            for (pid, parent) in &self.strangers {
                if self.known.contains_key(parent)
                    && !self.known.contains_key(pid)
                    && !self.left.contains(pid)
                {
                    let found = Process {
                        parent: Some(*parent),
                        ..Process::default()
                    };
                    self.known.insert(*pid, found);
                }
            }
            if self.known.len() == before {
                return;
            }
        }
    }
}
