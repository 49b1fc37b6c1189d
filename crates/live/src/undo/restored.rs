//! Results of restoring changes.

use serde::Serialize;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// Number of ended runs that had left journals.
    pub journals: usize,
    /// Number of threads that were restored.
    pub threads: usize,
    /// Number of frequency hints, energy preferences and resctrl groups that were restored or
    /// removed.
    pub hints: usize,
    /// Number of threads whose masks another program has set since, and which were left unchanged.
    pub left: usize,
    /// Number of threads that could not be restored, because it is not permitted or none of their
    /// CPUs is allowed any more.
    pub failed: usize,
}
