//! Observations: the state and events of threads that an engine saw since the last call.
//!
//! Output of every engine and of the replay of a record; input of metrics, usage and policies.

use std::sync::Arc;

use crate::cpuset::CpuSet;
use crate::hint::Hint;
use crate::sample::Samples;
use crate::units::{CpuId, Nanos, ProgramId, ThreadId};

/// Events since the last observation, and the present state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// Time of the observation.
    pub at: Nanos,
    /// Living threads, by id.
    pub threads: Vec<ThreadInfo>,
    /// Events of threads, in order.
    pub events: Vec<ThreadEvent>,
    /// Programs of these threads, by id.
    pub programs: Vec<ProgramInfo>,
    /// Programs of threads that have exited since, if the engine knows them. Some threads started after the last observation; of
    /// others that had exited before it, samples arrive only now.
    pub ended: Vec<(ThreadId, ProgramId)>,
    /// Counter samples, by thread, then time.
    pub samples: Samples,
    /// Run intervals, in order of their end; only if the engine was asked to trace.
    pub spans: Vec<Span>,
    /// True once the workload has ended.
    pub finished: bool,
    /// True if the events include changes of phase: the source of the observation detects them.
    pub tells_phases: bool,
}

/// Living thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadInfo {
    /// The thread.
    pub id: ThreadId,
    /// Its program.
    pub program: ProgramId,
    /// Name of its program, unique in the workload.
    pub name: Arc<str>,
    /// CPU it runs on or last ran on.
    pub cpu: CpuId,
    /// True if it is running or waiting for a CPU, not asleep.
    pub runnable: bool,
    /// Nice value.
    pub nice: i8,
    /// CPUs in its current affinity mask.
    pub allowed: Arc<CpuSet>,
    /// Hint of its program, if any.
    pub hint: Option<Hint>,
}

/// Program with threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramInfo {
    pub id: ProgramId,
    /// Name, unique in the workload.
    pub name: Arc<str>,
    /// Executable file, or in a simulation the profile, if known.
    pub path: Option<Arc<str>>,
}

/// Event of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadEvent {
    /// Time of the event.
    pub at: Nanos,
    /// The thread.
    pub thread: ThreadId,
    /// Kind of the event.
    pub kind: ThreadEventKind,
}

/// Kinds of thread events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadEventKind {
    /// The thread was created.
    New,
    /// Its program started over or executed another program.
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
    /// Its hardware behaviour changed; see [`crate::phase`].
    Phase,
}

impl ThreadEventKind {
    /// Returns its name in records.
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

/// Run interval: a thread ran on a CPU without interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The thread.
    pub thread: ThreadId,
    /// CPU it ran on.
    pub cpu: CpuId,
    /// Start time.
    pub start: Nanos,
    /// End time.
    pub end: Nanos,
}
