//! Mispredictions of a behaviour, and the error of their estimate.
//!
//! Input: records. Output: mispredictions, estimated from the windows of a sampled recording. The mispredictions of a simple predictor
//! are known for the whole run. The estimate is the regression on them (Cochran, Sampling Techniques, 1977, section 7.3), with
//! the slope of the windows.

use super::layout::record;

/// Windows from which a slope can be computed.
const ENOUGH: f64 = 8.0;

/// Estimated number with its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ErrorEstimate {
    pub value: f64,
    pub error: f64,
}

/// Returns the mispredictions in `own`. If it has too few windows, the relation of both predictors is that of `whole`.
pub fn mispredictions(own: &[u64], whole: &[u64]) -> ErrorEstimate {
    let counted = own[record::MISPREDICTED] as f64;
    let rest = own[record::INSTRUCTIONS].saturating_sub(own[record::PREDICTED]) as f64;
    let windows = own[record::WINDOWS] as f64;
    let known = if windows >= ENOUGH { own } else { whole };
    let sums = |at: usize| known[record::WINDOW_SUMS + at] as f64;
    let count = known[record::WINDOWS] as f64;
    if rest <= 0.0 || count < 1.0 {
        // The rest is shorter than a window.
        let instructions = own[record::INSTRUCTIONS] as f64;
        let predicted = own[record::PREDICTED].max(1) as f64;
        return ErrorEstimate {
            value: counted * instructions / predicted,
            error: 0.0,
        };
    }
    let length = known[record::WINDOWED] as f64 / count;
    let [wrong, simple] = [0, 1].map(|at| sums(at) / count);
    let [wrong_2, simple_2, both] = [
        (2, wrong * wrong),
        (3, simple * simple),
        (4, wrong * simple),
    ]
    .map(|(at, product)| sums(at) / count - product);
    let ratio = wrong / simple.max(1e-9);
    let slope = if count >= ENOUGH && simple_2 > 0.0 {
        (both / simple_2).max(0.0)
    } else {
        ratio
    };
    // Mispredictions of the simple predictor in the length of a window.
    let mean = own[record::SIMPLE] as f64 * length / rest;
    let per_window = if windows >= ENOUGH {
        wrong + slope * (mean - simple)
    } else {
        ratio * mean
    };
    // The rate after the warm-up may fall on as it fell since then.
    let before = [0, 1].map(|at| known[record::BEFORE + at] as f64);
    let fall = (before[0] / before[1].max(1.0) - ratio).max(0.0) / 2.0;
    let trend = fall * own[record::SIMPLE] as f64;
    let left = (wrong_2 - 2.0 * slope * both + slope * slope * simple_2).max(0.0);
    ErrorEstimate {
        value: counted + per_window.max(0.0) * rest / length,
        error: ((left / (count - 2.0).max(1.0)).sqrt() * rest / length).hypot(trend),
    }
}
