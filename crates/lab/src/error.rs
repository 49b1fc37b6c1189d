//! Kinds of errors, which a program can make exit codes of.

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

/// An error of this kind.
pub fn failure(kind: Kind, message: impl Into<String>) -> anyhow::Error {
    Failure {
        kind,
        message: message.into(),
    }
    .into()
}
