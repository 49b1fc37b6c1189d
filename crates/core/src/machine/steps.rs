//! Step tables as a machine file carries them; the metric `sf_steps` evaluates them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds::{self, check_all};
use crate::events::Event;

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
    pub base: f64,
    /// At most 8. What the first one is a ratio of tells phases apart.
    pub features: Vec<StepFeature>,
}

/// What a ratio of two counters adds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepFeature {
    /// Event of the numerator.
    pub above: String,
    /// Event of the denominator; that of the first feature tells how much a thread did.
    pub below: String,
    /// Pairs of (least value, what is added from there to the next), ascending; below the first nothing is added. At most 64.
    pub steps: Vec<(f64, f64)>,
}

impl StepModel {
    /// What is wrong with it, if anything.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        if self.features.is_empty() || self.features.len() > MAX_FEATURES {
            return Some(format!(
                "a model has 1 to {MAX_FEATURES} features, not {}",
                self.features.len()
            ));
        }
        for feature in &self.features {
            if let Some(name) = [&feature.above, &feature.below]
                .into_iter()
                .find(|n| Event::by_name(n).is_none())
            {
                return Some(format!("there is no event `{name}`"));
            }
            if feature.steps.len() > MAX_STEPS {
                return Some(format!(
                    "a feature has at most {MAX_STEPS} steps, not {}",
                    feature.steps.len()
                ));
            }
            for (least, add) in &feature.steps {
                let figures = [
                    ("steps", bounds::RATIO, *least),
                    ("steps", bounds::FACTOR, *add),
                ];
                if let Err((_, why)) = check_all(figures) {
                    return Some(why);
                }
            }
            if !feature.steps.is_sorted_by(|a, b| a.0 < b.0) {
                return Some("least values of steps ascend".into());
            }
        }
        bounds::FACTOR.check("base", self.base).err()
    }
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
