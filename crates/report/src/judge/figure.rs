//! Change relative to `linux`, with a prediction interval for the next run.
//!
//! Input: for each seed, the ratio of a policy's run to that of `linux` with the same seed. Output: median, range, and a 90 %
//! prediction interval.
//!
//! The interval is Student's prediction interval for one more observation, computed from the logarithms `l` of `n` ratios with
//! mean `m`:
//!
//! ```text
//! m ± t(0.95; v) * s * sqrt(1 + 1/n),  s^2 = (P * p^2 + sum (l - m)^2) / v,  v = P + n - 1
//! ```
//!
//! A few seeds may agree by chance, so their variance is pooled with `p^2`, which has the weight of `P` seeds. `p^2` is the
//! median variance of all compared policies plus [`KNOWN`] squared, so that one policy with a large variance does not affect the
//! others. `P` and [`KNOWN`] are fitted to mixes of recorded programs. `docs/benchmarks.md` shows how often the intervals hold.
//! They describe the simulation; its error about a machine comes in addition.

use serde::Serialize;

use crate::table::SeedSpread;

/// Weight of the pooled variance of all policies, in seeds.
const PRIOR_SEEDS: f64 = 2.0;
/// Lower limit on the standard deviation of the logarithm of a ratio.
const KNOWN: f64 = 0.01;
/// Lower limit on that standard deviation with a single seed, from which the variance cannot be estimated.
const ONE_SEED: f64 = 0.02;
/// Quantile 0.95 of the standard normal distribution.
const Z: f64 = 1.644_854;

/// Change relative to `linux`, as a fraction: 0.05 is 5 % more.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RelativeChange {
    /// Median of the change over seeds.
    pub median: f64,
    /// Smallest change of a seed.
    pub min: f64,
    /// Largest change of a seed.
    pub max: f64,
    /// Lower end of the 90 % prediction interval for the next run.
    pub low: f64,
    /// Upper end of the 90 % prediction interval for the next run.
    pub high: f64,
    /// Change by the geometric mean of the ratios over seeds.
    pub mean: f64,
    /// Standard error of the mean logarithm of the ratios.
    pub error: f64,
}

/// Median over the compared policies of the variance over seeds of a log ratio; 0 if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Noise {
    pub variance: f64,
}

impl Noise {
    /// Computes the noise from the ratios of each policy.
    #[must_use]
    pub fn of(policies: impl IntoIterator<Item = Vec<f64>>) -> Self {
        let variance = |ratios: Vec<f64>| {
            let n = ratios.len() as f64;
            (n > 1.0).then(|| squares(&ratios).1 / (n - 1.0))
        };
        // A policy without placements repeats the runs of Linux exactly, so a variance of zero is ignored.
        let all = policies.into_iter().filter_map(variance);
        let all = all.filter(|v| *v > 0.0);
        Self {
            variance: SeedSpread::of(all).median.max(0.0),
        }
    }
}

impl RelativeChange {
    /// Computes the change from the ratios of the seeds; `None` without ratios.
    #[must_use]
    pub fn of(ratios: impl IntoIterator<Item = f64>, noise: Noise) -> Option<Self> {
        let ratios: Vec<f64> = ratios
            .into_iter()
            .filter(|r| r.is_finite() && *r > 0.0)
            .collect();
        if ratios.is_empty() {
            return None;
        }
        let SeedSpread { median, min, max } = SeedSpread::of(ratios.iter().copied());
        let n = ratios.len() as f64;
        let (mean, squares) = squares(&ratios);
        let degrees = PRIOR_SEEDS + n - 1.0;
        let deviation = |known: f64| ((PRIOR_SEEDS * known + squares) / degrees).sqrt();
        let known = if n > 1.0 { KNOWN } else { ONE_SEED };
        let widest = deviation(noise.variance + known * known);
        let half = student(degrees) * widest * (1.0 + 1.0 / n).sqrt();
        let spread = if n > 1.0 {
            deviation(noise.variance)
        } else {
            widest
        };
        Some(Self {
            median: median - 1.0,
            min: min - 1.0,
            max: max - 1.0,
            low: (mean - half).exp_m1(),
            high: (mean + half).exp_m1(),
            mean: mean.exp_m1(),
            error: spread / n.sqrt(),
        })
    }

    /// Returns the change as text: `+12 % (90 %: +10 to +14 %)`.
    #[must_use]
    pub fn words(&self) -> String {
        format!("{} (90 %: {})", percent(self.median), self.ends())
    }

    /// Returns the change of a named quantity as text: `+12 % throughput (90 %: +10 to +14 %)`.
    #[must_use]
    pub fn words_of(&self, quantity: &str) -> String {
        format!(
            "{} {quantity} (90 %: {})",
            percent(self.median),
            self.ends()
        )
    }

    /// Returns the ends of the interval as text: `+10 to +14 %`.
    #[must_use]
    pub fn ends(&self) -> String {
        let low = percent(self.low);
        format!("{} to {}", low.trim_end_matches(" %"), percent(self.high))
    }

    /// Returns the change as a table cell: `+12 ±2 %`. The second number is half the width of the interval, in percentage points.
    #[must_use]
    pub fn cell(&self) -> String {
        let half = (self.high - self.low) * 50.0;
        let digits = if half < 0.95 { 1 } else { 0 };
        let change = percent(self.median);
        format!("{} ±{half:.digits$} %", change.trim_end_matches(" %"))
    }
}

/// Returns the mean of the ratios' logarithms, and the sum of their squared deviations from it.
fn squares(ratios: &[f64]) -> (f64, f64) {
    let mean = ratios.iter().map(|r| r.ln()).sum::<f64>() / ratios.len() as f64;
    (mean, ratios.iter().map(|r| (r.ln() - mean).powi(2)).sum())
}

/// Returns the quantile 0.95 of Student's t distribution with `degrees` degrees of freedom (Abramowitz and Stegun, 26.7.5).
/// Accurate to 2 % from 2 degrees on.
fn student(degrees: f64) -> f64 {
    let z = |power: i32| Z.powi(power);
    let terms = [
        (z(3) + z(1)) / 4.0,
        (5.0 * z(5) + 16.0 * z(3) + 3.0 * z(1)) / 96.0,
        (3.0 * z(7) + 19.0 * z(5) + 17.0 * z(3) - 15.0 * z(1)) / 384.0,
    ];
    let series = terms.iter().rev().fold(0.0, |sum, t| (sum + t) / degrees);
    Z + series
}

/// Formats a relative change in percent: `+14 %`, `-3 %`, `+0.4 %`.
#[must_use]
pub fn percent(change: f64) -> String {
    let value = change * 100.0;
    let text = if value.abs() < 9.95 {
        format!("{value:+.1}")
    } else {
        format!("{value:+.0}")
    };
    // Negative zero is formatted like positive zero.
    let text = if text == "-0.0" {
        "+0.0".to_owned()
    } else {
        text
    };
    format!("{text} %")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn students_quantiles_are_those_of_tables() {
        for (degrees, quantile) in [(2.0, 2.920), (4.0, 2.132), (10.0, 1.812), (100.0, 1.660)] {
            assert!(
                (student(degrees) / quantile - 1.0).abs() < 0.02,
                "{degrees}"
            );
        }
    }

    #[test]
    fn intervals_widen_with_the_spread_and_have_a_width_with_one_seed() {
        let width = |ratios: &[f64], noise| {
            let f = RelativeChange::of(ratios.iter().copied(), noise).unwrap();
            assert!(f.low < f.median && f.median < f.high, "{f:?}");
            f.high - f.low
        };
        let calm = Noise::default();
        let noisy = Noise::of([vec![1.0, 1.1, 1.2], vec![1.2, 1.0, 1.1]]);
        let wild = vec![1.0, 2.0, 0.5];
        let with_a_wild_one = [vec![1.0, 1.01, 0.99], wild, vec![1.02, 1.0, 1.01]];
        assert!(Noise::of(with_a_wild_one).variance < 0.02_f64.powi(2));
        let one = width(&[1.1], calm);
        let agreeing = width(&[1.1, 1.1, 1.1], calm);
        let differing = width(&[1.0, 1.1, 1.2], calm);
        assert!(
            agreeing < one && one < differing,
            "{agreeing} {one} {differing}"
        );
        assert!(width(&[1.1, 1.1, 1.1], noisy) > agreeing);
        assert_eq!(RelativeChange::of([f64::NAN], calm), None);
    }

    #[test]
    fn changes_have_a_sign_and_as_many_digits_as_mean_something() {
        assert_eq!(
            [percent(0.1449), percent(-0.0312), percent(-0.0001)],
            ["+14 %", "-3.1 %", "+0.0 %"]
        );
        let figure = RelativeChange {
            median: 0.12,
            min: 0.11,
            max: 0.13,
            low: 0.1,
            high: 0.141,
            mean: 0.12,
            error: 0.01,
        };
        assert_eq!(figure.words(), "+12 % (90 %: +10 to +14 %)");
        assert_eq!(figure.cell(), "+12 ±2 %");
    }
}
