//! Trained models of speed-up and energy factors: the files in `models/`, and the core types that they are for.
//!
//! Input: TOML text. Output: a [`FixedPointModel`], which turns the ratios of one round of samples into a factor with its uncertainty.
//! Factor and uncertainty are step tables ([`crate::metric::steps`]) in fixed point, evaluated identically in user space and
//! in the kernel.

mod shipped;
mod steps;
pub mod swaps;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::bounds;
use crate::events::Event;
use crate::textfile::{TextError, checked, is_name, parse_toml};

pub use shipped::{shipped, shipped_for, shipped_swaps};
pub use steps::{
    FACTOR_BITS, FEATURE_BITS, FixedFeature, FixedModel, MAX_FEATURES, MAX_STEPS, StepFeature,
    StepModel,
};

/// Schema identifier in every model file.
pub const SCHEMA: &str = "countersteer.model/2";
/// Fraction of true factors that a model's interval contains.
pub const COVERAGE: f64 = 0.9;
/// Relative half-width of the interval if a model has no information about a thread.
pub const UNKNOWN_WIDTH: f64 = 10.0;

/// Quantity that a model predicts for a thread.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// Speed on the fastest core type over that on the slowest.
    Sf,
    /// Energy-delay product on the slowest core type over that on the fastest.
    Ef,
}

impl Target {
    pub const ALL: [Self; 2] = [Self::Sf, Self::Ef];

    /// Returns the target's name in files and on command lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sf => "sf",
            Self::Ef => "ef",
        }
    }

    /// Returns the smallest and largest factor; predictions outside are clamped to them.
    #[must_use]
    pub const fn bounds(self) -> (f64, f64) {
        match self {
            Self::Sf => (1.0, 7.0),
            Self::Ef => (0.1, 10.0),
        }
    }
}

/// Trained model for threads that run on one core type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelFile {
    /// `countersteer.model/2`.
    #[serde(deserialize_with = "schema")]
    pub schema: String,
    pub target: Target,
    /// Core type on which the counts are taken.
    #[serde(deserialize_with = "name")]
    pub core_type: String,
    /// Name of the machine for which the model was trained.
    #[serde(deserialize_with = "name")]
    pub machine: String,
    /// Core types whose speeds or energies the factor compares.
    #[serde(deserialize_with = "name")]
    pub fast: String,
    #[serde(deserialize_with = "name")]
    pub slow: String,
    /// Frequency of the fast core type divided by that of the slow one.
    #[serde(deserialize_with = "ratio")]
    pub clock_ratio: f64,
    /// Description of the training data.
    pub trained_on: String,
    /// Lower limit on the width of a prediction's interval.
    #[serde(deserialize_with = "ratio")]
    pub least_width: f64,
    /// Best constant factor for all threads, and the relative distance from it within which 9 of 10 factors lie.
    pub constant: Constant,
    /// Accuracy on program families on which the model was not trained.
    pub judged: Judged,
    /// Model of the factor, over ratios of counters.
    pub factor: StepModel,
    /// Relative distance from the predicted factor within which 9 of 10 factors lie.
    pub width: StepModel,
}

/// Model without counters: a constant factor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    #[serde(deserialize_with = "ratio")]
    pub factor: f64,
    #[serde(deserialize_with = "ratio")]
    pub width: f64,
}

fn schema<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    checked(from, |schema: &String| {
        let other = schema != SCHEMA;
        other.then(|| format!("schema is `{schema}`, this version reads `{SCHEMA}`"))
    })
}

fn name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    checked(from, |name: &String| {
        let why = "a name is lower-case letters, digits, dots and dashes";
        (!is_name(name)).then(|| why.into())
    })
}

fn ratio<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    checked(from, |value| bounds::RATIO.check("value", *value).err())
}

/// Accuracy of a model on program families on which it was not trained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Judged {
    /// Correlation of predicted and true factors.
    pub r: f64,
    /// Mean relative error of the model, and of the constant factor; program families have equal weights.
    pub mape: f64,
    pub constant_mape: f64,
    /// Fraction of the true factors that lie inside the predicted intervals.
    pub coverage: f64,
    /// Fraction of the samples for which the model abstains.
    pub abstains: f64,
}

impl Judged {
    /// True if the model's mean error is smaller than that of a constant prediction.
    #[must_use]
    pub fn beats_constant(&self) -> bool {
        self.mape < self.constant_mape
    }
}

impl ModelFile {
    /// Parses and checks a model file.
    ///
    /// # Errors
    /// Fails on a syntax error, an unknown field, another schema, or an invalid table.
    pub fn parse(path: &str, text: &str) -> Result<Self, TextError> {
        parse_toml(path, text)
    }

    /// Returns the model as the text of a TOML file.
    ///
    /// # Errors
    /// Never fails for a checked model.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }
}

/// Model with tables in fixed point, for evaluation.
#[derive(Clone, Debug)]
pub struct FixedPointModel {
    pub target: Target,
    pub factor: FixedModel,
    pub width: FixedModel,
    /// Index of the feature in `factor` with the same ratio, for each feature of `width`; `None` if there is none.
    pub shared: Vec<Option<usize>>,
    /// Lower limit on the width of a prediction's interval.
    pub least_width: f64,
    pub constant: Constant,
}

/// Prediction of a factor for a thread, with its uncertainty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FactorPrediction {
    pub factor: f64,
    /// Relative half-width of the interval that contains 9 of 10 true factors.
    pub width: f64,
    /// Ratio of [`Self::width`] to the width of the constant model's interval.
    pub doubt: f64,
}

/// True if a model with this doubt abstains. Its interval is then no narrower than that of the constant model, so the
/// counters carry no information.
#[must_use]
pub fn abstains(doubt: f64) -> bool {
    doubt >= 1.0
}

impl FactorPrediction {
    /// Returns the predicted factor; `None` if the model abstains.
    #[must_use]
    pub fn confident(&self) -> Option<f64> {
        (!abstains(self.doubt)).then_some(self.factor)
    }
}

impl FixedPointModel {
    #[must_use]
    pub fn new(file: &ModelFile) -> Self {
        let (factor, width) = (file.factor.fixed(), file.width.fixed());
        let in_factor = |f: &FixedFeature| {
            let same = |other: &FixedFeature| (other.above, other.below) == (f.above, f.below);
            factor.features.iter().position(same)
        };
        Self {
            target: file.target,
            shared: width.features.iter().map(in_factor).collect(),
            factor,
            width,
            least_width: file.least_width,
            constant: file.constant,
        }
    }

    /// Returns the events that the model needs, without duplicates.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        let tables = self.factor.features.iter().chain(&self.width.features);
        for event in tables.flat_map(|f| [f.below, f.above]) {
            if !events.contains(&event) {
                events.push(event);
            }
        }
        events
    }
}

/// Trained models of one core type.
#[derive(Clone, Debug, Default)]
pub struct Models {
    pub sf: Option<FixedPointModel>,
    pub ef: Option<FixedPointModel>,
}

impl Models {
    #[must_use]
    pub const fn of(&self, target: Target) -> Option<&FixedPointModel> {
        match target {
            Target::Sf => self.sf.as_ref(),
            Target::Ef => self.ef.as_ref(),
        }
    }
}
