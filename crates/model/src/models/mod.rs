//! Trained models of speed-up and energy factors: the files in `models/`, and which of them is for a core type.
//!
//! Input: TOML text. Output: a [`Model`], which turns the ratios of one round of counts into a factor and says how far it may be
//! off. Factor and width are step tables ([`crate::metric::steps`]): whole numbers, evaluated alike in user space and in the kernel.

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

/// The schema name that every model file carries.
pub const SCHEMA: &str = "countersteer.model/2";
/// The share of factors that an interval holds.
pub const COVERAGE: f64 = 0.9;
/// Half-width of the interval where a model cannot tell at all, relative to the factor.
pub const UNKNOWN_WIDTH: f64 = 10.0;

/// What a model predicts of a thread.
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

    /// As files and command lines spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sf => "sf",
            Self::Ef => "ef",
        }
    }

    /// What a factor can be: those beyond are taken to be these.
    #[must_use]
    pub const fn bounds(self) -> (f64, f64) {
        match self {
            Self::Sf => (1.0, 7.0),
            Self::Ef => (0.1, 10.0),
        }
    }
}

/// A trained model for threads that run on one core type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelFile {
    /// `countersteer.model/2`.
    #[serde(deserialize_with = "schema")]
    pub schema: String,
    pub target: Target,
    /// The core type on which the counts are taken.
    #[serde(deserialize_with = "name")]
    pub core_type: String,
    /// The machine it was trained for.
    #[serde(deserialize_with = "name")]
    pub machine: String,
    /// The core types whose speeds or energies the factor compares.
    #[serde(deserialize_with = "name")]
    pub fast: String,
    #[serde(deserialize_with = "name")]
    pub slow: String,
    /// Frequency of the fast one over that of the slow one.
    #[serde(deserialize_with = "ratio")]
    pub clock_ratio: f64,
    /// What it was trained on, in words.
    pub trained_on: String,
    /// The least that the width is.
    #[serde(deserialize_with = "ratio")]
    pub least_width: f64,
    /// The factor that is best taken for any thread, and how far 9 of 10 factors are from it at most, relative to it.
    pub constant: Constant,
    /// How it did on families of programs that it was not trained on.
    pub judged: Judged,
    /// The factor.
    pub factor: StepModel,
    /// How far 9 of 10 factors are from the predicted one at most, relative to it.
    pub width: StepModel,
}

/// The model without counters.
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

/// How a model did on families of programs that it was not trained on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Judged {
    /// Correlation of predicted and true factors.
    pub r: f64,
    /// Mean relative error, families weighted alike; that of the constant.
    pub mape: f64,
    pub constant_mape: f64,
    /// Share of true factors in the intervals.
    pub coverage: f64,
    /// Share of samples on which it abstains.
    pub abstains: f64,
}

impl Judged {
    /// Whether the model errs less than the constant.
    #[must_use]
    pub fn beats_constant(&self) -> bool {
        self.mape < self.constant_mape
    }
}

impl ModelFile {
    /// Parses and checks a model file.
    ///
    /// # Errors
    /// Syntax, unknown fields, another schema, or an impossible table.
    pub fn parse(path: &str, text: &str) -> Result<Self, TextError> {
        parse_toml(path, text)
    }

    /// The file's text.
    ///
    /// # Errors
    /// None for a checked model.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }
}

/// A model, ready to be evaluated.
#[derive(Clone, Debug)]
pub struct Model {
    pub target: Target,
    pub factor: FixedModel,
    pub width: FixedModel,
    /// By row of `width`, the row of `factor` with the same ratio.
    pub shared: Vec<Option<usize>>,
    /// The least that the width is.
    pub least_width: f64,
    pub constant: Constant,
}

/// What a model says of a thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    pub factor: f64,
    /// How far 9 of 10 factors are from it at most, relative to it.
    pub width: f64,
    /// [`Self::width`] over that of the constant.
    pub doubt: f64,
}

/// Whether a model abstains that is so much in doubt: its interval is no narrower than that of the constant, so counters tell nothing.
#[must_use]
pub fn abstains(doubt: f64) -> bool {
    doubt >= 1.0
}

impl Prediction {
    /// The factor, unless the model abstains.
    #[must_use]
    pub fn confident(&self) -> Option<f64> {
        (!abstains(self.doubt)).then_some(self.factor)
    }
}

impl Model {
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

    /// The events that it reads, each once.
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

/// The models of a core type.
#[derive(Clone, Debug, Default)]
pub struct Models {
    pub sf: Option<Model>,
    pub ef: Option<Model>,
}

impl Models {
    #[must_use]
    pub const fn of(&self, target: Target) -> Option<&Model> {
        match target {
            Target::Sf => self.sf.as_ref(),
            Target::Ef => self.ef.as_ref(),
        }
    }
}
