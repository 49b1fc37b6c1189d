//! Exit codes by kind of error.

use countersteer_cache::signature::SignatureError;
use countersteer_cache::trace::TraceError;
use countersteer_cache::wire::WireError;
use countersteer_counters::CounterError;
use countersteer_live::online::OnlineError;
use countersteer_live::undo::JournalError;
use countersteer_model::policy::PolicyError;
use countersteer_model::textfile::TextError;
use countersteer_profiler::ProfileError;
use countersteer_report::ReportError;
use countersteer_sim::engine::SimError;
use countersteer_sysfs::launch::LaunchError;
use countersteer_sysfs::procfs::ProcError;
use countersteer_sysfs::topology::DetectError;

pub use countersteer_lab::error::{Kind, Told, told};

use crate::steering::error::SteeringError;
use crate::waits::WaitsError;

/// Ends this process with the error's exit code.
pub fn exit(error: SteeringError) -> ! {
    std::process::exit(i32::from(kind_of(&error.into()) as u8))
}

/// The error and its causes in one paragraph; a cause that an earlier message already quotes is not repeated.
pub fn paragraph(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |mut text, cause| {
        let message = cause.to_string();
        if !text.contains(&message) {
            text = if text.is_empty() {
                message
            } else {
                format!("{text}: {message}")
            };
        }
        text
    })
}

/// The kind of an error, by the innermost cause that has one.
pub fn kind_of(error: &anyhow::Error) -> Kind {
    // Reports and detection read files: what is no failure of the system is a fault of the file.
    let reads_files = error.is::<ReportError>() || error.is::<DetectError>();
    let default = if reads_files {
        Kind::BadInput
    } else {
        Kind::Internal
    };
    error.chain().find_map(of_cause).unwrap_or(default)
}

fn of_profile_error(error: &ProfileError) -> Option<Kind> {
    use ProfileError as E;
    match error {
        E::NoQemu | E::NoPlugin { .. } | E::NotFound { .. } => Some(Kind::Missing),
        E::EmptyCommand => Some(Kind::Usage),
        E::NotExecutable { .. } | E::Unwritable { .. } => Some(Kind::Io),
        E::NotAProgram { .. } | E::Architecture { .. } => Some(Kind::BadInput),
        // The others say what the system said, or are defects.
        _ => None,
    }
}

fn of_counter_error(error: &CounterError) -> Kind {
    use CounterError as E;
    match error {
        E::Spec(_) | E::Metric(_) | E::Plan(_) | E::SystemOnly { .. } | E::Offline { .. } => {
            Kind::Usage
        }
        E::Launch(error) => of_launch_error(error),
        E::Gone { .. } | E::Cgroup { .. } | E::CgroupUncounted { .. } => Kind::Missing,
        E::Malformed { .. } | E::Vendor { .. } => Kind::BadInput,
        _ => Kind::Io,
    }
}

const fn of_steering_error(error: &SteeringError) -> Option<Kind> {
    use SteeringError as E;
    match error {
        E::OtherMachine { .. }
        | E::BoundPolicy { .. }
        | E::UnavailablePolicy { .. }
        | E::NoQueues
        | E::UnknownSide { .. } => Some(Kind::Usage),
        E::Score { .. } => Some(Kind::BadInput),
        #[cfg(not(feature = "scx"))]
        E::NoScheduler => Some(Kind::Missing),
        E::NoControlGroup(_) => Some(Kind::Missing),
        E::OtherUser { .. }
        | E::FailedRun { .. }
        | E::SchedulerEnded { .. }
        | E::SchedulerLate { .. } => Some(Kind::Io),
        E::SocketInUse(_) | E::NoLoopback(_) | E::StuckPolicy => None,
    }
}

const fn of_launch_error(error: &LaunchError) -> Kind {
    match error {
        LaunchError::NotFound { .. } => Kind::Missing,
        LaunchError::Start { .. } | LaunchError::Output { .. } => Kind::Io,
    }
}

fn of_cause(cause: &(dyn std::error::Error + 'static)) -> Option<Kind> {
    if let Some(told) = cause.downcast_ref::<Told>() {
        return Some(told.kind);
    }
    if cause.is::<TextError>() {
        return Some(Kind::BadInput);
    }
    if let Some(error) = cause.downcast_ref::<TraceError>() {
        // What the system said is the cause of it.
        return (!matches!(error, TraceError::Io { .. })).then_some(Kind::BadInput);
    }
    if let Some(error) = cause.downcast_ref::<SignatureError>() {
        return (!matches!(error, SignatureError::Io { .. })).then_some(Kind::BadInput);
    }
    if let Some(error) = cause.downcast_ref::<SteeringError>() {
        return of_steering_error(error);
    }
    if let Some(WaitsError::Unmeasured(_)) = cause.downcast_ref() {
        return Some(Kind::Missing);
    }
    if cause.is::<WireError>() {
        return Some(Kind::BadInput);
    }
    if let Some(error) = cause.downcast_ref::<ProfileError>() {
        return of_profile_error(error);
    }
    if cause.is::<JournalError>() {
        return Some(Kind::Io);
    }
    #[cfg(feature = "scx")]
    if let Some(kind) = of_scx(cause) {
        return Some(kind);
    }
    if let Some(error) = cause.downcast_ref::<CounterError>() {
        return Some(of_counter_error(error));
    }
    if let Some(error) = cause.downcast_ref::<LaunchError>() {
        return Some(of_launch_error(error));
    }
    if let Some(error) = cause.downcast_ref::<OnlineError>() {
        return match error {
            OnlineError::Unable { .. } | OnlineError::Unavailable(_) => Some(Kind::Missing),
            OnlineError::Journal(_) => Some(Kind::Io),
            _ => None,
        };
    }
    if cause.is::<ProcError>() {
        return Some(Kind::Io);
    }
    if cause.is::<PolicyError>() {
        return Some(Kind::Usage);
    }
    if let Some(error) = cause.downcast_ref::<SimError>() {
        return match error {
            SimError::Model(_) => Some(Kind::BadInput),
            SimError::OutOfTime { .. } => Some(Kind::Usage),
            SimError::Stuck { .. } => None,
        };
    }
    match cause.downcast_ref::<std::io::Error>()?.kind() {
        std::io::ErrorKind::NotFound => Some(Kind::Missing),
        _ => Some(Kind::Io),
    }
}

#[cfg(feature = "scx")]
fn of_scx(cause: &(dyn std::error::Error + 'static)) -> Option<Kind> {
    use countersteer_bpf::{NoScx, ScxError};
    if cause.is::<NoScx>() {
        return Some(Kind::Missing);
    }
    Some(match cause.downcast_ref::<ScxError>()? {
        ScxError::TooBig { .. } | ScxError::Crowded { .. } => Kind::Usage,
        ScxError::Gone(_) => Kind::Missing,
        ScxError::Counters(error) => of_counter_error(error),
        ScxError::Kernel { .. } | ScxError::Ejected { .. } | ScxError::Journal(_) => Kind::Io,
    })
}
