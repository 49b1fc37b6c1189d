//! Fits of all published programs, and comparison of the predictions with held-out measurements.

use serde::Serialize;

use super::figures::{UnfittedProfile, by_size, median};
use super::fit::{Bench, MeasuredCpi};
use super::tables::SuiteProgram;
use super::{PBBCACHE, SILICON, SKYLAKE, TableContents};
use countersteer_model::profile::published::{ASSUMED, Figure};

/// Prediction errors of one program's cycles, in percent of the measured cycles.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    pub program: String,
    /// Mean error at every second cache size, after a fit to the other sizes. `None` if only one size was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_out_sizes: Option<f64>,
    /// Mean error over the sizes of the other table, which used another build on another processor of this type.
    /// `None` if the program is not in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_table: Option<f64>,
    /// Mean difference between the two tables at equal or nearest sizes. `None` if the program is in only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub between_tables: Option<f64>,
}

/// Prediction errors of all programs, and their means.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Checks {
    pub programs: Vec<Check>,
    /// Mean over programs of the error at held-out sizes.
    pub held_out_sizes: f64,
    /// Mean over programs of the error over the other table.
    pub other_table: f64,
    /// Mean over programs of the difference between the tables.
    pub between_tables: f64,
}

/// Fits the values that follow from cycles in all profiles, and returns the prediction errors.
///
/// # Errors
/// Fails if the model cannot run a profile.
pub(super) fn check(
    bench: &Bench,
    made: &mut [(SuiteProgram, UnfittedProfile)],
    read: &TableContents,
) -> anyhow::Result<Checks> {
    let mut checks = Vec::new();
    let mut overlaps = Vec::new();
    for (_, start) in made.iter_mut() {
        let measured = start.measured.clone();
        let found = fitted(bench, start, &measured)?;
        if start.miss.is_some() && found {
            overlaps.push(start.published.figures.overlap.value);
        }
    }
    let (typical, spread) = median(overlaps);
    for (_, start) in made.iter_mut().filter(|(_, s)| s.miss.is_none()) {
        start.published.figures.overlap = Figure::new(typical, spread, ASSUMED);
        let measured = start.measured.clone();
        fitted(bench, start, &measured)?;
    }
    for (program, start) in made.iter() {
        checks.push(one(bench, program, start, read)?);
    }
    let mean = |of: fn(&Check) -> Option<f64>| {
        let values: Vec<f64> = checks.iter().filter_map(of).collect();
        values.iter().sum::<f64>() / values.len().max(1) as f64
    };
    let all = Checks {
        held_out_sizes: mean(|c| c.held_out_sizes),
        other_table: mean(|c| c.other_table),
        between_tables: mean(|c| c.between_tables),
        programs: checks,
    };
    for ((_, start), check) in made.iter_mut().zip(&all.programs) {
        let error = check.other_table.unwrap_or(all.other_table) / 100.0;
        let from = match start.published.curve.last() {
            Some(point) if point.from == PBBCACHE => PBBCACHE,
            _ if start.measured.iter().any(|m| m.ghz.is_some()) => SILICON,
            _ => SKYLAKE,
        };
        let figures = &mut start.published.figures;
        figures.ilp = Figure::new(figures.ilp.value, error * figures.ilp.value, from);
    }
    Ok(all)
}

/// Fits a profile to some of its measurements. Returns false if misses cost less than with the largest overlap that is searched,
/// which is then assumed.
fn fitted(
    bench: &Bench,
    start: &mut UnfittedProfile,
    measured: &[MeasuredCpi],
) -> anyhow::Result<bool> {
    let found = bench.fit(&mut start.published, measured, start.miss)?;
    let figures = &mut start.published.figures;
    if let Some(miss) = start.miss.filter(|_| found) {
        let value = figures.overlap.value;
        let error = value * (miss.error / miss.cycles.max(1e-9)).min(1.0);
        let from = start.published.curve.last().map_or("", |p| &p.from);
        figures.overlap = Figure::new(value, error, from);
    }
    if !found {
        let most = figures.overlap.value;
        figures.overlap = Figure::new(most, most / 2.0, ASSUMED);
    }
    Ok(found)
}

fn one(
    bench: &Bench,
    program: &SuiteProgram,
    start: &UnfittedProfile,
    read: &TableContents,
) -> anyhow::Result<Check> {
    let every = |first: usize| -> Vec<MeasuredCpi> {
        start
            .measured
            .iter()
            .skip(first)
            .step_by(2)
            .copied()
            .collect()
    };
    let held_out_sizes = match every(1) {
        none if none.is_empty() => None,
        others => Some(away(bench, &halved(bench, start, every(0))?, &others)?),
    };
    let by_ways = start.published.curve.iter().any(|p| p.from == PBBCACHE);
    let other = read
        .sizes
        .rows
        .get(program)
        .filter(|_| by_ways)
        .map(by_size);
    let other_table = other.as_deref().map(|other| away(bench, start, other));
    Ok(Check {
        program: program.to_string(),
        held_out_sizes,
        other_table: other_table.transpose()?,
        between_tables: other.map(|other| apart(&start.measured, &other)),
    })
}

/// Fits a profile to a part of its measurements.
fn halved(
    bench: &Bench,
    start: &UnfittedProfile,
    measured: Vec<MeasuredCpi>,
) -> anyhow::Result<UnfittedProfile> {
    let mut half = UnfittedProfile {
        published: start.published.clone(),
        measured,
        miss: start.miss,
    };
    let kept = half.measured.clone();
    fitted(bench, &mut half, &kept)?;
    Ok(half)
}

/// Returns the mean error of the predicted cycles, in percent of the measured cycles.
fn away(bench: &Bench, start: &UnfittedProfile, measured: &[MeasuredCpi]) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for m in measured {
        let cpi = bench.cpi(&start.published, m)?;
        sum += 100.0 * (cpi / m.cpi - 1.0).abs();
    }
    Ok(sum / measured.len().max(1) as f64)
}

/// Returns the mean difference of two tables in percent; each size of the second is compared with the nearest
/// size of the first.
fn apart(first: &[MeasuredCpi], second: &[MeasuredCpi]) -> f64 {
    let nearest = |m: &MeasuredCpi| {
        let away = |o: &&MeasuredCpi| (o.cache_kib - m.cache_kib).abs();
        first.iter().min_by(|a, b| away(a).total_cmp(&away(b)))
    };
    let distances = second.iter().filter_map(|m| {
        let other = nearest(m)?;
        Some(100.0 * (other.cpi / m.cpi - 1.0).abs())
    });
    distances.sum::<f64>() / second.len().max(1) as f64
}
