//! Errors of the scheduler.

use countersteer_counters::CounterError;
use countersteer_live::undo::JournalError;

/// Reason for which the engine in the kernel does not work, or not any more.
#[derive(Debug, thiserror::Error)]
pub enum KernelEngineError {
    /// The kernel refused.
    #[error(
        "sched_ext: {what}: {source}; run as root, on a kernel with sched_ext and BTF (6.16 or newer)"
    )]
    Kernel {
        what: &'static str,
        source: libbpf_rs::Error,
    },
    /// The machine does not fit into the scheduler's tables.
    #[error("sched_ext: {what}: {have}, but the scheduler takes {most}; use the affinity engine")]
    TooBig {
        /// Resource that exceeds its limit.
        what: &'static str,
        have: usize,
        most: usize,
    },
    /// There is no room for another set of CPUs to place threads on.
    #[error(
        "sched_ext: threads cannot be placed on CPUs {cpus}: too many sets of CPUs are in use, and the scheduler, or one of these \
         CPUs, has no queue left; they stay where they are and are counted as refused; use fewer sets, or `--engine affinity`"
    )]
    Crowded { cpus: String },
    /// The kernel ejected the scheduler, and all threads continue as without it.
    #[error("sched_ext: the kernel ended the scheduler ({reason}{}{message})", if message.is_empty() { "" } else { ": " })]
    Ejected { reason: String, message: String },
    /// Counters or programs failed.
    #[error(transparent)]
    Counters(#[from] CounterError),
    /// The journal cannot be written; no thread is given to the scheduler without an entry.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A process has ended.
    #[error("sched_ext: process {0} cannot be followed: it has ended")]
    Gone(u32),
}
