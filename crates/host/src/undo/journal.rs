//! The journal: what threads were confined to before they were touched, so that it can be restored whatever happens.
//!
//! Input: each change, before it is made. Output: a file that lives as long as its engine does; one whose engine is gone is
//! undone by [`super::restore`]. A process that is killed loses nothing that it wrote, so nothing is flushed to a disk.
//!
//! Lines: `thread PID TID STARTED SESSION NICE CPUS` before a thread's first change, `mask CPUS` before a mask is first set on
//! any thread, `nice TID NICE` before each change; `hinted PID TID STARTED SESSION LEAST MOST` and `clamp LEAST MOST` likewise
//! for frequency hints; `group PATH` before a group of resctrl is made; `preference BEFORE SET PATH` before a CPU's energy
//! preference is set. The first line names the format, the start of the machine, and when the engine began. Lines that a version
//! does not know it passes over. Threads that have ended are left out when the file has grown.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use countersteer_core::cpuset::CpuSet;
use countersteer_core::placement::Clamp;
use nix::fcntl::{Flock, FlockArg};

use super::JournalError;
use super::folder::make_folder;
use crate::task;

const FORMAT: &str = "countersteer-journal/1";
/// Size at which a journal is written anew for the first time.
const COMPACT_BYTES: usize = 1 << 20;

/// A journal that is being written.
#[derive(Debug)]
pub(crate) struct Journal {
    /// Locked: whoever finds it unlocked knows that its engine is gone.
    file: Flock<File>,
    path: PathBuf,
    masks: BTreeSet<CpuSet>,
    /// Lines that hold for as long as the engine lives.
    kept: BTreeSet<String>,
    bytes: usize,
    /// Bytes beyond which it is written anew.
    most: usize,
}

/// A thread as it was before it was touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Before {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// When it was born, in clock ticks since the machine started.
    pub(crate) started: u64,
    pub(crate) session: u32,
    pub(crate) nice: i8,
    pub(crate) cpus: CpuSet,
}

/// A thread's frequency hint as it was before it was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hinted {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// When it was born, in clock ticks since the machine started.
    pub(crate) started: u64,
    pub(crate) session: u32,
    pub(crate) clamp: Clamp,
}

/// A CPU's energy preference as it was, and what was set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Preference {
    pub(crate) before: String,
    pub(crate) set: BTreeSet<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// Threads that were touched, by number.
    pub(crate) before: BTreeMap<u32, Before>,
    /// When the engine began, in clock ticks since the machine started.
    pub(crate) since: u64,
    /// All masks that were set.
    pub(crate) masks: BTreeSet<CpuSet>,
    /// Nice values that were set last.
    pub(crate) nices: BTreeMap<u32, i8>,
    /// Threads whose frequency hints were changed, by number.
    pub(crate) hinted: BTreeMap<u32, Hinted>,
    /// All frequency hints that were set.
    pub(crate) clamps: BTreeSet<Clamp>,
    /// Groups of resctrl that were made.
    pub(crate) groups: BTreeSet<PathBuf>,
    pub(crate) preferences: BTreeMap<PathBuf, Preference>,
}

impl Journal {
    /// A new journal in a folder, which is made if need be.
    pub(crate) fn create(folder: &Path) -> Result<Self, JournalError> {
        let failed = |source| JournalError {
            path: folder.to_owned(),
            source,
        };
        make_folder(folder)?;
        let path = (0u32..)
            .map(|n| folder.join(format!("{}-{n}.journal", std::process::id())))
            .find(|p| !p.exists())
            .ok_or_else(|| failed(io::ErrorKind::AlreadyExists.into()))?;
        let mut journal = Self::begun(&path)?;
        // Others see it when it is locked, not before.
        let shown = std::fs::hard_link(&journal.path, &path);
        let _ = std::fs::remove_file(&journal.path);
        shown.map_err(|source| JournalError {
            path: path.clone(),
            source,
        })?;
        journal.path = path;
        Ok(journal)
    }

    /// A journal that is not at its place yet.
    fn begun(path: &Path) -> Result<Self, JournalError> {
        let path = path.with_extension("new");
        let failed = |source| JournalError {
            path: path.clone(),
            source,
        };
        // One that a killed process of this number has left.
        let _ = std::fs::remove_file(&path);
        let file = locked(&path).map_err(failed)?;
        let mut journal = Self {
            file,
            path,
            masks: BTreeSet::new(),
            kept: BTreeSet::new(),
            bytes: 0,
            most: COMPACT_BYTES,
        };
        journal.line(&head())?;
        Ok(journal)
    }

    /// Writes the journal anew when it has grown, without the threads that have ended.
    pub(crate) fn tidy(
        &mut self,
        living: impl FnOnce(&mut Self) -> Result<(), JournalError>,
    ) -> Result<(), JournalError> {
        if self.bytes < self.most {
            return Ok(());
        }
        let mut anew = Self::begun(&self.path)?;
        living(&mut anew)?;
        for line in &self.kept {
            anew.keep(line.clone())?;
        }
        for mask in &self.masks {
            anew.mask(mask)?;
        }
        let failed = |source| JournalError {
            path: self.path.clone(),
            source,
        };
        std::fs::rename(&anew.path, &self.path).map_err(failed)?;
        anew.path.clone_from(&self.path);
        anew.most = COMPACT_BYTES.max(2 * anew.bytes);
        *self = anew;
        Ok(())
    }

    /// A thread that is about to be touched for the first time.
    pub(crate) fn before(&mut self, b: &Before) -> Result<(), JournalError> {
        self.line(&format!(
            "thread {} {} {} {} {} {}",
            b.pid, b.tid, b.started, b.session, b.nice, b.cpus
        ))
    }

    /// A mask that is about to be set.
    pub(crate) fn mask(&mut self, cpus: &CpuSet) -> Result<(), JournalError> {
        if self.masks.contains(cpus) {
            return Ok(());
        }
        self.line(&format!("mask {cpus}"))?;
        self.masks.insert(cpus.clone());
        Ok(())
    }

    /// Whether a mask is one that was set.
    pub(crate) fn has_set(&self, cpus: &CpuSet) -> bool {
        self.masks.contains(cpus)
    }

    /// A thread whose frequency hint is about to be changed for the first time.
    pub(crate) fn hinted(&mut self, h: &Hinted) -> Result<(), JournalError> {
        let Clamp { least, most } = h.clamp;
        self.line(&format!(
            "hinted {} {} {} {} {least} {most}",
            h.pid, h.tid, h.started, h.session
        ))
    }

    /// A frequency hint that is about to be set.
    pub(crate) fn clamp(&mut self, clamp: Clamp) -> Result<(), JournalError> {
        self.keep(format!("clamp {} {}", clamp.least, clamp.most))
    }

    /// A group of resctrl that is about to be made.
    pub(crate) fn group(&mut self, path: &Path) -> Result<(), JournalError> {
        self.keep(format!("group {}", path.display()))
    }

    /// An energy preference that is about to be set.
    pub(crate) fn preference(
        &mut self,
        file: &Path,
        before: &str,
        set: &str,
    ) -> Result<(), JournalError> {
        self.keep(format!("preference {before} {set} {}", file.display()))
    }

    fn keep(&mut self, line: String) -> Result<(), JournalError> {
        if self.kept.contains(&line) {
            return Ok(());
        }
        self.line(&line)?;
        self.kept.insert(line);
        Ok(())
    }

    /// A nice value that is about to be set.
    pub(crate) fn nice(&mut self, tid: u32, nice: i8) -> Result<(), JournalError> {
        self.line(&format!("nice {tid} {nice}"))
    }

    /// All masks that were set.
    pub(crate) const fn set_masks(&self) -> &BTreeSet<CpuSet> {
        &self.masks
    }

    /// Everything has been restored.
    pub(crate) fn remove(&self) {
        // One that stays is found empty of changes that still hold.
        let _ = std::fs::remove_file(&self.path);
    }

    fn line(&mut self, text: &str) -> Result<(), JournalError> {
        // One call per line: a killed process leaves whole lines only.
        let line = format!("{text}\n");
        let written = (&*self.file).write_all(line.as_bytes());
        self.bytes += line.len();
        written.map_err(|source| JournalError {
            path: self.path.clone(),
            source,
        })
    }
}

fn head() -> String {
    let own = std::process::id();
    format!(
        "{FORMAT} {} {}",
        task::boot_id(),
        task::stat(own, own).map_or(0, |s| s.started)
    )
}

/// A new file that is locked.
fn locked(path: &Path) -> io::Result<Flock<File>> {
    let file = OpenOptions::new()
        .create_new(true)
        .append(true)
        .mode(0o600)
        .open(path)?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno.into())
}

/// Reads a journal; one of another start of the machine says nothing, and neither do lines that are cut off.
pub(super) fn told(text: &str, boot: &str) -> Told {
    let mut told = Told::default();
    let mut lines = text
        .split_inclusive('\n')
        .filter_map(|line| line.strip_suffix('\n'));
    let head: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    if head.first() != Some(&FORMAT) || head.get(1) != Some(&boot) {
        return told;
    }
    told.since = head
        .get(2)
        .and_then(|ticks| ticks.parse().ok())
        .unwrap_or_default();
    for line in lines {
        let _: Option<()> = take_line(&mut told, line);
    }
    told
}

/// Takes in a line; one that is malformed says nothing.
fn take_line(told: &mut Told, line: &str) -> Option<()> {
    let words: Vec<&str> = line.split(' ').collect();
    let path = |nth: usize| line.splitn(nth + 1, ' ').nth(nth).map(PathBuf::from);
    match *words.as_slice() {
        ["thread", pid, tid, started, session, nice, cpus] => {
            let before = Before {
                pid: pid.parse().ok()?,
                tid: tid.parse().ok()?,
                started: started.parse().ok()?,
                session: session.parse().ok()?,
                nice: nice.parse().ok()?,
                cpus: cpus.parse().ok()?,
            };
            told.before.insert(before.tid, before);
        }
        ["mask", cpus] => {
            told.masks.insert(cpus.parse().ok()?);
        }
        ["nice", tid, nice] => {
            told.nices.insert(tid.parse().ok()?, nice.parse().ok()?);
        }
        ["hinted", pid, tid, started, session, least, most] => {
            let hinted = Hinted {
                pid: pid.parse().ok()?,
                tid: tid.parse().ok()?,
                started: started.parse().ok()?,
                session: session.parse().ok()?,
                clamp: clamp(least, most)?,
            };
            told.hinted.insert(hinted.tid, hinted);
        }
        ["clamp", least, most] => {
            told.clamps.insert(clamp(least, most)?);
        }
        ["group", _, ..] => {
            told.groups.insert(path(1)?);
        }
        ["preference", before, set, _, ..] => {
            let known = told.preferences.entry(path(3)?).or_default();
            if known.set.is_empty() {
                before.clone_into(&mut known.before);
            }
            known.set.insert(set.to_owned());
        }
        // Of another version.
        _ => {}
    }
    Some(())
}

fn clamp(least: &str, most: &str) -> Option<Clamp> {
    Some(Clamp {
        least: least.parse().ok()?,
        most: most.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_says_what_was_written_and_nothing_of_another_start() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(folder.path()).unwrap();
        let before = Before {
            pid: 7,
            tid: 8,
            started: 99,
            session: 3,
            nice: -2,
            cpus: "0-3,9".parse().unwrap(),
        };
        journal.before(&before).unwrap();
        journal.mask(&"1".parse().unwrap()).unwrap();
        journal.nice(8, 4).unwrap();
        let hinted = Hinted {
            pid: 7,
            tid: 8,
            started: 99,
            session: 3,
            clamp: Clamp::FREE,
        };
        journal.hinted(&hinted).unwrap();
        journal.clamp(Clamp::at_most(400)).unwrap();
        journal
            .group(Path::new("/sys/fs/resctrl/countersteer-7 share0"))
            .unwrap();
        let file = Path::new("/sys/cpu 3/preference");
        journal
            .preference(file, "balance_power", "performance")
            .unwrap();
        journal.preference(file, "performance", "power").unwrap();
        journal.line("of a later version 7").unwrap();
        journal.most = 1;
        journal
            .tidy(|anew| {
                anew.before(&before)
                    .and_then(|()| anew.hinted(&hinted))
                    .and_then(|()| anew.nice(8, 4))
            })
            .unwrap();
        assert!(
            matches!(super::super::orphans::orphans(folder.path(), None).unwrap(), (none, 1) if none.is_empty()),
            "its engine lives"
        );
        let path = journal.path.clone();
        drop(journal);
        let cut = std::fs::read_to_string(&path).unwrap() + "mask 9";
        std::fs::write(&path, &cut).unwrap();
        let (found, living) = super::super::orphans::orphans(folder.path(), None).unwrap();
        assert_eq!(living, 0);
        let told = &found[0].2;
        assert_eq!(told.before, BTreeMap::from([(8, before)]));
        assert_eq!(told.masks, BTreeSet::from(["1".parse().unwrap()]));
        assert_eq!(told.nices, BTreeMap::from([(8, 4)]));
        assert_eq!(told.hinted, BTreeMap::from([(8, hinted)]));
        assert_eq!(told.clamps, BTreeSet::from([Clamp::at_most(400)]));
        assert_eq!(
            told.groups,
            BTreeSet::from(["/sys/fs/resctrl/countersteer-7 share0".into()])
        );
        let set = ["performance", "power"].map(String::from).into();
        let preference = Preference {
            before: "balance_power".into(),
            set,
        };
        assert_eq!(
            told.preferences,
            BTreeMap::from([(file.to_owned(), preference)])
        );
        let unknown = cut.replace("mask 1\n", "mask 1\nwhatever 1 2\n\nhinted x\n");
        assert_eq!(
            super::told(&unknown, &task::boot_id()),
            *told,
            "lines of another version"
        );
        assert_eq!(super::told(&cut, "another"), Told::default());
    }

    #[test]
    fn a_journal_is_its_users_alone_from_the_start_and_when_it_is_written_anew() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(folder.path()).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&journal.path), 0o600);
        journal.most = 1;
        journal.tidy(|_| Ok(())).unwrap();
        assert_eq!(mode(&journal.path), 0o600);
        let made = folder.path().join("runtime");
        make_folder(&made).unwrap();
        assert_eq!(mode(&made), 0o700);
    }

    #[test]
    fn a_journal_does_not_grow_with_threads_that_have_ended() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(folder.path()).unwrap();
        let thread = |tid: u32| Before {
            pid: 7,
            tid,
            started: 99,
            session: 3,
            nice: 0,
            cpus: "0-3".parse().unwrap(),
        };
        journal.mask(&"1".parse().unwrap()).unwrap();
        let mut largest = 0;
        for tid in 1..=100_000 {
            journal.before(&thread(tid)).unwrap();
            // Of all that were born, the last one lives.
            journal.tidy(|anew| anew.before(&thread(tid))).unwrap();
            largest = largest.max(std::fs::metadata(&journal.path).unwrap().len());
        }
        assert!(largest < 2 * COMPACT_BYTES as u64, "{largest}");
        let text = std::fs::read_to_string(&journal.path).unwrap();
        let told = super::told(&text, &task::boot_id());
        assert!(told.before.contains_key(&100_000) && told.before.len() < 100_000);
        assert_eq!(told.masks.len(), 1);
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
        // A link that somebody made, to a folder that is this user's alone.
        let link = place.path().join("link");
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        assert!(refused(&link).contains("a link"));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    }
}
