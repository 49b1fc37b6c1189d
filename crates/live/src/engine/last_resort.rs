//! Release of a hanging engine's threads by another thread of its process.
//!
//! Input: the engine's journal, and the stop of its placer. Output: threads in their former state, as after the engine's end.

use std::path::PathBuf;

use crate::placer::PlacerStop;
use crate::undo::Restored;
use crate::undo::restore::undo_hanging;

/// Means to undo everything that an engine has changed, without the engine.
pub struct LastResort {
    pub(super) journal: PathBuf,
    pub(super) stop: Option<PlacerStop>,
}

impl LastResort {
    /// Undoes all changes of the engine, whose thread must not use it any more.
    #[must_use]
    pub fn release(self) -> Restored {
        let restored = undo_hanging(&self.journal);
        if let Some(stop) = self.stop {
            stop();
        }
        restored
    }
}
