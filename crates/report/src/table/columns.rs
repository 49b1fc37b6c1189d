//! Scores as Arrow tables, for programs that compute with them.
//!
//! Input: [`CompareRun`]s. Output: a batch with one row per run, and one with one row per program of each run. Times are in
//! seconds, energy in joules; names are those of the JSON.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray, UInt64Array};
use arrow_schema::ArrowError;

use super::{CompareProgram, CompareRun};

/// Name of a column, and the function that returns its value.
type ScoreColumn<T> = (&'static str, fn(&T) -> f64);

/// Returns a batch with one row per run.
///
/// # Errors
/// Fails never in practice, because all columns have as many rows as there are runs.
pub fn score_columns(runs: &[CompareRun]) -> Result<RecordBatch, ArrowError> {
    let mut columns = names(runs);
    let scores: [ScoreColumn<CompareRun>; 11] = [
        ("asp", |r| r.asp),
        ("stp", |r| r.stp),
        ("antt", |r| r.antt),
        ("unfairness", |r| r.unfairness),
        ("weighted_unfairness", |r| r.weighted_unfairness),
        ("jain", |r| r.jain),
        ("ipc", |r| r.ipc),
        ("energy_j", |r| r.energy_j),
        ("energy_per_instruction_nj", |r| r.energy_per_instruction_nj),
        ("energy_per_run_j", |r| r.energy_per_run_j),
        ("edp_js", |r| r.edp_js),
    ];
    columns.extend(scores.map(|(name, score)| (name, floats(runs.iter().map(score)))));
    columns.push(("migrations", counts(runs.iter().map(|r| r.migrations))));
    RecordBatch::try_from_iter(columns)
}

/// Returns a batch with one row per program of each run.
///
/// # Errors
/// Fails never in practice, like [`score_columns`].
pub fn program_columns(runs: &[CompareRun]) -> Result<RecordBatch, ArrowError> {
    let of_run = |run: &CompareRun| vec![run.clone(); run.programs.len()];
    let repeated: Vec<CompareRun> = runs.iter().flat_map(of_run).collect();
    let programs: Vec<&CompareProgram> = runs.iter().flat_map(|r| &r.programs).collect();
    let mut columns = names(&repeated);
    columns.push(("program", words(programs.iter().map(|p| p.name.as_str()))));
    let figures: [ScoreColumn<CompareProgram>; 4] = [
        ("completion_s", |p| p.completion_s),
        ("alone_fast_s", |p| p.alone_fast_s),
        ("alone_slow_s", |p| p.alone_slow_s),
        ("slowdown", |p| p.slowdown),
    ];
    let column = |of: fn(&CompareProgram) -> f64| floats(programs.iter().map(|p| of(p)));
    columns.extend(figures.map(|(name, of)| (name, column(of))));
    RecordBatch::try_from_iter(columns)
}

fn names(runs: &[CompareRun]) -> Vec<(&'static str, ArrayRef)> {
    vec![
        ("machine", words(runs.iter().map(|r| r.machine.as_str()))),
        ("workload", words(runs.iter().map(|r| r.workload.as_str()))),
        ("policy", words(runs.iter().map(|r| r.policy.as_str()))),
        ("seed", counts(runs.iter().map(|r| r.seed))),
    ]
}

fn words<'a>(values: impl Iterator<Item = &'a str>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

fn counts(values: impl Iterator<Item = u64>) -> ArrayRef {
    Arc::new(UInt64Array::from_iter_values(values))
}

fn floats(values: impl Iterator<Item = f64>) -> ArrayRef {
    Arc::new(Float64Array::from_iter_values(values))
}
