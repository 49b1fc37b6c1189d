//! Why something of this machine cannot be read, set or used, and the remedy.

/// Why, with the file where there is one, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}; {remedy}")]
pub struct Unavailable {
    pub why: String,
    /// What the user can do about it.
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
