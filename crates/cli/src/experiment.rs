//! Experiments: one policy on one machine with one workload and one seed; many of them on all cores.
//!
//! Protocol (PMCTrack, section 4.1.3): all programs start together, each restarts when it ends, the experiment ends when
//! the slowest has finished three times, completion times are geometric means.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::builder::{PossibleValue, PossibleValuesParser};
use countersteer_core::driver::{DriverConfig, Recorder, drive};
use countersteer_core::machine::Machine;
use countersteer_core::policy;
use countersteer_core::score::Score;
use countersteer_core::topology::Topology;
use countersteer_core::units::Nanos;
use countersteer_report::record::{Collector, Detail, Manifest, Record};
use countersteer_sim::engine::{ProgramUsage, SimConfig, Simulation};
use countersteer_sim::linux::{self, KERNELS, LinuxConfig};
use countersteer_sim::progress::ProgressConfig;
use rand::SeedableRng;
use rayon::prelude::*;

use crate::library::{self, Text};
use crate::plan::{self, Loaded};
use crate::progress;

/// Options that `sim` and `compare` share.
#[derive(Clone, Debug, clap::Args)]
pub struct SimOptions {
    /// Time between decisions and samples.
    #[arg(long, default_value_t = 100.0, value_name = "MS", value_parser = positive)]
    pub period_ms: f64,
    /// Finished runs of the slowest program that end the experiment.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Simulated seconds after which an experiment ends in any case.
    #[arg(long, default_value_t = 1e6, value_name = "S", value_parser = positive)]
    pub max_seconds: f64,
    /// Time on the wall after which a simulation fails.
    #[arg(long, default_value = "30m", value_name = "TIME", value_parser = crate::session::time)]
    pub max_wall: Nanos,
    /// Release of the simulated kernel.
    #[arg(long, default_value = "6.12", value_parser = kernels())]
    pub kernel: String,
    /// Relative noise of counter readings (standard deviation).
    #[arg(long, default_value_t = 0.01, value_name = "SHARE", value_parser = share)]
    pub counter_noise: f64,
    /// No shared-cache contention, bandwidth limits or SMT sharing.
    #[arg(long)]
    pub no_contention: bool,
    /// Context switches, migrations, cold caches and samples cost nothing.
    #[arg(long)]
    pub no_costs: bool,
}

fn kernels() -> PossibleValuesParser {
    KERNELS
        .iter()
        .map(|k| PossibleValue::new(k.name).help(k.prose))
        .into()
}

fn positive(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| format!("`{text}` is no number"))?;
    if value > 0.0 && value <= 1e9 {
        Ok(value)
    } else {
        Err("it must be above 0 and at most 1e9".into())
    }
}

fn share(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| format!("`{text}` is no number"))?;
    if (0.0..=1.0).contains(&value) {
        Ok(value)
    } else {
        Err("it must be 0 to 1".into())
    }
}

/// A machine with what is derived from it.
#[derive(Clone, Debug)]
pub struct LoadedMachine {
    /// Checked.
    pub machine: Machine,
    /// Its file.
    pub text: Text,
    /// Derived.
    pub topology: Arc<Topology>,
}

/// Reads a machine by name or file.
pub fn machine(name: &str) -> anyhow::Result<LoadedMachine> {
    let (machine, text) = library::machine(name)?;
    let topology = Arc::new(Topology::new(&machine));
    Ok(LoadedMachine {
        machine,
        text,
        topology,
    })
}

/// What is run.
#[derive(Clone, Debug)]
pub struct Experiment<'a> {
    /// On what.
    pub machine: &'a LoadedMachine,
    /// Which programs.
    pub workload: &'a Loaded,
    /// Which policy, with parameters.
    pub policy: &'a str,
    /// Which seed.
    pub seed: u64,
    /// How much is kept.
    pub detail: Option<Detail>,
}

/// What came of it.
pub struct Finished {
    /// Scores.
    pub score: Score,
    /// What each program used, in the workload's order.
    pub usage: Vec<ProgramUsage>,
    /// Length of the run.
    pub elapsed_s: f64,
    /// The record, when one was asked for.
    pub record: Option<Record>,
}

impl SimOptions {
    /// The simulator's configuration.
    pub fn config(&self, seed: u64, trace: bool) -> SimConfig {
        let kernel =
            linux::kernel(&self.kernel).map_or_else(LinuxConfig::default, |k| (k.config)());
        let costs = !self.no_costs;
        SimConfig {
            seed,
            linux: LinuxConfig { seed, ..kernel },
            progress: ProgressConfig {
                contention: !self.no_contention,
                costs,
                ..ProgressConfig::default()
            },
            counter_noise: self.counter_noise,
            sample_cost: if costs { SAMPLE_COST } else { Nanos::ZERO },
            rounds: self.rounds,
            trace,
        }
    }

    /// The options that a record was made with.
    pub fn of_record(manifest: &Manifest) -> Self {
        let text = |key: &str| manifest.options.get(key).map(String::as_str);
        let number =
            |key: &str, default: f64| text(key).and_then(|t| t.parse().ok()).unwrap_or(default);
        Self {
            period_ms: number("period_ms", 100.0),
            rounds: number("rounds", 3.0) as u32,
            max_seconds: number("max_seconds", 1e6),
            max_wall: MAX_WALL,
            kernel: text("kernel").unwrap_or("6.12").to_owned(),
            counter_noise: number("counter_noise", 0.01),
            no_contention: text("contention") == Some("false"),
            no_costs: text("costs") == Some("false"),
        }
    }

    /// The options by name, for the record's manifest.
    pub fn listed(&self) -> Vec<(String, String)> {
        [
            ("period_ms", self.period_ms.to_string()),
            ("rounds", self.rounds.to_string()),
            ("max_seconds", self.max_seconds.to_string()),
            ("kernel", self.kernel.clone()),
            ("counter_noise", self.counter_noise.to_string()),
            ("contention", (!self.no_contention).to_string()),
            ("costs", (!self.no_costs).to_string()),
        ]
        .map(|(k, v)| (k.to_owned(), v))
        .to_vec()
    }
}

/// How long a simulation may take unless the user says otherwise.
pub const MAX_WALL: Nanos = Nanos::from_millis(30 * 60 * 1000);

/// Reading a group of counters of one thread from the kernel, system call included.
const SAMPLE_COST: Nanos = Nanos::from_micros(2);

/// Runs one experiment.
pub fn run(experiment: &Experiment<'_>, options: &SimOptions) -> anyhow::Result<Finished> {
    let Experiment {
        machine,
        workload,
        policy: spec,
        seed,
        detail,
    } = *experiment;
    let plan = plan::plan(workload, &machine.topology)?;
    let mut policy = countersteer_policies::parse(spec, &machine.topology)?;
    let trace = detail == Some(Detail::Everything);
    let config = options.config(seed, trace);
    let mut simulation = Simulation::new(Arc::clone(&machine.topology), &plan, config)
        .with_context(|| {
            format!(
                "workload {} on machine {}",
                workload.text.path, machine.machine.name
            )
        })?
        .within(Duration::from_nanos(options.max_wall.0));
    let mut collector = detail.map(|d| Collector::new(manifest(experiment, options), d));
    let mut recorders: Vec<&mut dyn Recorder> = Vec::new();
    recorders.extend(collector.as_mut().map(|c| c as &mut dyn Recorder));
    let period = Nanos::from_secs_f64(options.period_ms * 1e-3);
    let driver = DriverConfig {
        period,
        until: Nanos::from_secs_f64(options.max_seconds),
    };
    drive(
        &mut simulation,
        policy.as_mut(),
        &mut recorders,
        driver,
        &mut policy_rng(seed),
    )?;
    let outcome = simulation.outcome();
    let score = Score::of(&outcome);
    let record = collector.map(|c| c.finish(&outcome, &score));
    Ok(Finished {
        score,
        usage: simulation.usage(),
        elapsed_s: outcome.elapsed_s,
        record,
    })
}

/// The policy's random numbers: a stream of its own, so that its draws do not depend on the kernel's.
pub fn policy_rng(seed: u64) -> policy::PolicyRng {
    policy::PolicyRng::seed_from_u64(seed.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

fn manifest(experiment: &Experiment<'_>, options: &SimOptions) -> Manifest {
    let Experiment {
        machine,
        workload,
        policy,
        seed,
        ..
    } = experiment;
    Manifest::new(
        (&machine.machine.name, &machine.text.text),
        (&workload.name, &workload.text.text),
        policy,
        *seed,
        Nanos::from_secs_f64(options.period_ms * 1e-3),
        options.listed(),
        workload.profiles.clone(),
    )
}

/// Runs many on all cores; results come in the order of the experiments, whatever the number of cores.
pub fn run_all(
    experiments: &[Experiment<'_>],
    options: &SimOptions,
) -> anyhow::Result<Vec<Finished>> {
    let bar = progress::bar(experiments.len() as u64, "simulating");
    let results: anyhow::Result<Vec<Finished>> = experiments
        .par_iter()
        .map(|e| {
            let finished = run(e, options);
            bar.inc(1);
            finished
        })
        .collect();
    bar.finish_and_clear();
    results
}
