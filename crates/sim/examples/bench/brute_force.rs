//! Gains of policies compared with the maximum: every division of a mix between the two halves of a machine is simulated.
//!
//! The best division under one seed is scored with other seeds, like the policies, so that luck does not count as gain.
//! `bench -- brute-force [MIXES]` draws another number of mixes.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;

use countersteer_model::placement::{Placement, Target};
use countersteer_model::policy::{Needs, Policy, PolicyRng, View};
use countersteer_model::topology::{Group, GroupBy, Topology};
use countersteer_model::units::ThreadId;
use countersteer_sim::engine::Plan;
use rayon::prelude::*;

use super::runner::{self, Setup, machine, profiles};

/// Machines with two kinds of cores or two last-level caches, and number of programs of a mix.
const MACHINES: [(&str, usize); 3] = [("core2-quad", 8), ("juno-2-4", 6), ("apple-m1", 8)];
const MIXES: u64 = 20;
const SCALE: f64 = 20.0;
/// Seed that chooses the best division, and seeds of all scores.
const CHOOSES: u64 = 1;
const SCORES: [u64; 2] = [2, 3];
const POLICIES: [&str; 4] = ["best-static", "joint", "contention", "hsf"];
/// Rows of the table besides policies, which show where `joint` loses gain.
const ENDS: &str = "where `joint` ends, from the start";
const FREE: &str = "`joint`, no costs, no noise";

/// Prints the section.
pub fn run() -> Result<(), Box<dyn Error>> {
    let mixes = runner::number().unwrap_or(MIXES);
    println!(
        "\n### Brute force: STP over that of `linux`, {mixes} mixes of recorded programs\n\n\
         Part is the sum of gains over that of the best division of the programs. `joint` loses by its choice what lies between \
         brute force and the mapping that it ends with, kept from the start, and on its way there (exploring, moves, time) what \
         lies between that and its own row; costs and noise are between that and the row without them.\n\n\
         | machine | programs | divisions | | sum of gains | part | worst | mixes below -1 % |\n|---|---|---|---|---|---|---|---|"
    );
    MACHINES
        .iter()
        .try_for_each(|(name, programs)| one(name, *programs, mixes))
}

fn one(name: &str, programs: usize, mixes: u64) -> Result<(), Box<dyn Error>> {
    let topology = machine(name)?;
    let recorded = profiles("recorded")?;
    let divisions = divisions(&topology, programs)?;
    let of_mix = |mix: u64| -> Result<BTreeMap<&str, f64>, String> {
        let plan = runner::mix(&recorded, programs, mix, SCALE);
        gains(&topology, &plan, &divisions).map_err(|e| e.to_string())
    };
    let gains: Vec<BTreeMap<&str, f64>> = (1..=mixes)
        .into_par_iter()
        .map(of_mix)
        .collect::<Result<_, _>>()?;
    let sum = |row: &str| gains.iter().filter_map(|g| g.get(row)).sum::<f64>();
    let most = sum(BEST);
    for row in [BEST].iter().chain(&POLICIES).chain(&[ENDS, FREE]) {
        let of_row = || gains.iter().filter_map(|g| g.get(row));
        let worst = of_row().copied().fold(f64::MAX, f64::min);
        let below = of_row().filter(|gain| **gain < -0.01).count();
        println!(
            "| {name} | {programs} | {} | {row} | {:+.1} % | {:.0} % | {:+.1} % | {below} |",
            divisions.len(),
            sum(row) * 100.0,
            sum(row) / most * 100.0,
            worst * 100.0
        );
    }
    Ok(())
}

const BEST: &str = "brute force";

/// Gains over `linux`, by row of the table.
fn gains(
    topology: &Arc<Topology>,
    plan: &Plan,
    divisions: &[Vec<&Group>],
) -> Result<BTreeMap<&'static str, f64>, Box<dyn Error>> {
    let stp = |spec: &str, seed: u64, ideal: bool| -> Result<f64, Box<dyn Error>> {
        let setup = Setup {
            seed,
            free: ideal,
            rounds: 1,
            ..Setup::default()
        };
        Ok(runner::run(topology, plan, spec, setup)?.1.stp)
    };
    let mean = |spec: &str, ideal: bool| -> Result<f64, Box<dyn Error>> {
        let scores: Result<Vec<f64>, _> = SCORES.iter().map(|s| stp(spec, *s, ideal)).collect();
        Ok(scores?.iter().sum::<f64>() / SCORES.len() as f64)
    };
    let mut best = (f64::MIN, String::new());
    for division in divisions {
        let spec = fixed(plan, division.iter().map(|g| g.name.as_str()));
        let value = stp(&spec, CHOOSES, false)?;
        if value > best.0 {
            best = (value, spec);
        }
    }
    let linux = mean("linux", false)?;
    let mut gains = BTreeMap::from([(BEST, mean(&best.1, false)? / linux - 1.0)]);
    for policy in POLICIES {
        gains.insert(policy, mean(policy, false)? / linux - 1.0);
    }
    gains.insert(FREE, mean("joint", true)? / mean("linux", true)? - 1.0);
    let mut ends = 0.0;
    for seed in SCORES {
        ends += stp(&end_of_joint(topology, plan, seed)?, seed, false)? / SCORES.len() as f64;
    }
    gains.insert(ENDS, ends / linux - 1.0);
    Ok(gains)
}

/// Specification of the fixed mapping with each program in the named group.
fn fixed<'a>(plan: &Plan, groups: impl Iterator<Item = &'a str>) -> String {
    let places = plan.programs.iter().zip(groups);
    let places: Vec<String> = places
        .map(|(program, group)| format!("{}={group}", program.name))
        .collect();
    format!("static:{}", places.join(","))
}

/// Specification of the mapping in which `joint` leaves the programs at the end.
fn end_of_joint(
    topology: &Arc<Topology>,
    plan: &Plan,
    seed: u64,
) -> Result<String, Box<dyn Error>> {
    let mut watched = Watched {
        policy: countersteer_policies::parse("joint", topology)?,
        at: BTreeMap::new(),
    };
    let setup = Setup {
        seed,
        rounds: 1,
        ..Setup::default()
    };
    runner::run_policy(topology, plan, &mut watched, setup)?;
    let everywhere = &topology.groups[0].name;
    let at = |program: usize| {
        let target = watched.at.get(&ThreadId::from_index(program));
        match target {
            Some(Target::Group(group)) => topology.group(*group).name.as_str(),
            _ => everywhere.as_str(),
        }
    };
    Ok(fixed(plan, (0..plan.programs.len()).map(at)))
}

/// A policy whose placements are recorded.
struct Watched {
    policy: Box<dyn Policy>,
    at: BTreeMap<ThreadId, Target>,
}

impl Policy for Watched {
    fn needs(&self) -> &Needs {
        self.policy.needs()
    }

    fn needs_changed(&mut self) -> bool {
        self.policy.needs_changed()
    }

    fn decide(&mut self, view: &mut View<'_>, rng: &mut PolicyRng) -> Placement {
        let placement = self.policy.decide(view, rng);
        let placed = placement.threads.iter();
        self.at.extend(placed.map(|t| (t.thread, t.target.clone())));
        placement
    }
}

/// All divisions of programs between two groups of cores of equal load; symmetric ones once if the groups are alike.
fn divisions(topology: &Topology, programs: usize) -> Result<Vec<Vec<&Group>>, Box<dyn Error>> {
    let by_type = topology.groups_by(GroupBy::CoreType);
    let alike = by_type.len() == 1;
    let groups = if alike {
        topology.groups_by(GroupBy::Llc)
    } else {
        by_type
    };
    let [first, second] = groups else {
        return Err(format!("{} has no two groups of cores", topology.name).into());
    };
    let in_first = programs * first.cpus.len() / topology.cpus.len();
    let mut divisions = Vec::new();
    for set in 0..1u32 << programs {
        let known = alike && set & 1 == 0;
        if set.count_ones() as usize == in_first && !known {
            let of = |program: usize| {
                if set >> program & 1 == 1 {
                    first
                } else {
                    second
                }
            };
            divisions.push((0..programs).map(of).collect());
        }
    }
    Ok(divisions)
}
