//! Scan of /proc for threads, used if counters do not report forks.
//!
//! Input: processes. Output: forks, execs and exits of their threads and of processes that they start, found by comparing two
//! scans. A scan misses threads that are created and exit between two scans, and processes whose parents exit between two
//! scans. It also misses an exec of the same file.
use std::collections::{BTreeMap, BTreeSet};

use countersteer_model::units::Nanos;
use countersteer_sysfs::procfs::{FileId, PROC};

use countersteer_counters::TaskEvent;

/// State of a process at the last scan.
#[derive(Debug, Default)]
struct ScannedProcess {
    threads: BTreeSet<u32>,
    /// PID of the parent if the parent is followed, too; otherwise `None`.
    parent: Option<u32>,
    /// Identity of the executable file; `None` if it cannot be read.
    executable: Option<FileId>,
}

/// Followed processes with their state at the last scan.
#[derive(Debug, Default)]
pub(super) struct ProcessScan {
    known: BTreeMap<u32, ScannedProcess>,
    /// PIDs of detached processes, which are not followed even if their parents are.
    left: BTreeSet<u32>,
    /// PIDs of processes that are not followed, with the PIDs of their parents. Reading parents costs more than the rest of a
    /// scan, so it is done once per process.
    strangers: BTreeMap<u32, u32>,
    /// Number of scans so far.
    looks: u32,
}

/// Number of scans after which all parents are read again, because a PID may have been reused between two scans.
const ASKED_AGAIN: u32 = 64;

impl ProcessScan {
    /// Adds a thread of a process that is followed from now on.
    pub(super) fn knows(&mut self, pid: u32, tid: u32) {
        self.left.remove(&pid);
        let found = || ScannedProcess {
            executable: PROC.executable_id(pid),
            ..ScannedProcess::default()
        };
        let process = self.known.entry(pid).or_insert_with(found);
        process.threads.insert(tid);
    }

    /// Stops following a process, and the children that it creates later.
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
            // A process that was just created has usually executed its program by the time of the scan, so this is no exec
            // event.
            let executable = PROC.executable_id(*pid);
            if !known.threads.is_empty() && known.executable != executable && executable.is_some() {
                events.push((at, *pid, TaskEvent::Exec));
            }
            known.executable = executable.or(known.executable);
            known.threads = now;
            !known.threads.is_empty()
        });
    }

    /// Adds the processes whose parents are followed.
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
                    let found = ScannedProcess {
                        parent: Some(*parent),
                        ..ScannedProcess::default()
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
