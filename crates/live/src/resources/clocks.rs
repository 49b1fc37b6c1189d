//! Limits on frequencies by CPU: `scaling_max_freq` of cpufreq.
//!
//! Input: a root directory, and limits in MHz by CPU. Output: each clock has the lowest limit of its CPUs, within the range of its
//! hardware and never above its former limit; the former limits are kept.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

use countersteer_model::cpunumbers::CpuNumbers;
use countersteer_model::placement::ClockLimit;
use countersteer_sysfs::files;

use super::shares::Refused;
use crate::undo::entry;
use crate::undo::{Journal, JournalError};

const LIMIT: &str = "scaling_max_freq";

/// CPUs with one frequency, which the kernel keeps in one folder.
struct FrequencyFolder {
    /// Former limit, in kHz.
    before: u32,
    /// Limit that was set, in kHz; `None` if the former one holds.
    set: Option<u32>,
    /// Lowest requested limit of the clock's CPUs, in MHz.
    lowest: Option<u32>,
    /// Number of CPUs with a requested limit.
    requests: u32,
}

#[derive(Default)]
pub(super) struct FrequencyFolders {
    clocks: BTreeMap<PathBuf, FrequencyFolder>,
}

impl FrequencyFolders {
    /// Replaces the limits. Adds a message for each clock that cannot have its limit.
    ///
    /// # Errors
    /// Fails if the journal cannot be written; nothing is changed after that.
    pub(super) fn set(
        &mut self,
        root: &Path,
        numbers: &CpuNumbers,
        limits: &[ClockLimit],
        journal: &mut Journal,
        refused: &mut Refused,
    ) -> Result<(), JournalError> {
        for clock in self.clocks.values_mut() {
            clock.lowest = None;
            clock.requests = 0;
        }
        for limit in limits {
            let cpu = numbers.os(limit.cpu).unwrap_or(limit.cpu).0;
            if let Some(clock) = self.find(root, cpu) {
                let mhz = clock.lowest.unwrap_or(u32::MAX).min(limit.most_mhz);
                clock.lowest = Some(mhz);
                clock.requests += 1;
            } else {
                let why = "frequencies are not limited: the CPUs have no cpufreq folder";
                *refused.entry(why.into()).or_default() += 1;
            }
        }
        for (folder, clock) in &mut self.clocks {
            if let Some(why) = clock.write(folder, journal)? {
                *refused.entry(why).or_default() += clock.requests;
            }
        }
        Ok(())
    }

    /// Returns the clock of a CPU, which is known from then on; `None` if the CPU has none.
    fn find(&mut self, root: &Path, cpu: u32) -> Option<&mut FrequencyFolder> {
        let folder = files::cpu(root, cpu).join("cpufreq").canonicalize().ok()?;
        match self.clocks.entry(folder) {
            Entry::Occupied(known) => Some(known.into_mut()),
            Entry::Vacant(place) => {
                let before = files::value(&place.key().join(LIMIT))?;
                Some(place.insert(FrequencyFolder {
                    before,
                    set: None,
                    lowest: None,
                    requests: 0,
                }))
            }
        }
    }
}

impl FrequencyFolder {
    /// Writes the lowest limit, or the former one if there is none. Returns a message if the kernel does not take it.
    fn write(
        &mut self,
        folder: &Path,
        journal: &mut Journal,
    ) -> Result<Option<String>, JournalError> {
        let khz = self.lowest.map(|mhz| mhz.saturating_mul(1000));
        let wanted = khz.and_then(|khz| within(folder, khz, self.before));
        if wanted == self.set {
            return Ok(None);
        }
        let file = folder.join(LIMIT);
        let khz = wanted.unwrap_or(self.before);
        if wanted.is_some() {
            journal.write(self.entry(&file, khz))?;
        }
        let done = std::fs::write(&file, format!("{khz}\n"));
        let now: Option<u32> = files::value(&file);
        let is_changed = now != Some(self.before);
        self.set = now.filter(|_| is_changed);
        if now == Some(khz) {
            return Ok(None);
        }
        if let Some(now) = now.filter(|_| is_changed) {
            // The journal knows what the kernel made of it, so that the former limit is restored.
            journal.write(self.entry(&file, now))?;
        }
        let why = match (done, now) {
            (Err(error), _) => error.to_string(),
            (Ok(()), Some(now)) => format!("the kernel made it {} MHz", now / 1000),
            (Ok(()), None) => "it cannot be read back".into(),
        };
        let file = file.display();
        Ok(Some(format!("{file}: limit of {} MHz: {why}", khz / 1000)))
    }

    fn entry(&self, file: &Path, khz: u32) -> entry::JournalEntry {
        entry::JournalEntry::Line {
            file: file.to_owned(),
            before: self.before.to_string(),
            set: khz.to_string(),
        }
    }
}

/// Returns the limit that a clock can have: the highest frequency of its hardware up to `khz`, or else the lowest. `None` if the
/// former limit is as low.
fn within(folder: &Path, khz: u32, before: u32) -> Option<u32> {
    let listed = files::text(&folder.join("scaling_available_frequencies")).unwrap_or_default();
    let listed: Vec<u32> = listed.split(' ').filter_map(|f| f.parse().ok()).collect();
    let below = listed.iter().copied().filter(|f| *f <= khz).max();
    let least = listed.iter().copied().min();
    let least = least.or_else(|| files::value(&folder.join("cpuinfo_min_freq")));
    let khz = below.unwrap_or(khz).max(least.unwrap_or(0));
    (khz < before).then_some(khz)
}
