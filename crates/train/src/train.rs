//! Training: choice of ratios, contribution of each, width of the interval, and the file with the results.

use countersteer_model::events::Event;
use countersteer_model::models::{COVERAGE, Constant};
use countersteer_model::models::{StepFeature, StepModel};

use crate::data::{Data, LEAST_RATIO};
use crate::fit::{FittedSum, Fitter};

/// Penalty on coefficients, relative to the weight of all samples.
const RIDGE: f64 = 0.05;
/// Penalty on the coefficients of the width, which is learnt from fewer and noisier values.
const WIDTH_RIDGE: f64 = 0.1;
/// Number of groups of families for errors; each group is left out of the choice of features too.
const FOLDS: usize = 5;
/// Limit on the features, cycles per instruction included.
const MOST_FEATURES: usize = 8;
/// Part of the error that another feature must remove.
const WORTH: f64 = 0.015;
/// Number of steps of a feature.
const STEPS: usize = 40;
/// Lower bound of the width, as a part of its mean.
const LEAST_WIDTH: f64 = 0.3;
/// Addition to the width if a ratio is outside the range of the samples, and the distance outside (in logarithms) from which it
/// applies.
const OUTSIDE: f64 = 2.0;
const MARGIN: f64 = 0.25;

/// Trained model.
#[derive(Clone, Debug)]
pub struct Trained {
    pub factor: FittedSum,
    pub width: FittedSum,
    /// Factor on [`Self::width`], and its lower bound before that.
    pub widening: f64,
    pub least: f64,
    pub constant: Constant,
}

impl Trained {
    /// Relative half-width of the interval of a row.
    #[must_use]
    pub fn half_width(&self, data: &Data, row: usize) -> f64 {
        self.widening * self.width.of(data, &data.rows[row]).max(self.least)
    }
}

/// Trains on all rows but those of families left out; `None` if too few rows are left.
#[must_use]
pub fn train(data: &Data, left_out: &[usize], most_events: usize) -> Option<Trained> {
    let families: Vec<usize> = (0..data.families.len())
        .filter(|f| !left_out.contains(f))
        .collect();
    let fitter = relative(data, left_out);
    let features = select(&fitter, &families, most_events);
    let factor = fitter.fit(&features, None, RIDGE)?;
    let errors = unseen_errors(data, left_out, &families, most_events);
    let known: Vec<usize> = (0..errors.len())
        .filter(|row| errors[*row].is_finite())
        .collect();
    let (width, widening, least) = widths(data, &families, &features, &errors, &known)?;
    Some(Trained {
        factor,
        width,
        widening,
        least,
        constant: constant(data, &known)?,
    })
}

/// Fitter for least squares of relative errors.
fn relative<'d>(data: &'d Data, left_out: &[usize]) -> Fitter<'d> {
    let truth = data.rows.iter().map(|r| r.truth).collect();
    let weights: Vec<f64> = data
        .rows
        .iter()
        .map(|r| r.weight / (r.truth * r.truth))
        .collect();
    Fitter::new(data, left_out, truth, &weights)
}

/// Relative errors of models without a row's family, which is also left out of the choice of features; NaN for rows that are
/// left out or crossed. Errors of a model whose features were chosen with the family are too small.
fn unseen_errors(
    data: &Data,
    left_out: &[usize],
    families: &[usize],
    most_events: usize,
) -> Vec<f64> {
    let mut errors = vec![f64::NAN; data.rows.len()];
    for fold in 0..FOLDS {
        let unseen: Vec<usize> = families.iter().copied().skip(fold).step_by(FOLDS).collect();
        let seen: Vec<usize> = families
            .iter()
            .copied()
            .filter(|f| !unseen.contains(f))
            .collect();
        let without: Vec<usize> = left_out.iter().chain(&unseen).copied().collect();
        let fitter = relative(data, &without);
        let features = select(&fitter, &seen, most_events);
        let Some(sum) = fitter.fit(&features, None, RIDGE) else {
            continue;
        };
        for (row, error) in data.rows.iter().zip(&mut errors) {
            if row.real && unseen.contains(&row.families[0]) {
                *error = (row.truth / sum.of(data, row) - 1.0).abs();
            }
        }
    }
    errors
}

/// Chooses features: cycles per instruction, and then one at a time the ratio that most reduces the cross-validated error.
fn select(fitter: &Fitter<'_>, families: &[usize], most_events: usize) -> Vec<usize> {
    let data = fitter.data;
    let mut chosen = vec![0];
    let mut loss = fitter.loss(&fitter.cross_validated(&chosen, families, RIDGE));
    while chosen.len() < MOST_FEATURES {
        let fits = |candidate: &usize| {
            let mut events: Vec<Event> = chosen
                .iter()
                .chain([candidate])
                .map(|f| data.features[*f].above)
                .filter(|e| ![Event::Cycles, Event::Instructions].contains(e))
                .collect();
            events.sort_unstable();
            events.dedup();
            !chosen.contains(candidate) && events.len() <= most_events
        };
        let with = |candidate: usize| {
            let features: Vec<usize> = chosen.iter().copied().chain([candidate]).collect();
            let predicted = fitter.cross_validated(&features, families, RIDGE);
            (fitter.loss(&predicted), candidate)
        };
        let candidates = (0..data.features.len()).filter(fits).map(with);
        let Some((less, best)) = candidates.min_by(|a, b| a.0.total_cmp(&b.0)) else {
            break;
        };
        if less.partial_cmp(&(loss * (1.0 - WORTH))) != Some(std::cmp::Ordering::Less) {
            break;
        }
        chosen.push(best);
        loss = less;
    }
    chosen
}

/// Widths of intervals, in proportion to the expected error of a row. They contain 9 of 10 factors of families left out
/// (conformal prediction, normalised: Lei et al. 2018, section 5.2).
fn widths(
    data: &Data,
    families: &[usize],
    features: &[usize],
    errors: &[f64],
    known: &[usize],
) -> Option<(FittedSum, f64, f64)> {
    let mut weights = vec![0.0; data.rows.len()];
    known
        .iter()
        .for_each(|row| weights[*row] = data.rows[*row].weight);
    let finite = errors.iter().map(|e| if e.is_finite() { *e } else { 0.0 });
    let fitter = Fitter::new(data, &[], finite.collect(), &weights);
    let width = fitter.fit(features, None, WIDTH_RIDGE)?;
    let expected = fitter.cross_validated(features, families, WIDTH_RIDGE);
    let total: f64 = known.iter().map(|row| weights[*row]).sum();
    let mean = known.iter().map(|r| weights[*r] * errors[*r]).sum::<f64>() / total;
    let least = LEAST_WIDTH * mean;
    let ratios = known
        .iter()
        .map(|r| (errors[*r] / expected[*r].max(least), weights[*r]));
    Some((width, quantile(ratios.collect())?, least))
}

/// Best constant factor for all rows, and the interval around it.
fn constant(data: &Data, known: &[usize]) -> Option<Constant> {
    let rows = known.iter().map(|row| &data.rows[*row]);
    let (above, below) = rows.clone().fold((0.0, 0.0), |(a, b), r| {
        (a + r.weight / r.truth, b + r.weight / (r.truth * r.truth))
    });
    let factor = above / below;
    let errors = rows.map(|r| ((r.truth / factor - 1.0).abs(), r.weight));
    Some(Constant {
        factor,
        width: quantile(errors.collect())?,
    })
}

/// Least value that reaches [`COVERAGE`] of the weight.
fn quantile(mut values: Vec<(f64, f64)>) -> Option<f64> {
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let total: f64 = values.iter().map(|v| v.1).sum();
    let mut reached = 0.0;
    for (value, weight) in &values {
        reached += weight;
        if reached >= COVERAGE * total {
            return Some(*value);
        }
    }
    values.last().map(|v| v.0)
}

impl Trained {
    /// Factor as step tables.
    #[must_use]
    pub fn factor_steps(&self, data: &Data) -> StepModel {
        steps(data, &self.factor, 1.0, 0.0)
    }

    /// Half-width as step tables: far wider if a ratio is outside the range of the samples.
    #[must_use]
    pub fn width_steps(&self, data: &Data) -> StepModel {
        steps(data, &self.width, self.widening, OUTSIDE)
    }

    /// Least half-width.
    #[must_use]
    pub fn least_width(&self) -> f64 {
        self.widening * self.least
    }
}

fn steps(data: &Data, sum: &FittedSum, times: f64, outside: f64) -> StepModel {
    let feature = |nth: usize| {
        let feature = &data.features[sum.features[nth]];
        let (low, high) = feature.range;
        let part = (high - low) / STEPS as f64;
        let mut steps = Vec::with_capacity(STEPS + 2);
        let guarded = low - MARGIN > LEAST_RATIO.ln();
        if outside > 0.0 && guarded {
            steps.push((0.0, outside));
        }
        for step in 0..STEPS {
            let begin = low + part * step as f64;
            let least = match (step, steps.is_empty()) {
                (0, true) => 0.0,
                (0, false) => (begin - MARGIN).exp(),
                _ => begin.exp(),
            };
            steps.push((least, times * sum.adds(data, nth, begin + part / 2.0)));
        }
        if outside > 0.0 {
            steps.push(((high + MARGIN).exp(), outside));
        }
        let steps = steps.into_iter().map(rounded).collect();
        StepFeature::new(feature.above, feature.below, steps)
    };
    StepModel {
        base: round(times * sum.intercept, 1e6),
        features: (0..sum.features.len()).map(feature).collect(),
    }
}

/// Rounds to the resolution of the tables' fixed-point numbers.
fn rounded((least, add): (f64, f64)) -> (f64, f64) {
    (round(least, 1e7), round(add, 1e6))
}

fn round(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}
