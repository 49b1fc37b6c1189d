//! What was restored, and where to look for threads that inherited a change.

use serde::Serialize;

use crate::task;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// Runs that are gone and had left journals.
    pub journals: usize,
    /// Threads that were restored.
    pub threads: usize,
    /// Frequency hints, energy preferences and groups of resctrl that were restored or removed.
    pub hints: usize,
    /// Threads that somebody else has confined since; they were left alone.
    pub left: usize,
    /// Threads that could not be restored: not permitted, or none of their CPUs is allowed any more.
    pub failed: usize,
}

/// Threads of processes that were born since then and are related to one that a journal knows: by process, parent or session.
/// With each comes what its relative has.
pub(crate) fn unlisted<T: Copy>(
    since: u64,
    related: impl Fn(u32, u32, u32) -> Option<T>,
) -> Vec<(u32, T)> {
    let mut found = Vec::new();
    for pid in task::processes() {
        let Some(stat) = task::stat(pid, pid).filter(|s| !s.kernel && s.started >= since) else {
            continue;
        };
        if let Some(relative) = related(pid, stat.parent, stat.session) {
            found.extend(task::threads(pid).into_iter().map(|tid| (tid, relative)));
        }
    }
    found
}
