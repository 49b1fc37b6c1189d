//! Evidence about a thread's use of the shared cache.
//!
//! Input: occupancy, misses and IPC at each decision. Output, per interval: averages, and a class.
//!
//! One interval cannot distinguish a program that wastes a cache from one that is squeezed: both miss often (CMPSched$im,
//! section 4.3, first takes mcf for poison). They differ in how misses change with occupancy. The interval with the least and
//! the one with the most occupancy are therefore kept.

use countersteer_model::units::{Nanos, ThreadId};

/// Elasticity that separates programs: halfway between typical programs and streams. Misses of typical programs fall with the
/// square root of the cache size (Hartstein et al. 2006); misses of streams do not fall.
const ELASTIC: f64 = 0.25;
/// Occupancies whose ratio is below this factor prove nothing.
const CONTRAST: f64 = 1.5;
/// Occupancies within this factor count as equal.
const SAME_ROOM: f64 = 1.2;
/// A change of misses per kilo-instruction by this factor, at equal occupancy, is another phase.
const NEW_PHASE: f64 = 2.0;
/// Misses per kilo-instruction below which phases are not distinguished.
const FEW: f64 = 1.0;

/// Part of a thread's speed that occupancy is assumed to give while it is unknown.
const UNSEEN: f64 = 0.1;

/// Class of a thread's use of a shared cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// Misses often at any occupancy, and evicts the lines of others.
    Poison,
    /// Gains from the lines that it holds.
    Vulnerable,
    /// Neither needs the cache nor hurts others.
    Neutral,
}

/// Averages of one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Use {
    pub occupancy: f64,
    pub mpki: f64,
    pub ipc: f64,
}

/// Evidence about one thread.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    pub thread: ThreadId,
    /// Last time at which the thread ran or was runnable.
    pub stirred: Option<Nanos>,
    /// Averages of the last interval in which the thread ran.
    pub last: Option<Use>,
    /// Instructions per cycle in the interval that just ended, if the thread ran.
    pub ipc: Option<f64>,
    pub class: Class,
    /// True if the thread was in the upper half by occupancy.
    pub large: bool,
    sum: Use,
    samples: u32,
    least: Option<Use>,
    most: Option<Use>,
}

impl Evidence {
    pub const fn new(thread: ThreadId) -> Self {
        Self {
            thread,
            stirred: None,
            last: None,
            ipc: None,
            class: Class::Neutral,
            large: false,
            sum: Use {
                occupancy: 0.0,
                mpki: 0.0,
                ipc: 0.0,
            },
            samples: 0,
            least: None,
            most: None,
        }
    }

    /// Adds the measurements of a decision.
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

    /// Ends the interval.
    pub fn close(&mut self) {
        let n = f64::from(std::mem::take(&mut self.samples));
        let sum = std::mem::take(&mut self.sum);
        self.ipc = (n > 0.0).then(|| sum.ipc / n);
        if n == 0.0 {
            return;
        }
        let seen = Use {
            occupancy: sum.occupancy / n,
            mpki: sum.mpki / n,
            ipc: sum.ipc / n,
        };
        self.last = Some(seen);
        self.remember(seen);
    }

    fn remember(&mut self, seen: Use) {
        let (Some(least), Some(most)) = (self.least, self.most) else {
            return self.start_over(seen);
        };
        let changed = |old: Use| {
            let a = old.mpki.max(FEW);
            let b = seen.mpki.max(FEW);
            ratio(old.occupancy, seen.occupancy) < SAME_ROOM && ratio(a, b) > NEW_PHASE
        };
        if changed(least) || changed(most) {
            return self.start_over(seen);
        }
        let blend = |old: Use| Use {
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

    fn start_over(&mut self, seen: Use) {
        (self.least, self.most) = (Some(seen), Some(seen));
    }

    /// Intervals with the least and the most occupancy; `None` unless they differ enough to prove anything.
    fn contrast(&self) -> Option<(Use, Use)> {
        let least = self.least?;
        let most = self.most?;
        (most.occupancy >= CONTRAST * least.occupancy && least.occupancy > 0.0)
            .then_some((least, most))
    }

    /// Exponent with which misses fall as occupancy grows.
    pub fn elasticity(&self) -> Option<f64> {
        let (least, most) = self.contrast()?;
        (least.mpki > 0.0 && most.mpki > 0.0)
            .then(|| (least.mpki / most.mpki).ln() / (most.occupancy / least.occupancy).ln())
    }

    /// Misses per kilo-instruction that occupancy saves the thread, as far as seen. For a suspect in the lower half: all its
    /// misses.
    pub fn at_stake(&self, threshold: f64) -> f64 {
        match (self.contrast(), self.last) {
            (Some((least, most)), _) => (least.mpki - most.mpki).max(0.0),
            (None, Some(last)) if last.mpki > threshold => last.mpki,
            _ => 0.0,
        }
    }

    /// Instructions per cycle that occupancy gives the thread, as far as seen; an estimate if nothing was seen.
    pub fn ipc_at_stake(&self) -> f64 {
        let guess = || self.last.map_or(0.0, |l| l.ipc * UNSEEN);
        self.contrast()
            .map_or_else(guess, |(least, most)| (most.ipc - least.ipc).max(0.0))
    }

    /// Lines that the thread brings into the cache per kilocycle, and its neighbours lose.
    pub fn pressure(&self) -> f64 {
        self.last.map_or(0.0, |l| l.mpki * l.ipc)
    }

    /// Decides the class.
    pub fn classify(&mut self, threshold: f64) {
        let mpki = self.last.map_or(0.0, |l| l.mpki);
        let missed_less = self.least.is_some_and(|l| l.mpki > threshold);
        self.class = match (mpki > threshold, self.elasticity()) {
            (true, Some(e)) if e < ELASTIC => Class::Poison,
            (true, Some(_)) => Class::Vulnerable,
            (true, None) if self.large => Class::Poison,
            // Many misses and low occupancy: without contrast the thread counts as squeezed.
            (true, None) => Class::Vulnerable,
            (false, Some(e)) if e >= ELASTIC && missed_less => Class::Vulnerable,
            (false, _) if self.large => Class::Vulnerable,
            _ => Class::Neutral,
        };
    }

    /// Reason for its class, in words.
    pub fn why(&self, threshold: f64) -> &'static str {
        let proven = self.elasticity().is_some();
        let misses = self.last.is_some_and(|l| l.mpki > threshold);
        match self.class {
            _ if self.last.is_none() => "nothing known yet: taken as neutral",
            Class::Poison if proven => "poison: misses as much however much it holds",
            Class::Poison => "poison: holds much and misses much",
            Class::Vulnerable if proven => "vulnerable: missed less when it had room",
            Class::Vulnerable if misses => "vulnerable: misses much and holds little",
            Class::Vulnerable => "vulnerable: holds much and hits",
            Class::Neutral => "neutral: holds little and misses little",
        }
    }
}

/// Larger value over the smaller one; infinite if only one is zero.
fn ratio(a: f64, b: f64) -> f64 {
    if a == b { 1.0 } else { (a / b).max(b / a) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(uses: &[(f64, f64)], large: bool) -> Evidence {
        let mut evidence = Evidence::new(ThreadId(0));
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
            Class::Poison
        );
    }

    #[test]
    fn misses_that_fall_with_room_are_vulnerable_whatever_is_left_of_them() {
        assert_eq!(
            after(&[(1.0, 40.0), (3.0, 15.0)], true).class,
            Class::Vulnerable,
            "still above the threshold"
        );
        assert_eq!(
            after(&[(1.0, 40.0), (3.0, 5.0)], false).class,
            Class::Vulnerable,
            "below it by now"
        );
    }

    #[test]
    fn without_contrast_the_papers_rule_decides() {
        assert_eq!(after(&[(3.0, 30.0)], true).class, Class::Poison);
        assert_eq!(after(&[(3.0, 3.0)], true).class, Class::Vulnerable);
        assert_eq!(after(&[(0.3, 3.0)], false).class, Class::Neutral);
        assert_eq!(
            after(&[(0.3, 30.0)], false).class,
            Class::Vulnerable,
            "robbed"
        );
    }

    #[test]
    fn another_phase_starts_over() {
        let evidence = after(&[(1.0, 40.0), (3.0, 5.0), (3.0, 30.0)], true);
        assert_eq!(evidence.elasticity(), None);
    }
}
