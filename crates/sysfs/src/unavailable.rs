//! Why a source of values is missing on this machine, and the remedy.

/// Why a provider has nothing to tell here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}; {mend}")]
pub struct Unavailable {
    pub why: String,
    /// What the user can do about it.
    pub mend: String,
}

impl Unavailable {
    pub fn new(why: impl Into<String>, mend: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            mend: mend.into(),
        }
    }
}
