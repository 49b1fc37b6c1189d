//! Error for a feature of this machine that cannot be read, set or used, with the remedy.

/// Reason, with the file if there is one, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}; {remedy}")]
pub struct Unavailable {
    pub why: String,
    /// Action that the user can take.
    pub remedy: String,
}

impl Unavailable {
    pub fn new(why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            remedy: remedy.into(),
        }
    }
}
