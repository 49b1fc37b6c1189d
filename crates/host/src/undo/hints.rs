//! Restores frequency hints and cache partitions.
//!
//! Input: what a journal tells. Output: hints as they were where they are still those that were set, of threads too that
//! inherited one and stand in no journal; groups of resctrl are gone, and their threads back in the group of everybody.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use countersteer_core::placement::Clamp;

use super::journal::{Preference, Told};
use super::restored::{Restored, unlisted};
use crate::resctrl::{Groups, PREFIX};
use crate::task;
use crate::uclamp::Clamps;

/// Rounds in which threads are looked for that were born to hinted ones meanwhile.
const MOST_ROUNDS: usize = 100;

/// Undoes what a journal tells about hints and caches.
pub(crate) fn undo(
    told: &Told,
    sessions: bool,
    (clamps, groups): (&dyn Clamps, &mut dyn Groups),
    restored: &mut Restored,
) {
    for hinted in told.hinted.values() {
        let same = task::stat(hinted.pid, hinted.tid).is_some_and(|s| s.started == hinted.started);
        if same
            && clamps
                .get(hinted.tid)
                .is_ok_and(|now| now != hinted.clamp && told.clamps.contains(&now))
        {
            count(clamps.set(hinted.tid, hinted.clamp), restored);
        }
    }
    let mut done = BTreeSet::new();
    for _ in 0..MOST_ROUNDS {
        let related = |pid: u32, parent: u32, session: u32| {
            let of = |pid: u32| told.hinted.values().find(|h| h.pid == pid);
            let in_session = || {
                told.hinted
                    .values()
                    .find(|h| sessions && h.session == session)
            };
            of(pid)
                .or_else(|| of(parent))
                .or_else(in_session)
                .map(|h| h.clamp)
        };
        let found = if told.clamps.is_empty() {
            Vec::new()
        } else {
            unlisted(told.since, related)
        };
        let unlisted = found
            .into_iter()
            .filter(|(tid, _)| !told.hinted.contains_key(tid) && !done.contains(tid));
        let is_ours = |(tid, before): &(u32, Clamp)| {
            clamps
                .get(*tid)
                .is_ok_and(|now| now != *before && told.clamps.contains(&now))
        };
        let found: Vec<_> = unlisted.filter(is_ours).collect();
        if found.is_empty() {
            break;
        }
        for (tid, before) in found {
            done.insert(tid);
            count(clamps.set(tid, before), restored);
        }
    }
    for group in &told.groups {
        remove(group, groups, restored);
    }
    for (file, known) in &told.preferences {
        match restore_one(file, known) {
            Some(true) => restored.hints += 1,
            Some(false) => restored.failed += 1,
            None => {}
        }
    }
}

/// Puts an energy preference back where it is still one that was set. Whether that was needed, and done.
fn restore_one(file: &Path, known: &Preference) -> Option<bool> {
    let text = std::fs::read_to_string(file).ok()?;
    let now = text.trim();
    let ours = !now.is_empty() && now != known.before && known.set.contains(now);
    ours.then(|| std::fs::write(file, &known.before).is_ok())
}

fn count(done: io::Result<()>, restored: &mut Restored) {
    match done {
        Ok(()) => restored.hints += 1,
        Err(error) => restored.failed += usize::from(error.raw_os_error() != Some(libc::ESRCH)),
    }
}

/// Only groups by this program's name: a journal is no reason to remove anything else.
fn remove(group: &Path, groups: &mut dyn Groups, restored: &mut Restored) {
    let own = group
        .file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
    if own && group.is_dir() {
        match groups.remove(group) {
            Ok(()) => restored.hints += 1,
            Err(_) => restored.failed += 1,
        }
    }
}
