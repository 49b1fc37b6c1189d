//! Samples: counts of one owner in one interval, by one set of events, on one core type.
//!
//! Output of every source (perf_event, BPF, a simulated PMU, a record); input of [`crate::metric`] and of records. A [`Sample`]
//! is the head of a row, and [`Samples`] contains many rows with all their values in one array. Counts are raw: an event that
//! counted for half the time shows half the count, and the times say so.

mod batch;
mod counts;

pub use crate::events::{EVENTS, Event, EventDef};
use crate::units::{CoreTypeId, CpuId, Nanos, ThreadId};

pub use batch::Samples;
pub use counts::{Counts, EventSet, Row};

/// Owner of the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    Thread {
        /// 0 if the source knows only threads, as tables of records do.
        pid: u32,
        tid: u32,
    },
    /// All threads of a process.
    Process { pid: u32 },
    /// Threads that are known only as a sum: those alive at the end whose last run interval was not sampled.
    Rest,
    /// All activity on a CPU.
    Cpu,
    /// Total of all activity observed.
    Total,
}

/// Head of a row of [`Samples`]: owner, CPU, event set and times of the counts.
///
/// A thread that changed core type within a period has one row for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub owner: Owner,
    /// CPU it last ran on within the interval; `None` for sums over CPUs.
    pub cpu: Option<CpuId>,
    /// Core type of that CPU: of the topology in observations, a row of its own list in a counting session.
    pub core_type: CoreTypeId,
    /// Number of its event set.
    pub set: u32,
    /// Start of counting. If the source does not keep it, the latest possible time, given the owner's run time.
    pub start: Nanos,
    pub end: Nanos,
    /// Time the set was enabled for the owner while it ran on this core type.
    pub enabled: Nanos,
    /// Time the set counted; less than `enabled` if there were too few counters.
    pub running: Nanos,
    /// One bit for each event of the set: it was counted.
    pub present: u64,
    /// True if the owner ended with this sample.
    pub last: bool,
}

impl Sample {
    /// Creates a head without times and counted events.
    #[must_use]
    pub const fn new(owner: Owner, cpu: Option<CpuId>, core_type: CoreTypeId, set: u32) -> Self {
        Self {
            owner,
            cpu,
            core_type,
            set,
            start: Nanos::ZERO,
            end: Nanos::ZERO,
            enabled: Nanos::ZERO,
            running: Nanos::ZERO,
            present: 0,
            last: false,
        }
    }

    /// Creates a head for a thread that ran on this CPU for as long as the set was enabled.
    #[must_use]
    pub fn of_thread(
        thread: ThreadId,
        cpu: CpuId,
        core_type: CoreTypeId,
        end: Nanos,
        ran: Nanos,
    ) -> Self {
        let owner = Owner::Thread {
            pid: 0,
            tid: thread.0,
        };
        Self {
            start: end.since(ran),
            end,
            enabled: ran,
            running: ran,
            ..Self::new(owner, Some(cpu), core_type, 0)
        }
    }

    /// Returns its thread; `None` for other owners.
    #[must_use]
    pub const fn thread(&self) -> Option<ThreadId> {
        match self.owner {
            Owner::Thread { tid, .. } => Some(ThreadId(tid)),
            _ => None,
        }
    }

    /// Returns the share of the enabled time in which the set counted; 1 if nothing ran.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.enabled.0 == 0 {
            1.0
        } else {
            (self.running.0 as f64 / self.enabled.0 as f64).min(1.0)
        }
    }

    /// Returns the run time of the owner, as far as either time shows.
    #[must_use]
    pub fn ran(&self) -> Nanos {
        self.enabled.max(self.running)
    }
}
