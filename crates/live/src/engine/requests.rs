//! Requests of other threads of this process to a running engine: a decision, and work stealing.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use countersteer_counters::CounterError;

/// Makes a waiting engine observe at once, so that a decision follows.
#[derive(Debug)]
pub struct DecisionRequest(UnixStream);

impl DecisionRequest {
    pub fn send(&self) {
        // If there is no room, enough requests are waiting.
        let _ = (&self.0).write(&[0]);
    }
}

/// Receiver of requests.
#[derive(Debug)]
pub(super) struct Requests(UnixStream);

impl Requests {
    /// Pair of a receiver of requests and their sender.
    pub(super) fn new() -> Result<(Self, DecisionRequest), CounterError> {
        let system = CounterError::system("making room for requests");
        let (here, there) = UnixStream::pair().map_err(&system)?;
        [&here, &there]
            .into_iter()
            .try_for_each(|end| end.set_nonblocking(true))
            .map_err(&system)?;
        Ok((Self(here), DecisionRequest(there)))
    }

    /// True if a decision was requested since the last call.
    pub(super) fn pending(&mut self) -> bool {
        self.0.read(&mut [0; 64]).is_ok_and(|n| n > 0)
    }

    /// Descriptor that is readable when a request has arrived.
    pub(super) fn file(&self) -> Option<OwnedFd> {
        Some(self.0.try_clone().ok()?.into())
    }
}

/// Work stealing: the requested queue depth threshold, and the number of stolen threads.
#[derive(Clone, Debug, Default)]
pub struct Stealing(Arc<Mutex<Stolen>>);

#[derive(Debug, Default)]
struct Stolen {
    above: Option<u32>,
    count: Option<u64>,
}

impl Stealing {
    /// Queue depth above which waiting threads may be taken; `None` for never.
    #[must_use]
    pub fn above(&self) -> Option<u32> {
        self.lock().above
    }

    pub fn set_above(&self, queued: Option<u32>) {
        self.lock().above = queued;
    }

    /// Number of stolen threads; `None` without queues.
    #[must_use]
    pub fn count(&self) -> Option<u64> {
        self.lock().count
    }

    /// Stores the count that the placer reports.
    pub fn set_count(&self, count: Option<u64>) {
        self.lock().count = count;
    }

    fn lock(&self) -> MutexGuard<'_, Stolen> {
        // A panic cannot leave these two numbers half written.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
