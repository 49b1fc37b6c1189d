//! Observations: the events and samples of threads since the last observation, and the current state of the threads.
//!
//! Observations are the output of every engine and of the replay of a record, and the input of metrics, usage and policies.

use std::sync::Arc;

use crate::cpuset::CpuSet;
use crate::hint::Hint;
use crate::sample::Samples;
use crate::units::{CpuId, Nanos, ProgramId, ThreadId};

/// Events and samples of threads since the last observation, and the current state of the threads.
///
/// ```
/// use countersteer_model::observation::Observation;
/// use countersteer_model::sample::{Event, Sample, Samples};
/// use countersteer_model::units::{CoreTypeId, CpuId, Nanos, ThreadId};
///
/// let (end, ran) = (Nanos::from_millis(40), Nanos::from_millis(20));
/// let sample = Sample::of_thread(ThreadId(7), CpuId(0), CoreTypeId(0), end, ran);
/// let counts = [(Event::Instructions, 4e7), (Event::Cycles, 2e7)];
/// let seen = Observation { at: end, samples: Samples::of(sample, 1, &counts), ..Observation::default() };
/// let (thread, row) = seen.samples.of_threads().next().unwrap();
/// assert_eq!((thread, row.ran()), (ThreadId(7), ran));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// Time of the observation since the start of the run.
    pub at: Nanos,
    /// Living threads, in ascending order of ids.
    pub threads: Vec<ThreadInfo>,
    /// Events of threads since the last observation, in order of time.
    pub events: Vec<ThreadEvent>,
    /// Programs of the living threads, in ascending order of ids.
    pub programs: Vec<ProgramInfo>,
    /// Programs of exited threads, if the engine knows them. Such a thread may have started after the last observation, or
    /// exited before it while its samples arrive only now.
    pub ended: Vec<(ThreadId, ProgramId)>,
    /// Counter samples, sorted by thread, then by time.
    pub samples: Samples,
    /// Run intervals, in order of their ends; empty unless the engine traces, or the policy asked for context switches and the
    /// engine can report them.
    pub spans: Vec<Span>,
    /// True if the workload has finished.
    pub finished: bool,
    /// True if the engine detects phase changes itself and reports them as events.
    pub tells_phases: bool,
}

/// State of a living thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadInfo {
    /// Identifier of the thread.
    pub id: ThreadId,
    /// Identifier of the thread's program.
    pub program: ProgramId,
    /// Name of the thread's program, unique in the workload.
    pub name: Arc<str>,
    /// CPU on which the thread runs or last ran.
    pub cpu: CpuId,
    /// True if the thread is running or waiting for a CPU, false if it sleeps.
    pub runnable: bool,
    /// Nice value of the thread.
    pub nice: i8,
    /// CPUs in the thread's current affinity mask.
    pub allowed: Arc<CpuSet>,
    /// Application hint about the thread; `None` without one.
    pub hint: Option<Hint>,
}

/// Program that has living threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramInfo {
    pub id: ProgramId,
    /// Name of the program, unique in the workload.
    pub name: Arc<str>,
    /// Path of the executable file, or name of the profile in a simulation; `None` if unknown.
    pub path: Option<Arc<str>>,
}

/// Event of a thread, with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadEvent {
    /// Time of the event since the start of the run.
    pub at: Nanos,
    /// Identifier of the thread.
    pub thread: ThreadId,
    /// Kind of the event.
    pub kind: ThreadEventKind,
}

/// Kinds of thread events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadEventKind {
    /// The thread was created.
    New,
    /// The thread's process called execve, or its program was restarted.
    Exec,
    /// The thread exited.
    Exit,
    /// The thread became runnable.
    Wake,
    /// The thread went to sleep.
    Sleep,
    /// The thread migrated.
    Migrate {
        /// Source CPU.
        from: CpuId,
        /// Destination CPU.
        to: CpuId,
    },
    /// The thread entered another program phase; see [`crate::phase`].
    Phase,
}

impl ThreadEventKind {
    /// Returns the name of the event kind in records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Exec => "exec",
            Self::Exit => "exit",
            Self::Wake => "wake",
            Self::Sleep => "sleep",
            Self::Migrate { .. } => "migrate",
            Self::Phase => "phase",
        }
    }
}

/// Run interval: the time for which a thread ran on a CPU without interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Identifier of the thread.
    pub thread: ThreadId,
    /// CPU on which the thread ran.
    pub cpu: CpuId,
    /// Start of the run interval.
    pub start: Nanos,
    /// End of the run interval.
    pub end: Nanos,
}
