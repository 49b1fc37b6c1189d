//! Trials: mappings beyond what classes tell, settled by measured speed.
//!
//! Classes say who hurts and who is hurt; how much one program's loss weighs against another's gain their counters do not
//! tell. The paper gives the seats left beside the poison to the middling programs; whether that, the other way round, or
//! the exchange of some pair is better is found out by trying: once classes have settled, candidates run for an interval
//! each, and what raises the sum of IPC is kept. The launch mapping, measured in the first interval, is a
//! candidate too, so that a mapping that was good from the start is found again.
//!
//! Input: at each interval, who is mapped where, the sum of IPC, and what classes propose. Output: where to map now.

use std::collections::BTreeSet;

use super::mapping::Spot;
use crate::units::ThreadId;

/// Intervals with the same classes before anything is tried.
const SETTLED: u32 = 2;
/// Intervals after which trials begin although classes still change.
const LONGEST_SETTLING: u32 = 10;
/// By how much a candidate must be better: noise of the sum of IPC over an interval is well below.
const GAIN: f64 = 1.005;
/// A sum of IPC that is off by this much for [`OFF`] intervals is another phase.
const DRIFT: f64 = 0.1;
const OFF: u32 = 3;
/// Intervals that trials wait at least before a change of phase starts them again; doubled each time.
const REST: u32 = 16;
/// Up to so many threads, every exchange is a candidate; beyond, those of the threads with most and least at stake.
const ALL_PAIRS: usize = 16;

/// Threads by class, as rows of the caller's list, the most demanding first.
#[derive(Default)]
pub(super) struct Groups {
    pub poison: Vec<usize>,
    pub vulnerable: Vec<usize>,
    pub rest: Vec<usize>,
}

impl Groups {
    /// Lets the vulnerable with less than `least` at stake count as middling, where they are more than a quarter of all:
    /// the cleanest seats are for those that need them.
    pub fn limit_vulnerable(&mut self, stake: &[f64], least: f64) {
        let most = (self.poison.len() + self.vulnerable.len() + self.rest.len()) / 4;
        let proven = self.vulnerable.iter().filter(|t| stake[**t] >= least).count();
        let keep = proven.max(most).min(self.vulnerable.len());
        let mild = self.vulnerable.split_off(keep);
        self.rest.splice(0..0, mild);
    }
}

/// What an interval tells.
pub(super) struct Interval<'a> {
    /// Who is mapped, by id.
    pub members: &'a [ThreadId],
    /// Where each is.
    pub spots: &'a [Spot],
    /// Poison, vulnerable or neither.
    pub classes: Vec<u8>,
    /// Sum of IPC.
    pub ipc: f64,
    /// IPC that each stands to lose to its neighbours.
    pub stake: &'a [f64],
}

/// Why threads are mapped anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Classes changed.
    Classes,
    /// A candidate is tried.
    Trial,
    /// The best of what was tried.
    Best,
}

/// The state of the trials.
#[derive(Default)]
pub(super) struct Trials {
    /// Most candidates to try.
    most: u32,
    members: Vec<ThreadId>,
    classes: Vec<u8>,
    stage: Stage,
    /// Best mapping so far and its sum of IPC.
    best: Option<(Vec<Spot>, f64)>,
    waiting: Vec<Vec<Spot>>,
    /// Caches by thread, of all mappings tried so far.
    seen: BTreeSet<Vec<usize>>,
    tried: u32,
    /// Candidates in a row that were no better.
    failures: u32,
    off: u32,
    rests: u32,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Stage {
    /// Nothing was mapped yet.
    #[default]
    Launch,
    /// Intervals in all, and with the same classes.
    Settling(u32, u32),
    /// A candidate runs.
    Trying,
    /// Intervals of rest.
    Resting(u32),
}

impl Trials {
    pub fn new(most: u32) -> Self {
        Self { most, ..Self::default() }
    }

    /// Moves on by an interval; `None` keeps the present mapping. `propose` maps by class, the usual way or the other.
    pub fn step(
        &mut self,
        now: &Interval<'_>,
        propose: &dyn Fn(bool) -> Vec<Spot>,
        rows: usize,
    ) -> Option<(Vec<Spot>, Why)> {
        let changed = std::mem::replace(&mut self.classes, now.classes.clone()) != now.classes;
        if self.members != now.members {
            *self = Self {
                most: self.most,
                members: now.members.to_vec(),
                classes: now.classes.clone(),
                ..Self::default()
            };
        }
        match self.stage {
            Stage::Launch => {
                self.best = (now.ipc > 0.0).then(|| (now.spots.to_vec(), now.ipc));
                self.stage = Stage::Settling(0, 0);
                Some((propose(false), Why::Classes))
            }
            Stage::Settling(all, same) => {
                let same = if changed { 0 } else { same + 1 };
                self.stage = Stage::Settling(all + 1, same);
                if same < SETTLED && all < LONGEST_SETTLING {
                    return changed.then(|| (propose(false), Why::Classes));
                }
                self.begin(now, propose, rows)
            }
            Stage::Trying => self.judge(now),
            Stage::Resting(n) => self.rest(n, now),
        }
    }

    /// Begins trials from the better of the present and the launch mapping.
    fn begin(
        &mut self,
        now: &Interval<'_>,
        propose: &dyn Fn(bool) -> Vec<Spot>,
        rows: usize,
    ) -> Option<(Vec<Spot>, Why)> {
        if self.most == 0 || rows < 2 {
            // Then classes alone decide, for ever.
            self.stage = Stage::Settling(0, 0);
            return None;
        }
        let present = (now.spots.to_vec(), now.ipc);
        let launch = self.best.take().filter(|(_, ipc)| *ipc > present.1 * GAIN);
        self.seen.insert(self.key(&present.0));
        self.best = Some(launch.unwrap_or(present));
        self.refill(now);
        self.waiting.push(propose(true));
        self.next()
    }

    fn judge(&mut self, now: &Interval<'_>) -> Option<(Vec<Spot>, Why)> {
        let least = self.best.as_ref().map_or(0.0, |b| b.1 * GAIN);
        if now.ipc > least {
            self.best = Some((now.spots.to_vec(), now.ipc));
            self.refill(now);
            self.failures = 0;
        } else {
            self.failures += 1;
        }
        self.next()
    }

    /// The next candidate, or the best if there is none left.
    fn next(&mut self) -> Option<(Vec<Spot>, Why)> {
        while self.tried < self.most && self.failures < self.patience() {
            let Some(candidate) = self.waiting.pop() else { break };
            if self.seen.insert(self.key(&candidate)) {
                self.tried += 1;
                self.stage = Stage::Trying;
                return Some((candidate, Why::Trial));
            }
        }
        self.stage = Stage::Resting(0);
        self.off = 0;
        self.best.clone().map(|(spots, _)| (spots, Why::Best))
    }

    /// Candidates come with the most promising first: after so many in vain the rest is not worth its time.
    fn patience(&self) -> u32 {
        self.members.len().max(4) as u32
    }

    /// Lines up the exchanges of the best mapping, the most promising last.
    fn refill(&mut self, now: &Interval<'_>) {
        let Some((best, _)) = &self.best else { return };
        let mut by_stake: Vec<usize> = (0..best.len()).collect();
        by_stake.sort_by(|a, b| now.stake[*b].total_cmp(&now.stake[*a]).then(a.cmp(b)));
        if by_stake.len() > ALL_PAIRS {
            by_stake.drain(ALL_PAIRS / 2..by_stake.len() - ALL_PAIRS / 2);
        }
        let mut pairs = Vec::new();
        for (i, &a) in by_stake.iter().enumerate() {
            for &b in &by_stake[i + 1..] {
                if best[a].0 != best[b].0 {
                    pairs.push((now.stake[a] - now.stake[b], a, b));
                }
            }
        }
        // Who has much at stake and who has little are most likely in the wrong places.
        pairs.sort_by(|x, y| x.0.total_cmp(&y.0).then((y.1, y.2).cmp(&(x.1, x.2))));
        self.waiting = pairs
            .into_iter()
            .map(|(_, a, b)| {
                let mut spots = best.clone();
                spots.swap(a, b);
                spots
            })
            .collect();
    }

    fn rest(&mut self, n: u32, now: &Interval<'_>) -> Option<(Vec<Spot>, Why)> {
        self.stage = Stage::Resting(n.saturating_add(1));
        let (_, ipc) = self.best.as_ref()?;
        let drifted = (now.ipc - ipc).abs() > DRIFT * ipc;
        self.off = if drifted { self.off + 1 } else { 0 };
        let rest = REST << self.rests.min(10);
        if self.off < OFF || n < rest {
            return None;
        }
        *self = Self {
            most: self.most,
            members: std::mem::take(&mut self.members),
            classes: std::mem::take(&mut self.classes),
            rests: self.rests + 1,
            ..Self::default()
        };
        self.stage = Stage::Settling(0, 0);
        None
    }

    /// Who is with whom: caches in the order in which threads name them, so that renaming caches makes no difference.
    fn key(&self, spots: &[Spot]) -> Vec<usize> {
        let mut names: Vec<usize> = Vec::new();
        spots
            .iter()
            .map(|(row, _)| {
                names.iter().position(|n| n == row).unwrap_or_else(|| {
                    names.push(*row);
                    names.len() - 1
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs trials on four threads in two caches; `worth` is the sum of IPC of who shares a cache with thread 0.
    fn run(worth: fn(usize) -> f64, most: u32) -> (Vec<Spot>, u32) {
        let mut trials = Trials { most, ..Trials::default() };
        let members: Vec<ThreadId> = (0..4).map(ThreadId).collect();
        let mut spots = vec![(0, 0), (0, 1), (1, 0), (1, 1)];
        let mut moves = 0;
        for _ in 0..40 {
            let mate = (1..4).find(|t| spots[*t].0 == spots[0].0).unwrap();
            let ipc = worth(mate);
            let now = Interval {
                members: &members,
                spots: &spots,
                classes: vec![0, 1, 2, 2],
                ipc,
                stake: &[1.0, 0.5, 0.2, 0.0],
            };
            let usual = |_| vec![(0, 0), (1, 0), (0, 1), (1, 1)];
            if let Some((next, _)) = trials.step(&now, &usual, 2) {
                moves += u32::from(next != spots);
                spots = next;
            }
        }
        (spots, moves)
    }

    #[test]
    fn the_best_of_all_mappings_is_found_and_kept() {
        for best in 1..4 {
            let worth: [fn(usize) -> f64; 4] =
                [|_| 0.0, |m| [1.2, 1.0, 1.1][m - 1], |m| [1.0, 1.2, 1.1][m - 1], |m| [1.0, 1.1, 1.2][m - 1]];
            let (spots, moves) = run(worth[best], 8);
            assert_eq!(spots[best].0, spots[0].0, "thread {best}");
            assert!(moves <= 4, "{moves} moves");
        }
    }

    #[test]
    fn without_trials_the_classes_decide() {
        let (spots, moves) = run(|m| if m == 1 { 2.0 } else { 1.0 }, 0);
        assert_eq!((spots[2].0, moves), (spots[0].0, 1));
    }
}
