//! Orphans: journals whose engines no longer exist.
//!
//! Input: a folder of journals. Output: the journals to undo, locked, so that a cleanup process, the next run and `steer
//! restore` never undo the same journal at the same time.
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use countersteer_sysfs::procfs::PROC;
use nix::fcntl::{Flock, FlockArg};

use super::changes::Changes;
use super::folder::is_own;
use super::journal::read;

/// Journal without an engine: its path, the lock on it, and its changes.
pub(super) type Orphan = (PathBuf, Flock<File>, Changes);

/// Limit on the number of attempts to lock a journal that another process is undoing.
const TRIES: u32 = 1000;
/// Time between two attempts.
const TRY: Duration = Duration::from_millis(10);

/// Returns the journals without an engine, and the number of live engines. With `engine`, only journals of this PID are
/// considered, whose process is known to have ended.
pub(super) fn orphans(folder: &Path, engine: Option<u32>) -> io::Result<(Vec<Orphan>, usize)> {
    match is_own(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        owned => owned?,
    }
    let entries = std::fs::read_dir(folder)?;
    let mut orphans = Vec::new();
    let mut living = 0;
    let mut paths: Vec<PathBuf> = entries
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "journal"))
        .collect();
    // A process that waits for a journal holds none of the later ones, so two processes cannot wait for each other.
    paths.sort();
    for path in paths {
        let ended = engine.is_some_and(|pid| is_of(&path, pid));
        if engine.is_some() && !ended {
            living += usize::from(
                std::fs::read_to_string(&path).is_ok_and(|text| has_engine(&path, &text)),
            );
            continue;
        }
        match take(&path, ended)? {
            Taken::Orphan(file) => {
                let text = std::fs::read_to_string(&path)?;
                orphans.push((path, file, read(&text, &PROC.boot_id())));
            }
            Taken::Living => living += 1,
            Taken::Gone => {}
        }
    }
    Ok((orphans, living))
}

/// Result of an attempt to lock a journal.
enum Taken {
    /// The journal was locked: its engine no longer exists, and no other process is undoing it.
    Orphan(Flock<File>),
    /// The engine of the journal lives.
    Living,
    /// Another process has undone the journal.
    Gone,
}

/// Locks a journal, unless its engine lives. Waits while another process is undoing it.
fn take(path: &Path, ended: bool) -> io::Result<Taken> {
    for _ in 0..TRIES {
        let Ok(file) = File::open(path) else {
            return Ok(Taken::Gone);
        };
        if let Ok(file) = Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            // Since it was opened, the journal may have been removed, or rewritten by a live engine.
            let opened = file.metadata()?;
            let there = std::fs::metadata(path);
            if there.is_ok_and(|there| (there.dev(), there.ino()) == (opened.dev(), opened.ino())) {
                return Ok(Taken::Orphan(file));
            }
        } else if !ended && std::fs::read_to_string(path).is_ok_and(|text| has_engine(path, &text))
        {
            return Ok(Taken::Living);
        }
        std::thread::sleep(TRY);
    }
    Ok(Taken::Living)
}

/// True if a journal belongs to the process with this PID.
fn is_of(path: &Path, pid: u32) -> bool {
    path.file_name()
        .is_some_and(|n| n.to_string_lossy().starts_with(&format!("{pid}-")))
}

/// True if the process that writes a journal lives.
fn has_engine(path: &Path, text: &str) -> bool {
    let pid: Option<u32> = path
        .file_name()
        .and_then(|n| n.to_str()?.split('-').next()?.parse().ok());
    let began: Option<u64> = text
        .lines()
        .next()
        .and_then(|head| head.split(' ').nth(2)?.parse().ok());
    let (Some(pid), Some(began)) = (pid, began) else {
        return true;
    };
    PROC.stat(pid, pid)
        .is_some_and(|stat| stat.started == began)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn cleanup_processes_do_not_wait_for_each_other() {
        let folder = tempfile::tempdir().unwrap();
        // PIDs beyond the largest possible one.
        let [one, other] =
            [4_194_400, 4_194_401].map(|pid| folder.path().join(format!("{pid}-0.journal")));
        std::fs::write(&one, "countersteer-journal/2 x 1\n").unwrap();
        std::fs::write(&other, "countersteer-journal/2 x 1\n").unwrap();
        let held =
            Flock::lock(File::open(&other).unwrap(), FlockArg::LockExclusiveNonblock).unwrap();
        let begun = Instant::now();
        let (found, living) = orphans(folder.path(), Some(4_194_400)).unwrap();
        assert_eq!((found.len(), &found[0].0, living), (1, &one, 0));
        assert!(begun.elapsed() < TRY * TRIES / 2);
        drop((found, held));
        assert_eq!(orphans(folder.path(), None).unwrap().0.len(), 2);
    }
}
