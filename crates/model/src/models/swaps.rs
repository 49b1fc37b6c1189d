//! Rules for exchanging two threads between core types: the files `models/<machine>.swaps.toml`.
//!
//! Input: TOML text. Output: a [`SwapFile`] with boxes in the space of counter metrics of two threads, one on the fastest and
//! one on the slowest core type (patient rule induction; PMCTrack, section 4.2.2, after Zhang et al., DATE 2014).

use serde::{Deserialize, Serialize};

use crate::textfile::{TextError, parse_toml};

/// Schema identifier in every file of exchange rules.
pub const SCHEMA: &str = "countersteer.swaps/1";

/// Metrics of a thread that rules may use, as names or formulas.
pub const FEATURES: [&str; 4] = [
    "ipc",
    "llc_mpki",
    "1000 * l1d_misses / instructions",
    "branch_mpki",
];

/// Exchange rules of a machine, with their accuracy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwapFile {
    /// Schema identifier, `countersteer.swaps/1`.
    pub schema: String,
    /// Machine for which the rules were induced.
    pub machine: String,
    /// Name of the fastest core type.
    pub fast: String,
    /// Name of the slowest core type.
    pub slow: String,
    /// Frequency of the fast core type divided by that of the slow one.
    pub clock_ratio: f64,
    /// Description of the training data.
    pub trained_on: String,
    /// Accuracy of the rules on pairs of programs outside the training data.
    pub judged: SwapsJudged,
    #[serde(default)]
    pub rule: Vec<SwapRule>,
}

/// Accuracy of exchange rules on pairs of programs outside the training data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwapsJudged {
    /// Fraction of all pairs that a rule exchanges.
    pub exchanged: f64,
    /// Fraction of all pairs whose exchange saves energy.
    pub worth: f64,
    /// Fraction of the exchanged pairs whose exchange saves energy.
    pub right: f64,
    /// Mean fraction of energy that exchanged pairs save.
    pub saving: f64,
}

/// Rule, a box in feature space: two threads are exchanged if their features satisfy all its bounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwapRule {
    /// Mean fraction of energy saved by the training pairs inside the box.
    pub saving: f64,
    /// Mean fraction of energy saved by pairs of other programs inside the box.
    pub held_out_saving: f64,
    /// Fraction of the training pairs inside the box.
    pub support: f64,
    #[serde(default)]
    pub bounds: Vec<FeatureInterval>,
}

/// Closed interval of a feature of one of the two threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeatureInterval {
    pub thread: SwapSide,
    /// Metric that is bounded, one of [`FEATURES`].
    pub metric: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<f64>,
}

/// Thread of a pair to which a bound applies, by its core type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SwapSide {
    /// Thread of the pair on the fastest core type.
    Fast,
    /// Thread of the pair on the slowest core type.
    Slow,
}

impl SwapRule {
    /// True if the features of two threads satisfy all bounds. `feature` returns the value for a bound, given the bound's
    /// index and its thread. A missing value does not satisfy a bound.
    pub fn contains(&self, feature: impl Fn(usize, SwapSide) -> Option<f64>) -> bool {
        self.bounds.iter().enumerate().all(|(place, bound)| {
            feature(place, bound.thread).is_some_and(|value| {
                bound.least.is_none_or(|least| value >= least)
                    && bound.most.is_none_or(|most| value <= most)
            })
        })
    }
}

impl SwapFile {
    /// Parses and checks the text of a file of exchange rules.
    ///
    /// # Errors
    /// Fails on a syntax error, an unknown field, another schema, or a metric outside of [`FEATURES`].
    pub fn parse(path: &str, text: &str) -> Result<Self, TextError> {
        let file: Self = parse_toml(path, text)?;
        if file.schema != SCHEMA {
            let why = format!("schema is `{}`, this version reads `{SCHEMA}`", file.schema);
            return Err(TextError::value(path, why));
        }
        let mut bounds = file.rule.iter().flat_map(|rule| &rule.bounds);
        if let Some(odd) = bounds.find(|b| !FEATURES.contains(&b.metric.as_str())) {
            let known = FEATURES.join(", ");
            let why = format!("rules do not read `{}`, but {known}", odd.metric);
            return Err(TextError::value(path, why));
        }
        Ok(file)
    }

    /// Returns the rules as the text of a TOML file.
    ///
    /// # Errors
    /// Fails on a value that TOML cannot represent.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test helper that fails has failed its test
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_inside_when_all_bounds_hold_and_all_features_are_known() {
        let bound = |thread, metric: &str, least, most| FeatureInterval {
            thread,
            metric: metric.into(),
            least,
            most,
        };
        let rule = SwapRule {
            saving: 0.1,
            held_out_saving: 0.1,
            support: 0.1,
            bounds: vec![
                bound(SwapSide::Fast, "ipc", None, Some(1.0)),
                bound(SwapSide::Slow, "llc_mpki", Some(2.0), Some(5.0)),
            ],
        };
        let inside = |ipc, misses| {
            rule.contains(|bound, side| match (bound, side) {
                (0, SwapSide::Fast) => ipc,
                (1, SwapSide::Slow) => misses,
                _ => None,
            })
        };
        assert!(inside(Some(1.0), Some(2.0)) && inside(Some(0.2), Some(5.0)));
        assert!(!inside(Some(1.1), Some(3.0)) && !inside(Some(0.5), Some(5.1)));
        assert!(!inside(None, Some(3.0)) && !inside(Some(0.5), None));
    }

    #[test]
    fn files_that_are_wrong_say_what_is() {
        let text = "schema = \"countersteer.swaps/1\"\nmachine = \"m\"\nfast = \"b\"\nslow = \"s\"\nclock_ratio = 1.0\n\
                    trained_on = \"\"\njudged = { exchanged = 0, worth = 0, right = 0, saving = 0 }\n";
        assert!(SwapFile::parse("m", text).is_ok());
        for (from, to, part) in [
            ("swaps/1", "swaps/9", "swaps/9"),
            ("machine = \"m\"", "machine = 3", ":2:"),
        ] {
            let error = SwapFile::parse("m", &text.replace(from, to)).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
        }
        let rule = "[[rule]]\nsaving = 0\nheld_out_saving = 0\nsupport = 0\n\
                    bounds = [{ thread = \"fast\", metric = \"power\" }]\n";
        let error = SwapFile::parse("m", &(text.to_owned() + rule)).unwrap_err();
        assert!(error.to_string().contains("do not read `power`"), "{error}");
    }

    #[test]
    fn every_shipped_file_is_of_a_machine_and_has_its_name() {
        for file in crate::models::shipped_swaps() {
            assert!(
                file.rule.iter().all(|r| !r.bounds.is_empty()),
                "{}",
                file.machine
            );
        }
    }
}
