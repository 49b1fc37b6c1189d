//! Changes that are undone when their purpose has ended.
use std::path::Path;
use std::process::Child;

use countersteer_sysfs::procfs::PROC;
use countersteer_sysfs::resctrl;
use countersteer_sysfs::task::uclamp;

use super::JournalError;
use super::entry::{JournalEntry, ProcessIdentity};
use super::journal::Journal;
use super::restore::close;

/// Journal whose changes are undone when this value is dropped, or by the cleanup process if this process was
/// killed.
#[derive(Debug)]
pub struct TemporaryJournal(Journal);

impl TemporaryJournal {
    /// Creates a journal in a folder.
    ///
    /// # Errors
    /// Fails if the journal cannot be written; nothing must be changed then.
    pub fn begin(folder: &Path) -> Result<Self, JournalError> {
        Journal::create(folder).map(Self)
    }

    /// Returns the journal.
    pub const fn journal(&mut self) -> &mut Journal {
        &mut self.0
    }

    /// Writes to the journal a started process that must not outlive this one.
    ///
    /// # Errors
    /// Fails if the journal cannot be written.
    pub fn helper(&mut self, child: &Child) -> Result<(), JournalError> {
        self.process(child.id(), JournalEntry::Helper)
    }

    /// Writes to the journal a process that is about to be stopped and continued by signals.
    pub(crate) fn stopped(&mut self, pid: u32) -> Result<(), JournalError> {
        self.process(pid, JournalEntry::Stopped)
    }

    fn process(
        &mut self,
        pid: u32,
        entry: fn(ProcessIdentity) -> JournalEntry,
    ) -> Result<(), JournalError> {
        match PROC.stat(pid, pid) {
            Some(stat) => self.write(entry(ProcessIdentity {
                pid,
                started: stat.started,
            })),
            // The process has ended, so nothing must be undone.
            None => Ok(()),
        }
    }

    /// Writes to the journal a change that is about to be made.
    pub(crate) fn write(&mut self, entry: JournalEntry) -> Result<(), JournalError> {
        self.0.write(entry)
    }
}

impl Drop for TemporaryJournal {
    fn drop(&mut self) {
        close(&self.0, (&uclamp::ClampKernel, &mut resctrl::ResctrlKernel));
    }
}
