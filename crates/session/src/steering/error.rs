//! Errors that prevent or end steering.
//!
//! Output: a sentence with the problem, where it occurred, and the remedy.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitStatus;

use countersteer_lab::error::FaultKind;
use countersteer_model::cpuset::CpuSet;
use countersteer_model::suggestion::suggestion;

/// Errors of steering. Errors of engines, records and files are passed on unchanged.
#[derive(Debug, thiserror::Error)]
pub enum SteeringError {
    /// The machine file describes a machine with other CPUs.
    #[error("machine {machine} has a CPU {cpu}, this one has CPUs {online}; give a file that fits")]
    OtherMachine {
        machine: String,
        cpu: u32,
        online: CpuSet,
    },
    #[error(
        "`{policy}` needs data that only a simulator has: use it with `steer sim` or `steer compare`"
    )]
    BoundPolicy { policy: String },
    #[error(
        "`{policy}` is unavailable on this machine, which lacks {what}; use it with `steer sim` or `steer compare`, or \
         hsf with sf=model, sf=sampled or sf=history here"
    )]
    UnavailablePolicy { policy: String, what: &'static str },
    #[error(
        "the affinity engine cannot steal work: --steal-above needs `--engine scx`, `scx-full` or `auto`"
    )]
    NoQueues,
    #[cfg(not(feature = "scx"))]
    #[error("this `steer` was built without the sched_ext scheduler; build it with --features scx")]
    NoScheduler,
    /// This process may not change the affinity mask of a process of another user.
    #[error(
        "{process} belongs to user {user}, and you may not steer its threads: run as root, or with CAP_SYS_NICE"
    )]
    OtherUser { process: String, user: u32 },
    #[error("no process is named `{name}`: start the foreground program first")]
    NoForeground { name: String },
    #[error("{} is not a control group: it has no cgroup.procs", .0.display())]
    NoControlGroup(PathBuf),
    #[error("another run answers on {}; name another socket, or end that run", .0.display())]
    SocketInUse(PathBuf),
    #[error("{0} is not a loopback address; metrics are for this host only")]
    NoLoopback(SocketAddr),
    #[error(
        "the policy does not return from a decision; all threads are released and this run ends"
    )]
    StuckPolicy,
    #[error(
        "`{name}` is neither a policy nor a program in PATH that could start others{}; policies are {known}", suggestion(name, known.split(", "))
    )]
    UnknownSide { name: String, known: String },
    /// One run of a trial failed; `said` is the start of its output.
    #[error("a run under {side} failed (exit status: {code}): {said}")]
    FailedRun {
        side: String,
        code: u8,
        said: String,
    },
    /// A run of a trial could not take place.
    #[error("a run under {side} failed: {said}")]
    RefusedRun {
        side: String,
        kind: FaultKind,
        said: String,
    },
    #[error("`{command}` should print a number above zero, and printed `{printed}`")]
    Score { command: String, printed: String },
    #[error(
        "{name} ended before it was loaded ({status}); it needs root and a kernel with sched_ext"
    )]
    SchedulerEnded { name: String, status: ExitStatus },
    #[error("{name} cannot be loaded, as the scheduler {other} is; stop that first")]
    OtherScheduler { name: String, other: String },
    #[error("{name} is not loaded after {after_s} s: /sys/kernel/sched_ext/state does not say so")]
    SchedulerLate { name: String, after_s: u64 },
}
