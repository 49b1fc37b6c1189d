//! Limits on clocks that the policy `greedy-energy` sets: each is on trial for a slice, and undone if it saved nothing.

use std::collections::BTreeMap;

use countersteer_model::placement::{ClockLimit, Reason};
use countersteer_model::units::{CpuId, ThreadId};

use super::model::{MachineTables, ThreadPlaces};

/// Number of slices, in units of k, for which a clock keeps its frequency after a change that did not pay.
const BARRED: usize = 20;

/// Change of a clock whose effect is measured.
struct ClockTrial {
    clock: usize,
    /// Limit before the change.
    before: Option<(u32, Reason)>,
    /// Cost before the change, by measured instructions.
    cost: f64,
    threads: Vec<ThreadId>,
}

/// Limits on clocks, and what is known of their effects.
#[derive(Default)]
pub(super) struct ClockLimits {
    /// Clocks that have a limit, in MHz, with its reason.
    now: BTreeMap<usize, (u32, Reason)>,
    trial: Option<ClockTrial>,
    /// Slices for which each clock keeps its frequency, because a change did not pay.
    pub barred: BTreeMap<usize, usize>,
}

impl ClockLimits {
    /// Ends the trial of a change of a clock. Returns true if the change is undone because its cost was no lower. To be called once
    /// per slice.
    pub fn undoes(&mut self, cost: f64, threads: &[ThreadId], k: usize) -> bool {
        self.barred.retain(|_, left| {
            *left -= 1;
            *left > 0
        });
        let Some(trial) = self.trial.take() else {
            return false;
        };
        // With other threads, nothing is known about the change.
        if cost < trial.cost || trial.threads != threads {
            return false;
        }
        match trial.before {
            Some(before) => self.now.insert(trial.clock, before),
            None => self.now.remove(&trial.clock),
        };
        self.barred.insert(trial.clock, BARRED * k.max(1));
        true
    }

    /// Ends the limits of clocks whose CPUs hold no thread. Returns true if there was one.
    pub fn ends_unused(&mut self, places: &ThreadPlaces<'_>) -> bool {
        let limited = self.now.len();
        let used = |clock: &usize| places.machine.clocks[*clock].iter();
        self.now
            .retain(|clock, _| used(clock).any(|cpu| !places.on[*cpu].is_empty()));
        self.now.len() < limited
    }

    /// Sets or ends the limit on a clock, and begins the trial of that change.
    pub fn set(
        &mut self,
        clock: usize,
        limit: Option<(u32, Reason)>,
        cost: f64,
        threads: Vec<ThreadId>,
    ) {
        let before = match limit {
            Some(limit) => self.now.insert(clock, limit),
            None => self.now.remove(&clock),
        };
        self.trial = Some(ClockTrial {
            clock,
            before,
            cost,
            threads,
        });
    }

    /// Returns the limits on all clocks, as those of their CPUs.
    pub fn of_cpus(&self, machine: &MachineTables) -> Vec<ClockLimit> {
        let each = self.now.iter().flat_map(|(clock, (most_mhz, reason))| {
            let cpus = machine.clocks[*clock].iter();
            cpus.map(|cpu| ClockLimit {
                cpu: CpuId(*cpu as u32),
                most_mhz: *most_mhz,
                reason: reason.clone(),
            })
        });
        each.collect()
    }
}
