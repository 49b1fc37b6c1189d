//! Value of models to a policy: `cargo run -p countersteer-train --example mixes -- [--untrained] [MIXES [MACHINE...]]`.
//!
//! Models are trained on every other family of recorded programs; mixes are of programs of the rest, one for each core. It
//! prints two results for each machine. The first is the part of the gain of `hsf` with true speed-up factors over `aarr` (ASP)
//! that other policies reach. With `--untrained`, the machines have no models, as a new machine has none.
//!
//! The second is relative to the gain of the same decisions taken ten times as often, if neither moves nor samples cost
//! anything. It is the loss of the default to sampling and phase lag (true factors, but every 100 ms only), to wrong factors,
//! and to costs. All mixes' gains are added up for that.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersteer_model::driver::{DriverConfig, drive};
use countersteer_model::machine::Machine;
use countersteer_model::machine::models_for;
use countersteer_model::models::{ModelFile, Models, Target};
use countersteer_model::policy::PolicyRng;
use countersteer_model::profile::Profile;
use countersteer_model::score::Score;
use countersteer_model::topology::{GroupBy, Topology};
use countersteer_model::units::Nanos;
use countersteer_sim::engine::{Plan, PlannedProgram, SimConfig, Simulation};
use countersteer_sim::linux::LinuxConfig;
use countersteer_sim::progress::ProgressConfig;
use countersteer_train::model::model;
use countersteer_train::rows::{crossed, rows};
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;

const MACHINES: [&str; 5] = [
    "i9-12900k-8p8e",
    "quickia-2b-2s",
    "opteron-2425-2b-10s",
    "juno-2-4",
    "apple-m1",
];
const POLICIES: [&str; 8] = [
    "linux",
    "hsf",
    "hsf:sf=steps",
    "hsf:sf=sampled",
    "hsf:sf=td",
    "hsf:sf=history,history=td",
    "hsf:sf=history",
    ORACLE,
];
const ORACLE: &str = "hsf:sf=oracle,margin=0,patience=1";

/// Conditions of a run.
#[derive(Clone, Copy)]
struct Setup {
    period: Nanos,
    /// True if moves and samples take time.
    costs: bool,
}

const AS_EVER: Setup = Setup {
    period: Nanos::from_millis(100),
    costs: true,
};
const FREE: Setup = Setup {
    costs: false,
    ..AS_EVER
};
const FREE_AND_OFTEN: Setup = Setup {
    period: Nanos::from_millis(10),
    ..FREE
};

/// Results of a mix of programs.
struct Yield {
    /// By policy, its part of the oracle's gain, and its speed over that of `linux`, less 1.
    shares: Vec<(f64, f64)>,
    /// Gains over `aarr`: of the oracle, free and often; of the oracle, free; of the default, free; of the default.
    gains: [f64; 4],
}
/// Instructions of a run: programs are repeated to last some seconds.
const LENGTH: f64 = 10e9;

type Programs = Vec<(String, Arc<Profile>)>;

fn main() -> Result<(), Box<dyn Error>> {
    let (options, words): (Vec<String>, Vec<String>) = std::env::args()
        .skip(1)
        .partition(|word| word == "--untrained");
    let mixes: usize = words.first().map_or(Ok(60), |n| n.parse())?;
    let named: Vec<String> = words.into_iter().skip(1).collect();
    let machines = if named.is_empty() {
        MACHINES.map(str::to_owned).to_vec()
    } else {
        named
    };
    let programs = programs()?;
    let mut losses = Vec::new();
    println!(
        "| machine | policy | median | 5 % | least | more than 2 % below linux |\n|---|---|---|---|---|---|"
    );
    for name in machines {
        let path = root().join(format!("machines/{name}.toml"));
        let text = std::fs::read_to_string(&path)?;
        let mut topology = Topology::new(&Machine::parse(&path.display().to_string(), &text)?);
        let unseen = train_on_half(&mut topology, &programs)?;
        if !options.is_empty() {
            topology.models.fill(Models::default());
        }
        losses.push(run(&Arc::new(topology), &unseen, mixes)?);
    }
    println!(
        "\n| machine | part gained | lost to lag | to the model | to costs |\n|---|---|---|---|---|"
    );
    losses.iter().for_each(|row| println!("{row}"));
    Ok(())
}

/// Gives a machine models of every other family; returns the programs of the rest.
fn train_on_half(topology: &mut Topology, programs: &Programs) -> Result<Programs, Box<dyn Error>> {
    let mut families: Vec<&String> = programs.iter().map(|(family, _)| family).collect();
    families.sort();
    families.dedup();
    let held: Vec<&String> = families.into_iter().step_by(2).collect();
    let (unseen, seen): (Programs, Programs) = programs
        .iter()
        .cloned()
        .partition(|(family, _)| held.contains(&family));
    let machine = Arc::new(topology.clone());
    let mut all = rows(&machine, &seen)?;
    all.extend(crossed(&machine, &seen, 6, 1)?);
    let files = (0..topology.core_types.len())
        .map(|row| model(topology, row, &all, Target::Sf, String::new()))
        .collect::<Option<Vec<ModelFile>>>()
        .ok_or("too few samples")?;
    topology.models = models_for(&topology.name, &topology.core_types, |core_type| {
        let of = files.iter().filter(|f| f.core_type == core_type);
        of.cloned().collect()
    });
    Ok(unseen)
}

/// Prints a row for each policy, and the row of losses.
fn run(
    topology: &Arc<Topology>,
    programs: &Programs,
    mixes: usize,
) -> Result<String, Box<dyn Error>> {
    let of_mix = |mix| yield_of(topology, programs, mix).map_err(|e| e.to_string());
    let all: Vec<Yield> = (0..mixes)
        .into_par_iter()
        .map(of_mix)
        .collect::<Result<_, _>>()?;
    for (nth, policy) in POLICIES.iter().enumerate() {
        let mut of: Vec<f64> = all.iter().map(|mix| mix.shares[nth].0).collect();
        of.sort_by(f64::total_cmp);
        let below = all.iter().filter(|mix| mix.shares[nth].1 < -0.02).count();
        let at = |share: f64| of[(share * (of.len() - 1) as f64).round() as usize];
        println!(
            "| {} | `{policy}` | {:.2} | {:.2} | {:.2} | {below} of {mixes} |",
            topology.name,
            at(0.5),
            at(0.05),
            at(0.0),
        );
    }
    let sum = |nth: usize| all.iter().map(|mix| mix.gains[nth]).sum::<f64>();
    let [ideal, rarely, by_model, paid] = [0, 1, 2, 3].map(sum);
    let part = |gain: f64| 100.0 * gain / ideal;
    Ok(format!(
        "| {} | {:.0} % | {:.0} % | {:.0} % | {:.0} % |",
        topology.name,
        part(paid),
        part(ideal - rarely),
        part(rarely - by_model),
        part(by_model - paid),
    ))
}

fn yield_of(
    topology: &Arc<Topology>,
    programs: &Programs,
    mix: usize,
) -> Result<Yield, Box<dyn Error>> {
    let cores = topology.groups_by(GroupBy::Core).len();
    let mut rng = rand_pcg::Pcg64::seed_from_u64(mix as u64);
    let mut plan = Plan::default();
    for i in 0..cores {
        let (_, profile) = &programs[rng.random_range(0..programs.len())];
        plan.programs.push(PlannedProgram {
            name: format!("p{i}").into(),
            profile: Arc::clone(profile),
            threads: 1,
            serial_share: 0.0,
            control: Default::default(),
            nice: 0,
            start: Nanos::ZERO,
            bursts: None,
            barriers: 1,
            chunk: None,
            launch_on: None,
            scale: LENGTH / profile.instructions() as f64,
        });
    }
    let asp = |policy: &str, setup| asp(topology, &plan, policy, mix as u64, setup);
    let base = asp("aarr", AS_EVER)?;
    let of = |p: &&str| asp(p, AS_EVER);
    let all: Vec<f64> = POLICIES.iter().map(of).collect::<Result<_, _>>()?;
    let gain = all.last().map_or(0.0, |oracle| oracle - base);
    let linux = all[0] + cores as f64;
    let free_base = asp("aarr", FREE)?;
    Ok(Yield {
        gains: [
            asp(ORACLE, FREE_AND_OFTEN)? - free_base,
            asp(ORACLE, FREE)? - free_base,
            asp("hsf", FREE)? - free_base,
            all[1] - base,
        ],
        shares: all
            .iter()
            .map(|asp| ((asp - base) / gain, (asp + cores as f64) / linux - 1.0))
            .collect(),
    })
}

fn asp(
    topology: &Arc<Topology>,
    plan: &Plan,
    spec: &str,
    seed: u64,
    setup: Setup,
) -> Result<f64, Box<dyn Error>> {
    let config = SimConfig {
        seed,
        linux: LinuxConfig {
            seed,
            ..LinuxConfig::default()
        },
        progress: ProgressConfig {
            costs: setup.costs,
            ..ProgressConfig::default()
        },
        counter_noise: 0.01,
        sample_cost: if setup.costs {
            Nanos::from_micros(2)
        } else {
            Nanos::ZERO
        },
        rounds: 3,
        trace: false,
        governor: None,
    };
    let mut policy = countersteer_policies::parse(spec, topology)?;
    let mut simulation = Simulation::new(Arc::clone(topology), plan, config)?;
    let mut rng = PolicyRng::seed_from_u64(seed);
    let driver = DriverConfig {
        period: setup.period,
        until: Nanos::NEVER,
    };
    drive(&mut simulation, policy.as_mut(), &mut [], driver, &mut rng)?;
    Ok(Score::of(&simulation.outcome()).asp)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Shipped recorded programs with their families.
fn programs() -> Result<Programs, Box<dyn Error>> {
    let text = std::fs::read_to_string(root().join("profiles/families.tsv"))?;
    let families: BTreeMap<&str, &str> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('\t'))
        .collect();
    let mut paths: Vec<PathBuf> = std::fs::read_dir(root().join("profiles/recorded"))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    paths.sort();
    let of = |path: &PathBuf| -> Result<(String, Arc<Profile>), Box<dyn Error>> {
        let shown = path.display().to_string();
        let profile = Profile::parse(&shown, &std::fs::read_to_string(path)?)?;
        let family = families.get(profile.name()).copied();
        let family = family.unwrap_or(profile.name()).to_owned();
        Ok((family, Arc::new(profile)))
    };
    paths.iter().map(of).collect()
}
