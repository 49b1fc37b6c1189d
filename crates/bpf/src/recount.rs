//! Other counters for a scheduler that runs.
//!
//! Input: events. Output: counters beside the former ones, which are closed when nobody runs any more who began under them.

use std::sync::Arc;

use countersteer_host::placer::Counters;
use countersteer_model::metric::steps::step_models;
use countersteer_model::units::Nanos;

use crate::ScxError;
use crate::counting::{Counting, Layout};
use crate::engine::ScxEngine;
use crate::generated::shared;

/// How long counters are kept open that others have taken the place of: several ticks of the clock.
const LINGER: Nanos = Nanos::from_millis(200);

impl ScxEngine {
    /// Counts these events from now on, beside the former ones until nobody runs any more who began under them. Where they
    /// cannot be opened the former ones stay.
    ///
    /// # Errors
    /// They cannot be opened, or are too many.
    pub fn recount(&mut self, counters: Counters) -> Result<(), ScxError> {
        let first = self.vacant_sets(counters.0.len() as u32)?;
        let topology = Arc::clone(&self.config.topology);
        let cpus = self.config.numbers.os_set(&topology.groups[0].cpus);
        let counting = Counting::open(counters, &cpus, first)?;
        if let Err(error) = self.kernel.count(&counting, &self.core_types) {
            self.kernel.uncount(&counting, &self.core_types)?;
            return Err(error);
        }
        let layout = counting.layout(&self.core_types);
        self.judges = self.kernel.model(&step_models(&topology), first, &layout)?;
        self.roster.lay_out(first, layout);
        self.kernel.turn(first)?;
        let now = self.now();
        self.turned = now;
        self.exchanged
            .extend(self.counting.replace(counting).map(|old| (old, now)));
        self.blind = None;
        // Who computes its metric may have changed.
        match self.admission.as_ref().map(|(table, _)| table.clone()) {
            Some(table) => self.admit_by(&table),
            None => Ok(()),
        }
    }

    /// Sets that no counters have: the first of so many, as long unused as can be, since a thread might still run that was
    /// seen last under what they were then.
    fn vacant_sets(&self, count: u32) -> Result<u32, ScxError> {
        let taken: Vec<_> = self
            .exchanged
            .iter()
            .map(|(c, _)| c)
            .chain(&self.counting)
            .map(Counting::sets)
            .collect();
        let vacant = |first: &u32| {
            let end = first + count;
            end <= shared::MAX_SETS && taken.iter().all(|t| end <= t.start || t.end <= *first)
        };
        let newest = taken.last().map_or(0, |t| t.end);
        let have = taken.iter().map(|t| t.len()).sum::<usize>() + count as usize;
        let most = shared::MAX_SETS as usize;
        let found = (newest..shared::MAX_SETS).chain(0..newest).find(vacant);
        found.ok_or(ScxError::TooBig {
            what: "sets of events at a time",
            have,
            most,
        })
    }

    /// Closes counters that were exchanged so long ago that every thread has met a tick of the clock since, or left its CPU.
    pub(super) fn close_exchanged(&mut self) -> Result<(), ScxError> {
        let now = self.now();
        let due = |(_, since): &(Counting, Nanos)| now.since(*since) >= LINGER;
        let (due, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.exchanged)
            .into_iter()
            .partition(due);
        self.exchanged = left;
        for (counting, _) in &due {
            self.kernel.uncount(counting, &self.core_types)?;
            self.roster.lay_out(
                counting.sets().start,
                vec![Layout::none(); counting.sets().len()],
            );
        }
        Ok(())
    }
}
