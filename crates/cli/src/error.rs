//! Exit codes by kind of error.

use countersteer_core::policy::PolicyError;
use countersteer_core::textfile::TextError;
use countersteer_host::affinity::AffinityError;
use countersteer_host::counters::CounterError;
use countersteer_host::online::OnlineError;
use countersteer_host::record_run::RecordError;
use countersteer_host::topology::DetectError;
use countersteer_host::undo::JournalError;
use countersteer_report::ReportError;
use countersteer_sim::engine::SimError;

/// What went wrong, as an exit code. 2 is clap's, for unusable arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A defect of this program.
    Internal = 1,
    /// Unusable arguments.
    Usage = 2,
    /// A file that cannot be understood.
    BadInput = 3,
    /// A file, program or tool that is not there.
    Missing = 4,
    /// Reading or writing failed: permissions, a full disk.
    Io = 5,
}

/// An error with its kind, for those that carry no type of their own.
#[derive(Debug)]
pub struct Told {
    kind: Kind,
    message: String,
}

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Told {}

/// An error of this kind.
pub fn told(kind: Kind, message: impl Into<String>) -> anyhow::Error {
    Told {
        kind,
        message: message.into(),
    }
    .into()
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

impl Kind {
    /// The kind of an error, by the innermost cause that has one.
    pub fn of(error: &anyhow::Error) -> Self {
        // Reports and detection read files: what is no failure of the system is a fault of the file.
        let reads_files = error.is::<ReportError>() || error.is::<DetectError>();
        let default = if reads_files {
            Self::BadInput
        } else {
            Self::Internal
        };
        error.chain().find_map(Self::of_cause).unwrap_or(default)
    }

    fn of_record_error(error: &RecordError) -> Option<Self> {
        use RecordError as E;
        match error {
            E::NoQemu | E::NoPlugin { .. } | E::NotFound { .. } => Some(Self::Missing),
            E::EmptyCommand => Some(Self::Usage),
            E::NotExecutable { .. } | E::Unwritable { .. } => Some(Self::Io),
            E::NotAProgram { .. } | E::Architecture { .. } => Some(Self::BadInput),
            // The others say what the system said, or are defects.
            _ => None,
        }
    }

    fn of_counter_error(error: &CounterError) -> Self {
        use CounterError as E;
        match error {
            E::Spec(_) | E::Metric(_) | E::Plan(_) | E::SystemOnly { .. } | E::Offline { .. } => {
                Self::Usage
            }
            E::NotFound { .. } | E::Gone { .. } | E::Cgroup { .. } | E::CgroupUncounted { .. } => {
                Self::Missing
            }
            E::Malformed { .. } | E::Vendor { .. } => Self::BadInput,
            _ => Self::Io,
        }
    }

    fn of_cause(cause: &(dyn std::error::Error + 'static)) -> Option<Self> {
        if let Some(told) = cause.downcast_ref::<Told>() {
            return Some(told.kind);
        }
        if cause.is::<TextError>() {
            return Some(Self::BadInput);
        }
        if let Some(error) = cause.downcast_ref::<RecordError>() {
            return Self::of_record_error(error);
        }
        if cause.is::<JournalError>() {
            return Some(Self::Io);
        }
        if let Some(error) = cause.downcast_ref::<AffinityError>() {
            return Some(match error {
                AffinityError::Journal(_) => Self::Io,
                AffinityError::Counters(error) => Self::of_counter_error(error),
            });
        }
        #[cfg(feature = "scx")]
        if let Some(kind) = of_scx(cause) {
            return Some(kind);
        }
        if let Some(error) = cause.downcast_ref::<CounterError>() {
            return Some(Self::of_counter_error(error));
        }
        if let Some(OnlineError::Unable { .. }) = cause.downcast_ref::<OnlineError>() {
            return Some(Self::Missing);
        }
        if cause.is::<PolicyError>() {
            return Some(Self::Usage);
        }
        if let Some(error) = cause.downcast_ref::<SimError>() {
            return match error {
                SimError::Model(_) => Some(Self::BadInput),
                SimError::OutOfTime { .. } => Some(Self::Usage),
                SimError::Stuck { .. } => None,
            };
        }
        match cause.downcast_ref::<std::io::Error>()?.kind() {
            std::io::ErrorKind::NotFound => Some(Self::Missing),
            _ => Some(Self::Io),
        }
    }
}

#[cfg(feature = "scx")]
fn of_scx(cause: &(dyn std::error::Error + 'static)) -> Option<Kind> {
    use countersteer_scx::{NoScx, ScxError};
    if cause.is::<NoScx>() {
        return Some(Kind::Missing);
    }
    Some(match cause.downcast_ref::<ScxError>()? {
        ScxError::TooBig { .. } | ScxError::Crowded { .. } => Kind::Usage,
        ScxError::Gone(_) => Kind::Missing,
        ScxError::Counters(error) => Kind::of_counter_error(error),
        ScxError::Kernel { .. } | ScxError::Ejected { .. } => Kind::Io,
    })
}
