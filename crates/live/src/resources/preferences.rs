//! Frequency hints by CPU: energy preferences (EPP), for processors that choose their frequency themselves.
//!
//! Input: a root directory, and CPUs with their hints. Output: the preferences are written to the CPUs' files in sysfs; the
//! former values are kept.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use countersteer_model::placement::Clamp;
use countersteer_sysfs::files;

use crate::undo::entry::JournalEntry;
use crate::undo::{Journal, JournalError};

/// Preferences for the highest speed, in order of choice.
const FAST: &[&str] = &["performance"];
/// Preferences for saving energy, the milder one first.
const SLOW: &[&str] = &["balance_power", "power"];

/// CPU with an energy preference that can be set.
struct PreferenceCpu {
    file: PathBuf,
    fast: Option<String>,
    slow: Option<String>,
    before: String,
    now: Option<String>,
}

pub(super) struct Preferences {
    root: PathBuf,
    /// CPUs by the kernel's number; `None` for a CPU without an energy preference.
    cpus: BTreeMap<u32, Option<PreferenceCpu>>,
}

/// Returns the path of a CPU's energy preference.
fn file(root: &Path, cpu: u32) -> PathBuf {
    files::cpu(root, cpu).join("cpufreq/energy_performance_preference")
}

impl PreferenceCpu {
    fn find(root: &Path, cpu: u32) -> Option<Self> {
        let file = file(root, cpu);
        let before = files::text(&file)?;
        let offered =
            files::text(&file.with_file_name("energy_performance_available_preferences"))?;
        let choose = |words: &[&str]| {
            words
                .iter()
                .find(|w| offered.split(' ').any(|o| o == **w))
                .map(|w| (*w).to_owned())
        };
        Some(Self {
            fast: choose(FAST),
            slow: choose(SLOW),
            file,
            before,
            now: None,
        })
    }
}

impl Preferences {
    pub(super) const fn new(root: PathBuf) -> Self {
        Self {
            root,
            cpus: BTreeMap::new(),
        }
    }

    /// True if a CPU has an energy preference that can be set.
    pub(super) fn exist(&mut self, cpu: u32) -> bool {
        let root = &self.root;
        self.cpus
            .entry(cpu)
            .or_insert_with(|| PreferenceCpu::find(root, cpu))
            .is_some()
    }

    /// Sets the preference of each CPU, given the combined hint of the threads that may run there. The preferences of other
    /// CPUs are restored. Returns the number of CPUs that refused.
    ///
    /// # Errors
    /// Fails if the journal cannot be written; nothing is changed after that.
    pub(super) fn set(
        &mut self,
        wanted: &BTreeMap<u32, Clamp>,
        journal: &mut Journal,
    ) -> Result<u32, JournalError> {
        let mut refused = 0;
        for (number, cpu) in &mut self.cpus {
            let Some(cpu) = cpu else { continue };
            let word = match wanted.get(number) {
                Some(clamp) if clamp.least == Clamp::MOST => cpu.fast.clone(),
                Some(clamp) if clamp.most < Clamp::MOST => cpu.slow.clone(),
                _ => None,
            };
            if word == cpu.now {
                continue;
            }
            let text = word.as_ref().unwrap_or(&cpu.before);
            if word.is_some() {
                journal.write(JournalEntry::Line {
                    file: cpu.file.clone(),
                    before: cpu.before.clone(),
                    set: text.clone(),
                })?;
            }
            match std::fs::write(&cpu.file, text) {
                Ok(()) => cpu.now = word,
                Err(_) => refused += 1,
            }
        }
        Ok(refused)
    }
}

/// Returns the combined hint for a CPU on which several threads may run. A thread with a hint for high speed takes precedence,
/// then one without a hint.
pub(super) fn strongest(a: Clamp, b: Clamp) -> Clamp {
    Clamp {
        least: a.least.max(b.least),
        most: a.most.max(b.most),
    }
}
