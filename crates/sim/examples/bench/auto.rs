//! `auto` beside the shelf and `linux`, on shipped machines of up to 32 CPUs with random mixes of recorded programs.
//!
//! `bench -- auto [MIXES]` draws another number of mixes a machine. The best policy of the shelf under one seed is scored with
//! another, like `auto`, so that luck does not count as gain. `linux` with the choosing seed beside `linux` with the scoring seed
//! shows the differences that are luck.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;

use countersteer_model::profile::Profile;
use countersteer_model::topology::Topology;
use countersteer_policies::reach;
use countersteer_sim::engine::Plan;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;

use super::runner::{self, Setup, machine, profiles, program};

/// Number of mixes per machine without an argument.
const MIXES: u64 = 4;
/// Added to the number of a mix; the seed of its draw.
const DRAW: u64 = 57_000;
/// Factors on the length of recorded programs on cores of `CLOCK_GHZ`. On slower ones programs are shorter in proportion, so that
/// runs last about as long.
const SCALES: [f64; 3] = [20.0, 40.0, 80.0];
const CLOCK_GHZ: f64 = 5.0;
/// Seed that chooses the best of the shelf, and seed of all scores.
const CHOOSES: u64 = 1;
const SCORES: u64 = 2;
/// Number of CPUs of the largest machine; more take minutes a mix.
const CPUS: usize = 32;
/// Difference, as a part of STP under `linux`, that counts.
const FELT: f64 = 0.01;

/// Gains over `linux` in a mix.
struct Row {
    auto: f64,
    joint: f64,
    best: f64,
    /// `linux` with the other seed.
    again: f64,
}

/// Prints the section.
pub fn run() -> Result<(), Box<dyn Error>> {
    let mixes = runner::number().unwrap_or(MIXES);
    println!(
        "\n### `auto` beside the shelf: STP over that of `linux`, {mixes} random mixes a machine\n\n\
         Mixes have half to one and a half times as many programs as the machine has CPUs. The best of the shelf is chosen with \
         one seed and scored with another. Regret is what it gains more than `auto`, in points.\n\n\
         | machine | `auto` | `joint` | best | within 1 % of the best | more than 1 % below `linux` | `linux` with another seed: the same | \
         regret, mean | worst |\n\
         |---|---|---|---|---|---|---|---|---|"
    );
    let mut names: Vec<String> = std::fs::read_dir(runner::root().join("machines"))?
        .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    let recorded = profiles("recorded")?;
    let mut all = Vec::new();
    for name in names {
        let topology = machine(&name)?;
        if topology.cpus.len() > CPUS {
            continue;
        }
        let of_mix = |mix: u64| {
            let plan = plan(&topology, &recorded, DRAW + mix);
            gains(&topology, &plan).map_err(|e| format!("{name}, mix {mix}: {e}"))
        };
        let rows: Vec<Row> = (1..=mixes)
            .into_par_iter()
            .map(of_mix)
            .collect::<Result<_, _>>()?;
        print(&name, &rows);
        all.extend(rows);
    }
    print("all", &all);
    Ok(())
}

/// Random mix of recorded programs.
pub fn plan(topology: &Topology, recorded: &[Arc<Profile>], seed: u64) -> Plan {
    let mut rng = rand_pcg::Pcg64::seed_from_u64(seed);
    let cpus = topology.cpus.len();
    let clocks = topology.core_types.iter().map(|t| t.freq_ghz);
    let clock = clocks.fold(0.0, f64::max) / CLOCK_GHZ;
    let mut plan = Plan::default();
    for i in 0..rng.random_range(cpus.div_ceil(2)..=cpus + cpus / 2) {
        let profile = &recorded[rng.random_range(0..recorded.len())];
        let mut p = program(&format!("p{i}-{}", profile.name()), profile);
        p.scale = clock * SCALES[rng.random_range(0..SCALES.len())];
        plan.programs.push(p);
    }
    plan
}

/// Runs `auto` and the shelf.
fn gains(topology: &Arc<Topology>, plan: &Plan) -> Result<Row, Box<dyn Error>> {
    let stp = |policy: &str, seed: u64| -> Result<f64, Box<dyn Error>> {
        let setup = Setup {
            seed,
            rounds: 1,
            ..Setup::default()
        };
        Ok(runner::run(topology, plan, policy, setup)?.1.stp)
    };
    let mut best = (0.0, String::new());
    for policy in reach::shelf(topology).policies {
        if reach::simulator_only(&policy) {
            continue;
        }
        let value = stp(&policy, CHOOSES)?;
        if value > best.0 {
            best = (value, policy);
        }
    }
    let linux = stp("linux", SCORES)?;
    let again = stp("linux", CHOOSES)? / linux - 1.0;
    let mut known = BTreeMap::from([("linux".to_owned(), linux)]);
    let mut gain = |policy: &str| -> Result<f64, Box<dyn Error>> {
        if !known.contains_key(policy) {
            known.insert(policy.to_owned(), stp(policy, SCORES)?);
        }
        Ok(known[policy] / linux - 1.0)
    };
    Ok(Row {
        auto: gain("auto")?,
        joint: gain("joint")?,
        best: gain(&best.1)?,
        again,
    })
}

/// Prints the row of a machine.
fn print(name: &str, rows: &[Row]) {
    let number = rows.len().max(1) as f64;
    let mean = |of: fn(&Row) -> f64| rows.iter().map(of).sum::<f64>() / number * 100.0;
    let share = |of: fn(&Row) -> bool| rows.iter().filter(|r| of(r)).count() as f64 / number;
    let worst = rows.iter().map(|r| r.best - r.auto).fold(0.0, f64::max);
    println!(
        "| {name} | {:+.1} % | {:+.1} % | {:+.1} % | {:.0} % | {:.0} % | {:.0} % | {:.1} | {:.1} |",
        mean(|r| r.auto),
        mean(|r| r.joint),
        mean(|r| r.best),
        share(|r| r.auto >= r.best - FELT) * 100.0,
        share(|r| r.auto < -FELT) * 100.0,
        share(|r| r.again < -FELT) * 100.0,
        mean(|r| r.best - r.auto),
        worst * 100.0
    );
}
