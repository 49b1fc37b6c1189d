//! Random mixes of recorded programs with recorded length, and 5, 20 and 100 times as long: throughput of policies over `linux`.
//!
//! Policies move threads to measure them, and this takes time to pay back. Mixes have between half and one and a half times as
//! many programs as the machine has CPUs. Some mixes therefore leave cores idle, and some make threads wait.

use std::error::Error;

use countersteer_sim::engine::Plan;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;

use super::runner::{self, Setup, machine, profiles, program, quantile};

const MACHINES: [&str; 6] = [
    "i9-12900k-8p8e",
    "ryzen-7950x3d",
    "core2-quad",
    "juno-2-4",
    "quickia-2b-2s",
    "phone-1-3-4",
];
/// Lengths of programs, relative to the recorded ones (.02 to 3 s).
const SCALES: [f64; 4] = [1.0, 5.0, 20.0, 100.0];
const POLICIES: [&str; 2] = ["hsf", "joint"];
/// Number of mixes per machine without an argument.
const MIXES: u64 = 20;
const SEEDS: u64 = 3;
/// Relative loss that counts as harm.
const HARM: f64 = 0.01;

/// Prints the section.
pub fn run() -> Result<(), Box<dyn Error>> {
    let mixes = runner::number().unwrap_or(MIXES);
    println!(
        "\n### Short programs: STP over that of `linux`, median of {SEEDS} seeds, {mixes} random mixes a machine\n\n\
         | machine | scale | policy | worst | median | best | below -{:.0} % |\n|---|---|---|---|---|---|---|",
        HARM * 100.0
    );
    for name in MACHINES {
        SCALES
            .iter()
            .try_for_each(|scale| one(name, *scale, mixes))?;
    }
    Ok(())
}

/// Prints the rows of a machine and a length.
fn one(name: &str, scale: f64, mixes: u64) -> Result<(), Box<dyn Error>> {
    let topology = machine(name)?;
    let recorded = profiles("recorded")?;
    let plan = |mix: u64| {
        let mut rng = rand_pcg::Pcg64::seed_from_u64(mix);
        let cpus = topology.cpus.len();
        let mut plan = Plan::default();
        for i in 0..rng.random_range(cpus.div_ceil(2)..=cpus + cpus / 2) {
            let profile = &recorded[rng.random_range(0..recorded.len())];
            let mut p = program(&format!("p{i}-{}", profile.name()), profile);
            p.scale = scale;
            plan.programs.push(p);
        }
        plan
    };
    let stp = |policy: &str, mix: u64, seed: u64| {
        let setup = Setup {
            seed,
            ..Setup::default()
        };
        let run = runner::run(&topology, &plan(mix), policy, setup);
        run.map(|r| r.1.stp).map_err(|e| e.to_string())
    };
    let gains = |mix: u64| -> Result<[f64; POLICIES.len()], String> {
        let mut gains = [const { Vec::new() }; POLICIES.len()];
        for seed in 1..=SEEDS {
            let linux = stp("linux", mix, seed)?;
            for (gains, policy) in gains.iter_mut().zip(POLICIES) {
                gains.push(stp(policy, mix, seed)? / linux - 1.0);
            }
        }
        Ok(gains.map(|mut gains| {
            gains.sort_by(f64::total_cmp);
            quantile(&gains, 0.5)
        }))
    };
    let all: Vec<[f64; POLICIES.len()]> = (1..=mixes)
        .into_par_iter()
        .map(gains)
        .collect::<Result<_, _>>()?;
    for (nth, policy) in POLICIES.iter().enumerate() {
        let mut gains: Vec<f64> = all.iter().map(|gains| gains[nth]).collect();
        gains.sort_by(f64::total_cmp);
        let harmed = gains.iter().filter(|gain| **gain < -HARM).count();
        let shown = [0.0, 0.5, 1.0].map(|at| format!("{:+.1} %", quantile(&gains, at) * 100.0));
        println!(
            "| {name} | {scale} | `{policy}` | {} | {harmed} |",
            shown.join(" | ")
        );
    }
    Ok(())
}
