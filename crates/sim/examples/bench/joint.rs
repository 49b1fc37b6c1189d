//! Random mixes of recorded programs on machines with unequal cores, shared caches, or both. The results are the gains of
//! policies in throughput over `linux`, next to the gain of the best fixed mapping.

use std::error::Error;

use rayon::prelude::*;

use super::runner::{self, Setup, machine, profiles, quantile};

/// Machines, number of programs of their mixes, and number of mixes.
const MACHINES: [(&str, usize, u64); 5] = [
    ("i9-12900k-8p8e", 16, 60),
    ("ryzen-7950x3d", 16, 60),
    ("core2-quad", 8, 60),
    ("juno-2-4", 6, 60),
    ("server-12llc", 96, 20),
];

/// Factor on the length of recorded runs, which last a second; policies with periods of 800 ms are meant for minutes.
const SCALE: f64 = 40.0;

const POLICIES: [&str; 3] = ["hsf", "joint", "best-static"];

/// Prints the section.
pub fn run() -> Result<(), Box<dyn Error>> {
    println!(
        "\n### Random mixes of recorded programs: STP over that of `linux`\n\n\
         `best-static` is the best fixed mapping by the simulator's own forecast.\n\n\
         | machine | programs | mixes | policy | worst | median | mean | best | above linux |\n\
         |---|---|---|---|---|---|---|---|---|"
    );
    MACHINES
        .iter()
        .try_for_each(|(name, programs, mixes)| one(name, *programs, *mixes))
}

fn one(name: &str, programs: usize, mixes: u64) -> Result<(), Box<dyn Error>> {
    let topology = machine(name)?;
    let recorded = profiles("recorded")?;
    let stp = |policy: &str, mix: u64| {
        let plan = runner::mix(&recorded, programs, mix, SCALE);
        let setup = Setup {
            seed: mix,
            ..Setup::default()
        };
        let run = runner::run(&topology, &plan, policy, setup);
        run.map(|r| r.1.stp).map_err(|e| e.to_string())
    };
    let all = |policy: &'static str| -> Result<Vec<f64>, String> {
        (1..=mixes)
            .into_par_iter()
            .map(|mix| stp(policy, mix))
            .collect()
    };
    let linux = all("linux")?;
    let gains = |policy| -> Result<Vec<f64>, String> {
        Ok(all(policy)?
            .iter()
            .zip(&linux)
            .map(|(stp, linux)| stp / linux - 1.0)
            .collect())
    };
    for policy in POLICIES {
        let mut values = gains(policy)?;
        values.sort_by(f64::total_cmp);
        let above = values.iter().filter(|v| **v > 0.0).count() as f64 / values.len() as f64;
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let shown = [
            values[0],
            quantile(&values, 0.5),
            mean,
            values[values.len() - 1],
        ];
        let shown = shown
            .map(|gain| format!("{:+.1} %", gain * 100.0))
            .join(" | ");
        println!(
            "| {name} | {programs} | {mixes} | `{policy}` | {shown} | {:.0} % |",
            above * 100.0
        );
    }
    Ok(())
}
