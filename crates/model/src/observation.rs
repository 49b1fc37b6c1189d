//! Observations: what an engine saw of its threads since it was last asked.
//!
//! Output of every engine, of the replay of a record too; input of metrics, usage and policies.

use std::sync::Arc;

use crate::cpuset::CpuSet;
use crate::hint::Hint;
use crate::sample::Samples;
use crate::units::{CpuId, Nanos, ProgramId, ThreadId};

/// What happened since the last observation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// The present.
    pub at: Nanos,
    /// Threads that are alive, by id.
    pub threads: Vec<ThreadInfo>,
    /// What befell threads, in order.
    pub events: Vec<ThreadEvent>,
    /// Programs of these threads, by id.
    pub programs: Vec<ProgramInfo>,
    /// Of which programs threads were that have ended since, where the engine knows: some came after the last observation, and of
    /// some that had ended before there are samples only now.
    pub ended: Vec<(ThreadId, ProgramId)>,
    /// Counter samples, by thread, then time.
    pub samples: Samples,
    /// Run intervals, in order of their end; only when the engine was asked to trace.
    pub spans: Vec<Span>,
    /// The workload has ended.
    pub finished: bool,
    /// Changes of phase are among the events, if there were any: whoever made this looks for them.
    pub tells_phases: bool,
}

/// A thread that is alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadInfo {
    /// The thread.
    pub id: ThreadId,
    /// Of which program.
    pub program: ProgramId,
    /// The program's name, unique in the workload.
    pub name: Arc<str>,
    /// Where it runs or last ran.
    pub cpu: CpuId,
    /// Running or waiting for a CPU, as opposed to asleep.
    pub runnable: bool,
    /// Nice value.
    pub nice: i8,
    /// CPUs that it is confined to for now.
    pub allowed: Arc<CpuSet>,
    /// What its program tells about it, if it does.
    pub hint: Option<Hint>,
}

/// A program that has threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramInfo {
    pub id: ProgramId,
    /// Unique in the workload.
    pub name: Arc<str>,
    /// Its executable file, or in a simulation its profile, where that is known.
    pub path: Option<Arc<str>>,
}

/// Something that befell a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadEvent {
    /// When.
    pub at: Nanos,
    /// The thread.
    pub thread: ThreadId,
    /// What.
    pub kind: ThreadEventKind,
}

/// Kinds of thread events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadEventKind {
    /// It came to life.
    New,
    /// Its program started over or replaced its image.
    Exec,
    /// It ended.
    Exit,
    /// It became runnable.
    Wake,
    /// It went to sleep.
    Sleep,
    /// It moved.
    Migrate {
        /// From here.
        from: CpuId,
        /// To there.
        to: CpuId,
    },
    /// It does other things to the hardware than before; see [`crate::phase`].
    Phase,
}

impl ThreadEventKind {
    /// Its name in records.
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

/// A run interval: a thread ran on a CPU without a break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The thread.
    pub thread: ThreadId,
    /// Where.
    pub cpu: CpuId,
    /// From.
    pub start: Nanos,
    /// To.
    pub end: Nanos,
}
