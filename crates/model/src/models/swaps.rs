//! Rules for exchanging two threads: the files `models/<machine>.swaps.toml`.
//!
//! Input: TOML text. Output: [`SwapFile`], boxes in the space of counter metrics of a thread on the fastest and of one on the
//! slowest core type (patient rule induction; PMCTrack, section 4.2.2, after Zhang et al., DATE 2014).

use serde::{Deserialize, Serialize};

use crate::textfile::{TextError, parse_toml};

/// Schema name in every file.
pub const SCHEMA: &str = "countersteer.swaps/1";

/// Metrics of each thread that rules may use, by name or as formulas.
pub const FEATURES: [&str; 4] = [
    "ipc",
    "llc_mpki",
    "1000 * l1d_misses / instructions",
    "branch_mpki",
];

/// Rules of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwapFile {
    /// `countersteer.swaps/1`.
    pub schema: String,
    /// Machine they were induced for.
    pub machine: String,
    /// Core types between which threads are exchanged.
    pub fast: String,
    pub slow: String,
    /// Frequency of the fast core type divided by that of the slow one.
    pub clock_ratio: f64,
    /// Description of the data they were induced from.
    pub trained_on: String,
    /// Accuracy on pairs of programs that they were not induced from.
    pub judged: SwapsJudged,
    #[serde(default)]
    pub rule: Vec<SwapRule>,
}

/// Accuracy of rules on pairs of programs that they were not induced from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwapsJudged {
    /// Share of pairs that a rule exchanges, and share of pairs whose exchange saves energy.
    pub exchanged: f64,
    pub worth: f64,
    /// Share of the exchanged pairs that save energy.
    pub right: f64,
    /// Mean share of energy saved by exchanged pairs.
    pub saving: f64,
}

/// Box: exchange two threads that are inside all its bounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwapRule {
    /// Mean share of energy saved: for the pairs it was induced from, and for those of other programs.
    pub saving: f64,
    pub held_out_saving: f64,
    /// Share of the pairs inside the box.
    pub support: f64,
    #[serde(default)]
    pub bounds: Vec<Bound>,
}

/// Interval of a feature of one of the two threads, both ends included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    pub thread: Side,
    /// One of [`FEATURES`].
    pub metric: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<f64>,
}

/// Thread that a bound applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// Thread on the fastest core type.
    Fast,
    /// Thread on the slowest core type.
    Slow,
}

impl SwapRule {
    /// True if two threads are inside. `feature` returns a thread's feature for each bound, by index; a missing feature is
    /// outside.
    pub fn contains(&self, feature: impl Fn(usize, Side) -> Option<f64>) -> bool {
        self.bounds.iter().enumerate().all(|(place, bound)| {
            feature(place, bound.thread).is_some_and(|value| {
                bound.least.is_none_or(|least| value >= least)
                    && bound.most.is_none_or(|most| value <= most)
            })
        })
    }
}

impl SwapFile {
    /// Parses and checks a file.
    ///
    /// # Errors
    /// Fails on syntax errors, unknown fields, another schema, or a metric that rules do not use.
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

    /// Returns the file as TOML.
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
        let bound = |thread, metric: &str, least, most| Bound {
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
                bound(Side::Fast, "ipc", None, Some(1.0)),
                bound(Side::Slow, "llc_mpki", Some(2.0), Some(5.0)),
            ],
        };
        let inside = |ipc, misses| {
            rule.contains(|bound, side| match (bound, side) {
                (0, Side::Fast) => ipc,
                (1, Side::Slow) => misses,
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
