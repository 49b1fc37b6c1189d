//! Errors of counting, with their remedies.

use std::io;
use std::path::PathBuf;

use countersteer_model::counters::{PlanError, SpecError};

use countersteer_sysfs::launch::LaunchError;
use countersteer_sysfs::procfs::{PROC, ProcError};

use crate::perf::limits::permission;
use crate::perf::vendor::VendorError;

#[derive(Debug, thiserror::Error)]
pub enum CounterError {
    /// The machine does not know an event, or cannot count it.
    #[error("events: {0}")]
    Spec(#[from] SpecError),
    /// A metric is unknown, or its events cannot be counted on this machine.
    #[error("metrics: {0}")]
    Metric(SpecError),
    /// The event sets cannot be divided among the counters.
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
        /// Value of `kernel.perf_event_paranoid` that would permit the event.
        wanted: i32,
    },
    /// BPF programs are required, but cannot be loaded.
    #[error(
        "threads cannot be counted by BPF programs here: {reason}; without `--bpf always` they have counters of their own"
    )]
    NoBpf { reason: String },
    /// The kernel refuses to open the event.
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
    /// The process or thread does not exist.
    #[error("there is no {what} {id}; `ps -eLo pid,tid,comm` lists those that run")]
    Gone { what: &'static str, id: u32 },
    /// The process or thread exists, but its files in /proc cannot be read.
    #[error(transparent)]
    Proc(#[from] ProcError),
    #[error("{}: {source}; name a folder of the cgroup file system, below /sys/fs/cgroup", path.display())]
    Cgroup { path: PathBuf, source: io::Error },
    /// The kernel keeps no counters for the control group.
    #[error("the kernel keeps no counters for the control group {}: {remedy}", path.display())]
    CgroupUncounted {
        path: PathBuf,
        /// Remedy after which the kernel keeps counters for the group.
        remedy: String,
    },
    /// The requested CPU is not online.
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
    /// A vendor's list of events cannot be read.
    #[error(transparent)]
    Vendor(#[from] VendorError),
    /// An operation is not allowed in the state of a region, or its options are invalid.
    #[error("{0}")]
    Region(&'static str),
    #[error("{doing} failed: {source}")]
    System {
        doing: &'static str,
        source: io::Error,
    },
}

impl CounterError {
    /// Returns a function that makes an error from a failed system call. `doing` names the operation that failed.
    pub fn system(doing: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::System { doing, source }
    }

    /// True if the cause is a CPU that is offline, or that does not count yet. Sysfs shows a CPU as online a little
    /// earlier than it counts.
    pub(super) fn is_of_cpu_offline(&self) -> bool {
        matches!(self, Self::Refused { source, .. } if source.raw_os_error() == Some(libc::ENODEV))
    }

    /// True if the cause is a thread that has exited. Kernels report this in several ways if the thread exited between the
    /// opening of two events of a group.
    #[must_use]
    pub fn is_of_end(&self, tid: u32) -> bool {
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
