//! Forecasts of mappings compared with their simulations: mixes of recorded programs on random CPUs.
//!
//! Gains are relative to the mean of the mix's mappings, since a forecast serves to choose the best mapping.
//! `bench -- forecast [MIXES]` draws another number of mixes.

use std::error::Error;
use std::sync::Arc;

use countersteer_model::engine::Engine;
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, ThreadId};
use countersteer_sim::engine::{Plan, Simulation};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rayon::prelude::*;

use super::runner::{self, Setup, machine, profiles, quantile, rank_correlation};

/// Machines and numbers of programs: with several programs per CPU, and with a CPU for each.
const MACHINES: [(&str, usize); 4] = [
    ("core2-quad", 8),
    ("core2-quad", 4),
    ("juno-2-4", 6),
    ("i9-12900k-8p8e", 16),
];
const MIXES: u64 = 20;
const MAPPINGS: usize = 10;
const SCALE: f64 = 10.0;
/// Number of seeds of the simulations, which decide at random which threads run together.
const SEEDS: u64 = 2;

/// STP of a mapping: forecast, and mean of the simulations.
type Pair = (f64, f64);

/// Prints the section.
pub fn run() -> Result<(), Box<dyn Error>> {
    let mixes = runner::number().unwrap_or(MIXES);
    println!(
        "\n### Forecasts against simulations: STP of {MAPPINGS} mappings of each of {mixes} mixes\n\n\
         Spread is the root mean square of gains over the mean of the mix's mappings, error that of forecast less simulated gains; best \
         is the mixes in which the mapping forecast best is within 1 % of the best simulated.\n\n\
         | machine | programs | spread forecast | simulated | error | rank of gains | rank in a mix, median | bias | best |\n\
         |---|---|---|---|---|---|---|---|---|"
    );
    MACHINES
        .iter()
        .try_for_each(|(name, programs)| one(name, *programs, mixes))
}

fn one(name: &str, programs: usize, mixes: u64) -> Result<(), Box<dyn Error>> {
    let topology = machine(name)?;
    let recorded = profiles("recorded")?;
    let of_mix = |mix: u64| -> Result<Vec<Pair>, String> {
        let plan = runner::mix(&recorded, programs, mix, SCALE);
        let mut rng = rand_pcg::Pcg64::seed_from_u64(mix);
        let mappings: Vec<_> = (0..MAPPINGS)
            .map(|_| balanced(&topology, programs, &mut rng))
            .collect();
        let pair = |m: &Vec<CpuId>| both(&topology, &plan, m).map_err(|e| e.to_string());
        mappings.iter().map(pair).collect()
    };
    let pairs: Vec<Vec<Pair>> = (1..=mixes)
        .into_par_iter()
        .map(of_mix)
        .collect::<Result<_, _>>()?;
    let gains: Vec<Vec<Pair>> = pairs.iter().map(|p| over_mean(p)).collect();
    let all = gains.concat();
    let rms = |of: fn(&Pair) -> f64| {
        let squares: f64 = all.iter().map(|p| of(p).powi(2)).sum();
        (squares / all.len() as f64).sqrt() * 100.0
    };
    let mut ranks: Vec<f64> = gains.iter().map(|g| rank_correlation(g)).collect();
    ranks.sort_by(f64::total_cmp);
    let bias = pairs.concat().iter().map(|p| p.0 / p.1 - 1.0).sum::<f64>() / all.len() as f64;
    let best = gains.iter().filter(|g| finds_best(g)).count();
    println!(
        "| {name} | {programs} | {:.2} % | {:.2} % | {:.2} % | {:.2} | {:.2} | {:+.1} % | {best} of {mixes} |",
        rms(|p| p.0),
        rms(|p| p.1),
        rms(|p| p.0 - p.1),
        rank_correlation(&all),
        quantile(&ranks, 0.5),
        bias * 100.0,
    );
    Ok(())
}

/// Random CPU for each program; the loads of CPUs differ by at most one.
fn balanced(topology: &Topology, programs: usize, rng: &mut impl Rng) -> Vec<CpuId> {
    let mut cpus: Vec<CpuId> = topology.cpus.iter().map(|c| c.id).collect();
    cpus.shuffle(rng);
    let mut mapping: Vec<CpuId> = cpus.into_iter().cycle().take(programs).collect();
    mapping.shuffle(rng);
    mapping
}

/// STP of a mapping, as forecast and as simulated.
fn both(topology: &Arc<Topology>, plan: &Plan, mapping: &[CpuId]) -> Result<Pair, Box<dyn Error>> {
    let config = runner::config(Setup::default());
    let mut simulation = Simulation::new(Arc::clone(topology), plan, config)?;
    let threads: Vec<ThreadId> = (0..mapping.len()).map(ThreadId::from_index).collect();
    let forecast = simulation.forecast().ok_or("the engine cannot predict")?;
    let forecast = forecast.steady_state(&threads, mapping);
    let forecast = forecast.iter().map(|t| t.ips / t.ips_alone_fast).sum();
    let names = plan.programs.iter().map(|p| &*p.name).zip(mapping);
    let places: Vec<String> = names
        .map(|(name, cpu)| format!("{name}=cpu{}", cpu.0))
        .collect();
    let spec = format!("static:{}", places.join(","));
    let mut simulated = 0.0;
    for seed in 1..=SEEDS {
        let setup = Setup {
            seed,
            rounds: 1,
            ..Setup::default()
        };
        simulated += runner::run(topology, plan, &spec, setup)?.1.stp / SEEDS as f64;
    }
    Ok((forecast, simulated))
}

fn over_mean(pairs: &[Pair]) -> Vec<Pair> {
    let n = pairs.len() as f64;
    let sum = pairs.iter().fold((0.0, 0.0), |s, p| (s.0 + p.0, s.1 + p.1));
    pairs
        .iter()
        .map(|p| (p.0 * n / sum.0 - 1.0, p.1 * n / sum.1 - 1.0))
        .collect()
}

fn finds_best(gains: &[Pair]) -> bool {
    let best = gains.iter().map(|g| g.1).fold(f64::MIN, f64::max);
    let chosen = gains.iter().max_by(|a, b| a.0.total_cmp(&b.0));
    chosen.is_some_and(|chosen| chosen.1 > best - 0.01)
}
