//! Programs that sleep half of the time: policies beside `linux`, on machines with several core types.
//!
//! `bench -- sleepers [MIXES]` draws another number of mixes a machine.

use std::error::Error;
use std::sync::Arc;

use countersteer_model::profile::Profile;
use countersteer_model::topology::Topology;
use countersteer_model::units::Nanos;
use countersteer_sim::engine::Plan;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;

use super::auto::plan;
use super::runner::{self, Setup, machine, profiles};

/// Number of mixes per machine without an argument.
const MIXES: u64 = 12;
/// Added to the number of a mix; the seed of its draw.
const DRAW: u64 = 71_000;
const MACHINES: [&str; 6] = [
    "apple-m1",
    "i9-12900k",
    "i9-12900k-8p8e",
    "juno-2-4",
    "opteron-2425-2b-10s",
    "phone-1-3-4",
];
const POLICIES: [&str; 3] = ["auto", "joint", "hsf"];
/// Lengths of pauses, in ms.
const PAUSES_MS: [u64; 3] = [2, 8, 30];
/// Instructions per cycle with which a burst is as long as the pause after it.
const IPC: f64 = 1.5;

/// Prints the section.
pub fn run() -> Result<(), Box<dyn Error>> {
    let mixes = runner::number().unwrap_or(MIXES);
    println!(
        "\n### Programs that sleep half of the time: STP over that of `linux`, {mixes} random mixes a machine\n\n\
         At most as many programs as CPUs, in every second mix at most half as many. Figures are the mean and the worst.\n\n\
         | machine | `auto` | `joint` | `hsf` |\n|---|---|---|---|"
    );
    let recorded = profiles("recorded")?;
    for name in MACHINES {
        let topology = machine(name)?;
        let of_mix = |mix: u64| {
            let plan = sleeping(&topology, &recorded, mix);
            gains(&topology, &plan).map_err(|e| format!("{name}, mix {mix}: {e}"))
        };
        let rows: Vec<[f64; POLICIES.len()]> = (1..=mixes)
            .into_par_iter()
            .map(of_mix)
            .collect::<Result<_, _>>()?;
        let cell = |policy: usize| {
            let gains = || rows.iter().map(|row| row[policy] * 100.0);
            let mean = gains().sum::<f64>() / rows.len().max(1) as f64;
            format!(
                "{mean:+.1}, {:+.1} %",
                gains().fold(f64::INFINITY, f64::min)
            )
        };
        println!("| {name} | {} | {} | {} |", cell(0), cell(1), cell(2));
    }
    Ok(())
}

/// Random programs of bursts and pauses of about the same length.
fn sleeping(topology: &Topology, recorded: &[Arc<Profile>], mix: u64) -> Plan {
    let mut rng = rand_pcg::Pcg64::seed_from_u64(DRAW + mix);
    let mut plan = plan(topology, recorded, DRAW + mix);
    let cpus = topology.cpus.len();
    plan.programs.truncate(if mix.is_multiple_of(2) {
        cpus / 2
    } else {
        cpus
    });
    for program in &mut plan.programs {
        let ms = PAUSES_MS[rng.random_range(0..PAUSES_MS.len())];
        let cycles = ms as f64 * 1e-3 * topology.core_types[0].freq_ghz * 1e9;
        program.bursts = Some((cycles * IPC, Nanos::from_millis(ms)));
        program.scale /= 2.0;
    }
    plan
}

fn gains(topology: &Arc<Topology>, plan: &Plan) -> Result<[f64; POLICIES.len()], Box<dyn Error>> {
    let setup = Setup {
        seed: 2,
        rounds: 1,
        ..Setup::default()
    };
    let stp = |policy: &str| runner::run(topology, plan, policy, setup).map(|run| run.1.stp);
    let linux = stp("linux")?;
    let mut gains = [0.0; POLICIES.len()];
    for (gain, policy) in gains.iter_mut().zip(POLICIES) {
        *gain = stp(policy)? / linux - 1.0;
    }
    Ok(gains)
}
