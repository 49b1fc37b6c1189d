//! Interface for counting threads by BPF programs, which are outside of this crate.
//!
//! Input: a [`BpfRequest`]. Output: a [`Follow`], which reports the events of threads as [`TaskReport`]s.

use std::fmt;
use std::io;
use std::sync::Arc;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::{CpuId, Nanos};

use crate::perf::catalog::TASK_CLOCK;
use crate::perf::resolve::Resolved;
use crate::perf::sys::abi;

/// Events to count, and the threads and CPUs to count them on.
#[derive(Clone, Copy, Debug)]
pub struct BpfRequest<'a> {
    pub sets: &'a [Vec<Resolved>],
    pub cpus: &'a CpuSet,
    /// Core types by CPU, which are counted apart.
    pub core_types: &'a [u32],
    /// PID of a program that is stopped before its `exec`, and is followed from there on.
    pub program: Option<u32>,
    /// Number of threads at the start.
    pub threads: usize,
    /// Sampling interval, if there is one.
    pub interval: Option<Nanos>,
    /// Least time between two samples of a running thread. A thread that has had its CPU for less is sampled next time, since a
    /// sample interrupts it.
    pub spacing: Nanos,
}

/// Kind of counts: those of one set on one class of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    pub cpu: CpuId,
    pub set: u32,
    /// Bit mask of the set's events that are counted there.
    pub present: u64,
}

/// Scheduler events that are known at context switches without a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfScheduler {
    Clock,
    /// Number of times that a thread left a CPU.
    Switches,
    /// Number of times that a thread came from another CPU.
    Migrations,
}

impl OfScheduler {
    /// Scheduler event of an event; `None` for all other events.
    #[must_use]
    pub fn of(event: &Resolved) -> Option<Self> {
        let [encoding] = event.encodings.as_slice() else {
            return None;
        };
        let whole = event.space.user && event.space.kernel && encoding.software;
        match encoding.config[0] {
            _ if !whole => None,
            TASK_CLOCK => Some(Self::Clock),
            SWITCHES => Some(Self::Switches),
            MIGRATIONS => Some(Self::Migrations),
            _ => None,
        }
    }
}

/// Event of a thread.
#[derive(Clone, Copy, Debug)]
pub enum TaskReport<'a> {
    /// The thread was created by `parent`.
    Forked { pid: u32, parent: u32 },
    /// The thread has executed a program and has taken the number of its process.
    Renumbered { pid: u32, before: u32 },
    /// The thread has this name, which ends with the first zero.
    Named([u8; 16]),
    /// The thread executes a program of this name, and has taken the number of its process.
    Exec([u8; 16]),
    /// Counts of the thread since the first report.
    Counted {
        pid: u32,
        /// Row of the kind of these counts.
        kind: usize,
        cpu: CpuId,
        /// Time that it ran there while the set was switched on.
        enabled: Nanos,
        /// Time that the set counted.
        running: Nanos,
        /// Values by event of the set.
        values: &'a [u64],
        /// True if there is no other news of the thread: it was reported before, and continues.
        alone: bool,
    },
    /// The thread exited; all its counts were reported.
    Exited,
}

/// Receives a report: time, TID, event.
pub type TakeReport<'a> = &'a mut dyn FnMut(Nanos, u32, TaskReport<'_>);

/// Follower of threads inside the kernel: it counts for each thread what CPUs count while it runs.
pub trait Follow: Send {
    /// Kinds of counts that are reported.
    fn kinds(&self) -> Vec<Kind>;

    /// Follows these threads, given as process and TID, and their descendants; skips threads that have exited.
    ///
    /// # Errors
    /// Fails if there is no room for them, or the kernel refuses.
    fn adopt(&mut self, threads: &[(u32, u32)]) -> io::Result<()>;

    /// Switches a set on or off.
    ///
    /// # Errors
    /// Fails if the kernel refuses.
    fn switch(&mut self, set: u32, on: bool) -> io::Result<()>;

    /// Reports all changes since the last call, also of threads that are running; forks come before exits.
    fn collect(&mut self, take: TakeReport<'_>);

    /// Process and TID of each thread that has run and has not left its last CPU.
    fn living(&mut self) -> Vec<(u32, u32)>;

    /// Counts of threads that had no room of their own, by kind: enabled and running time, then values.
    fn rest(&mut self) -> Vec<(usize, Vec<u64>)>;

    /// Number of forked threads that are not counted apart.
    fn lost(&self) -> u64;

    /// True if [`Follow::collect`] should be called soon, or there will be no room for new threads.
    fn is_crowded(&self) -> bool;
}

/// Loads BPF programs that follow threads; the error is the reason for which that fails.
pub type Load = dyn Fn(&BpfRequest<'_>) -> Result<Box<dyn Follow>, String> + Send + Sync;

/// Loader for counting threads by BPF programs.
#[derive(Clone)]
pub struct BpfLoader {
    /// Loads the programs, or returns the reason for which that fails.
    pub load: Arc<Load>,
    /// True if a failure to load is an error.
    pub must: bool,
}

impl fmt::Debug for BpfLoader {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("BpfLoader")
            .field("must", &self.must)
            .finish_non_exhaustive()
    }
}

/// Codes of the kernel's own events.
const SWITCHES: u64 = abi::PERF_COUNT_SW_CONTEXT_SWITCHES as u64;
const MIGRATIONS: u64 = abi::PERF_COUNT_SW_CPU_MIGRATIONS as u64;
