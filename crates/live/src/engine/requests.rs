//! Requests from other threads of this process to a running engine: a decision, and work stealing.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use countersteer_counters::CounterError;

/// Handle that makes a waiting engine observe at once, so that a decision follows.
#[derive(Debug)]
pub struct DecisionRequest(UnixStream);

impl DecisionRequest {
    pub fn send(&self) {
        // If the socket's buffer is full, enough requests are pending.
        let _ = (&self.0).write(&[0]);
    }
}

/// Receiver of decision requests.
#[derive(Debug)]
pub(super) struct DecisionRequests(UnixStream);

impl DecisionRequests {
    /// Creates a connected pair of a receiver and a sender of requests.
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

    /// Returns a descriptor that becomes readable when a request arrives.
    pub(super) fn file(&self) -> Option<OwnedFd> {
        Some(self.0.try_clone().ok()?.into())
    }
}

/// Shared state of work stealing: the requested queue depth threshold, and the number of stolen
/// threads.
#[derive(Clone, Debug, Default)]
pub struct Stealing(Arc<Mutex<Stolen>>);

#[derive(Debug, Default)]
struct Stolen {
    above: Option<u32>,
    count: Option<u64>,
}

impl Stealing {
    /// Returns the threshold: a run queue that is longer may be stolen from. `None` disables
    /// stealing.
    #[must_use]
    pub fn above(&self) -> Option<u32> {
        self.lock().above
    }

    pub fn set_above(&self, queued: Option<u32>) {
        self.lock().above = queued;
    }

    /// Returns the number of stolen threads; `None` if the placer has no queues.
    #[must_use]
    pub fn count(&self) -> Option<u64> {
        self.lock().count
    }

    /// Sets the number of stolen threads that the placer reports.
    pub fn set_count(&self, count: Option<u64>) {
        self.lock().count = count;
    }

    fn lock(&self) -> MutexGuard<'_, Stolen> {
        // Both numbers are plain values, so a panic cannot leave them inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
