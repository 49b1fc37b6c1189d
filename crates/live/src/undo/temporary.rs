//! Changes that are undone at the end of what they were made for.
use std::path::Path;
use std::process::Child;

use countersteer_sysfs::procfs::PROC;
use countersteer_sysfs::resctrl;
use countersteer_sysfs::task::uclamp;

use super::JournalError;
use super::entry::{Entry, Process};
use super::journal::Journal;
use super::restore::close;

/// A journal whose changes are undone when it is dropped, or by the cleanup process when this process was killed.
#[derive(Debug)]
pub struct Temporary(Journal);

impl Temporary {
    /// A new journal in a folder.
    ///
    /// # Errors
    /// It cannot be written: nothing must be changed then.
    pub fn begin(folder: &Path) -> Result<Self, JournalError> {
        Journal::create(folder).map(Self)
    }

    /// The journal itself.
    pub const fn journal(&mut self) -> &mut Journal {
        &mut self.0
    }

    /// A process was started that must not outlive this one.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn helper(&mut self, child: &Child) -> Result<(), JournalError> {
        self.process(child.id(), Entry::Helper)
    }

    /// A process is about to be stopped by a signal, and continued.
    pub(crate) fn stopped(&mut self, pid: u32) -> Result<(), JournalError> {
        self.process(pid, Entry::Stopped)
    }

    fn process(&mut self, pid: u32, entry: fn(Process) -> Entry) -> Result<(), JournalError> {
        match PROC.stat(pid, pid) {
            Some(stat) => self.write(entry(Process {
                pid,
                started: stat.started,
            })),
            // It has ended.
            None => Ok(()),
        }
    }

    /// A change that is about to be made.
    pub(crate) fn write(&mut self, entry: Entry) -> Result<(), JournalError> {
        self.0.write(entry)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        close(&self.0, (&uclamp::Kernel, &mut resctrl::Kernel));
    }
}
