//! Errors of counters, with their remedies.

use std::io;
use std::path::PathBuf;

use countersteer_model::counters::{PlanError, SpecError};

use countersteer_sysfs::launch::LaunchError;
use countersteer_sysfs::procfs::{PROC, ProcError};

use crate::perf::limits::permission;
use crate::perf::vendor::VendorError;

#[derive(Debug, thiserror::Error)]
pub enum CounterError {
    /// Event that this machine does not know or cannot count.
    #[error("events: {0}")]
    Spec(#[from] SpecError),
    /// Unknown metric, or one whose events cannot be counted on this machine.
    #[error("metrics: {0}")]
    Metric(SpecError),
    /// Sets that cannot be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(
        "counting `{event}` of {target} is not permitted (kernel.perf_event_paranoid is {paranoid}); \
         {} allows it",
        permission(*wanted)
    )]
    Forbidden {
        event: String,
        target: String,
        paranoid: String,
        /// Value of the setting that would permit it.
        wanted: i32,
    },
    /// BPF programs are required, but cannot be loaded.
    #[error(
        "threads cannot be counted by BPF programs here: {reason}; without `--bpf always` they have counters of their own"
    )]
    NoBpf { reason: String },
    /// The kernel refuses the event.
    #[error(
        "the kernel refuses to count `{event}` of {target}: {source}{}",
        hint(source)
    )]
    Refused {
        event: String,
        target: String,
        source: io::Error,
    },
    /// An event of the whole machine was requested for a thread.
    #[error(
        "`{event}` is counted for the whole machine only, not for a thread; use -a, or leave it out"
    )]
    SystemOnly { event: String },
    #[error(
        "{needed} counters are more open files than the limit of {limit} allows; raise it (`ulimit -n {needed}`), \
         or count fewer events, CPUs (-C) or threads, or whole CPUs (-a)"
    )]
    TooManyFiles { needed: u64, limit: u64 },
    /// The program to be counted cannot be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// There is no such process or thread.
    #[error("there is no {what} {id}; `ps -eLo pid,tid,comm` lists those that run")]
    Gone { what: &'static str, id: u32 },
    /// A process or thread exists, but /proc cannot be read for it.
    #[error(transparent)]
    Proc(#[from] ProcError),
    #[error("{}: {source}; name a folder of the cgroup file system, below /sys/fs/cgroup", path.display())]
    Cgroup { path: PathBuf, source: io::Error },
    /// Control group for which the kernel keeps no counters.
    #[error("the kernel keeps no counters for the control group {}: {remedy}", path.display())]
    CgroupUncounted {
        path: PathBuf,
        /// Remedy that makes the kernel keep counters.
        remedy: String,
    },
    /// CPU that is not online.
    #[error("CPU {cpu} is not online; {online} are")]
    Offline { cpu: u32, online: String },
    /// A ring buffer cannot be mapped.
    #[error(
        "cannot map a ring buffer for CPU {cpu}: {source}; `sysctl kernel.perf_event_mlock_kb` limits them for ordinary users"
    )]
    Ring { cpu: u32, source: io::Error },
    /// A file of sysfs or /proc has unexpected content.
    #[error("{}: `{content}` is no {expected}; the kernel is newer than this program, or the folder is no sysfs", path.display())]
    Malformed {
        path: PathBuf,
        content: String,
        expected: &'static str,
    },
    /// List of events of a vendor that cannot be read.
    #[error(transparent)]
    Vendor(#[from] VendorError),
    /// Operation that a region does not allow in its state, or invalid options.
    #[error("{0}")]
    Region(&'static str),
    #[error("{doing} failed: {source}")]
    System {
        doing: &'static str,
        source: io::Error,
    },
}

impl CounterError {
    /// Makes an error for a failed system call, with the operation that failed.
    pub fn system(doing: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::System { doing, source }
    }

    /// True if the cause is a CPU that does not count, or not yet: the kernel shows it as online a little earlier.
    pub(super) fn is_of_cpu_offline(&self) -> bool {
        matches!(self, Self::Refused { source, .. } if source.raw_os_error() == Some(libc::ENODEV))
    }

    /// True if the cause is a thread that has ended. Kernels report it in several ways if it ended between two events of a
    /// group.
    pub(super) fn is_of_end(&self, tid: u32) -> bool {
        let Self::Refused { source, .. } = self else {
            return false;
        };
        source.raw_os_error() == Some(libc::ESRCH) || PROC.stat(tid, tid).is_none()
    }
}

fn hint(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => {
            "; this machine has no counter for it (a virtual machine without a PMU?): `steer events` lists what there is"
        }
        Some(libc::EINVAL) => {
            "; the PMU does not know this encoding, too many events stand in one set, or the kernel is older than 6.12: \
             use several -e (or regions), or --per total"
        }
        Some(libc::EMFILE | libc::ENFILE) => {
            "; raise the limit of open files (`ulimit -n`), or count fewer events"
        }
        Some(libc::EBUSY) => "; another user of the PMU holds the counter exclusively",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_ended_is_not_one_whose_event_is_refused() {
        let refused = |code| {
            let source = io::Error::from_raw_os_error(code);
            CounterError::Refused {
                event: "cycles".into(),
                target: "process 7".into(),
                source,
            }
        };
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let own = std::process::id();
        let ended = child.id();
        while PROC.stat(ended, ended).is_some() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(refused(libc::ENODEV).is_of_end(ended) && refused(libc::ESRCH).is_of_end(own));
        assert!(!refused(libc::ENODEV).is_of_end(own));
        child.wait().unwrap();
        assert!(refused(libc::ENODEV).is_of_end(ended));
        assert!(!CounterError::Region("none").is_of_end(ended));
    }
}
