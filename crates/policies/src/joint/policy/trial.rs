//! Trials: changes that were made, and the check of their results.
//!
//! Input: what a search found, then speeds and power measured before and after. Output: placements, those that are undone, and
//! bans of the spots that lost.

use std::collections::BTreeMap;

use countersteer_model::units::{Nanos, ThreadId};

use super::super::search::{JointObjective, ObjectiveValue};
use super::Joint;
use crate::joint::estimate::ThreadEstimate;

/// Part of the promised gain that a change may lose before it is undone.
const LOSS: f64 = 0.25;
/// Time for which an undone change is not tried again, in ms: initial (half of it) and maximal.
const HOLD: u64 = 4_000;
const MOST_HOLD: u64 = 64_000;
/// Relative change of a predicted speed from which a thread counts as affected.
const FELT: f64 = 0.02;

/// Changes that were made.
#[derive(Default)]
pub(super) struct ChangeTrial {
    /// Threads with the cores they left and went to.
    pub moved: Vec<(ThreadId, usize, usize)>,
    /// Threads with a predicted change of speed: their speed before, and its weight.
    pub affected: Vec<(ThreadId, f64, f64)>,
    /// Predicted gain.
    pub promised: f64,
    /// Instructions and power before, if the objective uses them.
    pub before: Option<ObjectiveValue>,
}

/// Thread before and after a search, as predicted.
pub(super) struct PredictedChange {
    pub id: ThreadId,
    pub cores: (usize, usize),
    /// Instructions per ns, share of the CPU included.
    pub speeds: (f64, f64),
    /// Weight of its speed in the objective.
    pub worth: f64,
}

impl PredictedChange {
    /// True if the thread moves, or if its speed changes because others move.
    fn is_affected(&self) -> bool {
        self.cores.0 != self.cores.1 || (self.speeds.1 / self.speeds.0 - 1.0).abs() > FELT
    }
}

impl Joint {
    /// Mean speeds since the last search, share of the CPU included.
    pub(super) fn reached(&mut self) -> BTreeMap<ThreadId, f64> {
        let mut load = vec![0usize; self.places.spots.len()];
        self.placed.values().for_each(|(spot, _)| load[*spot] += 1);
        let share =
            |spot: usize| (self.places.spots[spot].ways as f64 / load[spot].max(1) as f64).min(1.0);
        let placed = &self.placed;
        let reached = |(id, estimate): (&ThreadId, &mut ThreadEstimate)| {
            let spot = placed.get(id)?.0;
            Some((*id, estimate.lately()? * share(spot)))
        };
        self.threads.iter_mut().filter_map(reached).collect()
    }

    /// Measured instructions per ns and power of all threads. `None` while the energy of one is unknown, or if the objective is
    /// not energy.
    pub(super) fn measured(&self, reached: &BTreeMap<ThreadId, f64>) -> Option<ObjectiveValue> {
        // For EDP, in which a change of phase counts twice, a check undoes as much as it saves.
        if self.objective != JointObjective::Energy {
            return None;
        }
        let mut runs = vec![false; self.places.spots.len()];
        let mut value = ObjectiveValue {
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

    /// Assigns the cores that a search found, and begins the trial of the changes.
    pub(super) fn adopt(
        &mut self,
        found: &[PredictedChange],
        promised: f64,
        now: Nanos,
        reached: &BTreeMap<ThreadId, f64>,
    ) {
        let measured = self.measured(reached);
        let mut trial = ChangeTrial {
            before: measured,
            promised: measured.map_or(0.0, |_| promised),
            ..ChangeTrial::default()
        };
        for thread in found {
            let (from, to) = thread.cores;
            if from != to {
                trial.moved.push((thread.id, from, to));
                self.placed.insert(thread.id, (to, now));
                if let Some(e) = self.threads.get_mut(&thread.id) {
                    e.restless += 1.0;
                }
            }
            // Measured energy stands for all threads; without it, their speeds are compared.
            let was = reached.get(&thread.id);
            if let Some(was) = was.filter(|_| measured.is_none() && thread.is_affected()) {
                trial.promised += thread.worth * (thread.speeds.1 - thread.speeds.0);
                trial.affected.push((thread.id, *was, thread.worth));
            }
        }
        let checked = self.objective == JointObjective::Throughput || measured.is_some();
        self.trial = (!trial.moved.is_empty() && checked).then_some(trial);
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
