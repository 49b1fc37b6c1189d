//! Step tables as a machine file carries them; the metric `sf_steps` evaluates them.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::bounds::{self, check_all};
use crate::events::Event;
use crate::textfile::checked;

/// Features of a model at most.
pub const MAX_FEATURES: usize = 8;
/// Steps of a feature at most.
pub const MAX_STEPS: usize = 64;
/// Bits behind the point of a feature's value.
pub const FEATURE_BITS: u32 = 20;
/// Bits behind the point of a speed-up factor.
pub const FACTOR_BITS: u32 = 16;

/// A model of the speed-up factor for threads that run on one core type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepModel {
    /// The speed-up factor to which features add.
    #[serde(deserialize_with = "factor")]
    pub base: f64,
    /// At most 8. What the first one is a ratio of tells phases apart.
    #[serde(deserialize_with = "features")]
    pub features: Vec<StepFeature>,
}

/// What a ratio of two counters adds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepFeature {
    /// Event of the numerator.
    #[serde(deserialize_with = "event")]
    pub above: String,
    /// Event of the denominator; that of the first feature tells how much a thread did.
    #[serde(deserialize_with = "event")]
    pub below: String,
    /// Pairs of (least value, what is added from there to the next), ascending; below the first nothing is added. At most 64.
    #[serde(deserialize_with = "steps")]
    pub steps: Vec<(f64, f64)>,
}

fn factor<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    checked(from, |base| bounds::FACTOR.check("base", *base).err())
}

fn features<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<StepFeature>, D::Error> {
    checked(from, |features: &Vec<StepFeature>| {
        let number = features.len();
        let fine = (1..=MAX_FEATURES).contains(&number);
        (!fine).then(|| format!("a model has 1 to {MAX_FEATURES} features, not {number}"))
    })
}

fn event<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    checked(from, |name: &String| {
        let unknown = Event::by_name(name).is_none();
        unknown.then(|| format!("there is no event `{name}`"))
    })
}

fn steps<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(f64, f64)>, D::Error> {
    checked(from, |steps: &Vec<(f64, f64)>| {
        if steps.len() > MAX_STEPS {
            let number = steps.len();
            return Some(format!(
                "a feature has at most {MAX_STEPS} steps, not {number}"
            ));
        }
        let figures = steps.iter().flat_map(|(least, add)| {
            [
                ("steps", bounds::RATIO, *least),
                ("steps", bounds::FACTOR, *add),
            ]
        });
        let ascending = steps.is_sorted_by(|a, b| a.0 < b.0);
        let disorder = (!ascending).then(|| "least values of steps ascend".into());
        check_all(figures).err().map(|(_, why)| why).or(disorder)
    })
}

/// A model in whole numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FixedModel {
    /// The base.
    pub base_q16: i64,
    /// Features whose events are known.
    pub features: Vec<FixedFeature>,
}

/// A feature in whole numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedFeature {
    /// Numerator.
    pub above: Event,
    /// Denominator.
    pub below: Event,
    /// (Least value, addition).
    pub steps: Vec<(u64, i64)>,
}

impl StepModel {
    /// In whole numbers; features of unknown events are left out.
    #[must_use]
    pub fn fixed(&self) -> FixedModel {
        let feature = |f: &StepFeature| {
            let steps = f
                .steps
                .iter()
                .map(|(least, add)| (fixed(*least, FEATURE_BITS) as u64, fixed(*add, FACTOR_BITS)));
            Some(FixedFeature {
                above: Event::by_name(&f.above)?,
                below: Event::by_name(&f.below)?,
                steps: steps.collect(),
            })
        };
        FixedModel {
            base_q16: fixed(self.base, FACTOR_BITS),
            features: self.features.iter().filter_map(feature).collect(),
        }
    }
}

fn fixed(value: f64, bits: u32) -> i64 {
    (value * f64::from(1u32 << bits)).round() as i64
}
