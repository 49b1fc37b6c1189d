//! Resources of threads other than CPUs: frequencies, caches, memory bandwidth.
//!
//! Input: placements with [`Clamp`]s, [`ClockLimit`]s and [`WayClass`]es. Output: these are applied as far as the machine allows. Frequency
//! hints become uclamp values of threads ([`countersteer_sysfs::task::uclamp`]) and EPP of the CPUs on which they run
//! ([`preferences`]). Limits on frequencies are written to cpufreq ([`clocks`]). Cache classes become control groups of resctrl ([`shares`]). Unsupported resources are counted and
//! reported once. Each change is written to the journal before it is made. It is restored at the end or, after a kill, with the
//! affinity masks ([`crate::undo`]). No interface is opened until a policy requests it.

mod clocks;
pub(crate) mod preferences;
mod shares;
mod threads;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use countersteer_model::cpunumbers::CpuNumbers;
use countersteer_model::engine::ThreadInfo;
use countersteer_model::placement::{Clamp, ClockLimit, Placement, WayClass};
use countersteer_model::topology::Topology;
use countersteer_sysfs::resctrl::{self, GroupFolders, Resctrl};
use countersteer_sysfs::task::uclamp::{self, Clamps};

use crate::undo::entry::Touched;
use crate::undo::{Journal, JournalError};

#[cfg(test)]
mod tests;

use clocks::FrequencyFolders;
use preferences::Preferences;
use shares::{Refused, ResourceShares};

/// Configuration of the resources.
#[derive(Clone, Debug)]
pub(crate) struct ResourceConfig {
    pub topology: Arc<Topology>,
    /// Mapping between the kernel's CPU numbers and those of the topology.
    pub numbers: CpuNumbers,
    /// Root directory of sysfs and /proc: `/`, or a fake root in tests.
    pub root: PathBuf,
    /// Callback that receives a message for each unsupported resource, once.
    pub say: fn(&str),
}

struct Hint {
    before: Touched<Clamp>,
    set: Option<Clamp>,
    wanted: Option<Clamp>,
    /// True if the hint's former value is in the journal.
    written: bool,
}

/// Resources of this machine other than CPUs, with the changes made to them.
pub(crate) struct Resources {
    config: ResourceConfig,
    clamps: Box<dyn Clamps>,
    hints: BTreeMap<u32, Hint>,
    preferences: Preferences,
    clocks: FrequencyFolders,
    /// Cache partitions; the outer option is `None` until a policy requests them, the inner one is `None` if the machine has
    /// none.
    shares: Option<Option<ResourceShares>>,
    /// Interface for removing resctrl groups, used if there are no cache partitions.
    kernel: resctrl::ResctrlKernel,
    /// Messages that were already reported.
    said: BTreeSet<String>,
    /// Number of unsupported requests since the last placement.
    owed: u32,
}

impl Resources {
    pub(crate) fn new(config: ResourceConfig) -> Self {
        Self::over(config, Box::new(uclamp::ClampKernel))
    }

    fn over(config: ResourceConfig, clamps: Box<dyn Clamps>) -> Self {
        let preferences = Preferences::new(config.root.clone());
        Self {
            config,
            clamps,
            hints: BTreeMap::new(),
            preferences,
            clocks: FrequencyFolders::default(),
            shares: None,
            kernel: resctrl::ResctrlKernel,
            said: BTreeSet::new(),
            owed: 0,
        }
    }

    fn say(&mut self, what: String) {
        if !self.said.contains(&what) {
            (self.config.say)(&what);
            self.said.insert(what);
        }
    }

    /// Applies the parts of a placement other than CPUs. Returns the number of requests since the last placement that could not
    /// be applied.
    pub(crate) fn apply(
        &mut self,
        placement: &Placement,
        threads: &[ThreadInfo],
        journal: &mut Journal,
    ) -> u32 {
        self.set(placement, threads, journal)
            + self.limit(placement.clocks.as_deref(), journal)
            + std::mem::take(&mut self.owed)
    }

    /// Replaces the limits on frequencies. Returns the number of CPUs that cannot have theirs.
    fn limit(&mut self, limits: Option<&[ClockLimit]>, journal: &mut Journal) -> u32 {
        let Some(limits) = limits else { return 0 };
        let mut refused = Refused::new();
        let config = &self.config;
        let done = self
            .clocks
            .set(&config.root, &config.numbers, limits, journal, &mut refused);
        let unsupported = refused.values().sum();
        refused.into_keys().for_each(|why| self.say(why));
        done.map_or_else(
            |error| self.without_journal(&error, limits.len()),
            |()| unsupported,
        )
    }

    fn set(&mut self, placement: &Placement, threads: &[ThreadInfo], journal: &mut Journal) -> u32 {
        let hints: Vec<(u32, Clamp)> = placement
            .threads
            .iter()
            .filter_map(|t| Some((t.thread.0, t.clamp?)))
            .collect();
        let idle = hints
            .iter()
            .all(|(tid, clamp)| *clamp == Clamp::FREE && !self.hints.contains_key(tid));
        let undivided =
            self.shares.is_none() && placement.caches.as_ref().is_none_or(Vec::is_empty);
        if idle && undivided {
            return 0;
        }
        let done = self.set_journalled(&hints, placement.caches.as_deref(), threads, journal);
        done.unwrap_or_else(|error| self.without_journal(&error, hints.len()))
    }

    fn without_journal(&mut self, error: &JournalError, hints: usize) -> u32 {
        self.say(format!("hints are not applied: {error}"));
        u32::try_from(hints).unwrap_or(u32::MAX)
    }

    fn set_journalled(
        &mut self,
        hints: &[(u32, Clamp)],
        caches: Option<&[WayClass]>,
        threads: &[ThreadInfo],
        journal: &mut Journal,
    ) -> Result<u32, JournalError> {
        let mut unsupported = 0;
        for (tid, clamp) in hints {
            unsupported += self.hint(*tid, *clamp, journal)?;
        }
        match caches {
            Some(classes) if !classes.is_empty() || self.shares.is_some() => {
                Ok(unsupported + self.divide(classes, threads, journal)?)
            }
            _ => Ok(unsupported),
        }
    }

    fn divide(
        &mut self,
        classes: &[WayClass],
        threads: &[ThreadInfo],
        journal: &mut Journal,
    ) -> Result<u32, JournalError> {
        let config = &self.config;
        let mut missing = None;
        let shares = self.shares.get_or_insert_with(|| {
            let opened = ResourceShares::open(
                &config.root,
                &config.topology,
                &config.numbers,
                Resctrl::at(&config.root),
            );
            opened.map_err(|why| missing = Some(why)).ok()
        });
        let Some(shares) = shares else {
            if let Some(why) = missing {
                self.say(format!("caches are not divided: {why}"));
            }
            return Ok(u32::try_from(classes.len()).unwrap_or(u32::MAX));
        };
        let mut refused = Refused::new();
        let done = shares.divide(classes, threads, journal, &mut refused);
        let unsupported = refused.values().sum();
        refused.into_keys().for_each(|why| self.say(why));
        done.map(|()| unsupported)
    }

    /// Updates the state for the threads that currently exist.
    pub(crate) fn note(&mut self, threads: &[ThreadInfo], journal: &mut Journal) {
        self.hints.retain(|tid, _| {
            let lives = threads.binary_search_by_key(tid, |t| t.id.0).is_ok();
            if !lives {
                journal.forget(*tid);
            }
            lives
        });
        let mut refused = Refused::new();
        if let Some(Some(shares)) = &mut self.shares {
            shares.assign(threads, &mut refused);
        }
        self.owed += refused.values().sum::<u32>();
        refused.into_keys().for_each(|why| self.say(why));
        if let Err(error) = self.prefer(threads, journal) {
            self.owed += self.without_journal(&error, 1);
        }
    }

    /// Restores the attributes of threads that are no longer steered.
    pub(crate) fn let_go(&mut self, threads: &[ThreadInfo]) {
        for tid in threads.iter().map(|t| t.id.0) {
            if let Some(hint) = self.hints.remove(&tid)
                && hint
                    .set
                    .is_some_and(|set| self.clamps.get(tid).is_ok_and(|now| now == set))
            {
                // A thread that has ended is skipped.
                let _ = self.clamps.set(tid, hint.before.value);
            }
            if let Some(Some(shares)) = &mut self.shares {
                shares.let_go(tid);
            }
        }
    }

    /// Returns the interfaces by which the changes in a journal are undone.
    pub(crate) fn undoing(&mut self) -> (&dyn Clamps, &mut dyn GroupFolders) {
        match &mut self.shares {
            Some(Some(shares)) => (&*self.clamps, shares.groups()),
            _ => (&*self.clamps, &mut self.kernel),
        }
    }
}
