//! Hints at frequencies, and cache partitions: what any engine of a real machine does beside placing threads.
//!
//! Input: an engine, and placements with [`Clamp`]s and [`CacheClass`]es. Output: the engine again, which heeds them as far as
//! the machine lets it: utilisation clamps of threads ([`crate::uclamp`]) and energy preferences of the CPUs where they run
//! ([`preferences`]) for the frequency, control groups of resctrl ([`shares`]) for caches and bandwidth. What is missing is
//! counted in [`Applied`] and said once. Each change is journalled before it is made, and restored when the engine is dropped
//! or, if it was killed, with the masks ([`crate::undo`]). Nothing is opened until a policy asks.

pub(crate) mod preferences;
mod shares;
mod threads;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use countersteer_core::cpunumbers::CpuNumbers;
use countersteer_core::engine::{Applied, Engine, Forecast, Observation, ThreadInfo, Watch};
use countersteer_core::placement::{CacheClass, Clamp, Placement};
use countersteer_core::topology::Topology;
use countersteer_core::units::{Nanos, ThreadId};

use crate::counters::process_of;
use crate::live::{LiveEngine, Root};
use crate::resctrl;
use crate::undo::entry::Touched;
use crate::undo::{Journal, JournalError, restore};

#[cfg(test)]
mod tests;

use crate::uclamp::{self, Clamps};
use preferences::Preferences;
use shares::{Refused, Shares};

/// What hints need to know.
#[derive(Clone, Debug)]
pub struct HintConfig {
    pub topology: Arc<Topology>,
    /// The kernel's numbers of its CPUs.
    pub numbers: CpuNumbers,
    pub journals: PathBuf,
    /// Where sysfs and /proc are: `/`, or a fake root.
    pub root: PathBuf,
    pub dry: bool,
    /// Takes what is not heeded, once each.
    pub say: fn(&str),
}

struct Hint {
    before: Touched<Clamp>,
    set: Option<Clamp>,
    wanted: Option<Clamp>,
    /// It stands in the journal.
    written: bool,
}

/// An engine whose placements' hints and cache partitions are heeded.
pub struct Hinted<E> {
    inner: E,
    config: HintConfig,
    journal: Option<Journal>,
    clamps: Box<dyn Clamps>,
    hints: BTreeMap<u32, Hint>,
    preferences: Preferences,
    /// `None` until a policy asks, then what there is.
    shares: Option<Option<Shares>>,
    /// Threads as they were seen last.
    threads: Vec<ThreadInfo>,
    said: BTreeSet<String>,
    /// What was not heeded since the last placement.
    owed: u32,
}

impl<E: LiveEngine> Hinted<E> {
    /// An engine that heeds hints from now on.
    pub fn new(inner: E, config: HintConfig) -> Self {
        Self::over(inner, config, Box::new(uclamp::Kernel))
    }

    fn over(inner: E, config: HintConfig, clamps: Box<dyn Clamps>) -> Self {
        let preferences = Preferences::new(config.root.clone());
        Self {
            inner,
            config,
            journal: None,
            clamps,
            hints: BTreeMap::new(),
            preferences,
            shares: None,
            threads: Vec::new(),
            said: BTreeSet::new(),
            owed: 0,
        }
    }

    /// The engine that places threads.
    pub const fn inner(&self) -> &E {
        &self.inner
    }

    /// The same, to ask it something.
    pub const fn inner_mut(&mut self) -> &mut E {
        &mut self.inner
    }

    fn say(&mut self, what: String) {
        if !self.said.contains(&what) {
            (self.config.say)(&what);
            self.said.insert(what);
        }
    }

    /// Heeds what a placement says beside places; how much of it could not be.
    fn heed(&mut self, placement: &Placement) -> u32 {
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
        if self.config.dry || (idle && undivided) {
            return 0;
        }
        let mut journal = match self
            .journal
            .take()
            .map_or_else(|| Journal::create(&self.config.journals), Ok)
        {
            Ok(journal) => journal,
            Err(error) => return self.without_journal(&error, hints.len()),
        };
        let done = self.heed_journalled(&hints, placement.caches.as_deref(), &mut journal);
        self.journal = Some(journal);
        done.unwrap_or_else(|error| self.without_journal(&error, hints.len()))
    }

    fn without_journal(&mut self, error: &JournalError, hints: usize) -> u32 {
        self.say(format!("hints are not heeded: {error}"));
        u32::try_from(hints).unwrap_or(u32::MAX)
    }

    fn heed_journalled(
        &mut self,
        hints: &[(u32, Clamp)],
        caches: Option<&[CacheClass]>,
        journal: &mut Journal,
    ) -> Result<u32, JournalError> {
        let mut unheeded = 0;
        for (tid, clamp) in hints {
            unheeded += self.hint(*tid, *clamp, journal)?;
        }
        match caches {
            Some(classes) if !classes.is_empty() || self.shares.is_some() => {
                Ok(unheeded + self.divide(classes, journal)?)
            }
            _ => Ok(unheeded),
        }
    }

    fn divide(
        &mut self,
        classes: &[CacheClass],
        journal: &mut Journal,
    ) -> Result<u32, JournalError> {
        let config = &self.config;
        let mut missing = None;
        let shares = self.shares.get_or_insert_with(|| {
            let opened = Shares::open(
                &config.root,
                &config.topology,
                &config.numbers,
                Box::new(resctrl::Kernel),
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
        let done = shares.divide(classes, &self.threads, journal, &mut refused);
        let unheeded = refused.values().sum();
        refused.into_keys().for_each(|why| self.say(why));
        done.map(|()| unheeded)
    }

    /// Takes in who is there.
    fn note(&mut self, seen: &Observation) {
        self.threads.clone_from(&seen.threads);
        let Some(mut journal) = self.journal.take() else {
            return;
        };
        let threads = &self.threads;
        self.hints.retain(|tid, _| {
            let lives = threads.binary_search_by_key(tid, |t| t.id.0).is_ok();
            if !lives {
                journal.forget(*tid);
            }
            lives
        });
        let mut refused = Refused::new();
        if let Some(Some(shares)) = &mut self.shares {
            shares.seat(threads, &mut refused);
        }
        self.owed += refused.values().sum::<u32>();
        refused.into_keys().for_each(|why| self.say(why));
        if let Err(error) = self.prefer(&mut journal) {
            self.owed += self.without_journal(&error, 1);
        }
        self.journal = Some(journal);
    }
}

impl<E> Hinted<E> {
    /// Takes back what was said about threads that are not steered any more.
    fn let_go(&mut self, threads: Vec<ThreadInfo>) {
        for tid in threads.into_iter().map(|t| t.id.0) {
            if let Some(hint) = self.hints.remove(&tid)
                && hint
                    .set
                    .is_some_and(|set| self.clamps.get(tid).is_ok_and(|now| now == set))
            {
                // One that has ended is not missed.
                let _ = self.clamps.set(tid, hint.before.value);
            }
            if let Some(journal) = &mut self.journal {
                journal.forget(tid);
            }
            if let Some(Some(shares)) = &mut self.shares {
                shares.let_go(tid);
            }
        }
    }

    fn release(&mut self) {
        let Some(journal) = self.journal.take() else {
            return;
        };
        match &mut self.shares {
            Some(Some(shares)) => restore::close(&journal, (&*self.clamps, shares.groups())),
            _ => restore::close(&journal, (&*self.clamps, &mut resctrl::Kernel)),
        }
    }
}

impl<E: LiveEngine> Engine for Hinted<E> {
    type Error = E::Error;

    fn topology(&self) -> &Arc<Topology> {
        self.inner.topology()
    }

    fn observe(&mut self, watch: &Watch<'_>, until: Nanos) -> Result<Observation, E::Error> {
        let seen = self.inner.observe(watch, until)?;
        self.note(&seen);
        Ok(seen)
    }

    fn apply(&mut self, placement: &Placement) -> Result<Applied, E::Error> {
        let applied = self.inner.apply(placement)?;
        let unheeded = applied.unheeded + self.heed(placement) + std::mem::take(&mut self.owed);
        Ok(Applied {
            unheeded,
            ..applied
        })
    }

    fn forecast(&mut self) -> Option<&mut dyn Forecast> {
        self.inner.forecast()
    }
}

impl<E: LiveEngine> LiveEngine for Hinted<E> {
    fn admit(&mut self, root: &Root) -> Result<(), E::Error> {
        self.inner.admit(root)
    }

    fn dismiss(&mut self, root: &Root) -> Result<(), E::Error> {
        let is_of = |t: &ThreadInfo| {
            t.program == root.program || process_of(t.id.0).is_ok_and(|process| process == root.pid)
        };
        let (gone, rest) = std::mem::take(&mut self.threads)
            .into_iter()
            .partition(is_of);
        self.threads = rest;
        self.let_go(gone);
        self.inner.dismiss(root)
    }

    fn wake_on(&mut self, file: OwnedFd) {
        self.inner.wake_on(file);
    }

    fn process_of(&self, thread: ThreadId) -> Option<u32> {
        self.inner.process_of(thread)
    }

    fn is_dry(&self) -> bool {
        self.inner.is_dry()
    }
}

impl<E> Drop for Hinted<E> {
    fn drop(&mut self) {
        self.release();
    }
}
