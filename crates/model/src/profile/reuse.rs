//! Miss curves from sampled reuse distances (StatStack: Eklov and Hagersten, ISPASS 2010).
//!
//! Input: samples of accesses, each with the number of accesses until its line was used again, or until the sampler stopped to
//! watch it. Output: shares of the accesses by LRU stack distance.
//!
//! Among D accesses, the lines of those that are not used again before the D have passed are distinct. So the expected number of
//! distinct lines is the sum of each access's probability not to be used again until then. That probability is estimated from complete and stopped
//! observations alike (Kaplan and Meier, 1958).

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Longest turn of a watch, as a power of two of samples.
const LONGEST_TURN: u32 = 12;

/// Most samples that pass between two watches.
const MOST_PASSED: u64 = 4;

/// One sampled access.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WatchedAccess {
    /// Number of accesses until the line was used again, or until it was no longer watched.
    pub accesses: f64,
    /// True if the line was used again.
    pub again: bool,
    /// Number of samples that this one stands for.
    pub weight: f64,
}

/// Choice of the sampled lines that are watched, for a processor that watches a few lines at a time.
///
/// A watch ends when its line is used again, or with its turn. Turns have 1 to 4,096 samples, drawn so that every length has the same
/// share of the time: far reuses need long turns, and no line may stay for good. After a watch, some samples pass, a random
/// number, so that the choice does not depend on the sample before. A watched sample stands for all since the last watched
/// one, because few are watched while the program's reuses are far. `T` is held while a line is watched.
#[derive(Debug)]
pub struct Watches<T> {
    slots: Vec<ReuseSlot<T>>,
    random: Pcg64,
    /// Accesses whose watch has ended.
    pub found: Vec<WatchedAccess>,
}

#[derive(Debug)]
struct ReuseSlot<T> {
    line: Option<(u64, T)>,
    /// Time of the watched sample, in accesses.
    since: u64,
    /// Number of samples that the turn still has.
    left: u64,
    /// Number of samples that are still let pass.
    pass: u64,
    /// Number of samples since the last watched one.
    unwatched: u64,
    weight: f64,
}

impl<T> Watches<T> {
    /// Begins with a number of lines that can be watched at a time.
    #[must_use]
    pub fn new(lines: usize, seed: u64) -> Self {
        let slot = || ReuseSlot {
            line: None,
            since: 0,
            left: 0,
            pass: 0,
            unwatched: 0,
            weight: 0.0,
        };
        Self {
            slots: std::iter::repeat_with(slot).take(lines).collect(),
            random: Pcg64::seed_from_u64(seed),
            found: Vec::new(),
        }
    }

    /// Takes a sample: an access to `line` at the time `now`, in accesses. Calls `begin` if the line is watched from now on; `None`
    /// if it cannot be.
    pub fn sample(&mut self, now: u64, line: u64, begin: impl FnOnce() -> Option<T>) {
        let mut free = None;
        for (nth, slot) in self.slots.iter_mut().enumerate() {
            slot.unwatched += 1;
            slot.left = slot.left.saturating_sub(1);
            if slot.left == 0 {
                slot.end(now, false, &mut self.found);
                slot.left = turn(&mut self.random);
            }
            if slot.line.is_some() {
                slot.pass = self.random.random_range(0..=MOST_PASSED);
            } else if slot.pass > 0 {
                slot.pass -= 1;
            } else {
                // Two watches of the same sample would say the same.
                free = free.or(Some(nth));
            }
        }
        if let Some(slot) = free.and_then(|nth| self.slots.get_mut(nth)) {
            slot.line = begin().map(|held| (line, held));
            slot.since = now;
            if slot.line.is_some() {
                slot.weight = std::mem::take(&mut slot.unwatched) as f64;
            }
            slot.pass = self.random.random_range(0..=MOST_PASSED);
        }
    }

    /// Ends the watches of a line that is used again at the time `now`.
    pub fn again(&mut self, now: u64, line: u64) {
        for slot in &mut self.slots {
            if slot.line.as_ref().is_some_and(|(own, _)| *own == line) {
                slot.end(now, true, &mut self.found);
            }
        }
    }

    /// Ends all watches, because the thread ends.
    pub fn end(&mut self, now: u64) {
        for slot in &mut self.slots {
            slot.end(now, false, &mut self.found);
        }
    }
}

impl<T> ReuseSlot<T> {
    fn end(&mut self, now: u64, again: bool, found: &mut Vec<WatchedAccess>) {
        if self.line.take().is_some() {
            // The access itself does not count.
            let accesses = now.saturating_sub(self.since + u64::from(again)) as f64;
            found.push(WatchedAccess {
                accesses,
                again,
                weight: self.weight,
            });
        }
    }
}

/// Draws the length of a turn: 2^n with a probability in proportion to 1 / 2^n.
fn turn(random: &mut Pcg64) -> u64 {
    let all = 1_u32 << (LONGEST_TURN + 1);
    let drawn = random.random_range(1..all);
    1 << (LONGEST_TURN - drawn.ilog2())
}

/// Shares of the accesses by stack distance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StackDistances {
    /// Accesses by stack distance, ascending.
    steps: Vec<SurvivalStep>,
    /// Share of the accesses whose line was not used again within the longest observation.
    pub beyond: f64,
    /// Stack distance in lines of the longest observation.
    pub longest: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct SurvivalStep {
    /// Stack distance in lines.
    lines: f64,
    /// Share of the accesses.
    share: f64,
}

impl StackDistances {
    /// Estimates the distances from samples; `None` without a sample.
    #[must_use]
    pub fn of(samples: &[WatchedAccess]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        // At equal distances, a stopped observation was not used again up to there.
        sorted.sort_by(|a, b| {
            a.accesses
                .total_cmp(&b.accesses)
                .then(b.again.cmp(&a.again))
        });
        let mut all = Self {
            beyond: 1.0,
            ..Self::default()
        };
        let mut before = 0.0;
        let mut left: f64 = sorted.iter().map(|sample| sample.weight).sum();
        for sample in &sorted {
            all.longest += all.beyond * (sample.accesses - before).max(0.0);
            before = before.max(sample.accesses);
            if sample.again {
                let share = all.beyond * (sample.weight / left).min(1.0);
                all.beyond -= share;
                all.steps.push(SurvivalStep {
                    lines: all.longest,
                    share,
                });
            }
            left -= sample.weight;
        }
        (!samples.is_empty()).then_some(all)
    }

    /// Returns the share of the accesses with a stack distance of at least `lines`: the miss ratio of an LRU cache of this size.
    #[must_use]
    pub fn at_least(&self, lines: f64) -> f64 {
        self.beyond + self.between(lines, f64::INFINITY).0
    }

    /// Returns the share of the accesses with stack distances from `low` to below `high`, and the number of observations that it
    /// comes from: of equal weight, although far ones stand for more.
    #[must_use]
    pub fn between(&self, low: f64, high: f64) -> (f64, f64) {
        let from = self.steps.partition_point(|step| step.lines < low);
        let to = self.steps.partition_point(|step| step.lines < high);
        let shares = self.steps[from..to.max(from)].iter().map(|step| step.share);
        let share: f64 = shares.clone().sum();
        let squares: f64 = shares.map(|share| share * share).sum();
        let seen = if squares > 0.0 {
            share * share / squares
        } else {
            0.0
        };
        (share, seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};

    /// Samples a stream of accesses to lines, with four watched lines.
    fn sampled(stream: &[u32], period: usize) -> Vec<WatchedAccess> {
        let mut watches = Watches::new(4, 7);
        for (at, line) in (0..).zip(stream) {
            watches.again(at as u64, u64::from(*line));
            if at % period == 0 {
                watches.sample(at as u64, u64::from(*line), || Some(()));
            }
        }
        watches.end(stream.len() as u64);
        watches.found
    }

    #[test]
    fn a_loop_over_lines_has_one_stack_distance() {
        let stream: Vec<u32> = (0..1_000_000).map(|at| at % 1000).collect();
        let found = StackDistances::of(&sampled(&stream, 97)).unwrap();
        assert!(found.at_least(900.0) > 0.99 && found.at_least(1100.0) < 0.01);
    }

    #[test]
    fn random_lines_miss_as_often_as_the_cache_is_too_small() {
        let mut random = Pcg64::seed_from_u64(1);
        let lines = 4096_u32;
        let stream: Vec<u32> = (0..8_000_000)
            .map(|_| random.random_range(0..lines))
            .collect();
        let samples = sampled(&stream, 997);
        assert!(samples.iter().any(|s| !s.again) && samples.len() > 500);
        let found = StackDistances::of(&samples).unwrap();
        for share in [0.25, 0.5, 0.75] {
            let missed = found.at_least(share * f64::from(lines));
            assert!((missed - (1.0 - share)).abs() < 0.05, "{share}: {missed}");
        }
    }

    #[test]
    fn two_loops_keep_their_shares_and_distances() {
        // Three of four accesses go round 100 lines, the fourth round 5,000.
        let line = |at: u32| {
            if at % 4 == 3 {
                1000 + at / 4 % 5000
            } else {
                at % 100
            }
        };
        let stream: Vec<u32> = (0..4_000_000).map(line).collect();
        let found = StackDistances::of(&sampled(&stream, 101)).unwrap();
        let (far, _) = found.between(3000.0, 8000.0);
        assert!((far + found.beyond - 0.25).abs() < 0.04, "{far}");
        assert!(found.at_least(400.0) < 0.3, "{}", found.at_least(400.0));
    }
}
