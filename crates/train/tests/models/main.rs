//! Tests of training on synthetic programs, whose truth is known.
#![allow(clippy::unwrap_used)]

mod data;
mod export;
mod fit;
mod judge;
mod moves;
mod records;
mod unseen;

use std::collections::BTreeMap;
use std::path::Path;

use countersteer_model::events::Event;
use countersteer_model::machine::Machine;
use countersteer_model::topology::Topology;
use countersteer_train::rows::{CountedInterval, TrainingRow};
use rand::{RngExt, SeedableRng};

/// Golden Cove (8 counters) and Gracemont.
pub fn topology() -> Topology {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/i9-12900k-8p8e.toml");
    let text = std::fs::read_to_string(path).unwrap();
    Topology::new(&Machine::parse("i9-12900k-8p8e.toml", &text).unwrap())
}

/// Instructions of a synthetic interval.
pub const INSTRUCTIONS: f64 = 1e8;

/// Interval with these counts on both core types, this speed-up factor, and nJ per instruction on each.
pub fn interval(
    family: &str,
    events: &[(Event, f64)],
    factor: f64,
    energy: [f64; 2],
) -> TrainingRow {
    let counted = |slower: f64, energy: f64| {
        let mut counts = BTreeMap::from([
            (Event::Instructions, INSTRUCTIONS),
            (Event::EnergyNj, energy * INSTRUCTIONS),
        ]);
        for (event, per_instruction) in events {
            counts.insert(*event, (per_instruction * INSTRUCTIONS).round());
        }
        CountedInterval {
            counts,
            run_ns: 2e7 * slower,
        }
    };
    TrainingRow {
        program: family.into(),
        families: vec![family.into()],
        counts: vec![counted(1.0, energy[0]), counted(factor, energy[1])],
    }
}

/// Normal deviate.
pub fn normal(rng: &mut rand_pcg::Pcg64) -> f64 {
    let (a, b): (f64, f64) = (rng.random_range(1e-12..1.0), rng.random_range(0.0..1.0));
    (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
}

/// Ratios of a synthetic interval, per instruction.
#[derive(Clone, Copy)]
pub struct Ratios {
    pub cycles: f64,
    pub misses: f64,
    pub branch_misses: f64,
    /// Ratio that is unrelated to the factor.
    pub loads: f64,
}

/// Synthetic families of ten intervals each; `truth` computes the factor from the ratios and a normal deviate.
pub fn made_up(
    families: usize,
    seed: u64,
    truth: impl Fn(&Ratios, &mut rand_pcg::Pcg64) -> f64,
) -> Vec<TrainingRow> {
    let mut rng = rand_pcg::Pcg64::seed_from_u64(seed);
    let mut samples = Vec::new();
    for family in 0..families {
        for _ in 0..10 {
            let mut log = |from: f64, to: f64| rng.random_range(from.ln()..to.ln()).exp();
            let ratios = Ratios {
                cycles: log(0.2, 3.0),
                misses: log(1e-5, 1e-2),
                branch_misses: log(1e-5, 1e-2),
                loads: log(0.1, 0.4),
            };
            let events = [
                (Event::Cycles, ratios.cycles),
                (Event::LlcMisses, ratios.misses),
                (Event::BranchMisses, ratios.branch_misses),
                (Event::Loads, ratios.loads),
            ];
            let factor = truth(&ratios, &mut rng);
            let name = format!("f{family:02}");
            samples.push(interval(&name, &events, factor, [1.0, 0.5]));
        }
    }
    samples
}

/// Factor that is a sum of logarithms.
pub fn additive(ratios: &Ratios) -> f64 {
    2.2 - 0.25 * ratios.cycles.ln() + 0.08 * ratios.misses.ln()
}
