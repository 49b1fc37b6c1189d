//! Processes that the scheduler follows: attaching and detaching.

use std::collections::BTreeSet;
use std::sync::Arc;

use countersteer_live::placer::ProcessRoot;
use countersteer_live::undo::{Journal, sched_ext};
use countersteer_sysfs::procfs::PROC;

use crate::KernelEngineError;
use crate::config::EngineMode;
use crate::engine::ScxEngine;
use crate::generated::{shared, types};
use crate::object::now_ns;

/// Number of searches for threads that were forked while their process was detached.
const DETACHING_ROUNDS: usize = 10;

impl ScxEngine {
    /// Steers a process from now on, and its descendants.
    ///
    /// # Errors
    /// Fails if the process or the scheduler does not exist any more.
    pub fn attach(
        &mut self,
        root: &ProcessRoot,
        journal: &mut Journal,
    ) -> Result<(), KernelEngineError> {
        if self
            .tasks
            .threads
            .get(&root.pid)
            .is_some_and(|k| k.pid == root.pid)
        {
            // A followed process forked it.
            return Ok(());
        }
        let program = root.program.0;
        self.tasks.name(program, Arc::clone(&root.name));
        let mut done = BTreeSet::new();
        loop {
            // A thread that is forked meanwhile is followed already if its parent was.
            let new: Vec<u32> = PROC
                .threads(root.pid)
                .into_iter()
                .filter(|t| done.insert(*t))
                .collect();
            if new.is_empty() {
                if done.is_empty() {
                    return Err(KernelEngineError::Gone(root.pid));
                }
                break;
            }
            let admit = |tid: &u32| types::command {
                tid: *tid,
                kind: shared::COMMAND_ATTACH,
                program,
                ..types::command::default()
            };
            let commands: Vec<_> = new.iter().map(admit).collect();
            let Self {
                kernel,
                tasks,
                config,
                ..
            } = self;
            let mut journalled = Ok(());
            kernel.obey(&commands, |command| {
                if command.result == 0 {
                    if config.mode == EngineMode::Partial && journalled.is_ok() {
                        journalled = sched_ext::give(journal, root.pid, command.tid);
                    }
                    tasks.add(now_ns(), command.tid, root.pid, program, command.cpu);
                }
            })?;
            journalled?;
        }
        if let Some(counting) = &mut self.counting
            && let Err(error) = counting.attach(root.pid)
        {
            self.blind.get_or_insert_with(|| error.to_string());
        }
        Ok(())
    }

    /// Detaches a process, and the processes that it has started for its program.
    ///
    /// # Errors
    /// Fails if the scheduler does not exist any more.
    pub fn detach(
        &mut self,
        root: &ProcessRoot,
        journal: &mut Journal,
    ) -> Result<(), KernelEngineError> {
        // Threads that are forked meanwhile are reported before the next round.
        for _ in 0..DETACHING_ROUNDS {
            self.take_events(journal)?;
            let gone = self.tasks.of(root.program, root.pid);
            if gone.is_empty() {
                break;
            }
            let detach = |(tid, _): &(u32, u32)| types::command {
                tid: *tid,
                kind: shared::COMMAND_DETACH,
                ..types::command::default()
            };
            self.kernel
                .obey(&gone.iter().map(detach).collect::<Vec<_>>(), |_| {})?;
            let pids: BTreeSet<u32> = gone.iter().map(|(_, pid)| *pid).collect();
            sched_ext::restore(journal, &|pid| pids.contains(&pid));
            for (tid, _) in gone {
                journal.forget(tid);
                self.tasks.leave(now_ns(), tid);
            }
        }
        Ok(())
    }
}
