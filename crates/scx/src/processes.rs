//! Processes that the scheduler follows: attached when they are to be steered, and let go.

use std::collections::BTreeSet;
use std::sync::Arc;

use countersteer_host::live::Root;
use countersteer_host::task;

use crate::ScxError;
use crate::config::Mode;
use crate::engine::{ScxEngine, now_ns};
use crate::generated::{shared, types};
use crate::tasks;

/// Rounds in which threads are looked for that were born while their process was let go.
const DISMISSING_ROUNDS: usize = 10;

impl ScxEngine {
    /// Steers a process from now on, and what it starts.
    ///
    /// # Errors
    /// It is gone, or the scheduler is.
    pub fn attach(&mut self, root: &Root) -> Result<(), ScxError> {
        if self
            .roster
            .threads
            .get(&root.pid)
            .is_some_and(|k| k.pid == root.pid)
        {
            // It was born to one that is followed.
            return Ok(());
        }
        let program = root.program.0;
        self.roster.name(program, Arc::clone(&root.name));
        let mut done = BTreeSet::new();
        loop {
            // A thread that is born meanwhile is followed already if its parent was.
            let new: Vec<u32> = task::threads(root.pid)
                .into_iter()
                .filter(|t| done.insert(*t))
                .collect();
            if new.is_empty() {
                return if done.is_empty() {
                    Err(ScxError::Gone(root.pid))
                } else {
                    Ok(())
                };
            }
            let admit = |tid: &u32| types::command {
                tid: *tid,
                kind: shared::COMMAND_ADMIT,
                program,
                ..types::command::default()
            };
            let commands: Vec<_> = new.iter().map(admit).collect();
            let Self {
                kernel,
                roster,
                config,
                ..
            } = self;
            kernel.obey(&commands, |command, _| {
                if command.result == 0 {
                    if config.mode == Mode::Partial {
                        tasks::give(command.tid);
                    }
                    roster.meet(now_ns(), command.tid, root.pid, program, command.cpu);
                }
            })?;
        }
    }

    /// Lets a process go, and what it has started for its program.
    ///
    /// # Errors
    /// The scheduler is gone.
    pub fn detach(&mut self, root: &Root) -> Result<(), ScxError> {
        // Threads that are born meanwhile have been told of by the next round.
        for _ in 0..DISMISSING_ROUNDS {
            self.listen();
            let gone = self.roster.of(root.program, root.pid);
            if gone.is_empty() {
                break;
            }
            let dismiss = |tid: &u32| types::command {
                tid: *tid,
                kind: shared::COMMAND_DISMISS,
                ..types::command::default()
            };
            self.kernel
                .obey(&gone.iter().map(dismiss).collect::<Vec<_>>(), |_, _| {})?;
            for tid in gone {
                tasks::take_back(tid);
                self.roster.leave(now_ns(), tid);
            }
        }
        Ok(())
    }
}

impl Drop for ScxEngine {
    fn drop(&mut self) {
        if self.config.mode == Mode::Full {
            return;
        }
        // Threads that are born meanwhile inherit the class.
        let processes: BTreeSet<u32> = self.roster.threads.values().map(|k| k.pid).collect();
        for _ in 0..10 {
            let threads = processes.iter().flat_map(|pid| task::threads(*pid));
            if threads.filter(|tid| tasks::take_back(*tid)).count() == 0 {
                break;
            }
        }
    }
}
