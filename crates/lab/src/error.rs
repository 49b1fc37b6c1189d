//! Kinds of errors, which a program can use as exit codes.

/// Kind of an error, as an exit code. 2 is also clap's exit code for unusable arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// A defect of this program.
    Internal = 1,
    /// The arguments are unusable.
    Usage = 2,
    /// A file is invalid or of an unknown format.
    BadInput = 3,
    /// A file, program or tool does not exist.
    Missing = 4,
    /// Reading or writing failed, for example because of permissions or a full disk.
    Io = 5,
}

impl FaultKind {
    /// Returns the kind that a process of this program ended with.
    #[must_use]
    pub const fn of_exit(code: i32) -> Self {
        match code {
            2 => Self::Usage,
            3 => Self::BadInput,
            4 => Self::Missing,
            5 => Self::Io,
            _ => Self::Internal,
        }
    }
}

/// Error message with its kind, for errors that have no type of their own.
#[derive(Debug)]
pub struct PlainError {
    pub kind: FaultKind,
    message: String,
}

impl std::fmt::Display for PlainError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for PlainError {}

/// Creates an error of a kind from a message.
pub fn failure(kind: FaultKind, message: impl Into<String>) -> anyhow::Error {
    PlainError {
        kind,
        message: message.into(),
    }
    .into()
}
