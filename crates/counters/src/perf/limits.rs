//! Limits of the kernel on counting: the number of open files (a counter is one), and the permission to count.
//!
//! Input: the number of counters needed. Effect: the limit on open files is raised as far as needed and permitted.

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use countersteer_sysfs::procfs::PROC;

use crate::CounterError;

/// Number of files that are open besides counters, with some reserve.
const OTHERS: u64 = 64;

/// Returns the hard limit on open files.
pub(crate) fn most() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(OTHERS, |(_, hard)| hard)
}

/// Number of files below the limit that are reserved for steering: reopened counters, journals, and files of /proc.
const SET_ASIDE: u64 = 32;

/// True if a file is one of the last that this process may open. It should then be closed if others can do without it.
#[must_use]
pub fn is_among_the_last(file: BorrowedFd<'_>) -> bool {
    // The kernel gives each new file the lowest free number.
    let number = u64::try_from(file.as_raw_fd()).unwrap_or(u64::MAX);
    getrlimit(Resource::RLIMIT_NOFILE)
        .is_ok_and(|(soft, _)| number.saturating_add(SET_ASIDE) >= soft)
}

/// Returns the kernel's limit on samples of an event per second. The kernel lowers it if samples take too long.
pub(crate) fn samples_per_second() -> u64 {
    let most = PROC.setting("perf_event_max_sample_rate");
    most.and_then(|rate| rate.parse().ok()).unwrap_or(u64::MAX)
}

/// Returns the value of `kernel.perf_event_paranoid`, which restricts counting by users; `None` if it cannot be read.
pub fn paranoid() -> Option<String> {
    PROC.setting("perf_event_paranoid")
}

/// Returns the text that names the privilege for counting that needs `kernel.perf_event_paranoid` at `wanted`. Values above 2
/// exist only in kernels of distributions (Debian, Ubuntu), which require CAP_SYS_ADMIN.
#[must_use]
pub fn permission(wanted: i32) -> String {
    let level = paranoid().and_then(|level| level.parse().ok());
    let capability = if level.is_some_and(|level: i32| level > 2) {
        "CAP_SYS_ADMIN (above 2, this kernel does not accept CAP_PERFMON)"
    } else {
        "CAP_PERFMON"
    };
    format!("`sysctl kernel.perf_event_paranoid={wanted}` or the capability {capability}")
}

/// Raises the limit on open files so that `counters` counters can be opened.
///
/// # Errors
/// Fails if the hard limit is lower and may not be raised.
pub(crate) fn make_room(counters: u64) -> Result<(), CounterError> {
    let needed = counters + OTHERS;
    // If the limit cannot be read or set, opening counters fails later, with the reason.
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return Ok(());
    };
    if needed <= soft {
        return Ok(());
    }
    // Root may also raise the hard limit, up to fs.nr_open.
    let raised = setrlimit(Resource::RLIMIT_NOFILE, needed, needed.max(hard));
    if needed > hard && raised.is_err() {
        return Err(CounterError::TooManyFiles {
            needed,
            limit: hard,
        });
    }
    Ok(())
}
