//! Threads of a process and process of a thread. The result is an error if they have exited.

use countersteer_sysfs::procfs::PROC;

use crate::CounterError;

/// Returns the TIDs of a process.
pub(super) fn of_process(pid: u32) -> Result<Vec<u32>, CounterError> {
    let tids = PROC.threads_of(pid)?;
    let what = "process";
    (!tids.is_empty())
        .then_some(tids)
        .ok_or(CounterError::Gone { what, id: pid })
}

/// Returns the PID of a thread's process.
pub(super) fn process_of(tid: u32) -> Result<u32, CounterError> {
    let what = "thread";
    let status = PROC.status_of(tid)?;
    let gone = CounterError::Gone { what, id: tid };
    status.map(|status| status.process).ok_or(gone)
}
