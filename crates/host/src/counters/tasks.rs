//! Threads as /proc shows them.
//!
//! Input: process and thread numbers. Output: which threads a process has, which process a thread belongs to, names.

use std::path::PathBuf;

use super::CounterError;

pub(super) fn processes() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect()
}

/// How many threads there are on this machine.
pub(super) fn count() -> usize {
    let loads = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let threads = loads.split_whitespace().nth(3);
    threads
        .and_then(|field| field.split_once('/')?.1.parse().ok())
        .unwrap_or(0)
}

/// The threads of a process.
pub(super) fn of_process(pid: u32) -> Result<Vec<u32>, CounterError> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task"));
    let entries = entries.map_err(|_| CounterError::Gone {
        what: "process",
        id: pid,
    })?;
    let mut tids: Vec<u32> = entries
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect();
    tids.sort_unstable();
    Ok(tids)
}

/// The process of a thread.
///
/// # Errors
/// It has ended.
pub fn process_of(tid: u32) -> Result<u32, CounterError> {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("Tgid:"));
    line.and_then(|l| l.trim().parse().ok())
        .ok_or(CounterError::Gone {
            what: "thread",
            id: tid,
        })
}

/// Whether a thread is gone, or a zombie.
pub(super) fn has_ended(tid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{tid}/stat")) else {
        return true;
    };
    // The name stands in brackets and may itself hold brackets.
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    matches!(state, Some('Z' | 'X'))
}

pub(super) fn name(tid: u32) -> Option<String> {
    let bytes = std::fs::read(PathBuf::from(format!("/proc/{tid}/comm"))).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}
