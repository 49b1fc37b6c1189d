//! Events that end a wait of the engine before the period does: signals, decision requests, and ends of processes.

use std::os::fd::AsFd;

use countersteer_counters::CounterError;
use countersteer_sysfs::pidfd;

use super::LiveEngine;
use super::requests::DecisionRequests;

impl LiveEngine {
    pub(super) fn wake_on_signals(&mut self) -> Result<(), CounterError> {
        let file = self.signals.as_fd().try_clone_to_owned();
        let file = file.map_err(CounterError::system("listening for signals"))?;
        self.placer.wake_on(file);
        Ok(())
    }

    pub(super) fn wake_on_requests(&mut self) {
        if let Some(file) = self.requests.as_ref().and_then(DecisionRequests::file) {
            self.placer.wake_on(file);
        }
    }

    pub(super) fn wake_at_end(&mut self, pid: u32) {
        // If the process has ended already, the next observation detects this.
        if let Ok(file) = pidfd::open(pid) {
            self.placer.wake_on(file);
        }
    }

    /// True if a decision was requested since the last call.
    pub(super) fn is_requested(&mut self) -> bool {
        let pending = self
            .requests
            .as_mut()
            .is_some_and(DecisionRequests::pending);
        if pending {
            self.wake_on_requests();
        }
        pending
    }

    /// Passes a pending signal on to the programs. Returns true if the run ends because of it.
    pub(super) fn pass_signal(&mut self) -> bool {
        let Some((signal, only_here)) = self.signals.pending() else {
            return false;
        };
        // A signal of the terminal reaches the programs directly; one from `kill` reaches only this process. A second signal
        // kills the programs.
        if only_here || self.asked_to_end {
            let signal = if self.asked_to_end {
                libc::SIGKILL
            } else {
                signal
            };
            if !self.workload.signal(signal) {
                return true;
            }
        } else if !self.workload.signal(0) {
            return true;
        }
        self.asked_to_end = true;
        false
    }
}
