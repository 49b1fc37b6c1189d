//! The CMPSched$im mix on the Core 2 Quad, with two programs of each kind: poison, vulnerable, mildly vulnerable, neutral. Random
//! mixes ensure that no policy is tuned to one mix.

use std::error::Error;
use std::sync::Arc;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::profile::Profile;
use countersteer_model::units::{CpuId, Nanos};
use countersteer_sim::engine::Plan;

use rand::{RngExt, SeedableRng};

use super::runner::{self, Setup, machine, profiles, program, quantile};

/// Programs by their miss curves, and the worst launch: both vulnerable ones next to both poison ones (section 4, figure 7a), as
/// in `workloads/shared-caches.toml`.
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

/// Factor on the length of recorded runs, which last a second; policies with periods of 800 ms are meant for minutes.
const SCALE: f64 = 40.0;

/// Machines and number of programs of random mixes on them: with CPUs shared in time, and without.
const RANDOM: [(&str, usize); 2] = [("core2-quad", 8), ("ryzen-7950x3d", 16)];
const MIXES: u64 = 30;
/// Length of a run of the paper's mix, in seconds.
const SHOWN_S: f64 = 200.0;

const BEST: &str = "best-static:objective=ipc";

/// Prints the section of random mixes.
pub fn run() -> Result<(), Box<dyn Error>> {
    println!(
        "\n### {MIXES} random mixes of recorded programs: mean IPC over that of `linux`\n\n\
         | machine | programs | policy | worst | median | mean | best |\n|---|---|---|---|---|---|---|"
    );
    RANDOM
        .iter()
        .try_for_each(|(machine, programs)| random(machine, *programs))
}

/// Prints the section of the paper's mix.
pub fn the_mix() -> Result<(), Box<dyn Error>> {
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
    let ipcs = |policy: &str, seed: u64| -> Result<(Vec<f64>, f64), Box<dyn Error>> {
        let setup = Setup {
            seed,
            rounds: u32::MAX,
            until: Nanos::from_secs_f64(SHOWN_S),
            ..Setup::default()
        };
        let (outcome, score) = runner::run(&topology, &plan, policy, setup)?;
        debug_assert!((outcome.elapsed_s - SHOWN_S).abs() < 1.0);
        let moves = score.migrations as f64;
        Ok((score.programs.iter().map(|p| p.ipc).collect(), moves))
    };
    let launch = MIX.map(|(name, cpu)| format!("{name}=cpu{cpu}")).join(",");
    let (launch, _) = ipcs(&format!("static:{launch}"), 1)?;
    println!(
        "\n### The CMPSched$im mix on the Core 2 Quad: IPC against the launch mapping, 10 seeds of {SHOWN_S} s\n\n\
         The paper's measure (figure 15) is the mean over programs of how much the IPC of each increased. The ratio of mean \
         IPCs is another figure.\n\n\
         | policy | mean of increases: least | median | most | ratio of means: median | migrations, median |\n\
         |---|---|---|---|---|---|"
    );
    for policy in [
        "linux",
        "mpi",
        "capacity",
        "capacity+mpi",
        "contention",
        BEST,
    ] {
        let mut increases = Vec::new();
        let mut ratios = Vec::new();
        let mut moves = Vec::new();
        for seed in 1..=10 {
            let (own, moved) = ipcs(policy, seed)?;
            moves.push(moved);
            let gains = own
                .iter()
                .zip(&launch)
                .map(|(own, launch)| own / launch - 1.0);
            increases.push(gains.sum::<f64>() / own.len() as f64);
            ratios.push(own.iter().sum::<f64>() / launch.iter().sum::<f64>() - 1.0);
        }
        increases.sort_by(f64::total_cmp);
        ratios.sort_by(f64::total_cmp);
        let of_increases = [0.0, 0.5, 1.0].map(|share| quantile(&increases, share));
        let shown = [of_increases.as_slice(), &[quantile(&ratios, 0.5)]].concat();
        let shown: Vec<String> = shown
            .iter()
            .map(|v| format!("{:+.1} %", v * 100.0))
            .collect();
        moves.sort_by(f64::total_cmp);
        let moved = quantile(&moves, 0.5);
        println!("| `{policy}` | {} | {moved:.0} |", shown.join(" | "));
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
