//! Data that threads of a program share.
//!
//! Input: the recorder's counts, from a directory of the lines of all threads of a process. Output: [`Sharing`], from which shared
//! caches count common lines once, and cores get the misses that other threads' stores cause.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LogHistogram;
use crate::bounds;

/// Sharing of data between the threads of a process, as they ran while the program was recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sharing {
    /// Fraction of the accesses beyond a stack distance of 128 lines that are to lines of which another thread uses a copy, too.
    pub shared: f64,
    /// Fraction of a thread's first accesses to lines that are to lines which another thread touched before.
    pub touched_before: f64,
    /// Accesses per kilo-instruction to lines that another thread wrote since the thread's last access to them, by the thread's
    /// own LRU stack distance. In private caches, they miss.
    pub invalidated_pki: LogHistogram,
}

impl Sharing {
    pub(super) fn check(&self) -> Result<(), String> {
        bounds::SHARE.check("shared", self.shared)?;
        bounds::SHARE.check("touched_before", self.touched_before)?;
        self.invalidated_pki.check("invalidated_pki")
    }
}
