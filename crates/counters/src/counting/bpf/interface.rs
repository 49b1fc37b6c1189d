//! The interface of counting threads by BPF programs, which are outside of this crate.
//!
//! Input: a [`BpfRequest`]. Output: a [`Follow`], which reports what happened to threads as [`TaskReport`]s.

use std::fmt;
use std::io;
use std::sync::Arc;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::{CpuId, Nanos};

use crate::perf::catalog::TASK_CLOCK;
use crate::perf::resolve::Resolved;
use crate::perf::sys::abi;

/// What is to be counted, and of which threads.
#[derive(Clone, Copy, Debug)]
pub struct BpfRequest<'a> {
    pub sets: &'a [Vec<Resolved>],
    pub cpus: &'a CpuSet,
    /// Core types by CPU, which are counted apart.
    pub core_types: &'a [u32],
    /// A program that is held in front of its `exec`, and is followed from there on.
    pub program: Option<u32>,
    /// How many threads are there first.
    pub threads: usize,
    /// The sampling period, if there is one.
    pub interval: Option<Nanos>,
    /// Least time between two readings of a running thread: one that has had its CPU for less is read next time, since a reading
    /// interrupts it.
    pub spacing: Nanos,
}

/// What counts of one set on one class of CPUs are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    pub cpu: CpuId,
    pub set: u32,
    /// A bit per event of the set that is counted there.
    pub present: u64,
}

/// What is known of threads at context switches without a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfScheduler {
    Clock,
    /// How often they left a CPU.
    Switches,
    /// How often they came from another one.
    Migrations,
}

impl OfScheduler {
    /// What an event is, if it is one of those.
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

/// Something that happened to a thread.
#[derive(Clone, Copy, Debug)]
pub enum TaskReport<'a> {
    /// It was created, by this thread.
    Forked { pid: u32, parent: u32 },
    /// It has the number of its process now, having executed a program.
    Renumbered { pid: u32, before: u32 },
    /// It has this name now, which ends with the first zero.
    Named([u8; 16]),
    /// It executes a program of this name, and has the number of its process from now on.
    Exec([u8; 16]),
    /// It has counted so much since the first report.
    Counted {
        pid: u32,
        /// Of which kind these counts are.
        kind: usize,
        cpu: CpuId,
        /// Time that it ran there while the set had its turn.
        enabled: Nanos,
        /// Time that the set really counted.
        running: Nanos,
        /// By event of the set.
        values: &'a [u64],
        /// Nothing else is new of it: it was reported before, and goes on.
        alone: bool,
    },
    /// It exited; all that it has counted was reported.
    Exited,
}

/// Takes a report: when, of which thread, what.
pub type TakeReport<'a> = &'a mut dyn FnMut(Nanos, u32, TaskReport<'_>);

/// What follows threads inside the kernel, and counts for each what CPUs count while it runs.
pub trait Follow: Send {
    /// Counts of which kinds come.
    fn kinds(&self) -> Vec<Kind>;

    /// Follows these threads, by process and number, and what they fork; those that have exited are passed over.
    ///
    /// # Errors
    /// There is no room for them, or the kernel refuses.
    fn adopt(&mut self, threads: &[(u32, u32)]) -> io::Result<()>;

    /// Switches a set on or off.
    ///
    /// # Errors
    /// The kernel refuses.
    fn switch(&mut self, set: u32, on: bool) -> io::Result<()>;

    /// Reports what has changed since the last call, of threads that run at this moment too; forks before exits.
    fn collect(&mut self, take: TakeReport<'_>);

    /// Process and number of each thread that has run and has not left its last CPU.
    fn living(&mut self) -> Vec<(u32, u32)>;

    /// By kind, what was counted of threads for which there was no room of their own: enabled and running time, values.
    fn rest(&mut self) -> Vec<(usize, Vec<u64>)>;

    /// Threads that were forked and are not counted apart.
    fn lost(&self) -> u64;

    /// [`Follow::collect`] had better be called soon, or there will be no room for threads to come.
    fn is_crowded(&self) -> bool;
}

/// Loads BPF programs that follow threads, or says why not.
pub type Load = dyn Fn(&BpfRequest<'_>) -> Result<Box<dyn Follow>, String> + Send + Sync;

/// How threads may be counted by BPF programs.
#[derive(Clone)]
pub struct BpfLoader {
    /// Loads the programs; says why not.
    pub load: Arc<Load>,
    /// It is an error if that cannot be done.
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
