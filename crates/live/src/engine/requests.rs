//! What other threads of this process ask of an engine that runs: a decision, and work stealing.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use countersteer_counters::CounterError;

/// Has an engine that waits observe at once, so that a decision follows.
#[derive(Debug)]
pub struct DecisionRequest(UnixStream);

impl DecisionRequest {
    pub fn send(&self) {
        // Where there is no room, enough are waiting.
        let _ = (&self.0).write(&[0]);
    }
}

/// Where requests arrive.
#[derive(Debug)]
pub(super) struct Requests(UnixStream);

impl Requests {
    /// A pair of where requests arrive and what sends them.
    pub(super) fn new() -> Result<(Self, DecisionRequest), CounterError> {
        let system = CounterError::system("making room for requests");
        let (here, there) = UnixStream::pair().map_err(&system)?;
        [&here, &there]
            .into_iter()
            .try_for_each(|end| end.set_nonblocking(true))
            .map_err(&system)?;
        Ok((Self(here), DecisionRequest(there)))
    }

    /// Whether a decision was requested since the last call.
    pub(super) fn pending(&mut self) -> bool {
        self.0.read(&mut [0; 64]).is_ok_and(|n| n > 0)
    }

    /// What can be read when a request has arrived.
    pub(super) fn file(&self) -> Option<OwnedFd> {
        Some(self.0.try_clone().ok()?.into())
    }
}

/// Work stealing: the queue depth threshold that is wanted, and how often a thread was taken.
#[derive(Clone, Debug, Default)]
pub struct Stealing(Arc<Mutex<Stolen>>);

#[derive(Debug, Default)]
struct Stolen {
    above: Option<u32>,
    count: Option<u64>,
}

impl Stealing {
    /// From which queue depth on waiting threads may be taken; never, if absent.
    #[must_use]
    pub fn above(&self) -> Option<u32> {
        self.lock().above
    }

    pub fn set_above(&self, queued: Option<u32>) {
        self.lock().above = queued;
    }

    /// How often a thread was taken; `None` where there are no queues.
    #[must_use]
    pub fn count(&self) -> Option<u64> {
        self.lock().count
    }

    /// Takes in what the placer reports.
    pub fn set_count(&self, count: Option<u64>) {
        self.lock().count = count;
    }

    fn lock(&self) -> MutexGuard<'_, Stolen> {
        // Two numbers are never half written.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
