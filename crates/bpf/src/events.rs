//! Events of threads that the scheduler reports: waiting for them, processing them, and checking that the scheduler still
//! exists.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use countersteer_live::undo::{Journal, sched_ext};
use countersteer_sysfs::sched_ext::is_enabled;

use crate::KernelEngineError;
use crate::engine::ScxEngine;
use crate::generated::shared;

/// Longest wait before a check whether the kernel has ended the scheduler, since no file reports that.
const GLANCE: Duration = Duration::from_millis(50);

impl ScxEngine {
    /// Checks that the kernel has not ended the scheduler. When it does, it first removes all threads, and only then reports
    /// the reason.
    pub(super) fn rule_out_ejection(&mut self) -> Result<(), KernelEngineError> {
        for _ in 0..200 {
            self.kernel.ejected()?;
            if is_enabled(Path::new("/")) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.kernel.ejected()
    }

    /// Waits for at most this time; returns true if one of the files became readable. With `events`, any event of a thread ends
    /// the wait.
    pub(super) fn wait(&mut self, at_most: Duration, events: bool) -> bool {
        use nix::poll::{PollFd, PollFlags, poll};
        let timeout = u16::try_from(at_most.min(GLANCE).as_millis() + 1).unwrap_or(u16::MAX);
        let ring = self.kernel.ring();
        let files = self
            .wakers
            .iter()
            .map(AsFd::as_fd)
            .chain(events.then_some(ring));
        let mut polled: Vec<PollFd<'_>> =
            files.map(|f| PollFd::new(f, PollFlags::POLLIN)).collect();
        if poll(&mut polled, timeout).is_err() {
            return false;
        }
        let ready: Vec<bool> = polled.iter().map(|f| f.any().unwrap_or(false)).collect();
        let mut ready = ready.into_iter();
        let before = self.wakers.len();
        self.wakers.retain(|_| !ready.next().unwrap_or(false));
        self.wakers.len() < before
    }

    /// Processes events; returns true if a thread exited.
    pub(super) fn take_events(&mut self, journal: &mut Journal) -> Result<bool, KernelEngineError> {
        let events = self.kernel.events();
        let mut ended = false;
        for event in &events {
            if event.kind == shared::EVENT_EXIT {
                ended = true;
                if let Some(known) = self.tasks.threads.get(&event.tid) {
                    sched_ext::exited(journal, known.pid, event.tid);
                }
            }
            self.tasks.take(event);
            if event.kind == shared::EVENT_NEW && event.tid == event.tgid {
                sched_ext::forked(journal, event.tgid)?;
            }
        }
        Ok(ended)
    }
}
