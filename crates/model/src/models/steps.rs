//! Format of step tables in model and machine files; [`crate::metric::steps`] evaluates them.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::bounds::{self, check_all};
use crate::counters::Formula;
use crate::events::Event;
use crate::textfile::checked;

/// Limit on the number of features of a model.
pub const MAX_FEATURES: usize = 8;
/// Limit on the number of steps of a feature.
pub const MAX_STEPS: usize = 64;
/// Number of fraction bits of a feature's value (Q20 fixed point).
pub const FEATURE_BITS: u32 = 20;
/// Number of fraction bits of a speed-up factor (Q16 fixed point).
pub const FACTOR_BITS: u32 = 16;

/// Model of the speed-up factor for threads that run on one core type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepModel {
    /// Speed-up factor to which the contributions of the features are added.
    #[serde(deserialize_with = "factor")]
    pub base: f64,
    /// Features of the model, at most 8. The ratio of the first one distinguishes phases.
    #[serde(deserialize_with = "features")]
    pub features: Vec<StepFeature>,
}

/// Contribution of a ratio of two counters to the factor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepFeature {
    /// Formula of one event over another: `cycles / instructions`, `1000 * llc_misses / instructions`. The denominator of the
    /// first feature measures a thread's activity.
    #[serde(deserialize_with = "ratio")]
    pub ratio: String,
    /// Pairs of (least value, contribution from there to the next), ascending; nothing is added below the first. At most 64.
    #[serde(deserialize_with = "steps")]
    pub steps: Vec<(f64, f64)>,
}

/// Ratio of the counts of two events.
struct EventRatio {
    factor: f64,
    above: Event,
    below: Event,
}

impl EventRatio {
    fn parse(text: &str) -> Result<Self, String> {
        let formula = Formula::parse(text).map_err(|e| e.message)?;
        let (factor, above, below) = formula.as_ratio().filter(|r| r.0 > 0.0).ok_or_else(|| {
            format!("`{text}` is no ratio of two events; write it as in `1000 * llc_misses / instructions`")
        })?;
        let event = |nth: usize| {
            let name = &formula.variables[nth].name;
            Event::by_name(name).ok_or_else(|| format!("there is no event `{name}`"))
        };
        Ok(Self {
            factor,
            above: event(above)?,
            below: event(below)?,
        })
    }
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

fn ratio<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    checked(from, |text: &String| EventRatio::parse(text).err())
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

/// Step model in fixed point, for evaluation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FixedModel {
    /// Base of the sum of contributions, in Q16 fixed point.
    pub base_q16: i64,
    /// Features whose events are in the event table.
    pub features: Vec<FixedFeature>,
}

/// Feature of a step model in fixed point: a ratio of two events and its steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedFeature {
    /// Numerator of the feature's ratio.
    pub above: Event,
    /// Denominator of the feature's ratio.
    pub below: Event,
    /// Pairs (smallest value of the step in Q20, contribution in Q16), in ascending order.
    pub steps: Vec<(u64, i64)>,
}

impl StepFeature {
    /// Creates a feature from the ratio `above / below` and its steps.
    #[must_use]
    pub fn new(above: Event, below: Event, steps: Vec<(f64, f64)>) -> Self {
        Self {
            ratio: format!("{above} / {below}"),
            steps,
        }
    }

    fn fixed(&self) -> Option<FixedFeature> {
        let ratio = EventRatio::parse(&self.ratio).ok()?;
        let step = |(least, add): &(f64, f64)| {
            let least = fixed(least / ratio.factor, FEATURE_BITS) as u64;
            (least, fixed(*add, FACTOR_BITS))
        };
        Some(FixedFeature {
            above: ratio.above,
            below: ratio.below,
            steps: self.steps.iter().map(step).collect(),
        })
    }
}

impl StepModel {
    /// Converts the model to fixed point. Features with unknown events are left out.
    #[must_use]
    pub fn fixed(&self) -> FixedModel {
        FixedModel {
            base_q16: fixed(self.base, FACTOR_BITS),
            features: self
                .features
                .iter()
                .filter_map(StepFeature::fixed)
                .collect(),
        }
    }
}

fn fixed(value: f64, bits: u32) -> i64 {
    (value * f64::from(1u32 << bits)).round() as i64
}
