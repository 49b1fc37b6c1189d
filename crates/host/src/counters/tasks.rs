//! Threads as /proc shows them.
//!
//! Input: process and thread numbers. Output: which threads a process has, which process a thread belongs to, names.

use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::OnceLock;

use super::CounterError;

/// All processes.
pub(super) fn processes() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

/// The threads of a process.
pub(super) fn of_process(pid: u32) -> Result<Vec<u32>, CounterError> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task"));
    let entries = entries.map_err(|_| CounterError::Gone { what: "process", id: pid })?;
    let mut tids: Vec<u32> = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
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
    line.and_then(|l| l.trim().parse().ok()).ok_or(CounterError::Gone { what: "thread", id: tid })
}

/// A thread's name.
pub(super) fn name(tid: u32) -> Option<String> {
    let bytes = std::fs::read(PathBuf::from(format!("/proc/{tid}/comm"))).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}

/// Whether the kernel tells us when threads end, so that their last counts are exact.
#[must_use]
pub fn sees_exits() -> bool {
    exit_point().is_some()
}

/// The number of the tracepoint of a thread's end, looked up once. Its table is root's, as a rule, and not mounted everywhere.
pub(super) fn exit_point() -> Option<u64> {
    static POINT: OnceLock<Option<u64>> = OnceLock::new();
    *POINT.get_or_init(find_exit_point)
}

fn find_exit_point() -> Option<u64> {
    let read = |root: &str| std::fs::read_to_string(format!("{root}/events/sched/sched_process_exit/id")).ok();
    let mounted = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"].into_iter().find_map(read);
    let private = || {
        let folder = super::sys::tracefs().ok()?;
        read(&format!("/proc/self/fd/{}", folder.as_raw_fd()))
    };
    mounted.or_else(private)?.trim().parse().ok()
}
