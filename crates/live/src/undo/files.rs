//! Restoring of lines of files, groups and helper processes.
//!
//! Input: the entries of a journal. Output: helper processes have ended, and stopped processes continue. Groups of resctrl and
//! control groups with this program's name are removed, and their threads are in the root group again. A line is restored only
//! if its current content was set by this program.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use countersteer_sysfs::procfs::PROC;
use countersteer_sysfs::resctrl::{self, GroupFolders, PREFIX};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::changes::{ChangedLine, Changes};
use super::entry::ProcessIdentity;
use super::restored::Restored;

/// Limit on the number of attempts to remove a group, because a process that was just killed stays in its control group for a
/// moment.
const TRIES: u32 = 50;
/// Time between two attempts.
const TRY: Duration = Duration::from_millis(20);

/// Undoes all changes of lines, groups and processes.
pub(crate) fn restore(changes: &Changes, groups: &mut dyn GroupFolders, restored: &mut Restored) {
    let signals = [
        (&changes.helpers, Signal::SIGKILL),
        (&changes.stopped, Signal::SIGCONT),
    ];
    for (processes, signal) in signals {
        for ProcessIdentity { pid, started } in processes {
            if PROC
                .stat(*pid, *pid)
                .is_some_and(|now| now.started == *started)
            {
                // A process that has ended is skipped.
                let _ = kill(Pid::from_raw(*pid as i32), signal);
            }
        }
    }
    for group in &changes.groups {
        remove(group, groups, restored);
    }
    for (file, line) in &changes.lines {
        match restore_line(file, line) {
            Some(Ok(())) => restored.hints += 1,
            Some(Err(_)) => restored.failed += 1,
            None => {}
        }
    }
}

/// Removes a group, but only one with this program's name, so that a journal cannot cause the removal of anything else.
fn remove(group: &Path, groups: &mut dyn GroupFolders, restored: &mut Restored) {
    let own = group
        .file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
    if !own || !group.is_dir() {
        return;
    }
    let is_busy = |error: &io::Error| error.kind() == io::ErrorKind::ResourceBusy;
    let mut removed = groups.remove(group);
    for _ in 0..TRIES {
        if !removed.as_ref().is_err_and(is_busy) {
            break;
        }
        std::thread::sleep(TRY);
        removed = groups.remove(group);
    }
    match removed {
        Ok(()) => restored.hints += 1,
        Err(_) => restored.failed += 1,
    }
}

/// Restores a line if the file has a content that was set. `None` if there is nothing to restore.
fn restore_line(file: &Path, line: &ChangedLine) -> Option<io::Result<()>> {
    let text = fs::read_to_string(file).ok()?;
    let was_set = |now: &&str| line.set.iter().any(|set| is_same(now, set));
    let now = text.lines().find(was_set)?;
    (!is_same(now, &line.before)).then(|| fs::write(file, format!("{}\n", line.before)))
}

/// True if two lines have the same meaning; the kernel adds blanks, and zeros before way masks.
fn is_same(one: &str, other: &str) -> bool {
    let masks = |line| resctrl::SchemataLine::parse(line).ok_or(str::trim(line));
    masks(one) == masks(other)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use countersteer_sysfs::resctrl::ResctrlKernel;

    use super::super::entry::JournalEntry;
    use super::*;

    fn changes(entries: impl IntoIterator<Item = JournalEntry>) -> Changes {
        let mut changes = Changes::default();
        for entry in entries {
            changes.take(entry);
        }
        changes
    }

    fn undone(changes: &Changes) -> Restored {
        let mut restored = Restored::default();
        restore(changes, &mut ResctrlKernel, &mut restored);
        restored
    }

    #[test]
    fn a_line_is_restored_where_it_is_one_that_was_set() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("schemata");
        let line = |before: &str, set: &str| JournalEntry::Line {
            file: file.clone(),
            before: before.into(),
            set: set.into(),
        };
        let changes = changes([line("L3:0=fff;1=fff", "L3:0=ff;1=ff"), line("x", "L3:0=f")]);
        // As the kernel shows it.
        fs::write(&file, "    MB:0=100;1=100\n    L3:0=0ff;1=0ff\n").unwrap();
        assert_eq!(undone(&changes).hints, 1);
        assert_eq!(fs::read_to_string(&file).unwrap(), "L3:0=fff;1=fff\n");
        // A line that another program has set since, and a file that does not exist any more.
        fs::write(&file, "L3:0=3f;1=3f\n").unwrap();
        assert_eq!(undone(&changes), Restored::default());
        fs::remove_file(&file).unwrap();
        assert_eq!(undone(&changes), Restored::default());
    }

    #[test]
    fn groups_by_this_programs_name_are_removed_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let [own, foreign] = ["countersteer-7-ways", "mine"].map(|name| dir.path().join(name));
        fs::create_dir(&own).unwrap();
        fs::create_dir(&foreign).unwrap();
        let made = [&own, &foreign].map(|folder| JournalEntry::Group(folder.clone()));
        assert_eq!(undone(&changes(made)).hints, 1);
        assert!(!own.exists() && foreign.exists());
    }

    #[test]
    fn a_helper_is_ended_unless_its_number_was_given_again() {
        let mut command = Command::new("sleep");
        let mut helper = command.arg("60").stdin(Stdio::null()).spawn().unwrap();
        let pid = helper.id();
        let started = PROC.stat(pid, pid).unwrap().started;
        let of = |started| changes([JournalEntry::Helper(ProcessIdentity { pid, started })]);
        undone(&of(started + 1));
        assert!(helper.try_wait().unwrap().is_none());
        undone(&of(started));
        assert!(!helper.wait().unwrap().success());
    }
}
