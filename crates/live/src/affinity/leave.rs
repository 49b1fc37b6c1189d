//! Detaching of a process from the affinity engine, while the engine continues.
//!
//! Input: a root process. Output: its threads, and those of the processes that it has started, have their former attributes.
//! They may still be counted, since counters are inherited; their samples are ignored.
use std::collections::{BTreeMap, BTreeSet};

use countersteer_counters::TaskEvent;
use countersteer_model::engine::{ThreadEvent, ThreadEventKind};
use countersteer_model::units::ThreadId;
use countersteer_sysfs::procfs::PROC;
use countersteer_sysfs::task::uclamp;

use super::AffinityEngine;
use crate::placer::ProcessRoot;
use crate::undo::attribute::RestoreScope;
use crate::undo::restore::threads;
use crate::undo::{Journal, Restored};

/// Detached threads by TID, with the PIDs of their processes.
#[derive(Debug, Default)]
pub(super) struct Ignored(BTreeMap<u32, u32>);

impl Ignored {
    /// True if an event belongs to a detached thread and must be ignored. Threads that a detached thread creates count as
    /// detached.
    pub(super) fn passes_over(&mut self, tid: u32, event: &TaskEvent) -> bool {
        if self.0.is_empty() {
            return false;
        }
        match event {
            TaskEvent::Forked { pid, parent } => {
                let related = self.0.contains_key(parent)
                    || self.has_process(*pid)
                    || self.has_process(*parent);
                if related {
                    self.0.insert(tid, *pid);
                }
                related
            }
            TaskEvent::Exec => self.0.contains_key(&tid),
            TaskEvent::Exited => self.0.remove(&tid).is_some(),
        }
    }

    /// True if the thread with this TID was detached.
    pub(super) fn has(&self, tid: u32) -> bool {
        self.0.contains_key(&tid)
    }

    /// True if at least one thread of the process with this PID was detached.
    pub(super) fn has_process(&self, pid: u32) -> bool {
        self.0.values().any(|of| *of == pid)
    }

    /// Removes a process from the detached ones, so that its threads are steered again.
    pub(super) fn take_back(&mut self, pid: u32) {
        self.0.retain(|_, of| *of != pid);
    }
}

impl AffinityEngine {
    /// Detaches a process, together with all processes of its program. Restores the attributes of their threads.
    pub(super) fn let_go(&mut self, root: &ProcessRoot, journal: &mut Journal) {
        let members = self.tasks.members.iter();
        let gone: BTreeMap<u32, u32> = members
            .filter(|(_, m)| m.program == root.program || m.before.pid == root.pid)
            .map(|(tid, m)| (*tid, m.before.pid))
            .collect();
        let changes = journal.changes();
        let scope = RestoreScope {
            since: changes.since,
            sessions: false,
            of: &|_, tid| gone.contains_key(&tid),
        };
        threads(
            changes,
            &scope,
            &uclamp::ClampKernel,
            &mut Restored::default(),
        );
        let at = self.session.now();
        for (tid, pid) in &gone {
            self.forget(*pid, *tid, journal);
            self.events.push(ThreadEvent {
                at,
                thread: ThreadId(*tid),
                kind: ThreadEventKind::Exit,
            });
        }
        self.owns.remove(&root.program);
        let pids: BTreeSet<u32> = gone.into_values().chain([root.pid]).collect();
        for pid in pids {
            self.scan.forget(pid);
            for tid in PROC.threads(pid) {
                self.forget(pid, tid, journal);
            }
        }
    }

    fn forget(&mut self, pid: u32, tid: u32, journal: &mut Journal) {
        self.tasks.remove(tid);
        journal.forget(tid);
        self.ignored.0.insert(tid, pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_let_go_is_passed_over_with_its_children_until_it_comes_back() {
        let mut ignored = Ignored::default();
        assert!(!ignored.passes_over(5, &TaskEvent::Exited));
        ignored.0.insert(7, 7);
        let forked = |pid, parent| TaskEvent::Forked { pid, parent };
        assert!(ignored.passes_over(8, &forked(7, 7)) && ignored.passes_over(20, &forked(20, 8)));
        assert!(
            !ignored.passes_over(30, &forked(30, 29)) && !ignored.passes_over(30, &TaskEvent::Exec)
        );
        assert!(ignored.passes_over(8, &TaskEvent::Exited) && !ignored.has(8) && ignored.has(20));
        ignored.take_back(20);
        assert!(!ignored.has(20) && ignored.has_process(7));
    }
}
