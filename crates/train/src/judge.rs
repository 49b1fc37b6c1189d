//! Accuracy of models on families of programs that were left out, compared with yardsticks.
//!
//! Families are dealt into `FOLDS` groups. Each group in turn is left out of everything: the choice of ratios, the fit, the
//! widths. The yardsticks get the same groups. They are the constant, ridge regression over all ratios, and boosted trees over
//! all ratios. The trees show the accuracy of a model that need not be a sum.

use countersteer_model::events::Event;
use countersteer_model::metric::Round;
use countersteer_model::models::{FactorPrediction, FixedPointModel, Judged, abstains};
use countersteer_model::sample::{Sample, Samples};
use countersteer_model::topology::Topology;
use countersteer_model::units::{CoreTypeId, CpuId, Nanos, ThreadId};
use rayon::prelude::*;
use serde::Serialize;
use smartcore::linalg::basic::matrix::DenseMatrix;
use smartcore::linear::ridge_regression::{RidgeRegression, RidgeRegressionParameters};
use smartcore::xgboost::xgb_regressor::{XGRegressor, XGRegressorParameters};

use crate::data::{Data, TypeRow};
use crate::export;
use crate::rows::TrainingRow;
use crate::train::train;

/// Number of groups of families.
const FOLDS: usize = 8;

/// Row of the table of models.
#[derive(Clone, Debug, Serialize)]
pub struct ModelLine {
    pub name: &'static str,
    /// Correlation of predicted and true factors over all samples.
    pub r: f64,
    /// Mean relative error; each family has equal weight.
    pub error: f64,
}

/// Table of models on left-out families.
#[derive(Clone, Debug)]
pub struct LeftOutTable {
    pub lines: Vec<ModelLine>,
    pub judged: Judged,
    /// Share of true factors in the constant's interval.
    pub constant_coverage: f64,
    pub families: usize,
    pub samples: usize,
}

/// Predictions for a row that was left out.
struct LeftOutPrediction {
    row: usize,
    /// Prediction of each model in [`NAMES`].
    by: [f64; NAMES.len()],
    /// Relative half-width of the interval, and true if the model abstains.
    width: f64,
    abstains: bool,
    /// Half-width of the constant's interval.
    constant_width: f64,
}

/// Models of the table.
pub const NAMES: [&str; 5] = [
    "constant",
    "ridge regression",
    "boosted trees",
    "additive",
    "additive, as step tables",
];

/// Cross-validates over all families. Yardsticks that have to be fitted may be left out, since trees take long.
#[must_use]
pub fn judge(
    topology: &Topology,
    core_type: usize,
    samples: &[TrainingRow],
    data: &Data,
    most_events: usize,
    with_yardsticks: bool,
) -> Option<LeftOutTable> {
    let folds = folds(data);
    let predicted: Vec<LeftOutPrediction> = folds
        .par_iter()
        .filter_map(|fold| {
            predict(
                topology,
                core_type,
                samples,
                data,
                fold,
                most_events,
                with_yardsticks,
            )
        })
        .flatten()
        .collect();
    let line = |(nth, name): (usize, &&'static str)| {
        let pairs: Vec<(f64, f64, f64)> = predicted
            .iter()
            .map(|p| (p.by[nth], data.rows[p.row].truth, data.rows[p.row].weight))
            .collect();
        ModelLine {
            name,
            r: correlation(&pairs),
            error: mape(&pairs),
        }
    };
    let lines: Vec<ModelLine> = NAMES.iter().enumerate().map(line).collect();
    let total: f64 = predicted.iter().map(|p| data.rows[p.row].weight).sum();
    let share = |of: &dyn Fn(&LeftOutPrediction) -> bool| {
        let held = predicted.iter().filter(|p| of(p));
        held.map(|p| data.rows[p.row].weight).sum::<f64>() / total
    };
    let steps = lines.last()?;
    let within = |p: &LeftOutPrediction, by: usize, width: f64| {
        (data.rows[p.row].truth / p.by[by] - 1.0).abs() <= width
    };
    let judged = Judged {
        r: steps.r,
        mape: steps.error,
        constant_mape: lines[0].error,
        coverage: share(&|p| within(p, NAMES.len() - 1, p.width)),
        abstains: share(&|p| p.abstains),
    };
    Some(LeftOutTable {
        lines,
        judged,
        constant_coverage: share(&|p| within(p, 0, p.constant_width)),
        families: folds.iter().map(Vec::len).sum(),
        samples: predicted.len(),
    })
}

/// Groups of families of programs that are left out in turn.
pub(crate) fn folds(data: &Data) -> Vec<Vec<usize>> {
    let real: Vec<usize> = (0..data.families.len())
        .filter(|f| data.rows.iter().any(|r| r.real && r.families[0] == *f))
        .collect();
    (0..FOLDS)
        .map(|fold| real.iter().copied().skip(fold).step_by(FOLDS).collect())
        .filter(|fold: &Vec<usize>| !fold.is_empty())
        .collect()
}

fn predict(
    topology: &Topology,
    core_type: usize,
    samples: &[TrainingRow],
    data: &Data,
    fold: &[usize],
    most_events: usize,
    with_yardsticks: bool,
) -> Option<Vec<LeftOutPrediction>> {
    let trained = train(data, fold, most_events)?;
    let file = export::file(
        topology,
        core_type,
        data,
        &trained,
        String::new(),
        Judged::default(),
    );
    let model = FixedPointModel::new(&file);
    let seen = |row: &&TypeRow| row.families.iter().all(|f| !fold.contains(f));
    let fitted = if with_yardsticks {
        Some(yardsticks(data.rows.iter().filter(seen))?)
    } else {
        None
    };
    let left_out = (0..data.rows.len())
        .filter(|r| data.rows[*r].real && fold.contains(&data.rows[*r].families[0]));
    let (least, most) = data.target.bounds();
    left_out
        .map(|row| {
            let of = &data.rows[row];
            let x = DenseMatrix::from_2d_vec(&vec![of.logarithms.clone()]).ok()?;
            let predicted = by_file(&model, &samples[of.sample], core_type)?;
            let yardsticks = match &fitted {
                Some((ridge, trees)) => [ridge.predict(&x).ok()?[0], trees.predict(&x).ok()?[0]],
                None => [f64::NAN; 2],
            };
            let by = [
                trained.constant.factor,
                yardsticks[0].exp(),
                yardsticks[1].exp(),
                trained.factor.of(data, of),
                predicted.factor,
            ];
            Some(LeftOutPrediction {
                row,
                by: by.map(|factor| factor.clamp(least, most)),
                width: predicted.width,
                abstains: abstains(predicted.doubt),
                constant_width: trained.constant.width,
            })
        })
        .collect()
}

type Ridge = RidgeRegression<f64, f64, DenseMatrix<f64>, Vec<f64>>;
type TreeChoice = XGRegressor<f64, f64, DenseMatrix<f64>, Vec<f64>>;

/// Models of the factor's logarithm over the logarithms of all ratios.
fn yardsticks<'a>(rows: impl Iterator<Item = &'a TypeRow>) -> Option<(Ridge, TreeChoice)> {
    let (x, y): (Vec<Vec<f64>>, Vec<f64>) = rows
        .map(|row| (row.logarithms.clone(), row.truth.ln()))
        .unzip();
    let mean = y.iter().sum::<f64>() / y.len() as f64;
    let x = DenseMatrix::from_2d_vec(&x).ok()?;
    let ridge = RidgeRegressionParameters::default().with_alpha(1.0);
    let trees = XGRegressorParameters::default()
        .with_n_estimators(150)
        .with_learning_rate(0.1)
        .with_max_depth(4)
        .with_subsample(0.7)
        .with_base_score(mean)
        .with_seed(1);
    Some((
        Ridge::fit(&x, &y, ridge).ok()?,
        TreeChoice::fit(&x, &y, trees).ok()?,
    ))
}

/// Prediction of a file's tables for a sample, as policies would get it.
pub(crate) fn by_file(
    model: &FixedPointModel,
    sample: &TrainingRow,
    core_type: usize,
) -> Option<FactorPrediction> {
    let counted = counted(sample, core_type, model.events().into_iter());
    model.predict(&Round::of(&counted)?)
}

/// Sample as an engine would report it, with those of the events that were counted.
pub(crate) fn counted(
    sample: &TrainingRow,
    core_type: usize,
    events: impl Iterator<Item = Event>,
) -> Samples {
    let of = &sample.counts[core_type];
    let counted = |event| Some((event, of.get(event)?));
    let counts: Vec<_> = events.filter_map(counted).collect();
    let ran = Nanos(of.run_ns as u64);
    let core_type = CoreTypeId::from_index(core_type);
    let head = Sample::of_thread(ThreadId(0), CpuId(0), core_type, ran, ran);
    Samples::of(head, 1, &counts)
}

pub(crate) fn correlation(pairs: &[(f64, f64, f64)]) -> f64 {
    let n = pairs.len() as f64;
    let mean = |of: fn(&(f64, f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / n;
    let (a, b) = (mean(|p| p.0), mean(|p| p.1));
    let sum =
        |of: &dyn Fn(f64, f64) -> f64| pairs.iter().map(|p| of(p.0 - a, p.1 - b)).sum::<f64>();
    let spread = sum(&|x, _| x * x) * sum(&|_, y| y * y);
    if spread > 0.0 {
        sum(&|x, y| x * y) / spread.sqrt()
    } else {
        0.0
    }
}

pub(crate) fn mape(pairs: &[(f64, f64, f64)]) -> f64 {
    let total: f64 = pairs.iter().map(|p| p.2).sum();
    pairs
        .iter()
        .map(|p| p.2 * (p.0 / p.1 - 1.0).abs())
        .sum::<f64>()
        / total
}
