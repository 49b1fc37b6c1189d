//! Putting back what an engine that was killed has left behind.
//!
//! Input: journals without an engine. Output: threads confined to what they were before. A mask is restored only where it is
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
    super::leftovers::sweep(folder);
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
            restore_one(before, told, restored);
        }
        undo_inherited(told, sessions, restored);
    }
    hints::undo(told, sessions, (&uclamp::Kernel, &mut Kernel), restored);
}

pub(crate) fn restore_one(before: &Before, told: &Told, restored: &mut Restored) {
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
    // The number of a process that has ended may be another's by now.
    let is_same = |pid: u32| {
        let known = told.before.get(&pid);
        known.is_none_or(|b| task::stat(pid, pid).is_some_and(|now| now.started == b.started))
    };
    let by_process =
        |pid: u32| (told.before.values().find(|b| b.pid == pid)).filter(|_| is_same(pid));
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

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::super::journal::Journal;
    use super::*;

    /// Ends with the test, whatever becomes of it.
    struct Program(Child);

    impl Program {
        /// A program in a session of its own, where nobody else's relatives are.
        fn start(script: &str) -> Self {
            let mut command = Command::new("setsid");
            command
                .args(["sh", "-c", script])
                .stdin(Stdio::null())
                .stdout(Stdio::null());
            let program = Self(command.spawn().unwrap());
            let pid = program.0.id();
            while task::stat(pid, pid).is_some_and(|s| s.session != pid) {
                std::thread::yield_now();
            }
            program
        }

        /// As it is now.
        fn before(&self) -> Before {
            let pid = self.0.id();
            let stat = task::stat(pid, pid).unwrap();
            Before {
                pid,
                tid: pid,
                started: stat.started,
                session: stat.session,
                nice: stat.nice,
                cpus: task::mask(pid).unwrap(),
            }
        }
    }

    impl Drop for Program {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Two masks of one CPU each; `None`, with a word, where there are none.
    fn masks() -> Option<[CpuSet; 2]> {
        let own: CpuSet = task::mask(std::process::id()).unwrap();
        let mut cpus = own.iter().map(|c| c.0.to_string().parse().unwrap());
        if let (Some(one), Some(other)) = (cpus.next(), cpus.next()) {
            return Some([one, other]);
        }
        countersteer_fuzz::skipped("this machine has a single CPU");
        None
    }

    /// What an engine leaves that was killed: a journal that it held.
    fn left_behind(folder: &Path, befores: &[Before], set: &CpuSet) {
        let mut journal = Journal::create(folder).unwrap();
        befores.iter().for_each(|b| journal.before(b).unwrap());
        journal.mask(set).unwrap();
    }

    #[test]
    fn a_thread_whose_number_was_given_again_is_not_touched() {
        let Some([set, _]) = masks() else {
            return;
        };
        let folder = tempfile::tempdir().unwrap();
        let program = Program::start("exec sleep 60");
        let before = program.before();
        task::confine(before.tid, &set).unwrap();
        let other = Before {
            started: before.started.wrapping_sub(1),
            session: 0,
            ..before.clone()
        };
        left_behind(folder.path(), &[other], &set);
        assert_eq!(restore(folder.path()).unwrap().threads, 0);
        assert_eq!(task::mask(before.tid).unwrap(), set);
        // The very same, were it the thread that the journal means.
        left_behind(folder.path(), std::slice::from_ref(&before), &set);
        assert_eq!(restore(folder.path()).unwrap().threads, 1);
        assert_eq!(task::mask(before.tid).unwrap(), before.cpus);
    }

    #[test]
    fn children_of_a_process_whose_number_was_given_again_are_not_touched() {
        let Some([set, _]) = masks() else {
            return;
        };
        let program = Program::start("sleep 60 & wait");
        let before = program.before();
        let child = loop {
            let is_child =
                |pid: &u32| task::stat(*pid, *pid).is_some_and(|s| s.parent == before.pid);
            if let Some(child) = task::processes().into_iter().find(is_child) {
                break child;
            }
            std::thread::yield_now();
        };
        task::confine(child, &set).unwrap();
        let reused = Before {
            started: before.started.wrapping_sub(1),
            session: 0,
            ..before.clone()
        };
        let told = |before: Before| Told {
            before: [(before.tid, before)].into(),
            masks: [set.clone()].into(),
            ..Told::default()
        };
        let mut restored = Restored::default();
        undo(&told(reused), true, &mut restored);
        assert_eq!(
            (restored.threads, task::mask(child).unwrap()),
            (0, set.clone())
        );
        undo(&told(before.clone()), true, &mut restored);
        assert_eq!(
            (restored.threads, task::mask(child).unwrap()),
            (1, before.cpus)
        );
        let _ = Command::new("kill").arg(child.to_string()).status();
    }

    #[test]
    fn a_mask_that_somebody_else_has_set_since_stays() {
        let Some([set, others]) = masks() else {
            return;
        };
        let folder = tempfile::tempdir().unwrap();
        let program = Program::start("exec sleep 60");
        let before = program.before();
        left_behind(folder.path(), std::slice::from_ref(&before), &set);
        task::confine(before.tid, &others).unwrap();
        let restored = restore(folder.path()).unwrap();
        assert_eq!(
            (restored.threads, restored.left, restored.journals),
            (0, 1, 1)
        );
        assert_eq!(task::mask(before.tid).unwrap(), others);
    }
}
