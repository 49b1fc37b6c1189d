//! Correction of a window's stack distances by sampled accesses of the whole run.
//!
//! Input: a profile whose behaviours come from a window, and the stack distances of sampled accesses. Output: the same profile, whose
//! mean rates at far distances are those of the samples. Octaves of distances in which the samples say nothing stay as they are.

use countersteer_model::profile::reuse::StackDistances;
use countersteer_model::profile::{Behaviour, LogHistogram, Recorded};

/// Distance in lines below which a window is enough: 256 KiB. Watch points see only a part of a line's words, which matters most here.
const NEAREST_LINES: f64 = 4096.0;
/// Largest factor on the rates of an octave: larger ones would put all of it into the few behaviours that have some.
const MOST: f64 = 4.0;
/// Number of observations below which an octave is not corrected.
const FEWEST: f64 = 16.0;
/// Share of the accesses that is negligible.
const LITTLE: f64 = 1e-3;
/// Number of standard deviations by which an octave must differ.
const DIFFERENT: f64 = 2.0;

/// Corrects far distances. Returns the number of corrected octaves.
pub fn correct(profile: &mut Recorded, found: &StackDistances) -> u32 {
    let weighted =
        |of: &dyn Fn(&LogHistogram) -> f64| mean(profile, &|b| of(&b.locality.stack_distance_pki));
    let cold = mean(profile, &|behaviour| behaviour.locality.cold_pki);
    let total = weighted(&LogHistogram::total) + cold;
    let mut octaves = Vec::new();
    let mut low = NEAREST_LINES;
    // An octave that the samples saw in part has accesses among those beyond.
    let whole = |high: f64| high <= found.longest || found.beyond < LITTLE;
    while low < found.longest && whole(2.0 * low) {
        let high = 2.0 * low;
        let own = weighted(&|histogram| histogram.at_least(low) - histogram.at_least(high));
        let (share, seen) = found.between(low, high);
        let rate = share * total;
        if seen >= FEWEST && (rate - own).abs() > DIFFERENT * rate / seen.sqrt() {
            octaves.push(Octave { low, own, rate });
        }
        low = high;
    }
    let corrected = |behaviour: &Behaviour| {
        let mut own = behaviour.locality.stack_distance_pki.clone();
        let before = own.total();
        octaves.iter().for_each(|octave| octave.set(&mut own));
        // The number of accesses stays the same: those that are far are near no more.
        let near = own.total() - own.at_least(NEAREST_LINES);
        let more = own.total() - before;
        if near > more {
            scale(&mut own, 0.0, NEAREST_LINES, 1.0 - more / near);
        }
        (near > more).then_some(own)
    };
    let all: Option<Vec<LogHistogram>> = profile.behaviours.iter().map(corrected).collect();
    let Some(all) = all else { return 0 };
    for (behaviour, own) in profile.behaviours.iter_mut().zip(all) {
        behaviour.locality.stack_distance_pki = own;
    }
    octaves.len() as u32
}

/// Mean over the instructions of a profile.
fn mean(profile: &Recorded, of: &dyn Fn(&Behaviour) -> f64) -> f64 {
    let values = profile.behaviours.iter().map(of);
    let weighted = profile.shares().into_iter().zip(values);
    weighted.map(|(share, value)| share * value).sum()
}

/// Octave of distances whose rate per kilo-instruction is corrected.
struct Octave {
    low: f64,
    /// Mean rate of the profile.
    own: f64,
    /// Rate of the samples.
    rate: f64,
}

impl Octave {
    /// Scales a behaviour's rates of the octave; where the behaviours have hardly any, all get the rate of the samples.
    fn set(&self, histogram: &mut LogHistogram) {
        let high = 2.0 * self.low;
        if self.own * MOST > self.rate {
            return scale(histogram, self.low, high, self.rate / self.own);
        }
        let buckets = LogHistogram::bucket(self.low as u64)..LogHistogram::bucket(high as u64);
        scale(histogram, self.low, high, 0.0);
        let each = self.rate / buckets.len() as f64;
        buckets.for_each(|bucket| histogram.add(LogHistogram::lower(bucket), each));
    }
}

/// Scales the rates of the buckets from `low` to below `high`, which begin buckets.
fn scale(histogram: &mut LogHistogram, low: f64, high: f64, factor: f64) {
    for (bucket, rate) in histogram.rates.iter_mut().enumerate() {
        let begins = LogHistogram::lower(bucket) as f64;
        if begins >= low && begins < high {
            *rate *= factor;
        }
    }
}

#[cfg(test)]
mod tests {
    use countersteer_model::profile::reuse::WatchedAccess;

    use super::*;
    use crate::library;

    fn shipped(name: &str) -> Recorded {
        match library::profile(name.as_ref()).unwrap() {
            countersteer_model::profile::Profile::Recorded(profile) => profile,
            countersteer_model::profile::Profile::Tabulated(_) => unreachable!("{name}"),
        }
    }

    /// Samples of two loops: of `far` accesses in a thousand over `lines`, and of the rest over 16.
    fn loops(far: u32, lines: u32) -> StackDistances {
        let of = |accesses: u32| WatchedAccess {
            accesses: f64::from(accesses),
            again: true,
            weight: 1.0,
        };
        // Far accesses come once in 1000 / far accesses.
        let all = (0..1000).map(|nth| {
            if nth < far {
                of(lines * 1000 / far)
            } else {
                of(16)
            }
        });
        StackDistances::of(&all.collect::<Vec<_>>()).unwrap()
    }

    fn rates(profile: &Recorded, lines: f64) -> (f64, f64) {
        let sum = |of: &dyn Fn(&LogHistogram) -> f64| {
            mean(profile, &|b| of(&b.locality.stack_distance_pki))
        };
        (sum(&LogHistogram::total), sum(&|h| h.at_least(lines)))
    }

    #[test]
    fn far_distances_of_samples_replace_those_of_the_window() {
        let mut profile = shipped("bzip2");
        let before = rates(&profile, 1e6);
        // A fifth of the accesses goes round 64 MiB, which no window of the program does.
        let found = loops(200, 1 << 20);
        let (share, _) = found.between((1 << 19) as f64, (1 << 22) as f64);
        assert!((share - 0.2).abs() < 0.01, "{share}");
        assert_eq!(correct(&mut profile, &found), 1);
        let after = rates(&profile, (1 << 19) as f64);
        assert!(
            (after.0 / before.0 - 1.0).abs() < 0.01,
            "{before:?} {after:?}"
        );
        assert!(
            (after.1 / after.0 - 0.2).abs() < 0.02,
            "{before:?} {after:?}"
        );
        profile.check().unwrap();
    }

    #[test]
    fn few_or_near_samples_change_nothing() {
        let whole = shipped("bzip2");
        let mut profile = whole.clone();
        assert_eq!(correct(&mut profile, &loops(10, 1 << 20)), 0, "too few");
        assert_eq!(correct(&mut profile, &loops(500, 100)), 0, "too near");
        assert_eq!(profile, whole);
    }
}
