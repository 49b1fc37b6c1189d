//! The CMPSched$im mix on the Core 2 Quad: two poison, two vulnerable, two mildly vulnerable, two neutral programs. And
//! mixes drawn at random, so that nobody tunes a policy to that one.

use std::error::Error;
use std::sync::Arc;

use countersteer_core::cpuset::CpuSet;
use countersteer_core::profile::Profile;
use countersteer_core::units::CpuId;
use countersteer_sim::engine::Plan;

use rand::{RngExt, SeedableRng};

use super::runner::{self, Setup, machine, profiles, program, quantile};

/// Programs by what their miss curves say, and the worst launch: both vulnerable ones beside both poison ones (section 4,
/// figure 7a), as in `workloads/shared-caches.toml`.
const MIX: [(&str, u32); 8] = [
    ("chase", 0),
    ("matmul", 0),
    ("stream", 1),
    ("sieve", 1),
    ("bzip2", 2),
    ("xz", 2),
    ("gzip", 3),
    ("perl", 3),
];

/// Recorded runs last a second; scheduling policies that look every 800 ms are meant for minutes.
const SCALE: f64 = 40.0;

/// Machines and how many programs random mixes have on them: CPUs shared in time, and not.
const RANDOM: [(&str, usize); 2] = [("core2-quad", 8), ("ryzen-7950x3d", 16)];
const MIXES: u64 = 30;

const BEST: &str = "best-static:objective=ipc";

/// Prints the sections.
pub fn run() -> Result<(), Box<dyn Error>> {
    the_mix()?;
    println!(
        "\n### {MIXES} random mixes of recorded programs: mean IPC over that of `linux`\n\n\
         | machine | programs | policy | worst | median | mean | best |\n|---|---|---|---|---|---|---|"
    );
    RANDOM
        .iter()
        .try_for_each(|(machine, programs)| random(machine, *programs))
}

fn the_mix() -> Result<(), Box<dyn Error>> {
    let topology = machine("core2-quad")?;
    let recorded = profiles("recorded")?;
    let named = |name: &str| -> Result<&Arc<Profile>, String> {
        recorded
            .iter()
            .find(|p| p.name() == name)
            .ok_or_else(|| format!("there is no recorded profile `{name}`"))
    };
    let mut plan = Plan::default();
    for (name, cpu) in MIX {
        let mut p = program(name, named(name)?);
        p.scale = SCALE;
        p.launch_on = Some(Arc::new([CpuId(cpu)].into_iter().collect::<CpuSet>()));
        plan.programs.push(p);
    }
    let ipc = |policy: &str, seed: u64| -> Result<f64, Box<dyn Error>> {
        Ok(runner::run(
            &topology,
            &plan,
            policy,
            Setup {
                seed,
                ..Setup::default()
            },
        )?
        .1
        .ipc)
    };
    println!(
        "\n### The CMPSched$im mix on the Core 2 Quad: mean IPC\n\n| policy | worst | median | best |\n|---|---|---|---|"
    );
    for policy in [
        "linux",
        "mpi",
        "capacity",
        "capacity+mpi",
        "contention",
        BEST,
    ] {
        let mut values: Vec<f64> = (1..=10)
            .map(|seed| ipc(policy, seed))
            .collect::<Result<_, _>>()?;
        values.sort_by(f64::total_cmp);
        let at = |share| quantile(&values, share);
        println!(
            "| `{policy}` | {:.4} | {:.4} | {:.4} |",
            at(0.0),
            at(0.5),
            at(1.0)
        );
    }
    Ok(())
}

fn random(name: &str, programs: usize) -> Result<(), Box<dyn Error>> {
    let topology = machine(name)?;
    let recorded = profiles("recorded")?;
    let ipc = |policy: &str, mix: u64| {
        let mut rng = rand_pcg::Pcg64::seed_from_u64(mix);
        let mut plan = Plan::default();
        for i in 0..programs {
            let mut p = program(
                &format!("p{i}"),
                &recorded[rng.random_range(0..recorded.len())],
            );
            p.scale = SCALE;
            plan.programs.push(p);
        }
        runner::run(
            &topology,
            &plan,
            policy,
            Setup {
                seed: mix,
                ..Setup::default()
            },
        )
        .map(|r| r.1.ipc)
    };
    let all = |policy| {
        (1..=MIXES)
            .map(|mix| ipc(policy, mix))
            .collect::<Result<Vec<f64>, _>>()
    };
    let linux = all("linux")?;
    for policy in ["mpi", "capacity", "capacity+mpi", "contention", BEST] {
        let mut gains: Vec<f64> = all(policy)?
            .iter()
            .zip(&linux)
            .map(|(ipc, linux)| ipc / linux - 1.0)
            .collect();
        gains.sort_by(f64::total_cmp);
        let mean = gains.iter().sum::<f64>() / gains.len() as f64;
        let shown = [
            quantile(&gains, 0.0),
            quantile(&gains, 0.5),
            mean,
            quantile(&gains, 1.0),
        ];
        let shown = shown.map(|gain| format!("{:+.1} %", gain * 100.0));
        println!(
            "| {name} | {programs} | `{policy}` | {} |",
            shown.join(" | ")
        );
    }
    Ok(())
}
