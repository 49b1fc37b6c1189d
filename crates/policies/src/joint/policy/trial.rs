//! Trials: changes that were made, and the check of their results.
//!
//! Input: speeds and power measured before and after. Output: placements undone, and bans of the spots that lost.

use std::collections::BTreeMap;

use countersteer_model::units::{Nanos, ThreadId};

use super::super::search::{Objective, Value};
use super::Joint;
use crate::joint::estimate::Estimate;

/// Part of the promised gain that a change may lose before it is undone.
const LOSS: f64 = 0.25;
/// Time for which an undone change is not tried again, in ms: initial (half of it) and maximal.
const HOLD: u64 = 4_000;
const MOST_HOLD: u64 = 64_000;

/// Changes that were made.
#[derive(Default)]
pub(super) struct Trial {
    /// Threads with the cores they left and went to.
    pub moved: Vec<(ThreadId, usize, usize)>,
    /// Threads with a predicted change of speed: their speed before, and its weight.
    pub affected: Vec<(ThreadId, f64, f64)>,
    /// Predicted gain.
    pub promised: f64,
    /// Instructions and power before, if the objective uses them.
    pub before: Option<Value>,
}

impl Joint {
    /// Mean speeds since the last search, share of the CPU included.
    pub(super) fn reached(&mut self) -> BTreeMap<ThreadId, f64> {
        let mut load = vec![0usize; self.places.spots.len()];
        self.placed.values().for_each(|(spot, _)| load[*spot] += 1);
        let share =
            |spot: usize| (self.places.spots[spot].ways as f64 / load[spot].max(1) as f64).min(1.0);
        let placed = &self.placed;
        let reached = |(id, estimate): (&ThreadId, &mut Estimate)| {
            let spot = placed.get(id)?.0;
            Some((*id, estimate.lately()? * share(spot)))
        };
        self.threads.iter_mut().filter_map(reached).collect()
    }

    /// Measured instructions per ns and power of all threads. `None` while the energy of one is unknown, or if the objective is
    /// not energy.
    pub(super) fn measured(&self, reached: &BTreeMap<ThreadId, f64>) -> Option<Value> {
        // For EDP, in which a change of phase counts twice, a check undoes as much as it saves.
        if self.objective != Objective::Energy {
            return None;
        }
        let mut runs = vec![false; self.places.spots.len()];
        let mut value = Value {
            work: 0.0,
            instructions: 0.0,
            watts: self.places.static_w,
        };
        for (id, (spot, _)) in &self.placed {
            let speed = reached.get(id)?;
            let nj = self.threads.get(id)?.nj(self.places.spots[*spot].kind)?;
            runs[*spot] = true;
            value.instructions += speed;
            value.watts += speed * nj;
        }
        let cores = runs.iter().enumerate();
        value.watts += cores.map(|(s, r)| self.places.core_w(s, *r)).sum::<f64>();
        Some(value)
    }

    /// Checks the result of the last changes and undoes them if they lost. Returns true if it undid them.
    pub(super) fn check(&mut self, reached: &BTreeMap<ThreadId, f64>, now: Nanos) -> bool {
        let Some(trial) = self.trial.take() else {
            return false;
        };
        let mut gained = 0.0;
        if let Some(before) = trial.before {
            let Some(after) = self.measured(reached) else {
                return false;
            };
            gained = before.gain(after, self.objective);
        }
        for (id, before, worth) in &trial.affected {
            let Some(after) = reached.get(id) else {
                return false;
            };
            gained += worth * (after - before);
        }
        if gained >= -LOSS * trial.promised {
            return false;
        }
        for (id, from, to) in trial.moved {
            let ban = self.bans.entry((id, self.site(to))).or_insert((now, HOLD));
            ban.1 = (ban.1 * 2).min(MOST_HOLD);
            ban.0 = now + Nanos::from_millis(ban.1);
            if let Some(placed) = self.placed.get_mut(&id).filter(|placed| placed.0 == to) {
                *placed = (from, now);
            }
        }
        true
    }
}
