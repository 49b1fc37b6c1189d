//! Answer of an observer to its caller.

use std::io;

/// Action that the caller must take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum CallerAction {
    Go,
    /// End the process: the recording is over, or its receiver is gone.
    Stop,
}

impl CallerAction {
    /// Returns the action after an attempt to reach the receiver.
    #[inline(always)]
    pub fn after(sent: &io::Result<()>) -> Self {
        match sent {
            Ok(()) => Self::Go,
            Err(_) => Self::Stop,
        }
    }
}
