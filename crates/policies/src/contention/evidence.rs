//! Evidence about a thread's use of the shared cache, from which its class follows.
//!
//! Input: occupancy, misses and IPC at each decision. Output, per interval: averages, and a class.
//!
//! One interval cannot distinguish a program that wastes a cache from one that has too little of it: both miss often
//! (CMPSched$im, section 4.3, first takes mcf for poison). They differ in how misses change with occupancy. The intervals
//! with the least and with the most occupancy are therefore kept.

use countersteer_model::units::{Nanos, ThreadId};

/// Threshold of the elasticity: misses of a vulnerable thread fall at least with this power of the occupancy. It is halfway
/// between typical programs and streams. Misses of typical programs fall with the square root of the cache size (Hartstein et
/// al. 2006); misses of streams do not fall.
const ELASTIC: f64 = 0.25;
/// Threshold: minimum ratio of two occupancies at which their misses may be compared.
const CONTRAST: f64 = 1.5;
/// Threshold: maximum ratio at which two occupancies count as equal.
const SAME_ROOM: f64 = 1.2;
/// Threshold: minimum ratio of misses per kilo-instruction, at equal occupancy, that marks another phase.
const NEW_PHASE: f64 = 2.0;
/// Threshold in misses per kilo-instruction, below which phases are not distinguished.
const FEW: f64 = 1.0;

/// Fraction of a thread's IPC that is assumed to depend on occupancy while the dependence is unknown.
const UNSEEN: f64 = 0.1;

/// Class of a thread by its use of a shared cache (CMPSched$im, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CacheUseClass {
    /// The thread misses often at any occupancy, and evicts the lines of others.
    Poison,
    /// The thread misses less if it holds more lines.
    Vulnerable,
    /// The thread neither needs the cache nor hurts others.
    Neutral,
}

/// Average occupancy, misses and IPC of a thread in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct IntervalUse {
    pub occupancy: f64,
    pub mpki: f64,
    pub ipc: f64,
}

/// Evidence about one thread's use of the cache.
#[derive(Clone, Debug)]
pub(super) struct CacheEvidence {
    pub thread: ThreadId,
    /// Last time at which the thread ran or was runnable; `None` if it never was.
    pub stirred: Option<Nanos>,
    /// Averages of the last interval in which the thread ran.
    pub last: Option<IntervalUse>,
    /// Instructions per cycle in the interval that just ended; `None` if the thread did not run.
    pub ipc: Option<f64>,
    /// Class of the thread.
    pub class: CacheUseClass,
    /// True if the thread is in the half of the threads with the larger occupancies.
    pub large: bool,
    sum: IntervalUse,
    samples: u32,
    least: Option<IntervalUse>,
    most: Option<IntervalUse>,
}

impl CacheEvidence {
    pub const fn new(thread: ThreadId) -> Self {
        Self {
            thread,
            stirred: None,
            last: None,
            ipc: None,
            class: CacheUseClass::Neutral,
            large: false,
            sum: IntervalUse {
                occupancy: 0.0,
                mpki: 0.0,
                ipc: 0.0,
            },
            samples: 0,
            least: None,
            most: None,
        }
    }

    /// Adds the metrics of one decision to the current interval.
    pub fn note(&mut self, occupancy: Option<f64>, mpki: Option<f64>, ipc: Option<f64>) {
        if occupancy.is_none() && mpki.is_none() {
            return;
        }
        let sane = |value: Option<f64>| value.filter(|v| v.is_finite() && *v >= 0.0).unwrap_or(0.0);
        self.sum.occupancy += sane(occupancy);
        self.sum.mpki += sane(mpki);
        self.sum.ipc += sane(ipc);
        self.samples += 1;
    }

    /// Ends the interval: computes its averages and updates the extremes of occupancy.
    pub fn close(&mut self) {
        let n = f64::from(std::mem::take(&mut self.samples));
        let sum = std::mem::take(&mut self.sum);
        self.ipc = (n > 0.0).then(|| sum.ipc / n);
        if n == 0.0 {
            return;
        }
        let seen = IntervalUse {
            occupancy: sum.occupancy / n,
            mpki: sum.mpki / n,
            ipc: sum.ipc / n,
        };
        self.last = Some(seen);
        self.remember(seen);
    }

    fn remember(&mut self, seen: IntervalUse) {
        let (Some(least), Some(most)) = (self.least, self.most) else {
            return self.start_over(seen);
        };
        // Other misses at equal occupancy mean another phase, to which the earlier evidence does not apply.
        let changed = |old: IntervalUse| {
            let a = old.mpki.max(FEW);
            let b = seen.mpki.max(FEW);
            ratio(old.occupancy, seen.occupancy) < SAME_ROOM && ratio(a, b) > NEW_PHASE
        };
        if changed(least) || changed(most) {
            return self.start_over(seen);
        }
        let blend = |old: IntervalUse| IntervalUse {
            occupancy: (old.occupancy + seen.occupancy) / 2.0,
            mpki: (old.mpki + seen.mpki) / 2.0,
            ipc: (old.ipc + seen.ipc) / 2.0,
        };
        for (slot, old, further) in [
            (&mut self.least, least, seen.occupancy < least.occupancy),
            (&mut self.most, most, seen.occupancy > most.occupancy),
        ] {
            let same = ratio(old.occupancy, seen.occupancy) < SAME_ROOM;
            if same || further {
                *slot = Some(if same { blend(old) } else { seen });
            }
        }
    }

    fn start_over(&mut self, seen: IntervalUse) {
        (self.least, self.most) = (Some(seen), Some(seen));
    }

    /// Returns the intervals with the least and with the most occupancy; `None` if the occupancies are too close to compare
    /// misses.
    fn contrast(&self) -> Option<(IntervalUse, IntervalUse)> {
        let least = self.least?;
        let most = self.most?;
        (most.occupancy >= CONTRAST * least.occupancy && least.occupancy > 0.0)
            .then_some((least, most))
    }

    /// Returns the elasticity: the exponent with which misses fall as occupancy grows. `None` if the extremes are too close.
    pub fn elasticity(&self) -> Option<f64> {
        let (least, most) = self.contrast()?;
        (least.mpki > 0.0 && most.mpki > 0.0)
            .then(|| (least.mpki / most.mpki).ln() / (most.occupancy / least.occupancy).ln())
    }

    /// Returns the misses per kilo-instruction that the thread saves by its occupancy, as far as measured. If nothing was
    /// measured and the thread misses often, returns all its misses; otherwise 0.
    pub fn at_stake(&self, threshold: f64) -> f64 {
        match (self.contrast(), self.last) {
            (Some((least, most)), _) => (least.mpki - most.mpki).max(0.0),
            (None, Some(last)) if last.mpki > threshold => last.mpki,
            _ => 0.0,
        }
    }

    /// Returns the instructions per cycle that the thread gains by its occupancy, or an estimate if this was not measured.
    pub fn ipc_at_stake(&self) -> f64 {
        let guess = || self.last.map_or(0.0, |l| l.ipc * UNSEEN);
        self.contrast()
            .map_or_else(guess, |(least, most)| (most.ipc - least.ipc).max(0.0))
    }

    /// Returns the cache lines that the thread loads per kilocycle, which evict lines of its co-runners.
    pub fn pressure(&self) -> f64 {
        self.last.map_or(0.0, |l| l.mpki * l.ipc)
    }

    /// Determines the class of the thread; `threshold` is in misses per kilo-instruction.
    pub fn classify(&mut self, threshold: f64) {
        let mpki = self.last.map_or(0.0, |l| l.mpki);
        let missed_less = self.least.is_some_and(|l| l.mpki > threshold);
        // CMPSched$im, section 4.3: in the upper half by occupancy, threads with many misses are poison and the others vulnerable.
        // A known elasticity overrides the occupancy.
        self.class = match (mpki > threshold, self.elasticity()) {
            (true, Some(e)) if e < ELASTIC => CacheUseClass::Poison,
            (true, Some(_)) => CacheUseClass::Vulnerable,
            (true, None) if self.large => CacheUseClass::Poison,
            // A thread with many misses and a low occupancy counts as short of cache until its elasticity is known.
            (true, None) => CacheUseClass::Vulnerable,
            (false, Some(e)) if e >= ELASTIC && missed_less => CacheUseClass::Vulnerable,
            (false, _) if self.large => CacheUseClass::Vulnerable,
            _ => CacheUseClass::Neutral,
        };
    }

    /// Returns the reason for the class, as the rule of a placement.
    pub fn why(&self, threshold: f64) -> &'static str {
        let proven = self.elasticity().is_some();
        let misses = self.last.is_some_and(|l| l.mpki > threshold);
        match self.class {
            _ if self.last.is_none() => "nothing known yet: taken as neutral",
            CacheUseClass::Poison if proven => "poison: misses as much however much it holds",
            CacheUseClass::Poison => "poison: holds much and misses much",
            CacheUseClass::Vulnerable if proven => "vulnerable: missed less when it had room",
            CacheUseClass::Vulnerable if misses => "vulnerable: misses much and holds little",
            CacheUseClass::Vulnerable => "vulnerable: holds much and hits",
            CacheUseClass::Neutral => "neutral: holds little and misses little",
        }
    }
}

/// Returns the ratio of the larger value to the smaller; infinite if only one of them is zero.
fn ratio(a: f64, b: f64) -> f64 {
    if a == b { 1.0 } else { (a / b).max(b / a) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(uses: &[(f64, f64)], large: bool) -> CacheEvidence {
        let mut evidence = CacheEvidence::new(ThreadId(0));
        for &(mib, mpki) in uses {
            evidence.note(Some(mib), Some(mpki), Some(1.0));
            evidence.close();
        }
        evidence.large = large;
        evidence.classify(10.0);
        evidence
    }

    #[test]
    fn misses_that_do_not_answer_to_room_are_poison() {
        assert_eq!(
            after(&[(1.0, 30.0), (3.0, 29.0)], false).class,
            CacheUseClass::Poison
        );
    }

    #[test]
    fn misses_that_fall_with_room_are_vulnerable_whatever_is_left_of_them() {
        assert_eq!(
            after(&[(1.0, 40.0), (3.0, 15.0)], true).class,
            CacheUseClass::Vulnerable,
            "still above the threshold"
        );
        assert_eq!(
            after(&[(1.0, 40.0), (3.0, 5.0)], false).class,
            CacheUseClass::Vulnerable,
            "below it by now"
        );
    }

    #[test]
    fn without_contrast_the_papers_rule_decides() {
        assert_eq!(after(&[(3.0, 30.0)], true).class, CacheUseClass::Poison);
        assert_eq!(after(&[(3.0, 3.0)], true).class, CacheUseClass::Vulnerable);
        assert_eq!(after(&[(0.3, 3.0)], false).class, CacheUseClass::Neutral);
        assert_eq!(
            after(&[(0.3, 30.0)], false).class,
            CacheUseClass::Vulnerable,
            "robbed"
        );
    }

    #[test]
    fn another_phase_starts_over() {
        let evidence = after(&[(1.0, 40.0), (3.0, 5.0), (3.0, 30.0)], true);
        assert_eq!(evidence.elasticity(), None);
    }
}
