//! Kinds of errors, which a program can use as exit codes.

/// Kind of an error, as an exit code. 2 is clap's code for unusable arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A defect of this program.
    Internal = 1,
    /// Unusable arguments.
    Usage = 2,
    /// A file that cannot be understood.
    BadInput = 3,
    /// A file, program or tool does not exist.
    Missing = 4,
    /// Reading or writing failed: permissions, a full disk.
    Io = 5,
}

/// An error with its kind, for errors that have no type of their own.
#[derive(Debug)]
pub struct Failure {
    pub kind: Kind,
    message: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// Creates an error of this kind.
pub fn failure(kind: Kind, message: impl Into<String>) -> anyhow::Error {
    Failure {
        kind,
        message: message.into(),
    }
    .into()
}
