//! Errors of records and reports, each with a remedy.

use std::path::{Path, PathBuf};

use countersteer_model::suggestion::suggestion;
use countersteer_model::textfile::TextError;

/// Error of reading, writing or evaluating a record.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A file or folder could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    /// A file or folder could not be written; no partial file was left behind.
    #[error("cannot write {}: {source}; nothing was left there{}", path.display(), remedy(source))]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
    /// A record that is being written cannot be continued.
    #[error("cannot write {}: {source}; the record {} ends there and can be read{}", path.display(), dir.display(), remedy(source))]
    CutShort {
        dir: PathBuf,
        path: PathBuf,
        source: std::io::Error,
    },
    /// The thread that writes the record could not be started.
    #[error(
        "cannot start the thread that writes the record: {source}; raise the limit on processes (`ulimit -u`)"
    )]
    Thread { source: std::io::Error },
    /// The path is occupied by a file that is no record.
    #[error("{} exists and is no record, so it is not overwritten; name another folder", path.display())]
    Taken { path: PathBuf },
    /// There is nothing of this name.
    #[error("{} does not exist; records are folders that `steer sim --output` makes", path.display())]
    Absent { path: PathBuf },
    #[error("{} is no record: {why}; records are folders that `steer sim --output` makes", path.display())]
    Foreign {
        path: PathBuf,
        /// Description of the missing or unexpected contents.
        why: String,
    },
    /// The record was written by a later version of the program.
    #[error("{} has schema `{schema}`, this version reads `{reads}`; use a newer countersteer, or make the record again", path.display())]
    Newer {
        path: PathBuf,
        schema: String,
        reads: &'static str,
    },
    /// A table of the record is damaged or missing.
    #[error("{} is damaged: {why}; copy the record again from where it was made, or repeat the run (manifest.json says how)", path.display())]
    Damaged {
        path: PathBuf,
        /// Description of the damage.
        why: String,
    },
    /// The record lacks the requested data.
    #[error("{why}")]
    Lacking {
        /// Description of the missing data, and how to obtain it.
        why: String,
    },
    /// A table of the record cannot be encoded.
    #[error("cannot encode the table `{table}`: {why}")]
    Encode { table: &'static str, why: String },
    /// The machine or a profile inside the record is invalid.
    #[error("inside the record: {0}")]
    Text(#[from] TextError),
    /// The record does not contain the requested program or thread.
    #[error("the record has no program or thread `{asked}`{}; it has {known}", suggestion(asked, known.split(", ")))]
    UnknownProgram { asked: String, known: String },
    /// The requested time is outside the run.
    #[error("{asked_s} s is outside the run, which lasts from 0 to {end_s:.3} s")]
    OutsideRun { asked_s: f64, end_s: f64 },
    /// The thread did not exist at the requested time.
    #[error("`{program}` was not alive at {asked_s} s; it was from {from_s:.3} to {to_s:.3} s")]
    NotAlive {
        program: String,
        asked_s: f64,
        from_s: f64,
        to_s: f64,
    },
    /// The record lacks the data for the question.
    #[error(
        "the record holds no {what} (it was made with detail `{detail}`); repeat the run with full records"
    )]
    NotRecorded {
        what: &'static str,
        /// Detail level with which the record was made.
        detail: String,
    },
    /// A chart could not be drawn.
    #[error("cannot draw the chart `{chart}`: {why}")]
    Draw { chart: &'static str, why: String },
    /// A replay was continued past the end of the record.
    #[error("the record ends after {steps} observations and holds no more to replay")]
    ReplayOver { steps: usize },
}

impl ReportError {
    pub(crate) fn read(path: &Path, source: std::io::Error) -> Self {
        Self::Read {
            path: path.into(),
            source,
        }
    }

    pub(crate) fn write(path: &Path, source: std::io::Error) -> Self {
        Self::Write {
            path: path.into(),
            source,
        }
    }

    /// Converts a write error: the record stays readable up to this point.
    pub(crate) fn cut_short(self, dir: &Path) -> Self {
        match self {
            Self::Write { path, source } => Self::CutShort {
                dir: dir.into(),
                path,
                source,
            },
            other => other,
        }
    }

    pub(crate) fn damaged(path: &Path, why: impl std::fmt::Display) -> Self {
        Self::Damaged {
            path: path.into(),
            why: why.to_string(),
        }
    }
}

fn remedy(source: &std::io::Error) -> &'static str {
    use std::io::ErrorKind::{
        FileTooLarge, NotFound, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull,
    };
    match source.kind() {
        StorageFull | QuotaExceeded => "; free some space or name a folder on another disk",
        PermissionDenied | ReadOnlyFilesystem => "; name a folder you may write to",
        FileTooLarge => "; raise the limit on the size of files (`ulimit -f`)",
        NotFound => "; make the folder around it first",
        _ => "",
    }
}
