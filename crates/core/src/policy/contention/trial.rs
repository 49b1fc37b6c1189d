//! Classes as they settle, and one experiment.
//!
//! Where the poison is there are seats left over. The paper gives them to the middling programs and keeps the neutral ones
//! for the vulnerable; whether that is better than the other way round depends on how much the middling ones take from the
//! vulnerable and lose to the poison, which their counters do not tell. So once classes have settled the other way is tried,
//! and kept if the sum of IPC says so.

use crate::units::ThreadId;

/// Intervals with the same classes before anything is tried.
const SETTLED: u32 = 3;
/// Intervals of the experiment; the first does not count, since caches have to fill.
const LENGTH: u32 = 3;
/// By how much the other way must be better.
const GAIN: f64 = 1.005;

/// Threads by class, as rows of the caller's list, the most demanding first.
#[derive(Default)]
pub(super) struct Groups {
    pub poison: Vec<usize>,
    pub vulnerable: Vec<usize>,
    pub rest: Vec<usize>,
}

type Signature = [Vec<ThreadId>; 3];

/// The state of the experiment.
#[derive(Default)]
pub(super) struct Trial {
    signature: Option<Signature>,
    stage: Stage,
    /// Sum of IPC in the last intervals of each way.
    before: Mean,
    during: Mean,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Stage {
    /// So many intervals with the same classes.
    Settling(u32),
    /// So many intervals the other way.
    Trying(u32),
    /// Decided.
    Done,
    #[default]
    Fresh,
}

#[derive(Clone, Copy, Default)]
struct Mean {
    sum: f64,
    count: f64,
}

impl Mean {
    fn note(&mut self, value: f64) {
        self.sum += value;
        self.count += 1.0;
    }

    fn value(self) -> f64 {
        self.sum / self.count.max(1.0)
    }
}

impl Trial {
    /// Lets the vulnerable with less than `least` at stake count as middling, where they are more than a quarter of all:
    /// the cleanest seats are for those that need them.
    pub fn limit_vulnerable(&self, groups: &mut Groups, stake: &[f64], least: f64, caches: usize) {
        if groups.poison.is_empty() || caches < 2 {
            return;
        }
        let most = (groups.poison.len() + groups.vulnerable.len() + groups.rest.len()) / 4;
        let proven = groups.vulnerable.iter().filter(|t| stake[**t] >= least).count();
        let keep = proven.max(most).min(groups.vulnerable.len());
        let mild = groups.vulnerable.split_off(keep);
        groups.rest.splice(0..0, mild);
    }

    /// Moves on by an interval; `None` keeps the present mapping, else whether to map the other way round.
    pub fn step(&mut self, signature: Signature, ipc: f64, allowed: bool) -> Option<bool> {
        if self.signature.as_ref() != Some(&signature) {
            let room_for_doubt = !signature[0].is_empty() && signature[2].len() > 1;
            *self = Self { signature: Some(signature), ..Self::default() };
            self.stage = if allowed && room_for_doubt { Stage::Settling(0) } else { Stage::Done };
            return Some(false);
        }
        match self.stage {
            Stage::Settling(n) if n < SETTLED => {
                // The first interval still carries the moves.
                if n > 0 {
                    self.before.note(ipc);
                }
                self.stage = Stage::Settling(n + 1);
                None
            }
            Stage::Settling(_) => {
                self.stage = Stage::Trying(0);
                Some(true)
            }
            Stage::Trying(n) => {
                if n > 0 {
                    self.during.note(ipc);
                }
                self.stage = if n + 1 < LENGTH { Stage::Trying(n + 1) } else { Stage::Done };
                let worse = self.during.value() < GAIN * self.before.value();
                (self.stage == Stage::Done && worse).then_some(false)
            }
            Stage::Done | Stage::Fresh => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(after: f64) -> Vec<Option<bool>> {
        let mut trial = Trial::default();
        let signature = [vec![ThreadId(0)], vec![ThreadId(1)], vec![ThreadId(2), ThreadId(3)]];
        let mut swapped = false;
        let step = |_| {
            let answer = trial.step(signature.clone(), if swapped { after } else { 1.0 }, true);
            swapped = answer.unwrap_or(swapped);
            answer
        };
        (0..10).map(step).collect()
    }

    #[test]
    fn the_other_way_is_kept_only_if_it_is_better() {
        let changes = |answers: Vec<Option<bool>>| answers.into_iter().flatten().collect::<Vec<_>>();
        assert_eq!(changes(run(1.1)), [false, true]);
        assert_eq!(changes(run(0.9)), [false, true, false]);
    }
}
