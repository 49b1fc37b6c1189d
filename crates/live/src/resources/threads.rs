//! Frequency hints of single threads, and of the CPUs on which they run.
//!
//! Input: threads with hints. Output: uclamp values of threads; energy preferences of CPUs.
use std::collections::BTreeMap;

use countersteer_model::engine::ThreadInfo;
use countersteer_model::placement::Clamp;
use countersteer_model::units::CpuId;
use countersteer_sysfs::procfs::PROC;

use super::{Hint, Resources, preferences};
use crate::undo::entry::{JournalEntry, Touched};
use crate::undo::{Journal, JournalError};

impl Resources {
    /// Sets the frequency hint of a thread. Returns 1 if the hint is unsupported or rejected, otherwise 0.
    pub(super) fn hint(
        &mut self,
        tid: u32,
        clamp: Clamp,
        journal: &mut Journal,
    ) -> Result<u32, JournalError> {
        let Ok(found) = self.clamps.get(tid) else {
            return Ok(0);
        };
        if !self.hints.contains_key(&tid) {
            let Some(before) = self
                .before(tid, found, journal)
                .filter(|b| clamp != Clamp::FREE || b.value != found)
            else {
                return Ok(0);
            };
            let set = (before.value != found).then_some(found);
            if set.is_some() {
                journal.write(JournalEntry::Clamp(before.clone()))?;
            }
            self.hints.insert(
                tid,
                Hint {
                    set,
                    before,
                    wanted: None,
                    written: set.is_some(),
                },
            );
        }
        let Some(hint) = self.hints.get_mut(&tid) else {
            return Ok(0);
        };
        hint.wanted = Some(clamp).filter(|c| *c != Clamp::FREE);
        if found != hint.set.unwrap_or(hint.before.value) {
            // Another program has set this value, so it counts as the thread's own from now on.
            (hint.before.value, hint.set, hint.written) = (found, None, false);
            return Ok(1);
        }
        let wanted = hint.wanted.unwrap_or(hint.before.value);
        if wanted == found {
            return Ok(0);
        }
        if !hint.written {
            journal.write(JournalEntry::Clamp(hint.before.clone()))?;
            hint.written = true;
        }
        journal.write(JournalEntry::ClampSet(wanted))?;
        match self.clamps.set(tid, wanted) {
            Ok(()) => {
                hint.set = Some(wanted).filter(|w| *w != hint.before.value);
                Ok(0)
            }
            Err(error) => Ok(self.unset(clamp, &error)),
        }
    }

    /// Handles a hint that the kernel refused. Returns 1 if CPUs have no energy preferences either, otherwise 0.
    fn unset(&mut self, clamp: Clamp, error: &std::io::Error) -> u32 {
        match error.raw_os_error() {
            Some(libc::ESRCH) => 0,
            Some(libc::EOPNOTSUPP) => self.only_preferences(clamp),
            _ => {
                self.say(format!(
                    "frequency hints of some threads are refused ({error})"
                ));
                1
            }
        }
    }

    /// Handles a kernel without uclamp values. Returns 0 if CPUs have energy preferences, otherwise 1.
    fn only_preferences(&mut self, clamp: Clamp) -> u32 {
        // Either all CPUs have a preference or none has, so one is checked.
        let cpu = self.config.numbers.os(CpuId(0));
        if cpu.is_some_and(|cpu| self.preferences.exist(cpu.0)) {
            return 0;
        }
        self.say(
            "frequency hints are unsupported: this kernel has no utilisation clamps (CONFIG_UCLAMP_TASK), and its CPUs no \
             energy preference"
                .into(),
        );
        u32::from(clamp != Clamp::FREE)
    }

    /// Returns the state of a thread before its first change. A thread created by a thread with a hint has
    /// inherited the hint, so its own value is that before the hint.
    fn before(&self, tid: u32, found: Clamp, journal: &Journal) -> Option<Touched<Clamp>> {
        let pid = PROC.process_of(tid)?;
        let stat = PROC.stat(pid, tid)?;
        let relative = || {
            self.hints
                .values()
                .find(|h| h.before.pid == pid || h.before.pid == stat.parent)
        };
        let was_set = journal.changes().clamp.set.contains(&found);
        let inherited = was_set.then(relative).flatten();
        let value = inherited.map_or(found, |relative| relative.before.value);
        Some(Touched {
            pid,
            tid,
            started: stat.started,
            session: stat.session,
            value,
        })
    }

    /// Sets the energy preferences of CPUs by the hints of the threads that may run there.
    pub(super) fn prefer(
        &mut self,
        threads: &[ThreadInfo],
        journal: &mut Journal,
    ) -> Result<(), JournalError> {
        let mut wanted: BTreeMap<u32, Clamp> = BTreeMap::new();
        for info in threads {
            let Some(clamp) = self.hints.get(&info.id.0).and_then(|h| h.wanted) else {
                continue;
            };
            for cpu in info
                .allowed
                .iter()
                .filter_map(|cpu| self.config.numbers.os(cpu))
            {
                if self.preferences.exist(cpu.0) {
                    let known = wanted.entry(cpu.0).or_insert(clamp);
                    *known = preferences::strongest(*known, clamp);
                }
            }
        }
        let refused = self.preferences.set(&wanted, journal)?;
        if refused > 0 {
            let why = "only root may, and not while the governor is `performance`";
            self.say(format!(
                "energy preferences of some CPUs cannot be set: {why}"
            ));
        }
        self.owed += refused;
        Ok(())
    }
}
