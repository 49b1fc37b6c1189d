//! Run-queue latency of a foreground program in the two arms of a trial.
//!
//! Input: waits of programs, by arm. Output: the reason to reject the policy, if the foreground program waits longer under it.
//!
//! Waits of the arms are compared whenever both have enough of them: by the 99th percentile, or by the mean where only the
//! kernel's sums are known. Logarithms of the ratios give an interval that is valid after each comparison.

use std::sync::Arc;

use countersteer_model::evidence::Evidence;
use countersteer_sysfs::waits::Waits;

use crate::waits::Wait;

/// Number of waits of each arm in a comparison: one in a hundred is above the percentile.
const LEAST: u64 = 200;
/// Confidence of the interval. A policy that is rejected by mistake costs its gain, but no latency.
const CONFIDENCE: f64 = 0.9;
/// Ratio of latencies in two comparisons in a row that rejects at once.
const MUCH: f64 = 2.0;
/// Shorter latencies are equally good, in ms.
const SHORT_MS: f64 = 0.1;

/// Foreground program of a trial.
#[derive(Debug)]
pub struct Foreground {
    program: String,
    /// Waits of the arms since the last comparison: policy, baseline.
    waits: [Waits; 2],
    /// Logarithms of latency under the policy over that under the baseline.
    ratios: Evidence,
    last: f64,
    quantity: &'static str,
    rejection: Option<String>,
}

impl Foreground {
    /// Creates the comparison for a program.
    pub fn new(program: &str) -> Self {
        Self {
            program: program.to_owned(),
            waits: Default::default(),
            ratios: Evidence::default(),
            last: 0.0,
            quantity: "",
            rejection: None,
        }
    }

    pub fn program(&self) -> &str {
        &self.program
    }

    /// Reason for which the policy was rejected; `None` if it was not.
    pub const fn rejection(&self) -> Option<&String> {
        self.rejection.as_ref()
    }

    /// True for the program's name, or that of one of its processes (`NAME#PID`).
    pub fn is_it(&self, name: &str) -> bool {
        countersteer_policies::is_foreground(&self.program, name)
    }

    /// Adds waits of a program under an arm (0 for the policy).
    pub fn add(&mut self, side: usize, name: &Arc<str>, waits: &Waits) {
        if self.is_it(name) {
            self.waits[side].add(waits);
        }
    }

    /// Compares the arms if both have enough waits. Returns the reason to reject the policy.
    pub fn compare(&mut self) -> Option<String> {
        if self.waits.iter().any(|arm| arm.times < LEAST) {
            return None;
        }
        let [policy, baseline] = std::mem::take(&mut self.waits);
        let (policy, baseline) = (Wait::of(&policy)?, Wait::of(&baseline)?);
        let both = policy.percentiles.zip(baseline.percentiles);
        let (quantity, policy_ms, baseline_ms) = match both {
            Some((policy, baseline)) => ("99th percentile", policy.p99_ms, baseline.p99_ms),
            None => ("mean", policy.mean_ms, baseline.mean_ms),
        };
        self.quantity = quantity;
        let ratio = policy_ms.max(SHORT_MS) / baseline_ms.max(SHORT_MS);
        self.ratios.push(ratio.ln());
        let twice = ratio.min(std::mem::replace(&mut self.last, ratio)) >= MUCH;
        let rises = self.ratios.interval(CONFIDENCE).is_some_and(|i| i.0 > 0.0);
        if twice || rises {
            self.rejection = Some(format!(
                "{} waits longer for a CPU: the {quantity} of its run-queue latency is {policy_ms:.2} ms, and {baseline_ms:.2} ms \
                 under Linux ({:+.0} % on average)",
                self.program,
                100.0 * self.ratios.gain()
            ));
        }
        self.rejection.clone()
    }

    /// Result for the user; `None` without a comparison.
    pub fn sentence(&self) -> Option<String> {
        (self.ratios.pairs() > 0).then(|| {
            format!(
                "{}: {} of run-queue latency {:+.0} % under the policy, in {} comparisons",
                self.program,
                self.quantity,
                100.0 * self.ratios.gain(),
                self.ratios.pairs()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use countersteer_sysfs::waits::{Histogram, MeasuredWaits};

    use super::*;

    /// Waits of which every fiftieth takes `tail_ms`, the others 0.2 ms.
    fn waits(times: u64, tail_ms: f64, measured: bool) -> Waits {
        let mut woken = Histogram::default();
        let tail = times / 50;
        woken.record(200_000, times - tail);
        let tail_ns = (tail_ms * 1e6) as u64;
        woken.record(tail_ns, tail);
        let total_ns = (times - tail) * 200_000 + tail * tail_ns;
        let longest_ns = tail_ns.max(200_000);
        Waits {
            times,
            total_ns,
            measured: measured.then_some(MeasuredWaits {
                woken,
                longest_ns,
                ..MeasuredWaits::default()
            }),
        }
    }

    fn rejected(policy_ms: f64, baseline_ms: f64, measured: bool) -> (u32, Option<String>) {
        let mut foreground = Foreground::new("game");
        let name: Arc<str> = "game#12".into();
        for pair in 1..=20 {
            let drift = 1.0 + 0.05 * f64::from(pair % 3);
            foreground.add(0, &name, &waits(500, policy_ms * drift, measured));
            foreground.add(1, &name, &waits(500, baseline_ms, measured));
            foreground.add(1, &"other".into(), &waits(5_000, 900.0, measured));
            if let Some(why) = foreground.compare() {
                return (pair, Some(why));
            }
        }
        (20, None)
    }

    #[test]
    fn a_policy_under_which_the_program_waits_longer_is_rejected() {
        let (pairs, why) = rejected(9.0, 3.0, true);
        assert_eq!(pairs, 2);
        let why = why.unwrap();
        assert!(
            why.contains("game waits longer") && why.contains("99th"),
            "{why}"
        );
        let (pairs, why) = rejected(4.5, 3.0, true);
        assert!(why.is_some() && (5..12).contains(&pairs), "{pairs}");
        let (_, why) = rejected(9.0, 0.3, false);
        assert!(why.unwrap().contains("the mean"));
    }

    #[test]
    fn a_policy_under_which_it_waits_no_longer_is_kept() {
        assert_eq!(rejected(2.0, 3.0, true).1, None);
        assert_eq!(rejected(0.04, 0.01, true).1, None, "both are short");
        let mut few = Foreground::new("game");
        few.add(0, &"game".into(), &waits(100, 90.0, true));
        few.add(1, &"game".into(), &waits(100, 1.0, true));
        assert_eq!((few.compare(), few.sentence()), (None, None));
    }
}
