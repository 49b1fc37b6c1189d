//! Undoing what steering changed: affinity masks, nice values, frequency hints, cache allocation.
//!
//! Input: each change, before it is made. Output: a [`journal`] per engine, and [`restore`], which undoes journals whose engine has
//! exited. The engines that place threads and the hints beside them both write journals, so both stand above this module.

mod folder;
pub(crate) mod hints;
pub(crate) mod journal;
mod leftovers;
mod orphans;
pub(crate) mod restore;
mod restored;

use std::path::PathBuf;

pub use folder::{journal_folder, make_folder};
pub use leftovers::{hold, listens};
pub use restore::{restore, restore_after, undo_own};
pub use restored::Restored;

/// A journal that cannot be written or read. Nothing is changed that was not written down before.
#[derive(Debug, thiserror::Error)]
#[error(
    "{}: {source}; nothing is steered without a journal of what was changed: make room or give permission there",
    path.display()
)]
pub struct JournalError {
    pub path: PathBuf,
    pub source: std::io::Error,
}
