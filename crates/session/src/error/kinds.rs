//! Kinds (exit codes) of the errors of all crates, variant by variant. A new error variant needs a row here.

use std::error::Error;
use std::io;

use countersteer_cache::signature::SignatureError;
use countersteer_cache::trace::TraceError;
use countersteer_cache::wire::WireError;
use countersteer_counters::{CounterError, VendorError};
use countersteer_lab::error::{FaultKind, PlainError};
use countersteer_live::online::OnlineError;
use countersteer_live::placer::EngineError;
use countersteer_live::undo::JournalError;
use countersteer_model::counters::{PlanError, SpecError};
use countersteer_model::metric::NameTaken;
use countersteer_model::policy::PolicyError;
use countersteer_model::textfile::TextError;
use countersteer_profiler::ProfileError;
use countersteer_report::ReportError;
use countersteer_sim::engine::SimError;
use countersteer_sim::progress::ModelError;
use countersteer_sysfs::launch::LaunchError;
use countersteer_sysfs::procfs::ProcError;
use countersteer_sysfs::topology::DetectError;
use countersteer_sysfs::unavailable::Unavailable;

use crate::bench::error::BenchError;
use crate::bench::threads::error::ThreadsError;
use crate::steering::error::SteeringError;
use crate::waits::WaitsError;

type ErrorCause<'a> = &'a (dyn Error + 'static);

/// Error type that has a kind, i.e. an exit code. `kind` returns `None` if the kind of the error's cause applies.
trait HasKind: Error + 'static {
    fn kind(&self) -> Option<FaultKind>;
}

/// Functions that downcast an error to one type each, and return its kind. They cover all error types with a kind.
const TYPES: &[fn(ErrorCause<'_>) -> Option<FaultKind>] = &[
    of::<PlainError>,
    of::<TextError>,
    of::<TraceError>,
    of::<SignatureError>,
    of::<WireError>,
    of::<SpecError>,
    of::<PlanError>,
    of::<PolicyError>,
    of::<NameTaken>,
    of::<ReportError>,
    of::<SimError>,
    of::<ModelError>,
    of::<ProfileError>,
    of::<CounterError>,
    of::<VendorError>,
    of::<OnlineError>,
    of::<EngineError>,
    of::<JournalError>,
    of::<countersteer_scx::ScxError>,
    #[cfg(feature = "scx")]
    of::<countersteer_bpf::KernelEngineError>,
    #[cfg(feature = "scx")]
    of::<countersteer_bpf::NoScx>,
    of::<LaunchError>,
    of::<ProcError>,
    of::<DetectError>,
    of::<Unavailable>,
    of::<SteeringError>,
    of::<BenchError>,
    of::<ThreadsError>,
    of::<WaitsError>,
    of::<io::Error>,
];

fn of<E: HasKind>(cause: ErrorCause<'_>) -> Option<FaultKind> {
    cause.downcast_ref::<E>()?.kind()
}

/// Returns the kind of an error, without regard to its causes; `None` if the error has none.
pub(crate) fn of_cause(cause: ErrorCause<'_>) -> Option<FaultKind> {
    TYPES.iter().find_map(|of| of(cause))
}

/// Implements [`HasKind`] for error types that always have the same kind.
macro_rules! always {
    ($($error:ty: $kind:ident),* $(,)?) => {
        $(impl HasKind for $error {
            fn kind(&self) -> Option<FaultKind> {
                Some(FaultKind::$kind)
            }
        })*
    };
}

always! {
    TextError: BadInput,
    WireError: BadInput,
    ModelError: BadInput,
    PlanError: Usage,
    PolicyError: Usage,
    NameTaken: Usage,
    JournalError: Io,
    ProcError: Io,
    Unavailable: Missing,
}

impl HasKind for SpecError {
    fn kind(&self) -> Option<FaultKind> {
        Some(match self.is_lacking {
            true => FaultKind::Missing,
            false => FaultKind::Usage,
        })
    }
}

impl HasKind for PlainError {
    fn kind(&self) -> Option<FaultKind> {
        Some(self.kind)
    }
}

impl HasKind for io::Error {
    fn kind(&self) -> Option<FaultKind> {
        Some(match self.kind() {
            io::ErrorKind::NotFound => FaultKind::Missing,
            // The contents were rejected by `countersteer_files`, or are not valid UTF-8.
            io::ErrorKind::InvalidData => FaultKind::BadInput,
            _ => FaultKind::Io,
        })
    }
}

impl HasKind for TraceError {
    fn kind(&self) -> Option<FaultKind> {
        match self {
            Self::Io { .. } => None,
            Self::Foreign { .. }
            | Self::Damaged { .. }
            | Self::Unlike { .. }
            | Self::Import { .. } => Some(FaultKind::BadInput),
        }
    }
}

impl HasKind for SignatureError {
    fn kind(&self) -> Option<FaultKind> {
        match self {
            Self::Io { .. } => None,
            Self::Foreign { .. } | Self::Elf { .. } => Some(FaultKind::BadInput),
        }
    }
}

impl HasKind for ReportError {
    fn kind(&self) -> Option<FaultKind> {
        match self {
            Self::Read { .. } | Self::Thread { .. } => None,
            // Counts as an I/O error even if the output folder does not exist, because only missing inputs are
            // [`Kind::Missing`].
            Self::Write { .. } | Self::CutShort { .. } => Some(FaultKind::Io),
            Self::Taken { .. }
            | Self::Foreign { .. }
            | Self::Newer { .. }
            | Self::Damaged { .. }
            | Self::Lacking { .. }
            | Self::NotRecorded { .. }
            | Self::OutsideRun { .. }
            | Self::NotAlive { .. }
            | Self::ReplayOver { .. }
            | Self::Draw { .. }
            | Self::Text(_) => Some(FaultKind::BadInput),
            Self::Absent { .. } => Some(FaultKind::Missing),
            Self::UnknownProgram { .. } => Some(FaultKind::Usage),
            Self::Encode { .. } => Some(FaultKind::Internal),
        }
    }
}

impl HasKind for SimError {
    fn kind(&self) -> Option<FaultKind> {
        match self {
            Self::Model(error) => error.kind(),
            Self::OutOfTime { .. } => Some(FaultKind::Usage),
            Self::Scheduler { .. } => Some(FaultKind::BadInput),
            Self::Stuck { .. } => Some(FaultKind::Internal),
        }
    }
}

impl HasKind for countersteer_scx::ScxError {
    fn kind(&self) -> Option<FaultKind> {
        match self {
            Self::NoSource { .. } | Self::NoCompiler { .. } => Some(FaultKind::Missing),
            Self::BadParameter { .. } => Some(FaultKind::Usage),
            Self::Lacking { .. }
            | Self::NotCompiled { .. }
            | Self::Endless { .. }
            | Self::NotLoaded { .. }
            | Self::NotStarted { .. } => Some(FaultKind::BadInput),
            Self::Unreadable { why, .. } => HasKind::kind(why),
            Self::Files { .. } => Some(FaultKind::Io),
        }
    }
}

impl HasKind for ProfileError {
    fn kind(&self) -> Option<FaultKind> {
        match self {
            Self::EmptyCommand => Some(FaultKind::Usage),
            Self::NotAProgram { .. }
            | Self::Architecture { .. }
            | Self::Raw { .. }
            | Self::Nothing { .. }
            | Self::Interrupted { .. } => Some(FaultKind::BadInput),
            // An incompatible plugin or QEMU is treated like a missing one.
            Self::NoQemu { .. }
            | Self::NotThere { .. }
            | Self::NoPlugin { .. }
            | Self::PluginRefused { .. }
            | Self::PluginVersion { .. }
            | Self::NotFound { .. } => Some(FaultKind::Missing),
            Self::NotExecutable { .. } | Self::Unwritable { .. } => Some(FaultKind::Io),
            Self::Scratch { .. } | Self::Receive { .. } | Self::Launch { .. } => None,
        }
    }
}

impl HasKind for CounterError {
    fn kind(&self) -> Option<FaultKind> {
        match self {
            Self::Spec(error) | Self::Metric(error) => error.kind(),
            Self::Plan(_) | Self::SystemOnly { .. } | Self::Offline { .. } => {
                Some(FaultKind::Usage)
            }
            Self::Malformed { .. } => Some(FaultKind::BadInput),
            Self::Vendor(error) => error.kind(),
            Self::Gone { .. } | Self::Cgroup { .. } | Self::CgroupUncounted { .. } => {
                Some(FaultKind::Missing)
            }
            Self::Launch(error) => error.kind(),
            Self::Forbidden { .. }
            | Self::NoBpf { .. }
            | Self::Refused { .. }
            | Self::TooManyFiles { .. }
            | Self::Proc(_)
            | Self::Ring { .. }
            | Self::System { .. } => Some(FaultKind::Io),
            // `steer` does not count in regions of its own code, so this error is a defect.
            Self::Region(_) => Some(FaultKind::Internal),
        }
    }
}

impl HasKind for VendorError {
    fn kind(&self) -> Option<FaultKind> {
        match self {
            Self::Unreadable { source, .. } => HasKind::kind(source),
            Self::Json { .. } | Self::Event { .. } | Self::Map { .. } => Some(FaultKind::BadInput),
        }
    }
}

impl HasKind for OnlineError {
    fn kind(&self) -> Option<FaultKind> {
        match self {
            Self::Counters(error) => error.kind(),
            Self::Journal(error) => error.kind(),
            Self::File { .. } | Self::Process { .. } => None,
            Self::Unavailable(_) | Self::Unable { .. } => Some(FaultKind::Missing),
        }
    }
}

impl HasKind for EngineError {
    fn kind(&self) -> Option<FaultKind> {
        match self {
            Self::Journal(_) | Self::Counters(_) | Self::Scheduler(_) | Self::Ended { .. } => None,
            Self::Uncounted(_) => Some(FaultKind::Io),
        }
    }
}

#[cfg(feature = "scx")]
impl HasKind for countersteer_bpf::KernelEngineError {
    fn kind(&self) -> Option<FaultKind> {
        match self {
            Self::TooBig { .. } | Self::Crowded { .. } => Some(FaultKind::Usage),
            Self::Gone(_) => Some(FaultKind::Missing),
            Self::Counters(error) => error.kind(),
            Self::Journal(error) => error.kind(),
            Self::Kernel { .. } | Self::Ejected { .. } => Some(FaultKind::Io),
        }
    }
}

#[cfg(feature = "scx")]
always! {
    countersteer_bpf::NoScx: Missing,
}

impl HasKind for LaunchError {
    fn kind(&self) -> Option<FaultKind> {
        match self {
            Self::NotFound { .. } => Some(FaultKind::Missing),
            Self::Start { .. } | Self::Output { .. } => Some(FaultKind::Io),
        }
    }
}

impl HasKind for DetectError {
    fn kind(&self) -> Option<FaultKind> {
        match self {
            Self::Nothing { .. } => Some(FaultKind::Missing),
            Self::Impossible { .. } | Self::Description { .. } => Some(FaultKind::BadInput),
        }
    }
}

impl HasKind for SteeringError {
    fn kind(&self) -> Option<FaultKind> {
        match self {
            Self::OtherMachine { .. }
            | Self::BoundPolicy { .. }
            | Self::UnavailablePolicy { .. }
            | Self::NoQueues
            | Self::NoLoopback(_)
            | Self::UnknownSide { .. } => Some(FaultKind::Usage),
            Self::Score { .. } | Self::FailedRun { .. } => Some(FaultKind::BadInput),
            Self::RefusedRun { kind, .. } => Some(*kind),
            #[cfg(not(feature = "scx"))]
            Self::NoScheduler => Some(FaultKind::Missing),
            Self::NoControlGroup(_) | Self::NoForeground { .. } => Some(FaultKind::Missing),
            Self::OtherUser { .. }
            | Self::SocketInUse(_)
            | Self::SchedulerEnded { .. }
            | Self::OtherScheduler { .. }
            | Self::SchedulerLate { .. } => Some(FaultKind::Io),
            Self::StuckPolicy => Some(FaultKind::Internal),
        }
    }
}

impl HasKind for BenchError {
    fn kind(&self) -> Option<FaultKind> {
        Some(match self {
            Self::Failed { .. } | Self::Unprepared { .. } => FaultKind::BadInput,
            Self::Wait(_) => FaultKind::Io,
        })
    }
}

impl HasKind for ThreadsError {
    fn kind(&self) -> Option<FaultKind> {
        Some(match self {
            Self::NoPlace { .. } | Self::NoChunkPlace { .. } | Self::NoAssignment { .. } => {
                FaultKind::Usage
            }
            Self::OtherAnswer { .. } => FaultKind::BadInput,
            Self::Output(_) => FaultKind::Io,
        })
    }
}

impl HasKind for WaitsError {
    fn kind(&self) -> Option<FaultKind> {
        Some(match self {
            Self::Unmeasured(_) => FaultKind::Missing,
            Self::Panicked => FaultKind::Internal,
        })
    }
}
