//! Restoring of the changes in journals: in those whose engines no longer exist, and in this process's own at its end.
//!
//! Input: [`Changes`]. Output: threads, files and groups in their former state; see [`super::attribute`] and [`super::files`].
use std::collections::BTreeSet;
use std::path::Path;

use countersteer_sysfs::procfs::PROC;
use countersteer_sysfs::resctrl::{GroupFolders, ResctrlKernel};
use countersteer_sysfs::task::uclamp::{self, Clamps};

use super::JournalError;
use super::attribute::{self, Affinity, Nice, RestoreScope, ThreadClassPolicy, Uclamp};
use super::changes::Changes;
use super::files;
use super::journal::{Journal, read};
use super::orphans::orphans;
use super::restored::Restored;

/// Undoes every journal in a folder whose engine no longer exists.
///
/// # Errors
/// Fails if the folder cannot be read.
pub fn restore(folder: &Path) -> Result<Restored, JournalError> {
    restore_of(folder, None)
}

/// Undoes the journals of an ended process in a folder; called by its cleanup process. Failures are not reported: changes that
/// could not be undone remain for [`restore`].
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
    // A process may have several journals, as in a measurement of miss curves.
    let run = |path: &Path| {
        path.file_name()
            .and_then(|name| Some(name.to_str()?.split('-').next()?.to_owned()))
    };
    restored.journals = orphans
        .iter()
        .map(|(path, ..)| run(path))
        .collect::<BTreeSet<_>>()
        .len();
    for (path, _lock, changes) in orphans {
        let before = restored.failed;
        undo(&changes, living == 0, &mut restored);
        if restored.failed == before {
            std::fs::remove_file(&path).map_err(failed)?;
        }
    }
    super::leftovers::sweep(folder);
    // Threads were put into these groups only for monitoring.
    restored.hints += countersteer_sysfs::sensors::remove_stale(Path::new("/"));
    Ok(restored)
}

/// Undoes the changes in the journal of an engine of this process that hangs. The engine must make no change after that.
pub(crate) fn undo_hanging(path: &Path) -> Restored {
    let mut restored = Restored {
        journals: 1,
        ..Restored::default()
    };
    let Ok(text) = std::fs::read_to_string(path) else {
        restored.failed += 1;
        return restored;
    };
    undo(&read(&text, &PROC.boot_id()), false, &mut restored);
    if restored.failed == 0 {
        let _ = std::fs::remove_file(path);
    }
    restored
}

/// Undoes the changes in a journal of this process. The journal is removed unless a change could not be undone.
pub(crate) fn close(journal: &Journal, (clamps, groups): (&dyn Clamps, &mut dyn GroupFolders)) {
    let mut restored = Restored::default();
    let changes = journal.changes();
    threads(changes, &all(changes, false), clamps, &mut restored);
    files::restore(changes, groups, &mut restored);
    if restored.failed == 0 {
        journal.remove();
    }
}

/// Undoes changes through the kernel. With `sessions`, relatives are also searched in whole sessions, where other engines may
/// be active.
fn undo(changes: &Changes, sessions: bool, restored: &mut Restored) {
    threads(
        changes,
        &all(changes, sessions),
        &uclamp::ClampKernel,
        restored,
    );
    files::restore(changes, &mut ResctrlKernel, restored);
}

fn all(changes: &Changes, sessions: bool) -> RestoreScope<'static> {
    RestoreScope {
        since: changes.since,
        sessions,
        of: &|_, _| true,
    }
}

/// Restores all attributes of threads, and adds the results to `restored`.
pub(crate) fn threads(
    changes: &Changes,
    scope: &RestoreScope<'_>,
    clamps: &dyn Clamps,
    restored: &mut Restored,
) {
    let affinity = attribute::restore(&Affinity, &changes.affinity, scope);
    let nice = attribute::restore(&Nice, &changes.nice, scope);
    let clamp = attribute::restore(&Uclamp(clamps), &changes.clamp, scope);
    let policy = attribute::restore(&ThreadClassPolicy, &changes.sched_policy, scope);
    restored.threads += affinity.restored + policy.restored;
    restored.left += affinity.left;
    restored.hints += clamp.restored;
    restored.failed += affinity.failed + nice.failed + clamp.failed + policy.failed;
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use countersteer_model::cpuset::CpuSet;
    use countersteer_sysfs::procfs::PROC;
    use countersteer_sysfs::task::affinity;

    use super::super::entry::{JournalEntry, Touched};
    use super::*;

    type Before = Touched<CpuSet>;

    /// Program that ends with the test in any case.
    struct Program(Child);

    impl Program {
        /// Starts a program in a session of its own, without processes of others.
        fn start(script: &str) -> Self {
            let mut command = Command::new("setsid");
            command
                .args(["sh", "-c", script])
                .stdin(Stdio::null())
                .stdout(Stdio::null());
            let program = Self(command.spawn().unwrap());
            let pid = program.0.id();
            while PROC.stat(pid, pid).is_some_and(|s| s.session != pid) {
                std::thread::yield_now();
            }
            program
        }

        /// Present attributes.
        fn before(&self) -> Before {
            let pid = self.0.id();
            let stat = PROC.stat(pid, pid).unwrap();
            Before {
                pid,
                tid: pid,
                started: stat.started,
                session: stat.session,
                value: affinity::mask(pid).unwrap(),
            }
        }
    }

    impl Drop for Program {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Two masks of one CPU each; `None`, with a message, if there are none.
    fn masks() -> Option<[CpuSet; 2]> {
        let own: CpuSet = affinity::mask(std::process::id()).unwrap();
        let mut cpus = own.iter().map(|c| c.0.to_string().parse().unwrap());
        if let (Some(one), Some(other)) = (cpus.next(), cpus.next()) {
            return Some([one, other]);
        }
        countersteer_fuzz::skipped("this machine has a single CPU");
        None
    }

    /// Leaves a journal as a killed engine does.
    fn left_behind(folder: &Path, befores: &[Before], set: &CpuSet) {
        let mut journal = Journal::create(folder).unwrap();
        for before in befores {
            journal
                .write(JournalEntry::Affinity(before.clone()))
                .unwrap();
        }
        journal
            .write(JournalEntry::AffinitySet(set.clone()))
            .unwrap();
    }

    #[test]
    fn a_thread_whose_number_was_given_again_is_not_touched() {
        let Some([set, _]) = masks() else {
            return;
        };
        let folder = tempfile::tempdir().unwrap();
        let program = Program::start("exec sleep 60");
        let before = program.before();
        affinity::confine(before.tid, &set).unwrap();
        let other = Before {
            started: before.started.wrapping_sub(1),
            session: 0,
            ..before.clone()
        };
        left_behind(folder.path(), &[other], &set);
        assert_eq!(restore(folder.path()).unwrap().threads, 0);
        assert_eq!(affinity::mask(before.tid).unwrap(), set);
        // Identical, if it were the thread in the journal.
        left_behind(folder.path(), std::slice::from_ref(&before), &set);
        assert_eq!(restore(folder.path()).unwrap().threads, 1);
        assert_eq!(affinity::mask(before.tid).unwrap(), before.value);
    }

    #[test]
    fn children_of_a_process_whose_number_was_given_again_are_not_touched() {
        let Some([set, _]) = masks() else {
            return;
        };
        let program = Program::start("sleep 60 & wait");
        let before = program.before();
        let child = loop {
            let is_child = |pid: &u32| {
                PROC.stat(*pid, *pid)
                    .is_some_and(|s| s.parent == before.pid)
            };
            if let Some(child) = PROC.processes().into_iter().find(is_child) {
                break child;
            }
            std::thread::yield_now();
        };
        affinity::confine(child, &set).unwrap();
        let reused = Before {
            started: before.started.wrapping_sub(1),
            session: 0,
            ..before.clone()
        };
        let changes = |before: Before| {
            let mut changes = Changes::default();
            changes.take(JournalEntry::Affinity(before));
            changes.take(JournalEntry::AffinitySet(set.clone()));
            changes
        };
        let mut restored = Restored::default();
        undo(&changes(reused), true, &mut restored);
        assert_eq!(
            (restored.threads, affinity::mask(child).unwrap()),
            (0, set.clone())
        );
        undo(&changes(before.clone()), true, &mut restored);
        assert_eq!(
            (restored.threads, affinity::mask(child).unwrap()),
            (1, before.value)
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
        affinity::confine(before.tid, &others).unwrap();
        let restored = restore(folder.path()).unwrap();
        assert_eq!(
            (restored.threads, restored.left, restored.journals),
            (0, 1, 1)
        );
        assert_eq!(affinity::mask(before.tid).unwrap(), others);
    }
}
