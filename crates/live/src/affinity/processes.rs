//! Attaching of processes, one by one, which the affinity engine then steers.
use std::sync::Arc;

use countersteer_counters::CounterError;
use countersteer_model::engine::{ThreadEvent, ThreadEventKind};
use countersteer_model::units::ThreadId;
use countersteer_sysfs::procfs::PROC;

use super::AffinityEngine;
use crate::placer::{EngineError, ProcessRoot};
use crate::undo::Journal;

impl AffinityEngine {
    /// Attaches a process: follows its threads and steers them from now on.
    pub(super) fn take_on(
        &mut self,
        root: &ProcessRoot,
        journal: &mut Journal,
    ) -> Result<(), EngineError> {
        // The kernel may have reported the fork of this process since the last call.
        self.session.listen();
        self.follow(journal)?;
        if self.tasks.knows(root.pid) {
            // A steered process created this one, so it is steered already.
            return Ok(());
        }
        self.ignored.take_back(root.pid);
        let counted = self.counting
            && match self.session.attach(root.pid) {
                Ok(()) => true,
                Err(error @ CounterError::Gone { .. }) => return Err(error.into()),
                Err(error) => {
                    self.blind.get_or_insert_with(|| error.to_string());
                    false
                }
            };
        let at = self.session.now();
        let tids = PROC.threads(root.pid);
        if tids.is_empty() {
            return Err(CounterError::Gone {
                what: "process",
                id: root.pid,
            }
            .into());
        }
        for tid in tids {
            if !counted {
                self.scan.knows(root.pid, tid);
            }
            self.events.push(ThreadEvent {
                at,
                thread: ThreadId(tid),
                kind: ThreadEventKind::New,
            });
            self.take_in(
                (root.pid, tid),
                (root.program, Arc::clone(&root.name)),
                None,
                journal,
            )?;
            if !self.tasks.members.contains_key(&tid) {
                // The process had exited before it was followed, so its exit is not reported by the
                // kernel.
                self.events.push(ThreadEvent {
                    at,
                    thread: ThreadId(tid),
                    kind: ThreadEventKind::Exit,
                });
            }
            if let Some(member) = self.tasks.members.get(&tid) {
                self.owns
                    .entry(root.program)
                    .or_insert_with(|| (member.before.cpus.clone(), member.before.nice));
            }
        }
        Ok(())
    }
}
