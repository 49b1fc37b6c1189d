//! Histogram of latencies with buckets of constant relative width, as `bpf/src/bpf/latency.h` declares it.

/// Times by bucket; times within a bucket differ by at most an eighth.
///
/// ```
/// use countersteer_model::latency::Histogram;
///
/// let mut waits = Histogram::from_buckets(&[]);
/// waits.record(20_000, 99);
/// waits.record(4_000_000, 1);
/// let median_ns = waits.quantile_ns(0.5).unwrap_or_default() as f64;
/// assert!((median_ns / 20_000.0 - 1.0).abs() < 0.06);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    buckets: Vec<u64>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: vec![0; Self::BUCKETS],
        }
    }
}

impl Histogram {
    /// Binary logarithm of the time resolution in nanoseconds.
    pub const GRAIN_BITS: u32 = 7;
    /// Binary logarithm of the number of buckets per octave.
    pub const SUB_BITS: u32 = 3;
    /// Number of buckets; the last one also has all longer times.
    pub const BUCKETS: usize = 208;

    /// Creates a histogram from the counts of the buckets.
    #[must_use]
    pub fn from_buckets(buckets: &[u64]) -> Self {
        let mut all = buckets.to_vec();
        all.resize(Self::BUCKETS, 0);
        Self { buckets: all }
    }

    /// Adds the counts of another histogram.
    pub fn add(&mut self, other: &Self) {
        self.buckets
            .iter_mut()
            .zip(&other.buckets)
            .for_each(|(sum, n)| *sum += n);
    }

    /// Returns the times since an earlier state of this histogram.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let buckets = self.buckets.iter().zip(&earlier.buckets);
        Self {
            buckets: buckets
                .map(|(now, then)| now.saturating_sub(*then))
                .collect(),
        }
    }

    /// Adds a time, `times` times.
    pub fn record(&mut self, ns: u64, times: u64) {
        let value = ns >> Self::GRAIN_BITS;
        let sub = 1 << Self::SUB_BITS;
        let bucket = if value < sub {
            value as usize
        } else {
            let bit = value.ilog2();
            ((bit - Self::SUB_BITS + 1) as usize) * sub as usize
                + ((value >> (bit - Self::SUB_BITS)) & (sub - 1)) as usize
        };
        self.buckets[bucket.min(Self::BUCKETS - 1)] += times;
    }

    /// Returns the number of recorded times.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the quantile in nanoseconds: the time that this share of all times does not exceed. `None` if the histogram is
    /// empty. The result is the middle of a bucket: at most 6 % off, from a microsecond on.
    #[must_use]
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        let count = self.count();
        let rank = ((count as f64 * share).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        let at = self.buckets.iter().position(|n| {
            seen += n;
            seen >= rank
        })?;
        let (low, width) = Self::bounds(at);
        Some(low + width / 2)
    }

    /// Returns the start and the width of a bucket, in nanoseconds.
    fn bounds(bucket: usize) -> (u64, u64) {
        let sub = 1usize << Self::SUB_BITS;
        let (low, width) = if bucket < sub {
            (bucket as u64, 1)
        } else {
            let octave = (bucket / sub - 1) as u32;
            (((sub + bucket % sub) as u64) << octave, 1 << octave)
        };
        (low << Self::GRAIN_BITS, width << Self::GRAIN_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_found_again_within_its_buckets_width() {
        for ns in [0, 127, 128, 1023, 1024, 50_000, 1_000_000, 3_999_999_999] {
            let mut histogram = Histogram::default();
            histogram.record(ns, 1);
            let at = histogram.buckets.iter().position(|n| *n > 0).unwrap();
            let (low, width) = Histogram::bounds(at);
            assert!((low..low + width).contains(&ns), "{ns}: {low} + {width}");
            assert!(width <= 128.max(low / 8), "{ns}: {width}");
        }
        let mut longest = Histogram::default();
        longest.record(u64::MAX, 1);
        assert_eq!(longest.buckets[Histogram::BUCKETS - 1], 1);
    }

    #[test]
    fn quantiles_go_by_how_many_times_are_below() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile_ns(0.5), None);
        histogram.record(10_000, 98);
        histogram.record(5_000_000, 2);
        let near = |share, ns: f64| {
            let found = histogram.quantile_ns(share).unwrap() as f64;
            assert!((found / ns - 1.0).abs() < 0.0625, "{share}: {found}");
        };
        near(0.5, 10_000.0);
        near(0.98, 10_000.0);
        near(0.99, 5_000_000.0);
        near(1.0, 5_000_000.0);
    }
}
