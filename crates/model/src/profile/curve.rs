//! Miss curves: misses per kilo-instruction as a function of cache size, and values derived from them.
//!
//! Input: a stack-distance histogram, or measured points. Output: [`MissCurve`], which gives the fill time (inverse of the
//! footprint, higher-order theory of locality, Xiang et al. 2013) and the program's [`CacheClass`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CoreTable, Locality, Recorded, Tabulated};
use crate::units::LINE_BYTES;

/// Misses per kilo-instruction against lines of cache, non-increasing.
///
/// ```
/// use countersteer_model::profile::{CacheClass, MissCurve};
///
/// // Lines of cache, and misses per 1,000 instructions: the program fits into 4 MiB.
/// let curve = MissCurve::from_points(vec![(1024.0, 40.0), (65_535.0, 40.0), (65_536.0, 0.5)]);
/// assert_eq!(curve.mpki(32_768.0), 40.0);
/// assert_eq!(curve.mpki(1e6), 0.5);
/// assert_eq!(curve.class(), CacheClass::Vulnerable);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MissCurve {
    /// Points of the curve: cache size in lines, and misses per kilo-instruction. Sizes are ascending.
    points: Vec<(f64, f64)>,
}

/// Class of a program by its behaviour in a shared cache (CMPSched$im, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CacheClass {
    /// Occupies much of the cache without a benefit.
    Poison,
    /// Benefits from the cache and loses it to co-runners.
    Vulnerable,
    /// Uses the cache, but hardly depends on its size.
    Neutral,
    /// Fits into its private caches.
    Compute,
}

/// Size in bytes of the smaller of two caches; the difference of a program's misses between them determines its class.
const CLASS_SMALL_BYTES: u64 = 512 << 10;
/// Size in bytes of the larger of these two caches.
const CLASS_LARGE_BYTES: u64 = 4 << 20;
/// Threshold: minimum misses per kilo-instruction of a poison program. The paper's thresholds are 8 to 10.
const POISON_MPKI: f64 = 8.0;
/// Threshold in misses per kilo-instruction, below which a shared cache does not matter. 1 miss per 2,000 instructions at 100
/// cycles each is 5 % of a CPI of 1.
const COMPUTE_MPKI: f64 = 0.5;

impl MissCurve {
    /// Returns the mean of the miss curves of a recorded profile's behaviours, weighted by their fractions of the instructions.
    pub(super) fn mean_of(recorded: &Recorded) -> Self {
        let parts: Vec<(f64, Self)> = (recorded.behaviours.iter().zip(recorded.shares()))
            .map(|(behaviour, share)| (share, Self::from_locality(&behaviour.locality)))
            .collect();
        let mut lines: Vec<f64> = parts
            .iter()
            .flat_map(|(_, curve)| curve.points().iter().map(|p| p.0))
            .collect();
        lines.sort_by(f64::total_cmp);
        lines.dedup();
        let mean = |at: f64| {
            parts
                .iter()
                .map(|(share, curve)| share * curve.mpki(at))
                .sum()
        };
        Self::from_points(lines.into_iter().map(|at| (at, mean(at))).collect())
    }

    /// Returns the miss curve of the first core type whose table has misses for at least two cache sizes. `None` if there is
    /// none.
    pub(super) fn of_table(table: &Tabulated) -> Option<Self> {
        let points = |core: &CoreTable| -> Vec<(f64, f64)> {
            core.points
                .iter()
                .filter_map(|p| Some((p.cache_kib * 1024.0 / LINE_BYTES as f64, p.llc_mpki?)))
                .collect()
        };
        table
            .core
            .iter()
            .map(points)
            .find(|p| p.len() > 1)
            .map(Self::from_points)
    }

    /// Creates a miss curve through points (lines, mpki). The points are sorted, and a value larger than the one before is
    /// lowered to it.
    #[must_use]
    pub fn from_points(mut points: Vec<(f64, f64)>) -> Self {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        for i in 1..points.len() {
            points[i].1 = points[i].1.min(points[i - 1].1);
        }
        Self { points }
    }

    /// Creates the miss curve of a fully associative LRU cache from recorded locality.
    #[must_use]
    pub fn from_locality(locality: &Locality) -> Self {
        Self::from_distances(&locality.stack_distance_pki, locality.cold_pki)
    }

    /// Creates the miss curve of an LRU structure from uses by stack distance and first uses, per kilo-instruction.
    #[must_use]
    pub fn from_distances(histogram: &super::LogHistogram, cold_pki: f64) -> Self {
        let mut misses = cold_pki;
        let mut points = vec![(
            super::LogHistogram::lower(histogram.rates.len()) as f64,
            misses,
        )];
        for (bucket, rate) in histogram.rates.iter().enumerate().rev() {
            misses += rate;
            points.push((super::LogHistogram::lower(bucket) as f64, misses));
        }
        points.reverse();
        Self { points }
    }

    /// Returns the misses per kilo-instruction with `lines` lines of cache. Values are interpolated linearly between points and
    /// constant outside.
    #[must_use]
    pub fn mpki(&self, lines: f64) -> f64 {
        let after = self.points.partition_point(|p| p.0 <= lines);
        match (
            after.checked_sub(1).map(|i| self.points[i]),
            self.points.get(after),
        ) {
            (Some((x0, y0)), Some(&(x1, y1))) => y0 + (y1 - y0) * (lines - x0) / (x1 - x0),
            (Some((_, y)), None) => y,
            (None, Some(&(_, y))) => y,
            (None, None) => 0.0,
        }
    }

    /// Returns the points (lines, mpki) of the curve.
    #[must_use]
    pub fn points(&self) -> &[(f64, f64)] {
        &self.points
    }

    /// Returns the number of lines beyond which more cache does not reduce misses.
    #[must_use]
    pub fn footprint_lines(&self) -> f64 {
        self.points.last().map_or(0.0, |p| p.0)
    }

    /// Returns the program's class by the change of its misses from 512 KiB to 4 MiB of shared cache.
    #[must_use]
    pub fn class(&self) -> CacheClass {
        let small = self.mpki((CLASS_SMALL_BYTES / LINE_BYTES) as f64);
        let large = self.mpki((CLASS_LARGE_BYTES / LINE_BYTES) as f64);
        if large >= POISON_MPKI && large > 0.5 * small {
            CacheClass::Poison
        } else if small < COMPUTE_MPKI {
            CacheClass::Compute
        } else if small - large >= 1.0 && large <= 0.7 * small {
            CacheClass::Vulnerable
        } else {
            CacheClass::Neutral
        }
    }
}

impl std::fmt::Display for CacheClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Poison => "poison",
            Self::Vulnerable => "vulnerable",
            Self::Neutral => "neutral",
            Self::Compute => "compute",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cyclic_sweep_misses_below_its_footprint_and_hits_from_there() {
        let mut locality = Locality::default();
        locality.stack_distance_pki.add(999, 100.0);
        let curve = MissCurve::from_locality(&locality);
        assert_eq!(curve.mpki(500.0), 100.0);
        assert_eq!(curve.mpki(2000.0), 0.0);
    }

    #[test]
    fn classes_follow_the_reaction_to_cache_size() {
        let class = |small: f64, large: f64| {
            MissCurve::from_points(vec![(8192.0, small), (65536.0, large)]).class()
        };
        assert_eq!(class(30.0, 29.0), CacheClass::Poison);
        assert_eq!(class(30.0, 2.0), CacheClass::Vulnerable);
        assert_eq!(class(3.0, 2.8), CacheClass::Neutral);
        assert_eq!(class(0.1, 0.0), CacheClass::Compute);
    }
}
