//! Placement of a thread: its affinity mask, and its nice value.
use countersteer_model::cpuset::CpuSet;
use countersteer_model::engine::Applied;
use countersteer_model::placement::Target;
use countersteer_model::units::ThreadId;
use countersteer_sysfs::task::{affinity, nice};

use super::AffinityEngine;
use crate::placer::EngineError;
use crate::undo::Journal;
use crate::undo::entry::JournalEntry;

impl AffinityEngine {
    /// Places a new thread by the admission table.
    pub(super) fn admit_thread(
        &mut self,
        tid: u32,
        journal: &mut Journal,
    ) -> Result<(), EngineError> {
        let Some((table, bank)) = &self.admission else {
            return Ok(());
        };
        let group = table.choose(bank.get(ThreadId(tid), &table.metric));
        let Some(group) = group else { return Ok(()) };
        self.place(tid, &Target::Group(group), journal, &mut Applied::default())
    }

    /// Confines a thread to the part of the target that it may use.
    pub(super) fn place(
        &mut self,
        tid: u32,
        target: &Target,
        journal: &mut Journal,
        applied: &mut Applied,
    ) -> Result<(), EngineError> {
        let Some(member) = self.tasks.members.get(&tid) else {
            applied.gone += 1;
            return Ok(());
        };
        let wanted = match target {
            Target::Anywhere => member.before.cpus.clone(),
            other => self
                .config
                .numbers
                .os_set(&other.cpus(&self.config.topology))
                .intersection(&member.before.cpus),
        };
        let current = member.placed.as_ref().unwrap_or(&member.before.cpus);
        if wanted.is_empty() {
            applied.refused += 1;
            return Ok(());
        }
        if wanted == *current {
            return Ok(());
        }
        if self.config.dry {
            applied.changed += 1;
            return Ok(());
        }
        self.confine(tid, &wanted, journal, applied)
    }

    fn confine(
        &mut self,
        tid: u32,
        wanted: &CpuSet,
        journal: &mut Journal,
        applied: &mut Applied,
    ) -> Result<(), EngineError> {
        let Some(member) = self.tasks.members.get(&tid) else {
            return Ok(());
        };
        let current = member.placed.as_ref().unwrap_or(&member.before.cpus);
        let Ok(found) = affinity::mask_beside(tid, current) else {
            applied.gone += 1;
            return Ok(());
        };
        if !member.has_own_or_ours(&found) {
            // The policy sees the allowed CPUs at its next decision.
            self.tasks.overruled(tid, found);
            self.overruled += 1;
            applied.refused += 1;
            return Ok(());
        }
        if member.placed.is_none() {
            journal.write(member.before.affinity())?;
        }
        journal.write(JournalEntry::AffinitySet(wanted.clone()))?;
        match affinity::confine(tid, wanted) {
            Ok(()) => {
                // A cpuset may leave fewer CPUs than requested.
                let got = affinity::mask_beside(tid, wanted).unwrap_or_else(|_| wanted.clone());
                if got != *wanted {
                    journal.write(JournalEntry::AffinitySet(got.clone()))?;
                }
                self.tasks.placed(tid, wanted, &got);
                applied.changed += 1;
            }
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => applied.gone += 1,
            Err(_) => applied.refused += 1,
        }
        Ok(())
    }

    /// Gives a thread the nice value of a weight, if it can be restored later.
    pub(super) fn weigh(
        &mut self,
        tid: u32,
        weight: u32,
        journal: &mut Journal,
    ) -> Result<(), EngineError> {
        let Some(member) = self
            .tasks
            .members
            .get_mut(&tid)
            .filter(|_| self.renices && !self.config.dry)
        else {
            return Ok(());
        };
        let nice = nice_of(weight);
        if nice == member.nice.unwrap_or(member.before.nice) {
            return Ok(());
        }
        if member.nice.is_none() {
            journal.write(member.before.nice())?;
        }
        journal.write(JournalEntry::NiceSet(nice))?;
        if nice::renice(tid, nice).is_ok() {
            member.nice = Some(nice).filter(|n| *n != member.before.nice);
        }
        Ok(())
    }
}

/// True if a nice value that was raised can be lowered again.
#[must_use]
pub fn may_renice() -> bool {
    use nix::sys::resource::{Resource, getrlimit};
    nix::unistd::geteuid().is_root()
        || getrlimit(Resource::RLIMIT_NICE).is_ok_and(|(soft, _)| soft >= 40)
}

/// Nice value whose weight is nearest: each step is a factor of 1.25.
fn nice_of(weight: u32) -> i8 {
    let steps = (f64::from(weight.max(1)) / 1024.0).ln() / 1.25f64.ln();
    (-steps).round().clamp(-20.0, 19.0) as i8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_nice_values() {
        assert_eq!(
            [1024, 820, 1277, 15, 88761].map(nice_of),
            [0, 1, -1, 19, -20]
        );
    }
}
