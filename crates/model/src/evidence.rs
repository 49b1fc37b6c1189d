//! Anytime-valid confidence sequence for paired differences: it may be evaluated, and acted upon, after every pair.
//!
//! Input: the logarithm of a ratio per pair. Output: a confidence sequence for their mean, valid at all times at once, and a
//! decision.
//!
//! An interval of a fixed number of pairs (Student's) is valid for one evaluation. With an evaluation after every pair, it
//! eventually excludes the true value. A confidence sequence does not. This one inverts a test martingale. The martingale is the
//! Bayes factor of "the mean is mu" against "it is off by delta standard deviations, delta normal around 0". The standard
//! deviation is integrated out by its right Haar measure (Wang and Ramdas, "Anytime-valid t-tests and confidence sequences for
//! Gaussian means with unknown variance", Sequential Analysis 44, 2025, the Gaussian mixture of section 4). With n pairs and V
//! the variance of delta it is
//!
//! ```text
//! (1 + nV)^(-1/2) * ((1 + t^2 / (n-1)) / (1 + t^2 / ((n-1) (1 + nV))))^(n/2)
//! ```
//!
//! By Ville's inequality, the Bayes factor reaches 1/alpha at the true mean with probability alpha at most, over all n.

use serde::{Deserialize, Serialize};

/// Assumed variance of the effect, in units of the variance of a pair. The intervals are valid for any value; they are tightest
/// for effects of about 0.7 standard deviations.
const EFFECT_VARIANCE: f64 = 0.5;

/// Running sums over the paired differences so far, in constant memory.
///
/// ```
/// use countersteer_model::evidence::{Evidence, GainDecision};
///
/// let mut evidence = Evidence::default();
/// // Rates of a program under a policy and under Linux, in turn; the evidence may be looked at after each pair.
/// for (policy, linux) in [(105.0, 100.0), (107.0, 101.0), (104.0, 99.0)].repeat(4) {
///     evidence.push(f64::ln(policy / linux));
/// }
/// assert!((evidence.gain() - 0.053).abs() < 0.001);
/// assert_eq!(evidence.verdict(0.95, 0.01), Some(GainDecision::Faster));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Evidence {
    pairs: u64,
    mean: f64,
    /// Sum of squared deviations of the log ratios from their mean.
    squares: f64,
}

/// Decision about a gain from its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GainDecision {
    /// The confidence interval of the gain is above 0.
    Faster,
    /// The confidence interval of the gain is below 0.
    Slower,
    /// The confidence interval of the gain is within the equivalence margin.
    Equivalent,
}

impl Evidence {
    /// Adds a pair, given as the natural logarithm of the ratio of its two rates.
    pub fn push(&mut self, log_ratio: f64) {
        self.pairs += 1;
        let distance = log_ratio - self.mean;
        self.mean += distance / self.pairs as f64;
        self.squares += distance * (log_ratio - self.mean);
    }

    /// Returns the number of pairs so far.
    #[must_use]
    pub const fn pairs(&self) -> u64 {
        self.pairs
    }

    /// Returns the geometric mean of the ratios minus 1, so that 0.05 is a gain of 5 %. Returns 0 without a pair.
    #[must_use]
    pub fn gain(&self) -> f64 {
        self.mean.exp_m1()
    }

    /// Returns the confidence interval of the true gain. With probability `confidence` (0 to 1), the intervals after all pairs,
    /// past and future, contain it. `None` while there are too few pairs for a finite interval: fewer than six at 95 %.
    #[must_use]
    pub fn interval(&self, confidence: f64) -> Option<(f64, f64)> {
        let half = self.half_width(1.0 - confidence)?;
        Some(((self.mean - half).exp_m1(), (self.mean + half).exp_m1()))
    }

    /// Returns the decision at a confidence level (0 to 1); `None` if the interval allows none yet. Gains up to `margin` in
    /// either direction (0.01 is 1 %) count as no difference.
    #[must_use]
    pub fn verdict(&self, confidence: f64, margin: f64) -> Option<GainDecision> {
        match self.interval(confidence)? {
            (low, _) if low > 0.0 => Some(GainDecision::Faster),
            (_, high) if high < 0.0 => Some(GainDecision::Slower),
            (low, high) if low > -margin && high < margin => Some(GainDecision::Equivalent),
            _ => None,
        }
    }

    /// Returns half the width of the confidence interval: the distance from the mean log ratio at which the Bayes factor reaches
    /// 1/`alpha`. `None` if the interval is infinite.
    fn half_width(&self, alpha: f64) -> Option<f64> {
        let n = self.pairs as f64;
        let spread = n.mul_add(EFFECT_VARIANCE, 1.0);
        let reached = (spread / (alpha * alpha)).powf(1.0 / n);
        let within = 1.0 - reached / spread;
        let enough = self.pairs > 1 && within > 0.0;
        enough.then(|| ((reached - 1.0) / within * self.squares / n).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::PolicyRng;
    use rand::{RngExt, SeedableRng};

    const CONFIDENCE: f64 = 0.95;
    const MARGIN: f64 = 0.01;

    /// Draws a normal number with mean 0 and standard deviation 1 (Box and Muller).
    fn normal(rng: &mut PolicyRng) -> f64 {
        let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
        radius * (std::f64::consts::TAU * rng.random::<f64>()).cos()
    }

    /// Returns the first decision of each of 400 trials with this true gain, evaluated after every pair.
    fn decisions(gain: f64, noise: f64, pairs: u64) -> Vec<Option<GainDecision>> {
        let mut rng = PolicyRng::seed_from_u64(11);
        let mut trial = || {
            let mut evidence = Evidence::default();
            (0..pairs).find_map(|_| {
                evidence.push(gain.ln_1p() + noise * normal(&mut rng));
                evidence.verdict(CONFIDENCE, MARGIN)
            })
        };
        (0..400).map(|_| trial()).collect()
    }

    fn share(decisions: &[Option<GainDecision>], is: impl Fn(GainDecision) -> bool) -> f64 {
        let such = decisions.iter().flatten().filter(|v| is(**v)).count();
        such as f64 / decisions.len() as f64
    }

    #[test]
    fn looking_after_every_pair_decides_wrongly_in_one_trial_of_twenty_at_most() {
        let none = decisions(0.0, 0.04, 1000);
        assert!(share(&none, |v| v != GainDecision::Equivalent) <= 0.05);
        let at_the_margin = decisions(MARGIN, 0.04, 1000);
        assert!(share(&at_the_margin, |v| v != GainDecision::Faster) <= 0.05);
    }

    #[test]
    fn a_gain_a_loss_and_none_are_distinguished() {
        assert!(share(&decisions(0.03, 0.04, 40), |v| v == GainDecision::Faster) >= 0.8);
        assert!(share(&decisions(-0.03, 0.04, 40), |v| v == GainDecision::Slower) >= 0.8);
        assert!(
            share(&decisions(0.0, 0.04, 1000), |v| v
                == GainDecision::Equivalent)
                >= 0.8
        );
    }

    #[test]
    fn the_interval_ends_where_the_bayes_factor_says() {
        let mut evidence = Evidence::default();
        [0.01, 0.03, 0.02, 0.05, -0.01, 0.02, 0.03, 0.04]
            .iter()
            .for_each(|log| evidence.push(*log));
        let (n, spread) = (8.0_f64, 5.0_f64);
        let half = evidence.half_width(0.05).unwrap();
        let t_squared = half.powi(2) * n / (evidence.squares / (n - 1.0));
        let ratio = (1.0 + t_squared / (n - 1.0)) / (1.0 + t_squared / ((n - 1.0) * spread));
        let factor = ratio.powf(n / 2.0) / spread.sqrt();
        assert!((factor - 20.0).abs() < 1e-9, "{factor}");
    }

    #[test]
    fn few_pairs_have_no_interval() {
        let mut evidence = Evidence::default();
        for pair in 1..=6 {
            evidence.push(0.01 * f64::from(pair));
            assert_eq!(evidence.interval(CONFIDENCE).is_some(), pair > 5, "{pair}");
        }
    }
}
