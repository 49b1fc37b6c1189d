//! Runs experiments for the benchmarks, and measures their cost.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersteer_model::driver::{DriverConfig, drive};
use countersteer_model::machine::Machine;
use countersteer_model::policy::{Policy, PolicyRng};
use countersteer_model::profile::Profile;
use countersteer_model::score::{Outcome, Score};
use countersteer_model::topology::Topology;
use countersteer_model::units::Nanos;
use countersteer_sim::engine::{Plan, PlannedProgram, SimConfig, Simulation};
use countersteer_sim::linux::{DEFAULT_KERNEL, LinuxConfig, kernel};
use countersteer_sim::progress::ProgressConfig;
use rand::{RngExt, SeedableRng};

/// Root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Number on the command line.
pub fn number() -> Option<u64> {
    std::env::args().find_map(|word| word.parse().ok())
}

/// Shipped machine.
pub fn machine_file(name: &str) -> Result<Machine, Box<dyn Error>> {
    let path = root().join(format!("machines/{name}.toml"));
    Ok(Machine::parse(
        &path.display().to_string(),
        &std::fs::read_to_string(&path)?,
    )?)
}

/// Topology of a shipped machine.
pub fn machine(name: &str) -> Result<Arc<Topology>, Box<dyn Error>> {
    Ok(Arc::new(Topology::new(&machine_file(name)?)))
}

/// All profiles of a folder below `profiles/`, by file name.
pub fn profiles(folder: &str) -> Result<Vec<Arc<Profile>>, Box<dyn Error>> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(root().join("profiles").join(folder))?
        .map(|e| e.map(|e| e.path()))
        .collect::<Result<_, _>>()?;
    paths.retain(|p| p.extension().is_some_and(|e| e == "toml" || e == "json"));
    paths.sort();
    paths
        .iter()
        .map(|p| {
            Ok(Arc::new(Profile::parse(
                &p.display().to_string(),
                &std::fs::read_to_string(p)?,
            )?))
        })
        .collect()
}

/// A program of one thread.
pub fn program(name: &str, profile: &Arc<Profile>) -> PlannedProgram {
    PlannedProgram {
        name: name.into(),
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
        scale: 1.0,
    }
}

/// Random programs from these profiles, each run `scale` times as long as recorded.
pub fn mix(profiles: &[Arc<Profile>], programs: usize, seed: u64, scale: f64) -> Plan {
    let mut rng = rand_pcg::Pcg64::seed_from_u64(seed);
    let mut plan = Plan::default();
    for i in 0..programs {
        let profile = &profiles[rng.random_range(0..profiles.len())];
        let mut p = program(&format!("p{i}-{}", profile.name()), profile);
        p.scale = scale;
        plan.programs.push(p);
    }
    plan
}

/// Configuration of an experiment.
pub fn config(setup: Setup) -> SimConfig {
    let free = setup.ideal || setup.free;
    SimConfig {
        seed: setup.seed,
        linux: LinuxConfig {
            seed: setup.seed,
            ..kernel(DEFAULT_KERNEL).map_or_else(LinuxConfig::installed, |k| (k.config)())
        },
        progress: ProgressConfig {
            contention: !setup.ideal,
            costs: !free,
            ..ProgressConfig::default()
        },
        counter_noise: if free { 0.0 } else { 0.01 },
        sample_cost: if free {
            Nanos::ZERO
        } else {
            Nanos::from_micros(2)
        },
        rounds: setup.rounds,
        trace: false,
        governor: None,
    }
}

/// Setup of an experiment.
#[derive(Clone, Copy)]
pub struct Setup {
    pub ideal: bool,
    /// Counters without noise and cost, and switches and migrations without cost.
    pub free: bool,
    pub rounds: u32,
    pub until: Nanos,
    pub seed: u64,
    pub period: Nanos,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            ideal: false,
            free: false,
            rounds: 3,
            until: Nanos::NEVER,
            seed: 1,
            period: Nanos::from_millis(100),
        }
    }
}

/// Runs one experiment.
pub fn run(
    topology: &Arc<Topology>,
    plan: &Plan,
    spec: &str,
    setup: Setup,
) -> Result<(Outcome, Score), Box<dyn Error>> {
    let mut policy = countersteer_policies::parse(spec, topology)?;
    run_policy(topology, plan, policy.as_mut(), setup)
}

/// Runs one experiment with the caller's policy.
pub fn run_policy(
    topology: &Arc<Topology>,
    plan: &Plan,
    policy: &mut dyn Policy,
    setup: Setup,
) -> Result<(Outcome, Score), Box<dyn Error>> {
    let mut simulation = Simulation::new(Arc::clone(topology), plan, config(setup))?;
    let mut rng = PolicyRng::seed_from_u64(setup.seed);
    let driver = DriverConfig {
        period: setup.period,
        until: setup.until,
    };
    drive(&mut simulation, policy, &mut [], driver, &mut rng)?;
    let outcome = simulation.outcome();
    let score = Score::of(&outcome);
    Ok((outcome, score))
}

/// Rank correlation (Spearman); ties take the order of their rows.
pub fn rank_correlation(pairs: &[(f64, f64)]) -> f64 {
    let ranks = |of: fn(&(f64, f64)) -> f64| {
        let mut order: Vec<usize> = (0..pairs.len()).collect();
        order.sort_by(|a, b| of(&pairs[*a]).total_cmp(&of(&pairs[*b])));
        let mut ranks = vec![0.0; pairs.len()];
        for (rank, row) in order.into_iter().enumerate() {
            ranks[row] = rank as f64;
        }
        ranks
    };
    let n = pairs.len() as f64;
    let apart = ranks(|p| p.0).into_iter().zip(ranks(|p| p.1));
    let squares: f64 = apart.map(|(a, b)| (a - b).powi(2)).sum();
    1.0 - 6.0 * squares / (n * (n * n - 1.0))
}

/// CPU time of this process so far in seconds, and its maximum resident size so far in MiB.
pub fn usage() -> Result<(f64, f64), Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status
        .lines()
        .find_map(|l| l.strip_prefix("VmHWM:"))
        .unwrap_or("0");
    let peak_kib: f64 = peak.split_whitespace().next().unwrap_or("0").parse()?;
    Ok((ticks / 100.0, peak_kib / 1024.0))
}

/// Quantile of sorted values, with linear interpolation.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = share * (sorted.len().saturating_sub(1)) as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    low + (high - low) * at.fract()
}
