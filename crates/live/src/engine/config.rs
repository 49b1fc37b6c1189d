//! Configuration of the live engine.

use std::path::PathBuf;

use countersteer_sysfs::signals::EndSignals;

use super::Stealing;
use crate::affinity::AffinityConfig;
use crate::placer::Recount;

/// Configuration of a live engine.
pub struct LiveConfig {
    /// Configuration of the affinity engine, which is the placer or takes over if the kernel ends
    /// the scheduler.
    pub affinity: AffinityConfig,
    /// Folder of the undo journals.
    pub journals: PathBuf,
    /// Root directory of sysfs and /proc: `/`, or a fake root in tests.
    pub root: PathBuf,
    /// Callback that chooses other counters if the metrics change; `None` to keep the counters.
    pub recount: Option<Box<dyn Recount>>,
    /// Requests for work stealing, shared with other threads.
    pub stealing: Stealing,
    /// Signals that end the run. They are caught before counters and the scheduler are opened, which catch them as well: one that
    /// arrives meanwhile would else be lost.
    pub signals: EndSignals,
    /// Callback for messages to the user.
    pub say: fn(&str),
}
