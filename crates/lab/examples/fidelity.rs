//! Differences between two kinds of simulation, over random mixes of traces.
//!
//! `cargo run --release -p countersteer-lab --example fidelity -- HOW MACHINE MIXES PROGRAMS POLICIES TRACE...`. Examples:
//!
//! - `analytic,traced core2-quad 20 2 linux *.trace`: pairs of programs.
//! - `analytic,traced core2-quad 10 4 linux,mpi,capacity *.trace`: groups of four, and the ranking of policies.
//! - `sampled,traced core2-quad 10 4 linux *.trace`: accuracy and speed of samples.
//!
//! `TRACE:N` runs a program with N threads.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, ensure};
use countersteer_lab::experiment::{Fidelity, Finished};
use countersteer_lab::{Experiment, LoadedMachine, SimOptions, experiment, plan};
use countersteer_model::policy::policy_rng;
use rand::RngExt;

/// Results of a simulation, its wall-clock time, and its number of instructions.
struct Measured {
    finished: Finished,
    seconds: f64,
    instructions: f64,
}

impl Measured {
    fn mpki(&self, program: usize) -> f64 {
        let usage = &self.finished.usage[program];
        usage.llc_misses / usage.instructions * 1000.0
    }
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [how, machine, mixes, programs, policies, traces @ ..] = arguments.as_slice() else {
        anyhow::bail!("HOW MACHINE MIXES PROGRAMS POLICIES TRACE...");
    };
    let how = pair(how)?;
    let (mixes, programs): (usize, usize) = (mixes.parse()?, programs.parse()?);
    ensure!(
        traces.len() >= programs,
        "{programs} traces are needed at least"
    );
    let machine = experiment::machine(machine)?;
    let policies: Vec<&str> = policies.split(',').collect();
    let mut rng = policy_rng(1);
    let mut errors = Vec::new();
    let mut misses = Vec::new();
    let mut taus = Vec::new();
    let mut speeds_of = [(0.0, 0.0); 2];
    for _ in 0..mixes {
        let mut rest: Vec<&String> = traces.iter().collect();
        let draw = |_| rest.swap_remove(rng.random_range(0..rest.len()));
        let mix: Vec<&String> = (0..programs).map(draw).collect();
        let mut speeds = Vec::new();
        for policy in &policies {
            let [a, b] = how.map(|fidelity| measure(&machine, &mix, policy, fidelity));
            let (a, b) = (a?, b?);
            for (sum, of) in speeds_of.iter_mut().zip([&a, &b]) {
                *sum = (sum.0 + of.instructions, sum.1 + of.seconds);
            }
            compare(policy, &a, &b, &mut errors, &mut misses);
            speeds.push((a.finished.score.stp, b.finished.score.stp));
        }
        taus.extend(tau(&speeds));
        println!();
    }
    summary("IPC", &mut errors);
    summary(
        "LLC misses (programs above 0.1 per kilo-instruction)",
        &mut misses,
    );
    for (fidelity, (instructions, seconds)) in how.iter().zip(speeds_of) {
        let mips = instructions / seconds * 1e-6;
        println!(
            "{}: {mips:.0} million instructions per second",
            fidelity.name()
        );
    }
    if !taus.is_empty() {
        let mean = taus.iter().sum::<f64>() / taus.len() as f64;
        let n = taus.len();
        println!("Kendall's tau of throughput by policy, mean over {n} mixes: {mean:.2}");
    }
    Ok(())
}

fn pair(how: &str) -> anyhow::Result<[Fidelity; 2]> {
    let named = |name: &str| {
        let known = Fidelity::ALL.iter().find(|(n, _)| *n == name);
        known.map(|(_, fidelity)| *fidelity)
    };
    let pair = how.split_once(',');
    let pair = pair.and_then(|(a, b)| Some([named(a)?, named(b)?]));
    pair.context("HOW is two of analytic, traced, sampled")
}

fn compare(policy: &str, a: &Measured, b: &Measured, errors: &mut Vec<f64>, misses: &mut Vec<f64>) {
    let programs = a.finished.score.programs.iter();
    for (row, (p, q)) in programs.zip(&b.finished.score.programs).enumerate() {
        let error = p.ipc / q.ipc - 1.0;
        let mpki = a.mpki(row);
        let of = b.mpki(row);
        let detailed = p.sampled.map_or(100.0, |s| s.detailed * 100.0);
        let half = p.sampled.map_or(0.0, |s| s.ipc_half_width * 100.0);
        println!(
            "{policy}\t{}\t{:.4}\t{:.4}\t{:+.1} %\t{mpki:.3}\t{of:.3}\t{detailed:.1} %\t± {half:.1} %",
            q.name,
            p.ipc,
            q.ipc,
            error * 100.0
        );
        errors.push(error.abs());
        if of > 0.1 {
            misses.push((mpki / of - 1.0).abs());
        }
    }
}

fn summary(what: &str, errors: &mut [f64]) {
    if errors.is_empty() {
        return;
    }
    errors.sort_by(f64::total_cmp);
    let part = |share: f64| errors[((errors.len() - 1) as f64 * share).round() as usize] * 100.0;
    let mean = errors.iter().sum::<f64>() / errors.len() as f64 * 100.0;
    println!(
        "{what}: {} runs: mean {mean:.1} %, median {:.1} %, 95 % below {:.1} %, worst {:.1} %",
        errors.len(),
        part(0.5),
        part(0.95),
        part(1.0)
    );
}

fn measure(
    machine: &Arc<LoadedMachine>,
    mix: &[&String],
    policy: &str,
    fidelity: Fidelity,
) -> anyhow::Result<Measured> {
    let here = std::env::current_dir()?;
    let program = |trace: &&String| {
        let (path, threads) = match trace.rsplit_once(':') {
            Some((path, threads)) => (path, format!("threads = {threads}\n")),
            None => (trace.as_str(), String::new()),
        };
        let path = here.join(Path::new(path));
        format!("[[program]]\nprofile = \"{}\"\n{threads}", path.display())
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
            // Traces are short; this period lets policies decide often enough to have an effect.
            period_ms: 10.0,
            fidelity,
            ..SimOptions::default()
        },
        detail: None,
    };
    let since = Instant::now();
    let finished = experiment.run()?;
    let seconds = since.elapsed().as_secs_f64();
    Ok(Measured {
        instructions: finished.usage.iter().map(|u| u.instructions).sum(),
        finished,
        seconds,
    })
}

/// Agreement of two rankings (Kendall's tau): concordant less discordant pairs, over all pairs without ties.
fn tau(values: &[(f64, f64)]) -> Option<f64> {
    let pairs = values.iter().enumerate();
    let pairs = pairs.flat_map(|(n, a)| values[n + 1..].iter().map(move |b| (a, b)));
    let signs: Vec<f64> = pairs
        .filter(|(a, b)| (a.0 / b.0 - 1.0).abs() > 1e-3 && (a.1 / b.1 - 1.0).abs() > 1e-3)
        .map(|(a, b)| (a.0 - b.0).signum() * (a.1 - b.1).signum())
        .collect();
    (!signs.is_empty()).then(|| signs.iter().sum::<f64>() / signs.len() as f64)
}
