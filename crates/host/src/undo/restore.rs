//! Putting back what an engine that was killed has left behind.
//!
//! Input: journals without an engine. Output: threads confined to what they were before. A mask is put back only where it is
//! still one that the engine had set: what somebody else has changed since is theirs. Threads that were born to confined ones
//! after the last line was written inherited a mask and stand in no journal; they are known by their process or session.

use std::collections::BTreeSet;
use std::path::Path;

use countersteer_core::cpuset::CpuSet;

use super::JournalError;
use super::hints;
use super::journal::{Before, Told};
use super::orphans::orphans;
use super::restored::{Restored, unlisted};
use crate::resctrl::Kernel;
use crate::task;
use crate::uclamp;

/// Rounds in which threads are looked for that were born to confined ones meanwhile.
const MOST_ROUNDS: usize = 100;

/// Undoes every journal of a folder whose engine is gone.
///
/// # Errors
/// The folder cannot be read.
pub fn restore(folder: &Path) -> Result<Restored, JournalError> {
    restore_of(folder, None)
}

/// Undoes what the engines of a process that has ended have left in a folder, as its guardian. Nobody is there to be told of
/// failures: what could not be undone stays for [`restore`].
pub fn restore_after(folder: &Path, engine: u32) {
    let _ = restore_of(folder, Some(engine));
}

fn restore_of(folder: &Path, engine: Option<u32>) -> Result<Restored, JournalError> {
    let failed = |source| JournalError {
        path: folder.to_owned(),
        source,
    };
    let mut restored = Restored::default();
    let (orphans, living) = orphans(folder, engine).map_err(failed)?;
    // A run may have several: for masks, and for hints.
    let run = |path: &Path| {
        path.file_name()
            .and_then(|name| Some(name.to_str()?.split('-').next()?.to_owned()))
    };
    restored.journals = orphans
        .iter()
        .map(|(path, ..)| run(path))
        .collect::<BTreeSet<_>>()
        .len();
    for (path, _lock, told) in orphans {
        let before = restored.failed;
        undo(&told, living == 0, &mut restored);
        if restored.failed == before {
            std::fs::remove_file(&path).map_err(failed)?;
        }
    }
    // In these, threads were only watched.
    restored.hints += crate::virtuals::remove_stale(Path::new("/"));
    Ok(restored)
}

/// Undoes everything that this process's engines have done, as a last resort: they go on believing otherwise.
#[must_use]
pub fn undo_own(folder: &Path) -> Restored {
    let mut restored = Restored::default();
    for (path, told) in super::orphans::own(folder) {
        restored.journals += 1;
        undo(&told, false, &mut restored);
        if restored.failed == 0 {
            let _ = std::fs::remove_file(path);
        }
    }
    restored
}

/// Undoes what a journal tells of. Relatives are sought in whole sessions, where other engines may be at work, only on demand.
pub(crate) fn undo(told: &Told, sessions: bool, restored: &mut Restored) {
    // Where nothing was ever set, nobody has it, nor has inherited it.
    if !told.masks.is_empty() || !told.nices.is_empty() {
        for before in told.before.values() {
            put_back(before, told, restored);
        }
        undo_inherited(told, sessions, restored);
    }
    hints::undo(told, sessions, (&uclamp::Kernel, &mut Kernel), restored);
}

pub(crate) fn put_back(before: &Before, told: &Told, restored: &mut Restored) {
    let same = task::stat(before.pid, before.tid).filter(|s| s.started == before.started);
    let Some(stat) = same else { return };
    if told
        .nices
        .get(&before.tid)
        .is_some_and(|set| *set == stat.nice && *set != before.nice)
    {
        restored.failed += usize::from(task::renice(before.tid, before.nice).is_err());
    }
    let Ok(now) = task::mask(before.tid) else {
        return;
    };
    if now == before.cpus {
        return;
    }
    if !told.masks.contains(&now) {
        restored.left += 1;
        return;
    }
    match task::confine(before.tid, &before.cpus) {
        Ok(()) => restored.threads += 1,
        Err(error) => restored.failed += usize::from(error.raw_os_error() != Some(libc::ESRCH)),
    }
}

/// Finds threads that inherited a mask, again and again until there is none: each may have given birth meanwhile.
fn undo_inherited(told: &Told, sessions: bool, restored: &mut Restored) {
    let mut done = BTreeSet::new();
    for _ in 0..MOST_ROUNDS {
        let found = inheritors(told, sessions, &done);
        if found.is_empty() {
            return;
        }
        for (tid, cpus) in found {
            done.insert(tid);
            match task::confine(tid, &cpus) {
                Ok(()) => restored.threads += 1,
                Err(error) => {
                    restored.failed += usize::from(error.raw_os_error() != Some(libc::ESRCH))
                }
            }
        }
    }
}

/// Threads in no journal that have one of its masks, and what they should have.
fn inheritors(told: &Told, sessions: bool, done: &BTreeSet<u32>) -> Vec<(u32, CpuSet)> {
    let by_process = |pid: u32| told.before.values().find(|b| b.pid == pid);
    let by_session = |session: u32| {
        told.before
            .values()
            .find(|b| sessions && b.session == session)
    };
    let related = |pid: u32, parent: u32, session: u32| {
        let relative = by_process(pid)
            .or_else(|| by_process(parent))
            .or_else(|| by_session(session));
        relative.map(|b| &b.cpus)
    };
    let unlisted = unlisted(told.since, related).into_iter();
    let unlisted =
        unlisted.filter(|(tid, _)| !told.before.contains_key(tid) && !done.contains(tid));
    let inherited = unlisted.filter(|(tid, own)| {
        task::mask(*tid).is_ok_and(|now| told.masks.contains(&now) && now != **own)
    });
    inherited.map(|(tid, own)| (tid, own.clone())).collect()
}
