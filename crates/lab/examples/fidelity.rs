//! How far the analytic model is from the traced one, over mixes of traces drawn at random.
//!
//! `cargo run --release -p countersteer-lab --example fidelity -- MACHINE MIXES PROGRAMS POLICIES TRACE...`, for instance
//! `core2-quad 20 2 linux *.trace` for pairs, or `core2-quad 10 4 linux,mpi,capacity *.trace` for quads and the ranking of policies.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, ensure};
use countersteer_lab::experiment::Fidelity;
use countersteer_lab::{Experiment, LoadedMachine, SimOptions, experiment, plan};
use rand::RngExt;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [machine, mixes, programs, policies, traces @ ..] = arguments.as_slice() else {
        anyhow::bail!("MACHINE MIXES PROGRAMS POLICIES TRACE...");
    };
    let (mixes, programs): (usize, usize) = (mixes.parse()?, programs.parse()?);
    ensure!(
        traces.len() >= programs,
        "{programs} traces are needed at least"
    );
    let machine = experiment::machine(machine)?;
    let policies: Vec<&str> = policies.split(',').collect();
    let mut rng = experiment::policy_rng(1);
    let (mut errors, mut taus) = (Vec::new(), Vec::new());
    for _ in 0..mixes {
        let mut rest: Vec<&String> = traces.iter().collect();
        let draw = |_| rest.swap_remove(rng.random_range(0..rest.len()));
        let mix: Vec<&String> = (0..programs).map(draw).collect();
        let mut speeds = Vec::new();
        for policy in &policies {
            let both = [Fidelity::Analytic, Fidelity::Traced]
                .map(|fidelity| score(&machine, &mix, policy, fidelity));
            let [analytic, traced] = both;
            let (analytic, traced) = (analytic?, traced?);
            for (a, t) in analytic.programs.iter().zip(&traced.programs) {
                let error = a.ipc / t.ipc - 1.0;
                println!(
                    "{policy}\t{}\t{:.4}\t{:.4}\t{:+.1} %",
                    t.name,
                    a.ipc,
                    t.ipc,
                    error * 100.0
                );
                errors.push(error.abs());
            }
            speeds.push((analytic.stp, traced.stp));
        }
        taus.extend(tau(&speeds));
        println!();
    }
    errors.sort_by(f64::total_cmp);
    let part = |share: f64| errors[((errors.len() - 1) as f64 * share).round() as usize] * 100.0;
    let mean = errors.iter().sum::<f64>() / errors.len() as f64 * 100.0;
    println!(
        "{} runs: mean {mean:.1} %, median {:.1} %, 95 % below {:.1} %, worst {:.1} %",
        errors.len(),
        part(0.5),
        part(0.95),
        part(1.0)
    );
    if !taus.is_empty() {
        let mean = taus.iter().sum::<f64>() / taus.len() as f64;
        println!(
            "Kendall's tau of throughput by policy, mean over {} mixes: {mean:.2}",
            taus.len()
        );
    }
    Ok(())
}

fn score(
    machine: &Arc<LoadedMachine>,
    mix: &[&String],
    policy: &str,
    fidelity: Fidelity,
) -> anyhow::Result<countersteer_core::score::Score> {
    let here = std::env::current_dir()?;
    let program = |trace: &&String| {
        let path = here.join(Path::new(trace));
        format!("[[program]]\nprofile = \"{}\"\n", path.display())
    };
    let directory = std::env::temp_dir().join(format!("fidelity-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let file = directory.join("mix.toml");
    std::fs::write(&file, mix.iter().map(program).collect::<String>())?;
    let name = file
        .to_str()
        .context("a folder of temporary files with a name")?;
    let workload = plan::load_recorded(name)?;
    std::fs::remove_dir_all(&directory)?;
    let experiment = Experiment {
        machine: Arc::clone(machine),
        workload: Arc::new(workload),
        policy: policy.to_owned(),
        seed: 1,
        options: SimOptions {
            rounds: 1,
            fidelity,
            ..SimOptions::default()
        },
        detail: None,
    };
    Ok(experiment.run()?.score)
}

/// Agreement of two rankings: pairs in the same order less pairs in the other, over all that are apart in both.
fn tau(values: &[(f64, f64)]) -> Option<f64> {
    let pairs = values.iter().enumerate();
    let pairs = pairs.flat_map(|(n, a)| values[n + 1..].iter().map(move |b| (a, b)));
    let signs: Vec<f64> = pairs
        .filter(|(a, b)| (a.0 / b.0 - 1.0).abs() > 1e-3 && (a.1 / b.1 - 1.0).abs() > 1e-3)
        .map(|(a, b)| (a.0 - b.0).signum() * (a.1 - b.1).signum())
        .collect();
    (!signs.is_empty()).then(|| signs.iter().sum::<f64>() / signs.len() as f64)
}
