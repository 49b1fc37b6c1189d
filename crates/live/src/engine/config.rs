//! Configuration of the live engine.

use std::path::PathBuf;

use super::Stealing;
use crate::affinity::AffinityConfig;
use crate::placer::Recount;

/// Configuration of an engine.
pub struct LiveConfig {
    /// Affinity engine: the placer, or its replacement if the kernel ends its scheduler.
    pub affinity: AffinityConfig,
    /// Folder of undo journals.
    pub journals: PathBuf,
    /// Root of sysfs and /proc: `/`, or a fake root.
    pub root: PathBuf,
    /// Chooses other counters when another policy decides.
    pub recount: Option<Box<dyn Recount>>,
    pub stealing: Stealing,
    /// Receives messages for users.
    pub say: fn(&str),
}
