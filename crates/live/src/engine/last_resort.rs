//! Release of a hanging engine's threads by another thread of its process.
//!
//! Input: the engine's journal, and the stop of its placer. Output: threads, files and groups in their former state. Advice in hint
//! pages remains until the engine is dropped.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::placer::PlacerStop;
use crate::undo::Restored;
use crate::undo::restore::undo_hanging;

/// Means to undo everything that an engine has changed, without the engine.
pub struct LastResort {
    pub(super) journal: PathBuf,
    pub(super) stop: Option<PlacerStop>,
    pub(super) released: Released,
}

/// True once the changes of an engine were undone without it. Its own end then undoes nothing, because the changes may be those
/// of another engine by now.
#[derive(Clone, Default)]
pub(super) struct Released(Arc<AtomicBool>);

impl Released {
    pub(super) fn is_true(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

impl LastResort {
    /// Undoes all changes of the engine, whose thread must not use it any more.
    #[must_use]
    pub fn release(self) -> Restored {
        self.released.0.store(true, Ordering::SeqCst);
        let restored = undo_hanging(&self.journal);
        if let Some(stop) = self.stop {
            stop();
        }
        restored
    }
}
