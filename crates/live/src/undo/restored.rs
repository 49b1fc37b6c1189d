//! Results of a restoration.

use serde::Serialize;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// Ended runs that had left journals.
    pub journals: usize,
    /// Threads that were restored.
    pub threads: usize,
    /// Frequency hints, energy preferences and groups of resctrl that were restored or removed.
    pub hints: usize,
    /// Threads whose masks another program has set since; they were left unchanged.
    pub left: usize,
    /// Threads that could not be restored: not permitted, or none of their CPUs is allowed any more.
    pub failed: usize,
}
