//! Samples: what was counted for one owner in one interval, by one set of events, on one core type.
//!
//! Output of every source (perf_event, BPF, a simulated PMU, a record); input of [`crate::metric`] and of records. A [`Sample`] is
//! the head of a row, and [`Samples`] has many rows with the values of all of them in one array. Counts are raw: what counted
//! for half the time shows half the events, and says so.

mod batch;
mod counts;

pub use crate::events::{EVENTS, Event, EventDef};
use crate::units::{CoreTypeId, CpuId, Nanos, ThreadId};

pub use batch::Samples;
pub use counts::{Counts, EventSet, Row};

/// What was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    Thread {
        /// 0 where the source knows threads only, as tables of records do.
        pid: u32,
        tid: u32,
    },
    /// All threads of a process.
    Process { pid: u32 },
    /// Threads that are known only together: those alive at the end whose last run interval was not sampled.
    Rest,
    /// All that ran on a CPU.
    Cpu,
    /// All that was looked at.
    Total,
}

/// The head of a row of [`Samples`]: what was counted, where, when and for how long.
///
/// A thread that changed core type within a period has one row for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub owner: Owner,
    /// The CPU it last ran on within the interval; absent where CPUs were added up.
    pub cpu: Option<CpuId>,
    /// The type of that CPU: of the topology in observations, a row of its own list in a counting session.
    pub core_type: CoreTypeId,
    /// By which event set.
    pub set: u32,
    /// When counting began; where the source does not keep it, as late as it can have been, by the time the owner ran.
    pub start: Nanos,
    pub end: Nanos,
    /// Time the set was enabled for the owner while it ran on this core type.
    pub enabled: Nanos,
    /// Time the set really counted; less than `enabled` when there were too few counters.
    pub running: Nanos,
    /// A bit per event of the set: it was counted.
    pub present: u64,
    /// The owner ended with this sample.
    pub last: bool,
}

impl Sample {
    /// A head without times, of which no event was counted.
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

    /// A head of a thread that ran on this CPU for as long as the set was enabled.
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

    /// The thread that it is of, if it is of one.
    #[must_use]
    pub const fn thread(&self) -> Option<ThreadId> {
        match self.owner {
            Owner::Thread { tid, .. } => Some(ThreadId(tid)),
            _ => None,
        }
    }

    /// Share of the enabled time that the set really counted; 1 where nothing ran.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.enabled.0 == 0 {
            1.0
        } else {
            (self.running.0 as f64 / self.enabled.0 as f64).min(1.0)
        }
    }

    /// How long the owner ran, as far as either time tells.
    #[must_use]
    pub fn ran(&self) -> Nanos {
        self.enabled.max(self.running)
    }
}
