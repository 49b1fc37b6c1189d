//! Trials: mappings beyond what classes tell, settled by measured speed.
//!
//! Classes say who hurts and who is hurt; how much one program's loss weighs against another's gain their counters do not
//! tell. So the mappings that classes propose, the launch mapping and exchanges of two threads are tried: each runs for a
//! fraction of an interval between two such fractions of the present mapping ([`super::paired`]), and what raises the sum
//! of IPC is kept. On machines with many caches, exchanges in disjoint pairs of caches are tried at the same time, each
//! judged by the threads of its own pair.
//!
//! Trials never end, because programs change, but they are paid from a budget: what they lose, as measured, is at most a
//! given part of all work.
//!
//! Input: at each step, who is mapped where, IPC by thread, and what classes propose. Output: where to map now.

use super::exchange::{self, Memory, Threads};
use super::mapping::{Caches, Spot};
use super::paired::{Verdict, compare};
use countersteer_core::policy::PolicyRng;
use countersteer_core::units::ThreadId;

/// What must be gained, at least, for a mapping to be changed.
const GAIN: f64 = 0.005;
/// What moving threads is taken to cost, as a part of the trial's work.
const MOVING: f64 = 0.01;
/// Intervals' worth of work that trials may cost at once: the budget at the start, and at most.
const SAVINGS: f64 = 0.6;
/// Sets of classes remembered whose proposals were tried.
const PROPOSALS: usize = 8;
/// Trials of exchanges from one proposal to the next: classes of many threads never stop changing.
const BETWEEN_PROPOSALS: u32 = 8;

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
        let proven = self
            .vulnerable
            .iter()
            .filter(|t| stake[**t] >= least)
            .count();
        let keep = proven.max(most).min(self.vulnerable.len());
        let mild = self.vulnerable.split_off(keep);
        self.rest.splice(0..0, mild);
    }
}

/// What a step tells.
pub(super) struct Step<'a> {
    pub threads: Threads<'a>,
    /// Where each is.
    pub spots: &'a [Spot],
    /// Poison, vulnerable or neither.
    pub classes: Vec<u8>,
    /// IPC of each.
    pub ipc: Vec<Option<f64>>,
    /// Length, in intervals.
    pub length: f64,
    pub caches: &'a Caches,
    /// Threads share CPUs.
    pub crowded: bool,
    /// Mappings by class, the usual way and the other.
    pub propose: &'a dyn Fn(bool) -> Vec<Spot>,
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
pub(super) struct Trials {
    /// Part of the work that trials may cost.
    rate: f64,
    /// Intervals' worth of work that they may cost now.
    credit: f64,
    /// Intervals since the start.
    clock: f64,
    members: Vec<ThreadId>,
    classes: Vec<u8>,
    /// The best mapping so far.
    best: Vec<Spot>,
    waiting: Vec<Vec<Spot>>,
    /// Classes whose proposals were lined up.
    proposed: Vec<Vec<u8>>,
    /// Trials until classes may propose again.
    wait: u32,
    memory: Memory,
    stage: Stage,
}

#[derive(Default)]
enum Stage {
    /// Nothing was mapped yet.
    #[default]
    Launch,
    /// The best mapping runs.
    Holding,
    /// A candidate runs.
    Trying(Candidate),
    /// The best mapping runs again after a candidate.
    Checking(Candidate),
    /// A candidate was better and runs again; what it replaced is now in the place of a candidate.
    Confirming(Candidate),
}

/// A mapping on trial.
#[derive(Default)]
struct Candidate {
    spots: Vec<Spot>,
    /// The exchanges that it consists of; none when it is another mapping altogether.
    exchanges: Vec<(usize, usize)>,
    before: Vec<Option<f64>>,
    during: Vec<Option<f64>>,
    length: f64,
}

impl Trials {
    pub fn new(rate: f64) -> Self {
        Self {
            rate,
            credit: SAVINGS,
            clock: 0.0,
            members: Vec::new(),
            classes: Vec::new(),
            best: Vec::new(),
            waiting: Vec::new(),
            proposed: Vec::new(),
            wait: 0,
            memory: Memory::default(),
            stage: Stage::Launch,
        }
    }

    /// Whether a comparison is under way: then steps are short.
    pub const fn comparing(&self) -> bool {
        matches!(
            self.stage,
            Stage::Trying(_) | Stage::Checking(_) | Stage::Confirming(_)
        )
    }

    /// Moves on by a step; `None` keeps the present mapping.
    pub fn step(&mut self, now: Step<'_>, rng: &mut PolicyRng) -> Option<(Vec<Spot>, Why)> {
        self.clock += now.length;
        self.credit = (self.credit + self.rate * now.length).min(SAVINGS);
        let changed = self.classes != now.classes;
        self.classes.clone_from(&now.classes);
        let newcomers = self.members != now.threads.ids;
        if newcomers {
            self.members = now.threads.ids.to_vec();
            self.waiting.clear();
            self.proposed.clear();
            self.stage = Stage::Launch;
        }
        if self.rate == 0.0 || now.caches.rows.len() < 2 {
            // Then classes alone decide, for ever.
            return (changed || newcomers).then(|| ((now.propose)(false), Why::Classes));
        }
        match std::mem::take(&mut self.stage) {
            Stage::Launch => Some(self.launch(&now)),
            Stage::Holding => self.next(&now, rng),
            Stage::Trying(candidate) => {
                let during = now.ipc.clone();
                self.stage = Stage::Checking(Candidate {
                    during,
                    length: now.length,
                    ..candidate
                });
                Some((self.best.clone(), Why::Best))
            }
            Stage::Checking(candidate) => match self.judge(candidate, &now) {
                Some(replaced) => {
                    self.stage = Stage::Confirming(replaced);
                    Some((self.best.clone(), Why::Best))
                }
                None => self.next(&now, rng),
            },
            Stage::Confirming(replaced) => {
                if self.confirm(&replaced, &now) {
                    return self.next(&now, rng);
                }
                self.stage = Stage::Holding;
                Some((self.best.clone(), Why::Best))
            }
        }
    }

    /// Classes map first; the launch mapping may turn out to have been better.
    fn launch(&mut self, now: &Step<'_>) -> (Vec<Spot>, Why) {
        self.best = (now.propose)(false);
        if now.caches.balanced(now.spots) {
            self.waiting.push(now.spots.to_vec());
        }
        self.stage = Stage::Holding;
        (self.best.clone(), Why::Classes)
    }

    /// The next candidate, if there is a promising one and a budget.
    fn next(&mut self, now: &Step<'_>, rng: &mut PolicyRng) -> Option<(Vec<Spot>, Why)> {
        self.stage = Stage::Holding;
        if self.credit <= 0.0 {
            return None;
        }
        if self.waiting.is_empty() && self.wait == 0 && !self.proposed.contains(&self.classes) {
            self.wait = BETWEEN_PROPOSALS;
            self.proposed.truncate(PROPOSALS - 1);
            self.proposed.insert(0, self.classes.clone());
            self.waiting.extend([true, false].map(now.propose));
        }
        let before = now.ipc.clone();
        while let Some(spots) = self.waiting.pop() {
            if spots != self.best {
                self.stage = Stage::Trying(Candidate {
                    spots: spots.clone(),
                    before,
                    ..Candidate::default()
                });
                return Some((spots, Why::Trial));
            }
        }
        self.wait = self.wait.saturating_sub(1);
        let memory = (&self.memory, self.clock);
        let exchanges = exchange::pick(
            &now.threads,
            &self.best,
            now.caches,
            now.crowded,
            memory,
            rng,
        );
        if exchanges.is_empty() {
            return None;
        }
        let mut spots = self.best.clone();
        exchanges.iter().for_each(|(a, b)| spots.swap(*a, *b));
        self.stage = Stage::Trying(Candidate {
            spots: spots.clone(),
            exchanges,
            before,
            ..Candidate::default()
        });
        Some((spots, Why::Trial))
    }

    /// Keeps what was better; returns what that replaced, as a candidate, if anything.
    fn judge(&mut self, candidate: Candidate, now: &Step<'_>) -> Option<Candidate> {
        let verdicts = self.verdicts(&candidate, now);
        let tried = verdicts.len().max(1) as f64;
        let loss: f64 = verdicts
            .iter()
            .flatten()
            .map(|v| (MOVING - v.gain).max(0.0))
            .sum();
        self.credit -= loss / tried * candidate.length;
        let better = |v: &Option<Verdict>| v.is_some_and(|v| v.gain > GAIN.max(v.doubt));
        let replaced = self.best.clone();
        if candidate.exchanges.is_empty() {
            if !verdicts.iter().any(better) {
                return None;
            }
            self.best.clone_from(&candidate.spots);
            self.memory = Memory::default();
        }
        let mut kept = Vec::new();
        for (&(a, b), verdict) in candidate.exchanges.iter().zip(&verdicts) {
            let Some(gain) = verdict.map(|v| v.gain) else {
                continue;
            };
            let better = better(verdict);
            self.memory.learn(
                self.members[a],
                self.members[b],
                if better { -gain } else { gain },
                self.clock,
            );
            if better {
                self.best.swap(a, b);
                kept.push((a, b));
            }
        }
        self.memory.limit(self.members.len());
        (replaced != self.best).then(|| Candidate {
            spots: replaced,
            exchanges: kept,
            before: candidate.during,
            during: now.ipc.clone(),
            length: 0.0,
        })
    }

    /// Takes back what was not better the second time; says whether everything was.
    fn confirm(&mut self, replaced: &Candidate, now: &Step<'_>) -> bool {
        let verdicts = self.verdicts(replaced, now);
        let worse = |v: &Option<Verdict>| v.is_some_and(|v| v.gain < 0.0);
        if replaced.exchanges.is_empty() {
            let confirmed = verdicts.iter().any(worse);
            if !confirmed {
                self.best.clone_from(&replaced.spots);
            }
            return confirmed;
        }
        let mut all = true;
        for (&(a, b), verdict) in replaced.exchanges.iter().zip(&verdicts) {
            if !worse(verdict) {
                self.best.swap(a, b);
                let gain = verdict.map_or(0.0, |v| -v.gain);
                self.memory
                    .learn(self.members[a], self.members[b], gain.min(0.0), self.clock);
                all = false;
            }
        }
        all
    }

    /// What the threads concerned say about each exchange of a candidate, or all threads about another mapping altogether.
    fn verdicts(&self, candidate: &Candidate, now: &Step<'_>) -> Vec<Option<Verdict>> {
        let triple = |t: &usize| [candidate.before[*t], candidate.during[*t], now.ipc[*t]];
        let mut at_caches = vec![Vec::new(); now.caches.rows.len()];
        self.best
            .iter()
            .enumerate()
            .for_each(|(t, spot)| at_caches[spot.0].push(t));
        if candidate.exchanges.is_empty() {
            return vec![compare(at_caches.iter().flatten().map(triple))];
        }
        let verdict = |&(a, b): &(usize, usize)| {
            let x = self.best[a].0;
            let y = self.best[b].0;
            let other: &[usize] = if x == y { &[] } else { &at_caches[y] };
            compare(at_caches[x].iter().chain(other).map(triple))
        };
        candidate.exchanges.iter().map(verdict).collect()
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;
    use countersteer_core::testing;

    const RATE: f64 = 0.005;

    /// Four threads in two caches. Per interval, `ipc` says what each reaches, from time and who shares a cache with
    /// thread 0; returns where they were at the end, the mean IPC, and how often they moved.
    fn run(rate: f64, intervals: f64, ipc: impl Fn(f64, usize) -> [f64; 4]) -> (usize, f64, u32) {
        let caches = Caches::new(&testing::topology(testing::TWO_LLCS));
        let mut trials = Trials::new(rate);
        let mut rng = PolicyRng::seed_from_u64(1);
        let ids: Vec<ThreadId> = (0..4).map(ThreadId).collect();
        let mut spots = vec![(0, 0), (0, 1), (1, 0), (1, 1)];
        let mut at = 0.0;
        let mut sum = 0.0;
        let mut moves = 0;
        let mut mate = 1;
        while at < intervals {
            let length = if trials.comparing() { 0.375 } else { 1.0 };
            mate = (1..4).find(|t| spots[*t].0 == spots[0].0).unwrap();
            let now = ipc(at, mate);
            at += length;
            sum += length * now.iter().sum::<f64>();
            let step = Step {
                threads: Threads {
                    ids: &ids,
                    stake: &[1.0, 0.5, 0.2, 0.0],
                    pressure: &[0.0, 1.0, 2.0, 0.5],
                },
                spots: &spots,
                classes: vec![0, 1, 2, 2],
                ipc: now.map(Some).to_vec(),
                length,
                caches: &caches,
                crowded: false,
                propose: &|_| vec![(0, 0), (1, 0), (0, 1), (1, 1)],
            };
            if let Some((next, _)) = trials.step(step, &mut rng) {
                moves += u32::from(next != spots);
                spots = next;
            }
        }
        (mate, sum / at, moves)
    }

    #[test]
    fn the_best_of_all_mappings_is_found_and_kept() {
        for best in 1..4 {
            let worth = |_, mate| [1.0, 1.0, 1.0, if mate == best { 1.3 } else { 1.0 }];
            let (_, mean, _) = run(RATE, 1000.0, worth);
            assert!(mean > 4.3 * 0.99, "thread {best}: {mean}");
        }
    }

    #[test]
    fn phases_do_not_hide_which_mapping_is_best() {
        // One thread's phases are four times as large as what there is to gain, and last for a few intervals.
        let phase = |at: f64| if (at / 3.7).sin() > 0.0 { 1.2 } else { 0.0 };
        let worth = |at, mate| [1.0, 1.0 + phase(at), 1.0, if mate == 3 { 1.3 } else { 1.0 }];
        let without = |at, _| [1.0, 1.0 + phase(at), 1.0, 1.3];
        let ideal = run(RATE, 1000.0, without).1;
        let (_, mean, _) = run(RATE, 1000.0, worth);
        assert!(mean > ideal * 0.99, "{mean} of {ideal}");
    }

    #[test]
    fn what_won_by_chance_is_taken_back() {
        // Everything else is worse, but for a moment in which the first candidate runs.
        let worth = |at: f64, mate| {
            [
                1.0,
                1.0,
                1.0,
                if mate == 2 || (1.9..2.2).contains(&at) {
                    1.3
                } else {
                    1.0
                },
            ]
        };
        assert!(run(RATE, 100.0, worth).1 > 4.3 * 0.97);
    }

    #[test]
    fn trials_cost_no_more_than_their_budget() {
        // What classes propose is best, and everything else much worse.
        let worth = |_, mate| if mate == 2 { [1.0; 4] } else { [0.5; 4] };
        let intervals = 2000.0;
        let (_, mean, moves) = run(RATE, intervals, worth);
        let lost = 1.0 - mean / 4.0;
        // The launch mapping was not theirs; the last trial may overdraw.
        let most = RATE + (SAVINGS + 0.5 + 0.375) / intervals;
        assert!(
            moves > 20 && lost < most,
            "lost {lost} of at most {most} in {moves} moves"
        );
    }

    #[test]
    fn without_a_budget_the_classes_decide() {
        let (mate, _, moves) = run(
            0.0,
            100.0,
            |_, mate| if mate == 1 { [2.0; 4] } else { [1.0; 4] },
        );
        assert_eq!((mate, moves), (2, 1));
    }
}
