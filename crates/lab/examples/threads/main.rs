//! Search for the number of threads, held against exhaustive search on simulated machines.
//!
//! `cargo run --release -p countersteer-lab --example threads -- [TRIALS [NOISE_PERCENT [DRAW [FILE]]]]` lets `steer threads`'s search
//! run twelve programs on six machines with at most TRIALS trials each (default 8). Each trial has NOISE_PERCENT of noise (default 0).
//! DRAW above 0 is the seed of twelve random programs instead. FILE keeps the simulated times, so that they are simulated once.
//! It prints a Markdown table: time of the candidate that was found over the least of all candidates, both without noise.

mod programs;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use countersteer_lab::threads::candidates::{Candidate, candidates};
use countersteer_lab::threads::search::{CandidateTimer, SearchLimits, search};
use countersteer_lab::{LoadedMachine, experiment};
use countersteer_model::policy::{PolicyRng, policy_rng};
use countersteer_report::table::SeedSpread;
use programs::{Structured, drawn, shipped};
use rand::RngExt;
use rayon::prelude::*;

const MACHINES: [&str; 6] = [
    "i9-12900k",
    "ryzen-7950x3d",
    "server-12llc",
    "phone-1-3-4",
    "opteron-8356-4-4-2-2",
    "apple-m1",
];

/// Seconds of every candidate, by machine and program.
type Times = BTreeMap<String, Vec<f64>>;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |nth: usize, default: f64| match arguments.get(nth) {
        Some(text) => text.parse::<f64>().context("arguments are numbers"),
        None => Ok(default),
    };
    let trials = number(0, 8.0)? as usize;
    let noise = number(1, 0.0)? / 100.0;
    let draw = number(2, 0.0)? as u64;
    let programs = if draw == 0 { shipped() } else { drawn(draw) };
    let file = arguments.get(3).map(Path::new);
    let mut times: Times = match file.filter(|file| file.exists()) {
        Some(file) => serde_json::from_slice(&std::fs::read(file)?)?,
        None => Times::new(),
    };
    println!(
        "| machine | candidates | program | default | found | trials | best | found over best |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let mut all = Vec::new();
    for name in MACHINES {
        let machine = experiment::machine(name)?;
        let choices = candidates(&machine.topology, &machine.topology.groups[0].cpus);
        for program in &programs {
            let key = format!("{name} {program:?}");
            let known = times.get(&key).filter(|known| known.len() == choices.len());
            let seconds = match known {
                Some(known) => known.clone(),
                None => exhaustive(program, &machine, &choices)?,
            };
            let case = judged(&choices, &machine, &seconds, trials, noise)?;
            println!("| {name} | {} | {program} | {case}", choices.len());
            all.push(case);
            times.insert(key, seconds);
        }
        if let Some(file) = file {
            std::fs::write(file, serde_json::to_vec(&times)?)?;
        }
    }
    println!("\n{}", summary(&all));
    Ok(())
}

fn exhaustive(
    program: &Structured,
    machine: &std::sync::Arc<LoadedMachine>,
    choices: &[Candidate],
) -> anyhow::Result<Vec<f64>> {
    choices
        .par_iter()
        .map(|candidate| program.seconds(machine, candidate))
        .collect()
}

/// Simulated times with noise.
struct Simulated<'a> {
    choices: &'a [Candidate],
    seconds: &'a [f64],
    noise: f64,
    rng: PolicyRng,
}

impl CandidateTimer for Simulated<'_> {
    fn seconds(&mut self, candidate: &Candidate) -> anyhow::Result<Option<f64>> {
        let row = self.choices.iter().position(|c| c == candidate);
        let row = row.context("a candidate of another machine")?;
        // A sum of twelve uniform numbers has a variance of 1.
        let sum: f64 = (0..12).map(|_| self.rng.random::<f64>()).sum();
        Ok(Some(self.seconds[row] * (self.noise * (sum - 6.0)).exp()))
    }
}

/// Result of a search.
struct Case {
    default_s: f64,
    found: (usize, f64),
    trials: usize,
    best: (usize, f64),
}

impl Case {
    fn excess(&self) -> f64 {
        self.found.1 / self.best.1 - 1.0
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let of = |(threads, seconds): (usize, f64)| format!("{threads} threads, {seconds:.4} s");
        write!(
            f,
            "{:.4} s | {} | {} | {} | {:+.1} % |",
            self.default_s,
            of(self.found),
            self.trials,
            of(self.best),
            100.0 * self.excess()
        )
    }
}

fn judged(
    choices: &[Candidate],
    machine: &LoadedMachine,
    seconds: &[f64],
    trials: usize,
    noise: f64,
) -> anyhow::Result<Case> {
    let mut runner = Simulated {
        choices,
        seconds,
        noise,
        rng: policy_rng(7),
    };
    let limits = SearchLimits {
        trials,
        ..SearchLimits::default()
    };
    let found = search(
        &mut choices.to_vec(),
        &machine.topology,
        &mut runner,
        limits,
    )?;
    let row = found.best().context("no trial")?.candidate;
    let of = |row: usize| (choices[row].threads, seconds[row]);
    let least = (0..seconds.len()).min_by(|a, b| seconds[*a].total_cmp(&seconds[*b]));
    Ok(Case {
        default_s: seconds[0],
        found: of(row),
        trials: found.trials.len(),
        best: of(least.context("no candidate")?),
    })
}

fn summary(cases: &[Case]) -> String {
    let excess = SeedSpread::of(cases.iter().map(Case::excess));
    let within = cases.iter().filter(|case| case.excess() <= 0.03).count();
    let trials: usize = cases.iter().map(|case| case.trials).sum();
    let default = SeedSpread::of(cases.iter().map(|case| case.default_s / case.best.1 - 1.0));
    format!(
        "Of {} searches {within} are within 3 % of the best candidate; median {:.2} %, worst {:.1} %; {:.1} trials on average. The default is \
         above the best by {:.1} % in the median and {:.0} % at worst.",
        cases.len(),
        100.0 * excess.median,
        100.0 * excess.max,
        trials as f64 / cases.len() as f64,
        100.0 * default.median,
        100.0 * default.max
    )
}
