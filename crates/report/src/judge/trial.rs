//! Verdicts of A/B trials as text.
//!
//! Input: [`Gain`]s of a trial. Output: cells for a table, a sentence, and the reason to stop using a
//! policy.

use countersteer_model::evidence::GainDecision;
use countersteer_model::trial::Gain;

use super::figure::percent;

/// Confidence level and equivalence margin of a trial, in percent.
#[derive(Clone, Copy, Debug)]
pub struct TrialLimits {
    pub confidence: f64,
    /// Equivalence margin in percent: gains up to this value, in either direction, count as no difference.
    pub margin: f64,
}

/// Returns the confidence interval of a gain as text; `None` while there is none.
#[must_use]
pub fn interval(gain: &Gain) -> Option<String> {
    let (low, high) = gain.interval?;
    Some(format!("{} to {}", percent(low), percent(high)))
}

/// Returns the decision about a gain as a short text for a table.
#[must_use]
pub fn word(gain: &Gain, limits: TrialLimits) -> String {
    match (gain.verdict, gain.interval) {
        (Some(GainDecision::Faster), _) => "better".into(),
        (Some(GainDecision::Slower), _) => "worse".into(),
        (Some(GainDecision::Equivalent), _) => format!("no difference above {} %", limits.margin),
        (None, Some(_)) => "undecided".into(),
        (None, None) => "too few pairs".into(),
    }
}

/// Returns the decision of a trial over all programs as a sentence.
#[must_use]
pub fn sentence(all: &Gain, limits: TrialLimits) -> String {
    let TrialLimits { confidence, margin } = limits;
    let sure = interval(all).map_or_else(String::new, |i| {
        format!("{i} with {confidence} % confidence")
    });
    match (all.verdict, all.interval) {
        (Some(GainDecision::Faster), Some(_)) => format!("It is better: {sure}."),
        (Some(GainDecision::Slower), Some(_)) => format!("It is worse: {sure}."),
        (Some(GainDecision::Equivalent), _) => format!("It makes no difference above {margin} %."),
        (_, Some(_)) => format!(
            "Cannot tell after {} pairs: {sure}; more pairs (--pairs, --duration) would tell.",
            all.pairs
        ),
        (_, None) => format!("Too few pairs for an interval ({}).", all.pairs),
    }
}

/// Returns the reason to stop using a policy whose gain is certainly smaller than predicted; `None` if it
/// is not. `margin` is a fraction.
#[must_use]
pub fn shortfall(all: &Gain, predicted: f64, margin: f64) -> Option<String> {
    let (_, high) = all
        .interval
        .filter(|(_, high)| *high < predicted - margin)?;
    Some(format!(
        "it gains {} (95 % confidence: at most {}) where {} were predicted",
        percent(all.gain),
        percent(high),
        percent(predicted)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gain(interval: Option<(f64, f64)>, verdict: Option<GainDecision>) -> Gain {
        Gain {
            program: "all".into(),
            pairs: 7,
            gain: 0.02,
            interval,
            verdict,
        }
    }

    #[test]
    fn a_trial_says_what_is_certain_and_no_more() {
        let limits = TrialLimits {
            confidence: 95.0,
            margin: 1.0,
        };
        let faster = gain(Some((0.012, 0.031)), Some(GainDecision::Faster));
        assert_eq!(
            sentence(&faster, limits),
            "It is better: +1.2 % to +3.1 % with 95 % confidence."
        );
        assert_eq!(word(&faster, limits), "better");
        let open = gain(Some((-0.1, 0.2)), None);
        assert!(sentence(&open, limits).starts_with("Cannot tell after 7 pairs"));
        assert_eq!(word(&gain(None, None), limits), "too few pairs");
    }

    #[test]
    fn a_policy_falls_short_only_where_the_interval_says_so() {
        let all = gain(Some((0.01, 0.03)), Some(GainDecision::Faster));
        assert_eq!(shortfall(&all, 0.03, 0.01), None);
        let why = shortfall(&all, 0.1, 0.01).unwrap();
        assert!(
            why.contains("at most +3.0 %") && why.contains("+10 % were"),
            "{why}"
        );
    }
}
