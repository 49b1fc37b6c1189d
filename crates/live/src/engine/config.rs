//! Configuration of the engine of this machine.

use std::path::PathBuf;

use super::Stealing;
use crate::affinity::AffinityConfig;
use crate::placer::Recount;

/// What an engine is made for.
pub struct LiveConfig {
    /// For the affinity engine: the placer, or what takes over from a scheduler that the kernel ends.
    pub affinity: AffinityConfig,
    /// The folder of undo journals.
    pub journals: PathBuf,
    /// Where sysfs and /proc are: `/`, or a fake root.
    pub root: PathBuf,
    /// Chooses other counters when another policy decides.
    pub recount: Option<Box<dyn Recount>>,
    pub stealing: Stealing,
    /// Takes what users should know.
    pub say: fn(&str),
}
