//! Undoing of changes on the machine: affinity masks, nice values, scheduling policies, frequency hints, energy preferences,
//! cache allocation.
//!
//! Input: an `entry` for each change, before it is made. Output: a [`Journal`], and [`restore`], which undoes journals whose
//! process has exited. Threads that were forked in the meantime are found by one loop, in `attribute`; files and groups are
//! restored by `files`. An engine has one journal, which its placer and its resources borrow. The measurement of miss curves
//! has a journal of its own. All of these depend on this module.

pub(crate) mod attribute;
pub(crate) mod changes;
pub(crate) mod entry;
mod files;
mod folder;
mod journal;
mod leftovers;
mod orphans;
pub(crate) mod restore;
mod restored;
pub mod sched_ext;
mod temporary;

use std::path::PathBuf;

pub use folder::{journal_folder, make_folder};
pub use journal::Journal;
pub use leftovers::{hold, listens};
pub use restore::{restore, restore_after};
pub use restored::Restored;
pub use temporary::TemporaryJournal;

/// A journal cannot be written or read. No change is made without an entry.
#[derive(Debug, thiserror::Error)]
#[error(
    "{}: {source}; nothing is steered without a journal of what was changed: make room or give permission there",
    path.display()
)]
pub struct JournalError {
    pub path: PathBuf,
    pub source: std::io::Error,
}
