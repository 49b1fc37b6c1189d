//! Memory's latency under load against published measurements.
//!
//! `loaded_latency.csv` has utilisations of the highest measured bandwidth and latencies relative to the lowest one. They are computed
//! from published output of Intel's Memory Latency Checker (`--loaded_latency`, reads only) at up to 96 % of the bandwidth:
//! documentation of KU Leuven's Tier-2 clusters (Vlaams Supercomputer Centrum), calibration data of FD.io's CSIT, and three
//! public notes.

use std::collections::BTreeMap;

use countersteer_model::corun::LoadedMemory;
use countersteer_model::machine::DEFAULT_QUEUEING;

/// Utilisation above which the model is known to be too steep.
const STEEP: f64 = 0.9;

/// Utilisations and factors by machine.
fn curves() -> BTreeMap<&'static str, Vec<(f64, f64)>> {
    let point = |line: &'static str| {
        let (machine, point) = line.rsplit_once("\",")?;
        let (utilisation, factor) = point.split_once(',')?;
        let point = (utilisation.parse().ok()?, factor.parse().ok()?);
        Some((machine.trim_matches('"'), point))
    };
    let mut curves: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let lines = include_str!("loaded_latency.csv").lines().skip(1);
    for (machine, (utilisation, factor)) in lines.filter_map(point) {
        curves
            .entry(machine)
            .or_default()
            .push((utilisation, factor));
    }
    curves
}

/// Relative errors of the model on the points up to [`STEEP`].
fn errors(queueing: f64, points: &[(f64, f64)]) -> impl Iterator<Item = f64> {
    let memory = LoadedMemory {
        bandwidth: 1.0,
        queueing,
        full: 0.9999,
    };
    let known = points
        .iter()
        .filter(|(utilisation, _)| *utilisation <= STEEP);
    known.map(move |(utilisation, factor)| memory.factor(*utilisation) / factor - 1.0)
}

fn root_mean_square(errors: impl Iterator<Item = f64>) -> f64 {
    let squares: Vec<f64> = errors.map(|error| error * error).collect();
    (squares.iter().sum::<f64>() / squares.len() as f64).sqrt()
}

#[test]
fn the_default_is_the_best_fit_to_eleven_published_curves() {
    let curves = curves();
    let all: Vec<(f64, f64)> = curves.values().flatten().copied().collect();
    assert_eq!((curves.len(), all.len()), (11, 152));
    let error = |queueing: f64| root_mean_square(errors(queueing, &all));
    let candidates = (1..100).map(|percent| f64::from(percent) / 100.0);
    let best = candidates.min_by(|a, b| error(*a).total_cmp(&error(*b)));
    assert_eq!(best, Some(DEFAULT_QUEUEING));
    assert!(
        error(DEFAULT_QUEUEING) < 0.082,
        "{}",
        error(DEFAULT_QUEUEING)
    );
}

#[test]
fn errors_of_the_default_are_those_of_the_manual() {
    let manual = include_str!("../../../docs/machines.md");
    for (machine, points) in curves() {
        let error = 100.0 * root_mean_square(errors(DEFAULT_QUEUEING, &points));
        let row = manual
            .lines()
            .find(|line| line.starts_with(&format!("| {machine} |")));
        let row = row.unwrap_or_else(|| panic!("{machine} is not in the manual"));
        let (least, most) = errors(DEFAULT_QUEUEING, &points)
            .fold((f64::MAX, f64::MIN), |(least, most), e| {
                (least.min(e), most.max(e))
            });
        let cells = format!(
            "| {error:.1} % | {:+.0} to {:+.0} % |",
            100.0 * least,
            100.0 * most
        );
        assert!(row.ends_with(&cells), "{row} should end with {cells}");
    }
}
