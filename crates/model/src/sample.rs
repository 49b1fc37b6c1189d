//! Samples: counts of one owner (thread, process or CPU) in one interval, by one event set, on one core type.
//!
//! Every source (perf_event, BPF, a simulated PMU, a record) outputs samples; [`crate::metric`] and records consume them. A
//! [`Sample`] is the head of a row, and [`Samples`] contains many rows with all their values in one array. Counts are raw: an
//! event that counted for half of the time has half the count, and `enabled` and `running` show this.

mod batch;
mod counts;

pub use crate::events::{EVENTS, Event, EventDef};
use crate::units::{CoreTypeId, CpuId, Nanos, ThreadId};

pub use batch::Samples;
pub use counts::{Counts, EventSet, SampleRow};

/// Thread, process or CPU whose activity was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    Thread {
        /// Process id; 0 if the source knows only threads, as tables of records do.
        pid: u32,
        tid: u32,
    },
    /// All threads of a process.
    Process { pid: u32 },
    /// Sum over threads that were alive at the end and whose last run interval was not sampled.
    Rest,
    /// All activity on the CPU of the sample.
    Cpu,
    /// All activity that was observed.
    Total,
}

/// Head of a row of [`Samples`]: the owner, CPU, event set and times of the counts.
///
/// A thread that changed core type within a period has one row per core type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub owner: Owner,
    /// CPU on which the owner last ran in the interval; `None` for sums over CPUs.
    pub cpu: Option<CpuId>,
    /// Core type of the CPU: an index in the topology for observations, and in the session's own list for counting sessions.
    pub core_type: CoreTypeId,
    /// Index of the event set, as the source numbers its sets.
    pub set: u32,
    /// Start of counting. If the source does not store it, the latest start that is consistent with the owner's run time.
    pub start: Nanos,
    pub end: Nanos,
    /// Time for which the event set was enabled while the owner ran on this core type.
    pub enabled: Nanos,
    /// Time for which the event set counted; less than `enabled` if the PMU had too few counters.
    pub running: Nanos,
    /// Events of the set that were counted, one bit per position.
    pub present: u64,
    /// True if the owner exited, so that this is its last sample.
    pub last: bool,
}

impl Sample {
    /// Creates a head with zero times and no counted events.
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

    /// Creates a head for a thread that ran on this CPU for `ran`, all of which was counted.
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

    /// Returns the thread whose activity was counted; `None` for other owners.
    #[must_use]
    pub const fn thread(&self) -> Option<ThreadId> {
        match self.owner {
            Owner::Thread { tid, .. } => Some(ThreadId(tid)),
            _ => None,
        }
    }

    /// Returns the fraction of the enabled time in which the event set counted; 1 if the enabled time is zero.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.enabled.0 == 0 {
            1.0
        } else {
            (self.running.0 as f64 / self.enabled.0 as f64).min(1.0)
        }
    }

    /// Returns the run time of the owner: the larger of `enabled` and `running`.
    #[must_use]
    pub fn ran(&self) -> Nanos {
        self.enabled.max(self.running)
    }
}
