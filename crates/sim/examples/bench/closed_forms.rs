//! Closed forms: without contention and costs, completion times follow from shares of the big cores alone.

use std::error::Error;
use std::sync::Arc;

use countersteer_model::profile::{Profile, Segment};
use countersteer_model::score::Score;
use countersteer_model::topology::Topology;
use countersteer_sim::engine::Plan;

use super::runner::{self, Setup, machine, profiles, program};

fn compare(name: &str, count: usize, set: &[Arc<Profile>]) -> Result<(), Box<dyn Error>> {
    let topology = machine(name)?;
    let programs: Vec<_> = (0..count).map(|i| &set[i * 7 % set.len()]).collect();
    let plan = Plan {
        programs: programs
            .iter()
            .enumerate()
            .map(|(i, p)| program(&format!("p{i}"), p))
            .collect(),
        ..Plan::default()
    };
    let setup = Setup {
        ideal: true,
        rounds: 3,
        ..Setup::default()
    };
    let (_, aarr) = runner::run(&topology, &plan, "aarr", setup)?;
    let (_, hsf) = runner::run(&topology, &plan, "hsf:sf=oracle", setup)?;
    let share = big_share(&topology, count);
    let worst = aarr
        .programs
        .iter()
        .map(|p| deviation(p.completion_s, share, p.alone_fast_s, p.alone_slow_s));
    let worst = worst.fold(0.0, f64::max);
    let ideal = ideal_asp(&hsf, (share * count as f64).round() as usize);
    println!(
        "| {name} | {count} | {:.3} % | {:.4} | {:.4} | {:.2} % |",
        worst * 100.0,
        hsf.asp,
        ideal,
        (hsf.asp / ideal - 1.0) * 100.0
    );
    Ok(())
}

/// A program with its most frequent behaviour only, because closed forms have no phases.
fn one_phase(profile: &Arc<Profile>) -> Arc<Profile> {
    let Profile::Recorded(recorded) = &**profile else {
        return Arc::clone(profile);
    };
    let mut steady = recorded.clone();
    let length = |row: u32| {
        steady
            .timeline
            .iter()
            .filter(|s| s.behaviour == row)
            .map(|s| s.instructions)
            .sum::<u64>()
    };
    let main = (0..steady.behaviours.len() as u32)
        .max_by_key(|row| length(*row))
        .unwrap_or(0);
    // A hundred billion instructions: many rotations within each run.
    steady.instructions = 100_000_000_000;
    steady.timeline = vec![Segment {
        behaviour: main,
        instructions: steady.instructions,
    }];
    Arc::new(Profile::Recorded(steady))
}

/// Share of its time that each thread spends on big cores if they are shared equally.
fn big_share(topology: &Topology, count: usize) -> f64 {
    let big = topology.groups_by(countersteer_model::topology::GroupBy::CoreType)[0].cores;
    f64::from(big) / count as f64
}

/// Relative distance of a completion time from the closed form.
fn deviation(completion_s: f64, share: f64, fast_s: f64, slow_s: f64) -> f64 {
    let expected = 1.0 / (share / fast_s + (1.0 - share) / slow_s);
    (completion_s / expected - 1.0).abs()
}

/// ASP if the programs with the highest speed-up factors keep the big cores.
fn ideal_asp(score: &Score, big: usize) -> f64 {
    let mut gains: Vec<f64> = score
        .programs
        .iter()
        .map(|p| p.alone_slow_s / p.alone_fast_s - 1.0)
        .collect();
    gains.sort_by(|a, b| b.total_cmp(a));
    gains.iter().take(big).sum()
}

/// Prints the section.
pub fn run() -> Result<(), Box<dyn Error>> {
    let spec = profiles("spec2017")?;
    let recorded: Vec<_> = profiles("recorded")?.iter().map(one_phase).collect();
    println!("\n### Closed forms\n");
    println!(
        "| machine | programs | aarr: worst deviation of a completion time | hsf:sf=oracle ASP | ideal ASP | difference |"
    );
    println!("|---|---|---|---|---|---|");
    compare("i9-12900k-8p8e", 16, &spec)?;
    compare("i9-12900k-8p8e", 16, &recorded)?;
    compare("quickia-2b-2s", 4, &recorded)
}
