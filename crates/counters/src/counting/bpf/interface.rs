//! Interface for counting threads by BPF programs. The programs are outside of this crate.
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

/// Events to count by BPF programs, and the threads and CPUs on which they are counted.
#[derive(Clone, Copy, Debug)]
pub struct BpfRequest<'a> {
    pub sets: &'a [Vec<Resolved>],
    pub cpus: &'a CpuSet,
    /// Core type of each CPU. Counts of different core types are kept apart.
    pub core_types: &'a [u32],
    /// PID of the program to be counted, if it was started for counting. It is stopped before its `exec` and is followed from
    /// there.
    pub program: Option<u32>,
    /// Number of threads to be counted at the start.
    pub threads: usize,
    /// Sampling interval; `None` if threads are not sampled before their exit.
    pub interval: Option<Nanos>,
    /// Minimum running time between two samples of a thread, because a sample interrupts it. A thread that has run for less is
    /// sampled in the next interval.
    pub spacing: Nanos,
}

/// Kind of counts: the counts of one event set on one class of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetOfClass {
    pub cpu: CpuId,
    pub set: u32,
    /// Bit mask of the events of the set that these CPUs can count.
    pub present: u64,
}

/// Events of the kernel's scheduler that the BPF programs count at context switches, without a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfScheduler {
    Clock,
    /// Number of times that the thread left a CPU.
    Switches,
    /// Number of times that the thread continued on another CPU.
    Migrations,
}

impl OfScheduler {
    /// Returns the scheduler event that is the same as `event`; `None` for all other events.
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

/// Change of a thread, or its counts, as the BPF programs report them.
#[derive(Clone, Copy, Debug)]
pub enum TaskReport<'a> {
    /// The thread was created by the thread `parent`, in the process `pid`.
    Forked { pid: u32, parent: u32 },
    /// The thread with the TID `before` executed a program. Its TID is now that of its process, `pid`.
    Renumbered { pid: u32, before: u32 },
    /// The thread was given this name, which ends at the first zero byte.
    Named([u8; 16]),
    /// The thread executes a program with this name. Its TID is now that of its process.
    Exec([u8; 16]),
    /// Counts of the thread since the first report.
    Counted {
        pid: u32,
        /// Index of the kind of these counts, in [`Follow::kinds`].
        kind: usize,
        /// CPU on which the thread was counted.
        cpu: CpuId,
        /// Time that the thread ran on CPUs of this kind while the set was switched on.
        enabled: Nanos,
        /// Time for which the set's events counted.
        running: Nanos,
        /// Values of the events, in the order of the set.
        values: &'a [u64],
        /// True if there is no other report about the thread, which was known before and still runs.
        alone: bool,
    },
    /// The thread exited. All its counts were reported before.
    Exited,
}

/// Closure that receives each report with its time and TID.
pub type TakeReport<'a> = &'a mut dyn FnMut(Nanos, u32, TaskReport<'_>);

/// BPF programs that follow threads inside the kernel. They attribute the counts of a CPU to the thread that runs on it.
pub trait Follow: Send {
    /// Returns the kinds of counts that are reported.
    fn kinds(&self) -> Vec<SetOfClass>;

    /// Begins to follow these threads (pairs of PID and TID) and their descendants. Threads that have exited are skipped.
    ///
    /// # Errors
    /// Fails if the tables of the programs are full, or the kernel refuses.
    fn adopt(&mut self, threads: &[(u32, u32)]) -> io::Result<()>;

    /// Switches the event set with the index `set` on or off.
    ///
    /// # Errors
    /// Fails if the kernel refuses.
    fn switch(&mut self, set: u32, on: bool) -> io::Result<()>;

    /// Reports all changes and counts since the last call, those of running threads included. Forks are reported before exits.
    fn collect(&mut self, take: TakeReport<'_>);

    /// Returns the PID and TID of each thread that has run and has not finally left its CPU.
    fn living(&mut self) -> Vec<(u32, u32)>;

    /// Returns, for each kind, the counts of threads for which the tables had no capacity. Each entry has the enabled time, the
    /// running time, and the values.
    fn rest(&mut self) -> Vec<(usize, Vec<u64>)>;

    /// Returns the number of created threads whose counts are not kept apart.
    fn lost(&self) -> u64;

    /// True if the tables of the programs are almost full: [`Follow::collect`] should be called soon.
    fn is_crowded(&self) -> bool;
}

/// Function that loads the BPF programs. Its error is the reason for the failure.
pub type Load = dyn Fn(&BpfRequest<'_>) -> Result<Box<dyn Follow>, String> + Send + Sync;

/// Loader of the BPF programs that count threads.
#[derive(Clone)]
pub struct BpfLoader {
    /// Function that loads the programs.
    pub load: Arc<Load>,
    /// True if counting fails when the programs cannot be loaded; false if per-thread counters are used then.
    pub must: bool,
}

impl fmt::Debug for BpfLoader {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("BpfLoader")
            .field("must", &self.must)
            .finish_non_exhaustive()
    }
}

/// Code of the kernel's event for context switches.
const SWITCHES: u64 = abi::PERF_COUNT_SW_CONTEXT_SWITCHES as u64;
/// Code of the kernel's event for migrations.
const MIGRATIONS: u64 = abi::PERF_COUNT_SW_CPU_MIGRATIONS as u64;
