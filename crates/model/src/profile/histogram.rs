//! Histogram of distances with logarithmic buckets: eight buckets per octave, and one per distance below eight.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds;

/// Number of buckets per octave, over which the distance doubles.
const PER_OCTAVE: u64 = 8;
/// Limit on the number of buckets, which covers distances below 2^60 lines, more than any address space has.
const MOST_BUCKETS: usize = 58 * PER_OCTAVE as usize;

/// Rates (per kilo-instruction) by log-spaced distance.
///
/// Distances below 8 have a bucket each; above, each octave has eight equal parts, so a bucket's relative width is at most
/// 1/8. `rates[b]` belongs to the distances `lower(b) .. lower(b + 1)`. Trailing zero buckets are not stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct LogHistogram {
    /// Rate per bucket.
    pub rates: Vec<f64>,
}

impl LogHistogram {
    /// Returns the index of the bucket that contains `distance`.
    #[must_use]
    pub const fn bucket(distance: u64) -> usize {
        if distance < PER_OCTAVE {
            return distance as usize;
        }
        let octave = distance.ilog2() as u64 - 3;
        let part = (distance >> octave) - PER_OCTAVE;
        (PER_OCTAVE + octave * PER_OCTAVE + part) as usize
    }

    /// Returns the smallest distance in `bucket`.
    #[must_use]
    pub const fn lower(bucket: usize) -> u64 {
        let bucket = bucket as u64;
        if bucket < PER_OCTAVE {
            return bucket;
        }
        let octave = (bucket - PER_OCTAVE) / PER_OCTAVE;
        let part = (bucket - PER_OCTAVE) % PER_OCTAVE;
        (PER_OCTAVE + part) << octave
    }

    /// Adds `rate` to the bucket that contains `distance`.
    pub fn add(&mut self, distance: u64, rate: f64) {
        let bucket = Self::bucket(distance);
        if self.rates.len() <= bucket {
            self.rates.resize(bucket + 1, 0.0);
        }
        self.rates[bucket] += rate;
    }

    /// Checks that the number of buckets and the rates are in their ranges.
    ///
    /// # Errors
    /// Returns a sentence about the first invalid value, which names `key`.
    pub fn check(&self, key: &str) -> Result<(), String> {
        if self.rates.len() > MOST_BUCKETS {
            return Err(format!(
                "`{key}` has {} buckets; {MOST_BUCKETS} reach all distances there are",
                self.rates.len()
            ));
        }
        self.rates
            .iter()
            .try_for_each(|rate| bounds::PER_KILO_INSTRUCTION.check(key, *rate))
    }

    /// Returns the sum of the rates of all buckets.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.rates.iter().sum()
    }

    /// Returns the sum of the rates at distances of at least `distance`. Within a bucket, the rate is assumed to be
    /// uniform.
    #[must_use]
    pub fn at_least(&self, distance: f64) -> f64 {
        let mut sum = 0.0;
        for (bucket, rate) in self.rates.iter().enumerate().rev() {
            let low = Self::lower(bucket) as f64;
            let high = Self::lower(bucket + 1) as f64;
            if high <= distance {
                break;
            }
            sum += rate * ((high - distance.max(low)) / (high - low));
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_distance_lies_within_its_bucket() {
        for distance in (0..5000).chain([1 << 20, (1 << 20) - 1, 123_456_789]) {
            let bucket = LogHistogram::bucket(distance);
            assert!(LogHistogram::lower(bucket) <= distance, "{distance}");
            assert!(distance < LogHistogram::lower(bucket + 1), "{distance}");
        }
    }

    #[test]
    fn at_least_counts_whole_buckets_and_splits_the_one_it_falls_in() {
        let mut histogram = LogHistogram::default();
        histogram.add(3, 5.0);
        histogram.add(1000, 2.0);
        assert_eq!(histogram.at_least(0.0), 7.0);
        assert_eq!(histogram.at_least(4.0), 2.0);
        let low = LogHistogram::lower(LogHistogram::bucket(1000)) as f64;
        let high = LogHistogram::lower(LogHistogram::bucket(1000) + 1) as f64;
        assert!((histogram.at_least((low + high) / 2.0) - 1.0).abs() < 1e-12);
        assert_eq!(histogram.at_least(high), 0.0);
    }
}
