//! Accuracy of simulated speed-up factors, from a comparison with measured ones.
//!
//! Source: simulated against measured factors of the pairs in `bench/silicon.tsv` (i9-12900K) and of the programs in
//! `bench/spec2017.tsv`. `make bench` prints the intervals again, and `docs/benchmarks.md` contains them.

use super::CoreType;

/// Range of the ratio of measured to simulated speed-up factors that holds for nine programs in ten.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SfSpread {
    pub low: f64,
    pub high: f64,
    /// Number of programs compared.
    pub programs: u32,
    /// Machine on which the factors were measured.
    pub on: &'static str,
}

/// Names of the fast and the slow core type, and the range for this pair.
type HeldPair = (&'static str, &'static str, SfSpread);

/// Ranges of all measured pairs of core types.
const SPREADS: [HeldPair; 2] = [
    (
        "golden-cove",
        "gracemont",
        SfSpread {
            low: 0.83,
            high: 1.25,
            programs: 47,
            on: "i9-12900K",
        },
    ),
    (
        "firestorm",
        "icestorm",
        SfSpread {
            low: 0.78,
            high: 1.16,
            programs: 23,
            on: "Apple M1",
        },
    ),
];

impl SfSpread {
    /// Returns the range for a pair of core types, and true if it was measured on this pair. For an unmeasured pair, the
    /// range of another pair is used.
    #[must_use]
    pub fn of(fast: &CoreType, slow: &CoreType) -> (Self, bool) {
        let own = SPREADS
            .iter()
            .find(|(a, b, _)| (*a, *b) == (fast.name.as_str(), slow.name.as_str()));
        own.map_or((SPREADS[0].2, false), |(.., spread)| (*spread, true))
    }

    /// Returns the interval of the real speed-up factor, given the simulated one.
    #[must_use]
    pub fn interval(&self, sf: f64) -> (f64, f64) {
        (self.low * sf, self.high * sf)
    }

    /// Range used for pairs of core types without measurements.
    pub const KNOWN: Self = SPREADS[0].2;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_scale_with_the_factor() {
        let spread = SfSpread::KNOWN;
        assert_eq!(spread.interval(2.0), (2.0 * spread.low, 2.0 * spread.high));
        assert!(spread.low < 1.0 && spread.high > 1.0);
    }
}
