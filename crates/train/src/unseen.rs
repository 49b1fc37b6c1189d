//! Accuracy of models on a machine that was left out, and on families of programs that were left out with it.
//!
//! A machine without models of its own gets the models of another machine that compares the same two core types. If there is none,
//! it gets the untrained model, which knows the machine's file and no program. Both are judged as a policy would read them. The
//! yardstick is the constant of the machine itself without the families, which knows more than either.

use countersteer_model::machine::is_for;
use countersteer_model::metric::{Round, untrained_sf};
use countersteer_model::models::{FixedPointModel, Judged, Target, abstains};
use countersteer_model::topology::Topology;
use rayon::prelude::*;

use crate::data::{Data, most_events};
use crate::export;
use crate::judge::{by_file, correlation, counted, folds, mape};
use crate::rows::{ALWAYS, EVENTS, TrainingRow};
use crate::train::{Trained, train};

/// Core type of a machine, with the samples of programs on the machine.
#[derive(Clone, Copy)]
pub struct MachineSide<'a> {
    pub topology: &'a Topology,
    pub core_type: usize,
    pub samples: &'a [TrainingRow],
}

/// Factors that were predicted for rows of a table.
struct PredictedFactors {
    row: usize,
    factor: f64,
    constant: f64,
    /// True if the truth is in the interval, and true if the model abstains; false for a model without intervals.
    within: bool,
    abstains: bool,
}

/// Judges the models of machine `other` on the core type of the same name of the machine `own`, which is left out. `None` if the
/// machines do not compare the same core types at the same ratio of frequencies, or have too few samples.
#[must_use]
pub fn carried(
    own: MachineSide<'_>,
    other: &Topology,
    there: &[TrainingRow],
    target: Target,
) -> Option<Judged> {
    let of = &own.topology.core_types[own.core_type];
    let core_type = other.core_types.iter().position(|t| t.name == of.name)?;
    let data = Data::new(own.samples, own.core_type, of, target);
    let learnt = Data::new(there, core_type, &other.core_types[core_type], target);
    let model = |left_out: &[usize]| {
        let trained = train(&learnt, left_out, most_events(&other.core_types[core_type]))?;
        let judged = Judged::default();
        let file = export::file(other, core_type, &learnt, &trained, String::new(), judged);
        is_for(&file, &own.topology.core_types).then(|| FixedPointModel::new(&file))
    };
    // A machine that does not fit is trained once here, not for each fold.
    model(&[])?;
    let said = by_folds(&own, &data, |fold, constant| {
        let names = fold.iter().map(|family| &data.families[*family]);
        let rows = names.filter_map(|name| learnt.families.binary_search(name).ok());
        let model = model(&rows.collect::<Vec<_>>())?;
        let predict = |row: usize| {
            let of = &data.rows[row];
            let predicted = by_file(&model, &own.samples[of.sample], own.core_type)?;
            Some(PredictedFactors {
                row,
                factor: predicted.factor,
                constant: constant.constant.factor,
                within: (of.truth / predicted.factor - 1.0).abs() <= predicted.width,
                abstains: abstains(predicted.doubt),
            })
        };
        rows_of(&data, fold).map(predict).collect()
    })?;
    Some(judged(&data, &said))
}

/// Judges the untrained model of the speed-up factor on a core type. `None` if there are too few samples.
#[must_use]
pub fn untrained(own: MachineSide<'_>) -> Option<Judged> {
    let of = &own.topology.core_types[own.core_type];
    let data = Data::new(own.samples, own.core_type, of, Target::Sf);
    let said = by_folds(&own, &data, |fold, constant| {
        let mut model = untrained_sf(own.topology);
        let mut predict = |row: usize| {
            let of_core = &own.topology.core_types[own.core_type];
            let events = ALWAYS.into_iter().chain(EVENTS);
            let events = events.filter(|event| of_core.counts(*event));
            let samples = counted(&own.samples[data.rows[row].sample], own.core_type, events);
            Some(PredictedFactors {
                row,
                factor: model.read(&Round::of(&samples)?)?,
                constant: constant.constant.factor,
                within: false,
                abstains: false,
            })
        };
        rows_of(&data, fold).map(&mut predict).collect()
    })?;
    Some(judged(&data, &said))
}

/// Predictions of every fold of families; `predict` gets the fold and what the machine's own other families teach.
fn by_folds(
    own: &MachineSide<'_>,
    data: &Data,
    predict: impl Fn(&[usize], &Trained) -> Option<Vec<PredictedFactors>> + Sync,
) -> Option<Vec<PredictedFactors>> {
    let most = most_events(&own.topology.core_types[own.core_type]);
    let of_fold = |fold: &Vec<usize>| predict(fold, &train(data, fold, most)?);
    let said: Option<Vec<Vec<PredictedFactors>>> = folds(data).par_iter().map(of_fold).collect();
    said.map(|folds| folds.into_iter().flatten().collect())
}

fn rows_of<'d>(data: &'d Data, fold: &'d [usize]) -> impl Iterator<Item = usize> + 'd {
    let rows = data.rows.iter().enumerate();
    rows.filter(|(_, row)| row.real && fold.contains(&row.families[0]))
        .map(|(row, _)| row)
}

fn judged(data: &Data, said: &[PredictedFactors]) -> Judged {
    let (least, most) = data.target.bounds();
    let triples = |of: fn(&PredictedFactors) -> f64| -> Vec<(f64, f64, f64)> {
        let triple = |s: &PredictedFactors| {
            let row = &data.rows[s.row];
            (of(s).clamp(least, most), row.truth, row.weight)
        };
        said.iter().map(triple).collect()
    };
    let total: f64 = said.iter().map(|s| data.rows[s.row].weight).sum();
    let share = |of: fn(&PredictedFactors) -> bool| {
        let held = said.iter().filter(|s| of(s));
        held.map(|s| data.rows[s.row].weight)
            .fold(0.0, |sum, weight| sum + weight)
            / total
    };
    let factors = triples(|s| s.factor);
    Judged {
        r: correlation(&factors),
        mape: mape(&factors),
        constant_mape: mape(&triples(|s| s.constant)),
        coverage: share(|s| s.within),
        abstains: share(|s| s.abstains),
    }
}
