//! Policies with objectives in their own measure, over random mixes of recorded programs.
//!
//! Measures are energy per instruction, energy-delay product or unfairness. The baselines are `linux` and `joint`, which ignores
//! the measure. `bench -- objectives [MIXES]` draws another number of mixes per machine than [`FEW`].

use std::error::Error;
use std::sync::Arc;

use countersteer_model::profile::Profile;
use countersteer_model::score::Score;
use countersteer_model::topology::Topology;
use countersteer_sim::engine::Plan;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;

use super::runner::{self, Setup, machine, profiles, program, quantile};

/// Machines, and number of programs of their mixes.
const MACHINES: [(&str, usize); 6] = [
    ("i9-12900k-8p8e", 12),
    ("juno-2-4", 6),
    ("quickia-2b-2s", 4),
    ("apple-m1", 8),
    ("core2-quad", 6),
    ("ryzen-7950x3d", 12),
];
/// Number of mixes without an argument.
const FEW: u64 = 6;
/// Factor on the length of recorded runs, which last a second; policies with periods of 800 ms are meant for minutes.
const SCALE: f64 = 20.0;
/// Relative loss above which a policy fails in its own measure.
const MOST: f64 = 0.01;

/// A measure; smaller values are better.
type Measure = (&'static str, fn(&Score) -> f64);

const ENERGY: Measure = ("nJ/instruction", |s| s.energy_per_instruction_nj);
const EDP: Measure = ("EDP", |s| s.edp_js);
const UNFAIRNESS: Measure = ("unfairness", |s| s.unfairness);

/// Policies and the measures that they minimise.
const POLICIES: [(&str, Measure); 7] = [
    ("joint:objective=energy", ENERGY),
    ("joint:objective=edp", EDP),
    ("joint:objective=fairness", UNFAIRNESS),
    ("greedy-energy", ENERGY),
    ("prim", ENERGY),
    ("prim", EDP),
    ("ef", EDP),
];
const BASES: [&str; 2] = ["linux", "joint"];

/// Prints the section.
pub fn run() -> Result<(), Box<dyn Error>> {
    let mixes = runner::number().unwrap_or(FEW);
    println!(
        "\n### Policies in their own measure, {mixes} random mixes of recorded programs a machine\n\n\
         Change of the measure (less is better) against `linux` and against `joint`; over is the share of mixes more than {} % worse.\n\n\
         | machine | programs | policy | measure | linux: median | worst | over | joint: median | worst | over |\n\
         |---|---|---|---|---|---|---|---|---|---|",
        MOST * 100.0
    );
    let recorded = profiles("recorded")?;
    MACHINES
        .iter()
        .try_for_each(|(name, programs)| one(name, *programs, mixes, &recorded))
}

fn one(
    name: &str,
    programs: usize,
    mixes: u64,
    recorded: &[Arc<Profile>],
) -> Result<(), Box<dyn Error>> {
    let topology = machine(name)?;
    let scores = |policy: &str| -> Result<Vec<Score>, String> {
        (1..=mixes)
            .into_par_iter()
            .map(|mix| score(&topology, policy, programs, mix, recorded))
            .collect()
    };
    let bases: Vec<Vec<Score>> = BASES
        .iter()
        .map(|base| scores(base))
        .collect::<Result<_, _>>()?;
    let mut known: Option<(&str, Vec<Score>)> = None;
    for (policy, (measure, of)) in POLICIES {
        let own = match known.take() {
            Some((same, scores)) if same == policy => scores,
            _ => scores(policy)?,
        };
        let shown = bases
            .iter()
            .map(|base| against(&own, base, of))
            .collect::<Vec<_>>()
            .join(" | ");
        println!("| {name} | {programs} | `{policy}` | {measure} | {shown} |");
        known = Some((policy, own));
    }
    Ok(())
}

/// Median, worst, and share beyond [`MOST`] of the changes against a baseline.
fn against(own: &[Score], base: &[Score], of: fn(&Score) -> f64) -> String {
    let pairs = own.iter().zip(base);
    let mut changes: Vec<f64> = pairs.map(|(own, base)| of(own) / of(base) - 1.0).collect();
    changes.sort_by(f64::total_cmp);
    let over = changes.iter().filter(|c| **c > MOST).count() as f64 / changes.len() as f64;
    let [median, worst] = [0.5, 1.0].map(|share| quantile(&changes, share) * 100.0);
    format!("{median:+.1} % | {worst:+.1} % | {:.0} %", over * 100.0)
}

/// Score of the random mix with number `mix` under a policy with an equal seed.
fn score(
    topology: &Arc<Topology>,
    policy: &str,
    programs: usize,
    mix: u64,
    recorded: &[Arc<Profile>],
) -> Result<Score, String> {
    let mut rng = rand_pcg::Pcg64::seed_from_u64(mix);
    let mut plan = Plan::default();
    for i in 0..programs {
        let profile = &recorded[rng.random_range(0..recorded.len())];
        let mut p = program(&format!("p{i}-{}", profile.name()), profile);
        p.scale = SCALE;
        plan.programs.push(p);
    }
    let setup = Setup {
        seed: mix,
        ..Setup::default()
    };
    let run = runner::run(topology, &plan, policy, setup);
    run.map(|r| r.1).map_err(|e| e.to_string())
}
