//! Random mixes of the SPEC CPU2017 table on the i9-12900K without contention: gains of high-SF-first over round-robin.

use std::error::Error;

use countersteer_sim::engine::Plan;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;

use super::runner::{self, Setup, machine, profiles, program, quantile};

const MIXES: usize = 2_000;
const PROGRAMS: usize = 16;
/// Factor on SPEC's run lengths: without costs, the gain does not depend on it.
const SCALE: f64 = 0.1;

/// Prints the section.
pub fn run() -> Result<(), Box<dyn Error>> {
    let topology = machine("i9-12900k-8p8e")?;
    let spec = profiles("spec2017")?;
    let gain = |mix: usize| -> Result<f64, String> {
        let mut rng = rand_pcg::Pcg64::seed_from_u64(mix as u64);
        let mut plan = Plan::default();
        for i in 0..PROGRAMS {
            let mut p = program(&format!("p{i}"), &spec[rng.random_range(0..spec.len())]);
            p.scale = SCALE;
            plan.programs.push(p);
        }
        let setup = Setup {
            ideal: true,
            seed: mix as u64,
            ..Setup::default()
        };
        let asp = |policy| {
            runner::run(&topology, &plan, policy, setup)
                .map(|r| r.1.asp)
                .map_err(|e| e.to_string())
        };
        Ok(asp("hsf:sf=oracle")? / asp("aarr")? - 1.0)
    };
    let mut gains: Vec<f64> = (0..MIXES)
        .into_par_iter()
        .map(gain)
        .collect::<Result<_, _>>()?;
    gains.sort_by(f64::total_cmp);
    println!(
        "\n### High-SF-first over round-robin, {MIXES} random mixes of SPEC CPU2017 on 8P+8E, no contention\n"
    );
    println!("| 5 % | median | 95 % |\n|---|---|---|");
    let shown = [0.05, 0.5, 0.95].map(|share| format!("+{:.1} %", quantile(&gains, share) * 100.0));
    println!("| {} |", shown.join(" | "));
    Ok(())
}
