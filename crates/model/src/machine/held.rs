//! What simulated speed-up factors are worth: how far those that were measured are from them.
//!
//! Source: `bench/silicon.tsv`, simulated against measured factors; `make bench` prints the interval anew, and
//! `docs/benchmarks.md` has it.

use super::CoreType;

/// Measured over simulated speed-up factors of nine programs in ten.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SfSpread {
    pub low: f64,
    pub high: f64,
    /// Programs that were compared.
    pub programs: u32,
    /// Where.
    pub on: &'static str,
}

/// A pair of core types, fast and slow, by name, and what was found there.
type Row = (&'static str, &'static str, SfSpread);

/// Every pair for which programs were compared.
const SPREADS: [Row; 1] = [(
    "golden-cove",
    "gracemont",
    SfSpread {
        low: 0.89,
        high: 1.59,
        programs: 24,
        on: "i9-12900K",
    },
)];

impl SfSpread {
    /// That of a pair of core types, and whether it was found there: of types that nothing was measured on, the one found
    /// elsewhere stands in.
    #[must_use]
    pub fn of(fast: &CoreType, slow: &CoreType) -> (Self, bool) {
        let own = SPREADS
            .iter()
            .find(|(a, b, _)| (*a, *b) == (fast.name.as_str(), slow.name.as_str()));
        own.map_or((SPREADS[0].2, false), |(.., spread)| (*spread, true))
    }

    /// The interval of a simulated factor.
    #[must_use]
    pub fn interval(&self, sf: f64) -> (f64, f64) {
        (self.low * sf, self.high * sf)
    }

    /// The spread of any simulated factor, where core types are not known.
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
