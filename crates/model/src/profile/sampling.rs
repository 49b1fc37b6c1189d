//! Errors of a sampled recording.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Half of a 90 % interval, in standard errors.
const NINETY: f64 = 1.645;

/// Figure of the whole run that was computed from a sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SampledFigure {
    /// `branch_mpki`; `mpki_N`, misses per kilo-instruction of N lines; or `ilp_N`, instructions per cycle in a window of N.
    pub figure: String,
    /// Value for the whole run.
    pub value: f64,
    /// Standard error of the value. That of `branch_mpki` includes half of the difference between the rates in the warm-up of the
    /// predictor and after it.
    pub error: f64,
}

impl SampledFigure {
    /// Returns half of the length of the interval that holds 90 % of samples.
    #[must_use]
    pub fn half_interval(&self) -> f64 {
        NINETY * self.error
    }

    pub(super) fn check(&self) -> Result<(), String> {
        for (key, value) in [("value", self.value), ("error", self.error)] {
            if !(value.is_finite() && value >= 0.0) {
                return Err(format!(
                    "`sampling`: `{key}` of {} is {value}, but must be 0 or more",
                    self.figure
                ));
            }
        }
        Ok(())
    }
}
