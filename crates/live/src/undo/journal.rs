//! Undo journal: the former state before each change, so that it can be restored in any case.
//!
//! Input: an [`JournalEntry`] for each change, before it is made. Output: a file that exists as long as its engine. A file whose
//! engine no longer exists is undone by [`super::restore`]. A killed process loses nothing that it wrote, so the file is not
//! flushed to disk.
//!
//! The first line contains the format, the boot id, and the start of the engine; each other line is an entry. Threads that have
//! ended are omitted when the file has grown and is rewritten.
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use countersteer_sysfs::procfs::PROC;
use nix::fcntl::{Flock, FlockArg};

use super::JournalError;
use super::changes::Changes;
use super::entry::JournalEntry;
use super::folder::make_folder;

const FORMAT: &str = "countersteer-journal/2";
/// Size in bytes at which a journal is rewritten for the first time.
const COMPACT_BYTES: usize = 1 << 20;

/// Journal that is being written by a live engine.
#[derive(Debug)]
pub struct Journal {
    /// File of the journal, locked while its engine lives. If a journal is unlocked, its engine no longer exists.
    file: Flock<File>,
    /// Path of the file.
    path: PathBuf,
    /// Sum of the entries.
    changes: Changes,
    /// Size of the file in bytes.
    bytes: usize,
    /// Size in bytes at which the journal is rewritten.
    most: usize,
}

/// Held while a journal is created, so that runs of several threads do not choose the same name.
static CREATION: Mutex<()> = Mutex::new(());

impl Journal {
    /// Creates a journal in a folder, which is created if necessary.
    ///
    /// # Errors
    /// Fails if the journal cannot be written.
    pub fn create(folder: &Path) -> Result<Self, JournalError> {
        let failed = |source| JournalError {
            path: folder.to_owned(),
            source,
        };
        make_folder(folder)?;
        let _held = CREATION.lock().unwrap_or_else(PoisonError::into_inner);
        let path = (0u32..)
            .map(|n| folder.join(format!("{}-{n}.journal", std::process::id())))
            .find(|p| !p.exists())
            .ok_or_else(|| failed(io::ErrorKind::AlreadyExists.into()))?;
        let changes = Changes {
            since: began(),
            ..Changes::default()
        };
        let mut journal = Self::begun(&path, changes)?;
        // Other processes see the journal only after it is locked.
        let shown = std::fs::hard_link(&journal.path, &path);
        let _ = std::fs::remove_file(&journal.path);
        shown.map_err(|source| JournalError {
            path: path.clone(),
            source,
        })?;
        journal.path = path;
        Ok(journal)
    }

    /// Creates a journal under a temporary name.
    fn begun(path: &Path, changes: Changes) -> Result<Self, JournalError> {
        let path = path.with_extension("new");
        let failed = |source| JournalError {
            path: path.clone(),
            source,
        };
        // A killed process with the same PID may have left this file.
        let _ = std::fs::remove_file(&path);
        let file = locked(&path).map_err(failed)?;
        let mut journal = Self {
            file,
            path,
            changes,
            bytes: 0,
            most: COMPACT_BYTES,
        };
        journal.line(&head())?;
        Ok(journal)
    }

    /// Writes an entry, unless the journal contains it already. It must be called before the change is made.
    pub(crate) fn write(&mut self, entry: JournalEntry) -> Result<(), JournalError> {
        if self.changes.has(&entry) {
            return Ok(());
        }
        if self.bytes >= self.most {
            self.compact()?;
        }
        self.line(&entry.to_string())?;
        self.changes.take(entry);
        Ok(())
    }

    /// Removes the entries of a thread that has ended or has been restored.
    pub fn forget(&mut self, tid: u32) {
        self.changes.forget(tid);
    }

    /// Returns the changes in the journal.
    pub(crate) const fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Rewrites the journal without threads that have ended.
    fn compact(&mut self) -> Result<(), JournalError> {
        let mut anew = Self::begun(&self.path, self.changes.clone())?;
        for entry in anew.changes.entries() {
            anew.line(&entry.to_string())?;
        }
        std::fs::rename(&anew.path, &self.path).map_err(|source| JournalError {
            path: self.path.clone(),
            source,
        })?;
        anew.path.clone_from(&self.path);
        anew.most = COMPACT_BYTES.max(2 * anew.bytes);
        *self = anew;
        Ok(())
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file, because everything has been restored.
    pub(crate) fn remove(&self) {
        // If the file cannot be removed, it is found later, but without changes that still apply.
        let _ = std::fs::remove_file(&self.path);
    }

    fn line(&mut self, text: &str) -> Result<(), JournalError> {
        // Each line is written by one call, so that a killed process leaves only whole lines.
        let line = format!("{text}\n");
        let written = (&*self.file).write_all(line.as_bytes());
        self.bytes += line.len();
        written.map_err(|source| JournalError {
            path: self.path.clone(),
            source,
        })
    }
}

/// Returns the start time of this process, in clock ticks since boot.
fn began() -> u64 {
    let own = std::process::id();
    PROC.stat(own, own).map_or(0, |stat| stat.started)
}

fn head() -> String {
    format!("{FORMAT} {} {}", PROC.boot_id(), began())
}

/// Creates a file and locks it.
fn locked(path: &Path) -> io::Result<Flock<File>> {
    let file = OpenOptions::new()
        .create_new(true)
        .append(true)
        .mode(0o600)
        .open(path)?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno.into())
}

/// Parses a journal. The result is empty if the journal is from before the last boot; truncated lines are ignored.
pub(super) fn read(text: &str, boot: &str) -> Changes {
    let mut changes = Changes::default();
    let mut lines = text
        .split_inclusive('\n')
        .filter_map(|line| line.strip_suffix('\n'));
    let head: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [FORMAT, of_boot, since] = *head.as_slice() else {
        return changes;
    };
    if of_boot != boot {
        return changes;
    }
    changes.since = since.parse().unwrap_or_default();
    for entry in lines.filter_map(|line| line.parse().ok()) {
        changes.take(entry);
    }
    changes
}

#[cfg(test)]
mod tests {
    use countersteer_model::cpuset::CpuSet;

    use super::super::entry::Touched;
    use super::super::orphans::orphans;
    use super::*;

    fn thread(tid: u32) -> JournalEntry {
        JournalEntry::Affinity(Touched {
            pid: 7,
            tid,
            started: 99,
            session: 3,
            value: "0-3".parse().unwrap(),
        })
    }

    fn mask(text: &str) -> JournalEntry {
        JournalEntry::AffinitySet(text.parse::<CpuSet>().unwrap())
    }

    #[test]
    fn a_journal_says_what_was_written_and_nothing_of_another_start() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(folder.path()).unwrap();
        for entry in [
            thread(8),
            thread(9),
            mask("1"),
            mask("1"),
            JournalEntry::NiceSet(4),
        ] {
            journal.write(entry).unwrap();
        }
        journal.line("of a later version 7").unwrap();
        journal.forget(9);
        let known = journal.changes().clone();
        let path = journal.path.clone();
        let text = || std::fs::read_to_string(&path).unwrap();
        assert_eq!(text().lines().count(), 1 + 4 + 1, "each once: {}", text());
        journal.most = 1;
        journal.write(JournalEntry::NiceSet(5)).unwrap();
        assert_eq!(text().lines().count(), 1 + 4, "rewritten: {}", text());
        let (orphans_of_living, living) = orphans(folder.path(), None).unwrap();
        assert!(orphans_of_living.is_empty() && living == 1);
        drop(journal);
        let cut = text() + "affinity-set 9";
        std::fs::write(&path, &cut).unwrap();
        let (found, living) = orphans(folder.path(), None).unwrap();
        assert_eq!(living, 0);
        let mut expected = known;
        expected.take(JournalEntry::NiceSet(5));
        assert_eq!(found[0].2, expected);
        assert_eq!(read(&cut, &PROC.boot_id()), expected);
        assert_eq!(read(&cut, "another"), Changes::default());
    }

    #[test]
    fn a_journal_is_its_users_alone_from_the_start_and_when_it_is_written_anew() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(folder.path()).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&journal.path), 0o600);
        journal.most = 1;
        journal.write(mask("1")).unwrap();
        assert_eq!(mode(&journal.path), 0o600);
        let made = folder.path().join("runtime");
        make_folder(&made).unwrap();
        assert_eq!(mode(&made), 0o700);
    }

    #[test]
    fn a_journal_does_not_grow_with_threads_that_have_ended() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(folder.path()).unwrap();
        journal.write(mask("1")).unwrap();
        let mut largest = 0;
        for tid in 1..=100_000 {
            journal.write(thread(tid)).unwrap();
            // Of all threads that were started, the last one lives.
            journal.forget(tid - 1);
            largest = largest.max(std::fs::metadata(&journal.path).unwrap().len());
        }
        assert!(largest < 2 * COMPACT_BYTES as u64, "{largest}");
        let text = std::fs::read_to_string(&journal.path).unwrap();
        let found = read(&text, &PROC.boot_id()).affinity;
        assert!(found.before.contains_key(&100_000) && found.before.len() < 100_000);
        assert_eq!(found.set.len(), 1);
    }

    #[test]
    fn a_folder_that_others_may_have_made_or_may_write_in_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("folder");
        let refused = |folder: &Path| {
            let made = make_folder(folder).unwrap_err().to_string();
            let begun = Journal::create(folder).map(drop).unwrap_err().to_string();
            let undone = super::super::restore(folder).unwrap_err().to_string();
            assert!(
                [&made, &begun, &undone].iter().all(|e| **e == made),
                "{made}"
            );
            made
        };
        std::fs::create_dir(&folder).unwrap();
        for mode in [0o770, 0o720, 0o707, 0o702] {
            std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(refused(&folder).contains("others may write"));
        }
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
        make_folder(&folder).unwrap();
        // A link to a folder that only this user can access.
        let link = place.path().join("link");
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        assert!(refused(&link).contains("a link"));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    }
}
