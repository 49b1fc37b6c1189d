//! Partitions of a shared cache: policies beside the best division of ways.
//!
//! `cargo run --release -p countersteer-lab --example partitions -- [SEEDS [MIXES]]` simulates the mixes of PBBCache with seeds 1
//! to SEEDS (default 3) on `xeon-gold-6138`, whose cache and programs were measured for PBBCache; and MIXES random mixes
//! (default 24) of eight programs of the same tables. It prints a Markdown table. Changes are medians over seeds, against `linux`,
//! under which programs share the cache freely.

use std::sync::Arc;

use anyhow::Context;
use countersteer_lab::partition::{self, ProgramDivision};
use countersteer_lab::{Experiment, LoadedMachine, SimOptions, experiment, library, plan};
use countersteer_model::policy::policy_rng;
use countersteer_report::table::SeedSpread;
use rand::RngExt;

/// The mixes: pbbcache/cachesim, `simulator/input/workloads.csv`.
const MIXES: [&str; 6] = [
    "sphinx3-2006 lbm-2006 libquantum-2006 applu-2000 soplex-2006 milc-2006",
    "bzip2-2006 equake-2000 swim-2000 omnetpp-2006 applu-2000 gobmk-2006",
    "hmmer-2006 gamess-2006 bwaves-2006 gobmk-2006 astar-2006 libquantum-2006",
    "namd-2006 hmmer-2006 gamess-2006 bwaves-2006 soplex-2006 libquantum-2006",
    "omnetpp-2006 lbm-2006 sphinx3-2006 hmmer-2006 vortex-2000 h264ref-2006",
    "GemsFDTD-2006 leslie3d-2006 cactusADM-2006 soplex-2006 povray-2006",
];
const MACHINE: &str = "xeon-gold-6138";
const POLICIES: [&str; 3] = ["contention:ways=split", "clusters", "clusters:by=misses"];
/// Instructions of a run, which give policies time to measure and to act.
const INSTRUCTIONS: f64 = 60e9;
/// Programs of a random mix, and the seed that draws them.
const PROGRAMS: usize = 8;
const DRAW: u64 = 43;

fn main() -> anyhow::Result<()> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let seeds = numbers.next().transpose().context("how many seeds?")?;
    let random = numbers.next().transpose().context("how many mixes?")?;
    let seeds = seeds.unwrap_or(3);
    let machine = experiment::machine(MACHINE)?;
    println!(
        "| mix | {} | best STP by ways | least unfairness by ways |",
        POLICIES.join(" | ")
    );
    println!("|{}", "---|".repeat(POLICIES.len() + 3));
    for (nth, mix) in MIXES.iter().enumerate() {
        let mix: Vec<&str> = mix.split_whitespace().collect();
        let cells: Vec<String> = changes(&machine, &mix, seeds)?
            .iter()
            .map(Change::text)
            .collect();
        println!("| {} | {} |", nth + 1, cells.join(" | "));
    }
    let names: Vec<String> = library::shipped_profiles("published")
        .iter()
        .filter_map(|path| path.rsplit('/').next()?.strip_suffix(".toml"))
        .filter(|name| !name.ends_with("-2017"))
        .map(str::to_owned)
        .collect();
    let mut rng = policy_rng(DRAW);
    let mut drawn = Vec::new();
    for _ in 0..random.unwrap_or(24) {
        let mix = (0..PROGRAMS).map(|_| names[rng.random_range(0..names.len())].as_str());
        drawn.push(changes(&machine, &mix.collect::<Vec<_>>(), seeds)?);
    }
    let summary = |name: &str, of: fn(SeedSpread) -> f64, worst: fn(SeedSpread) -> f64| {
        let column = |column: usize| {
            let each =
                |f: fn(&Change) -> f64| SeedSpread::of(drawn.iter().map(|row| f(&row[column])));
            cell(of(each(|c| c.stp)), worst(each(|c| c.unfairness)))
        };
        let cells: Vec<String> = (0..POLICIES.len() + 2).map(column).collect();
        println!("| {} random, {name} | {} |", drawn.len(), cells.join(" | "));
    };
    summary("median", |s| s.median, |s| s.median);
    summary("worst", |s| s.min, |s| s.max);
    Ok(())
}

/// Relative changes against `linux`.
struct Change {
    stp: f64,
    unfairness: f64,
    /// Ways of a division.
    ways: Option<Vec<u32>>,
}

impl Change {
    fn text(&self) -> String {
        let ways = self.ways.iter().map(|ways| {
            let ways: Vec<String> = ways.iter().map(u32::to_string).collect();
            format!(" ({})", ways.join(" "))
        });
        cell(self.stp, self.unfairness) + &ways.collect::<String>()
    }
}

/// Changes under each policy, and under both best divisions.
fn changes(machine: &Arc<LoadedMachine>, mix: &[&str], seeds: u64) -> anyhow::Result<Vec<Change>> {
    let program = |name: &&str| format!("[[program]]\nprofile = \"{name}\"\nthreads = 1\n");
    let mut workload = plan::of_text("mix", mix.iter().map(program).collect())?;
    for (program, profile) in &mut workload.programs {
        program.scale = INSTRUCTIONS / profile.instructions() as f64;
    }
    let divisions = partition::divisions(machine, &workload)?;
    let workload = Arc::new(workload);
    let run = |policy: &str, seed: u64| -> anyhow::Result<(f64, f64)> {
        let experiment = Experiment {
            machine: Arc::clone(machine),
            workload: Arc::clone(&workload),
            policy: policy.into(),
            seed,
            options: SimOptions {
                rounds: 2,
                ..SimOptions::default()
            },
            detail: None,
        };
        let score = experiment.run()?.score;
        Ok((score.stp, score.unfairness))
    };
    let all = |policy: &str| -> anyhow::Result<Vec<(f64, f64)>> {
        (1..=seeds).map(|seed| run(policy, seed)).collect()
    };
    let linux = all("linux")?;
    let change = |runs: &[(f64, f64)], ways: Option<Vec<u32>>| {
        let pairs = || runs.iter().zip(&linux);
        Change {
            stp: SeedSpread::of(pairs().map(|(run, base)| run.0 / base.0 - 1.0)).median,
            unfairness: SeedSpread::of(pairs().map(|(run, base)| run.1 / base.1 - 1.0)).median,
            ways,
        }
    };
    let mut changes = Vec::new();
    for policy in POLICIES {
        changes.push(change(&all(policy)?, None));
    }
    let best = [&divisions.best_stp, &divisions.best_unfairness];
    changes.extend(best.map(|of: &ProgramDivision| {
        let runs = vec![(of.stp, of.unfairness); linux.len()];
        change(&runs, Some(of.ways.clone()))
    }));
    Ok(changes)
}

fn cell(stp: f64, unfairness: f64) -> String {
    format!("{:+.1} / {:+.1}", stp * 100.0, unfairness * 100.0)
}
