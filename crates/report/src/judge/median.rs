//! Median of repeated measurements, with a distribution-free confidence interval.
//!
//! Input: values. Output: their median, and an interval that contains the true median with the requested probability, for
//! independent values of any continuous distribution.
//!
//! The interval from the k-th smallest to the k-th largest of n values contains the median with probability
//! `P(k <= B <= n - k)`, B binomial with n and 1/2. It is interpolated between the two numbers k whose probabilities enclose the
//! requested one (Hettmansperger and Sheather, "Confidence intervals based on interpolated order statistics", Statistics and
//! Probability Letters 4, 1986).

use serde::Serialize;

use crate::table::SeedSpread;

/// Median of values with its confidence interval, in the unit of the values.
///
/// ```
/// use countersteer_report::judge::Median;
///
/// let times_s = [1.02, 0.99, 1.00, 1.01, 1.30, 0.98, 1.00];
/// let median = Median::of(&times_s, 0.95);
/// assert_eq!(median.map(|of| of.median), Some(1.00));
/// let (low, high) = median.and_then(|of| of.interval).unwrap_or_default();
/// assert!((0.98..1.00).contains(&low) && (1.02..1.30).contains(&high));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Median {
    pub median: f64,
    /// Confidence interval of the true median; `None` if there are too few values: fewer than six at 95 %.
    pub interval: Option<(f64, f64)>,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
}

impl Median {
    /// Computes the median of values and its interval at a confidence level (0 to 1); `None` without values.
    #[must_use]
    pub fn of(values: &[f64], confidence: f64) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let SeedSpread { median, min, max } = SeedSpread::of(sorted.iter().copied());
        Some(Self {
            median,
            interval: interval(&sorted, confidence),
            min,
            max,
        })
    }

    /// Returns half the width of the interval relative to the median; 0.01 is 1 %. `None` without an interval.
    #[must_use]
    pub fn precision(&self) -> Option<f64> {
        self.interval
            .map(|(low, high)| (high - low) / 2.0 / self.median)
    }
}

fn interval(sorted: &[f64], confidence: f64) -> Option<(f64, f64)> {
    let n = sorted.len();
    let mut outer = 0;
    let mut wider = 1.0;
    let mut tail = 0.0;
    let mut log_mass = -(n as f64) * std::f64::consts::LN_2;
    // The loop ends at the last order statistic whose interval is wide enough.
    let narrower = loop {
        tail += log_mass.exp();
        let covered = 1.0 - 2.0 * tail;
        if covered < confidence || 2 * (outer + 1) > n {
            break covered.max(0.0);
        }
        log_mass += ((n - outer) as f64 / (outer + 1) as f64).ln();
        (outer, wider) = (outer + 1, covered);
    };
    if outer == 0 {
        return None;
    }
    let share = (wider - confidence) / (wider - narrower);
    let (n, k) = (n as f64, outer as f64);
    let weight = (n - k) * share / (n - 2.0 * k).mul_add(share, k);
    let between = |from: usize, to: usize| weight.mul_add(sorted[to] - sorted[from], sorted[from]);
    let (low, high) = (outer - 1, sorted.len() - outer);
    Some((between(low, low + 1), between(high, high - 1)))
}

#[cfg(test)]
mod tests {
    use countersteer_model::policy::PolicyRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn few_values_have_no_interval_and_many_have_that_of_tables() {
        let values = |n: u32| (1..=n).map(f64::from).collect::<Vec<_>>();
        assert_eq!(Median::of(&[], 0.95), None);
        assert_eq!(Median::of(&values(5), 0.95).unwrap().interval, None);
        let six = Median::of(&values(6), 0.95).unwrap();
        let (low, high) = six.interval.unwrap();
        assert!(low > 1.0 && low < 1.5 && (low + high - 7.0).abs() < 1e-9);
        // 1 - 2 P(B <= 39) = 0.9648 and 1 - 2 P(B <= 40) = 0.9431 enclose 0.95.
        let (low, high) = Median::of(&values(100), 0.95).unwrap().interval.unwrap();
        assert!(low > 40.0 && low < 41.0 && (low + high - 101.0).abs() < 1e-9);
        let (low, high) = Median::of(&values(9999), 0.95).unwrap().interval.unwrap();
        let half = (high - low) / 2.0;
        assert!((half - 1.96 * 9999_f64.sqrt() / 2.0).abs() < 1.0, "{half}");
    }

    /// Run times with a tail: 1 s and noise of 2 %, one run in ten disturbed by up to 30 %.
    fn times(rng: &mut PolicyRng, runs: usize) -> Vec<f64> {
        let mut one = || {
            let noise: f64 = (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
            let disturbed = rng.random::<f64>() < 0.1;
            1.0 + 0.02 * noise
                + if disturbed {
                    0.3 * rng.random::<f64>()
                } else {
                    0.0
                }
        };
        (0..runs).map(|_| one()).collect()
    }

    #[test]
    fn intervals_of_95_percent_contain_the_median_in_92_to_97_percent_of_400_cases() {
        let mut rng = PolicyRng::seed_from_u64(5);
        let truth = Median::of(&times(&mut rng, 400_000), 0.95).unwrap().median;
        for runs in [6, 10, 15, 30, 100] {
            let holds = |_: &usize| {
                let (low, high) = Median::of(&times(&mut rng, runs), 0.95)
                    .unwrap()
                    .interval
                    .unwrap();
                (low..=high).contains(&truth)
            };
            let share = (0..400).filter(holds).count() as f64 / 400.0;
            println!("{runs} runs: the interval contains the median in {share} of 400 cases");
            assert!((0.92..=0.97).contains(&share), "{runs} runs: {share}");
        }
    }
}
