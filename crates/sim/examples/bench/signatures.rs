//! Random mixes of recorded programs on the machines of HASS, without and with shared caches. The results are the gains by
//! signatures, and their distance from the best fixed mapping.

use std::error::Error;

use countersteer_sim::engine::Plan;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;

use super::runner::{self, Setup, machine, profiles, program, quantile};

/// Machines, number of programs of their mixes, and the kind of last-level cache.
const MACHINES: [(&str, usize, &str); 4] = [
    ("opteron-8356-2-2", 4, "private"),
    ("xeon-x5365-2-2", 4, "private"),
    ("opteron-8356-12-4", 16, "shared"),
    ("opteron-8356-4-4-2-2", 12, "shared"),
];
const MIXES: u64 = 20;
/// Number of instructions of each run of a program.
const INSTRUCTIONS: f64 = 20e9;

const BEST: &str = "best-static:objective=asp";
const POLICIES: [&str; 6] = [
    "default",
    "hass",
    "hass:signatures=phase",
    "hass:shared-cache=on",
    "hass:shared-cache=on,signatures=phase",
    BEST,
];

/// Prints the section.
pub fn run() -> Result<(), Box<dyn Error>> {
    println!(
        "\n### {MIXES} random mixes of recorded programs on the machines of HASS: sum of speed-ups over the slowest cores, against \
         `best-static`\n\n\
         `best-static` is the best fixed mapping by the simulator's own forecast.\n\n\
         | machine | last-level caches | programs | policy | worst | median | mean | best |\n\
         |---|---|---|---|---|---|---|---|"
    );
    MACHINES
        .iter()
        .try_for_each(|(name, programs, caches)| one(name, *programs, caches))
}

fn one(name: &str, programs: usize, caches: &str) -> Result<(), Box<dyn Error>> {
    let topology = machine(name)?;
    let recorded = profiles("recorded")?;
    let speed_ups = |policy: &str, mix: u64| {
        let mut rng = rand_pcg::Pcg64::seed_from_u64(mix);
        let mut plan = Plan::default();
        for i in 0..programs {
            let profile = &recorded[rng.random_range(0..recorded.len())];
            let mut p = program(&format!("p{i}-{}", profile.name()), profile);
            p.scale = INSTRUCTIONS / profile.instructions() as f64;
            plan.programs.push(p);
        }
        let setup = Setup {
            seed: mix,
            ..Setup::default()
        };
        let run = runner::run(&topology, &plan, policy, setup);
        run.map(|r| r.1.asp + programs as f64)
            .map_err(|e| e.to_string())
    };
    let all = |policy: &'static str| -> Result<Vec<f64>, String> {
        (1..=MIXES)
            .into_par_iter()
            .map(|mix| speed_ups(policy, mix))
            .collect()
    };
    let best = all(BEST)?;
    for policy in POLICIES.into_iter().filter(|p| *p != BEST) {
        let mut gaps: Vec<f64> = all(policy)?
            .iter()
            .zip(&best)
            .map(|(own, best)| own / best - 1.0)
            .collect();
        gaps.sort_by(f64::total_cmp);
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let shown = [gaps[0], quantile(&gaps, 0.5), mean, gaps[gaps.len() - 1]];
        let shown = shown
            .map(|gap| format!("{:+.1} %", gap * 100.0))
            .join(" | ");
        println!("| {name} | {caches} | {programs} | `{policy}` | {shown} |");
    }
    Ok(())
}
