//! Times alone of programs whose memory accesses are simulated.
//!
//! Input: an experiment with traces, and its outcome. Output: the time alone of each program, from simulations of the program
//! alone with caches. It is the geometric mean of as many consecutive runs as the program finished with its co-runners. The first
//! of these runs starts with empty caches.
//!
//! The analytic model's time alone is not comparable: its profile has the misses of a program that starts with empty caches. A
//! program that restarts finds its lines in the cache, so it would seem faster with co-runners than alone.

use std::sync::{Arc, PoisonError};

use countersteer_model::driver::{DriverConfig, drive};
use countersteer_model::policy::policy_rng;
use countersteer_model::score::Outcome;
use countersteer_model::units::{CoreTypeId, Nanos};
use countersteer_sim::engine::{Plan, PlannedProgram, cpus_alone};

use crate::experiment::{Experiment, Onlooker};

/// Number of consecutive runs that are simulated alone: one with empty caches, and one that finds the program's own lines.
const RUNS: u32 = 2;

impl Experiment {
    /// Replaces the analytic model's times alone in an outcome by simulated ones.
    pub(crate) fn simulate_alone(&self, plan: &Plan, outcome: &mut Outcome) -> anyhow::Result<()> {
        let (fast, slow) = self.machine.topology.extremes();
        for (planned, program) in plan.programs.iter().zip(&mut outcome.programs) {
            let runs = program.completions_s.len();
            program.alone_fast_s = mean(&times(self, planned, None)?, runs);
            program.alone_slow_s = if fast == slow {
                program.alone_fast_s
            } else {
                mean(&times(self, planned, Some(slow))?, runs)
            };
        }
        Ok(())
    }
}

/// Returns the geometric mean of the first `runs` times; the last time repeats for missing runs. Returns 0 if `times` is empty.
fn mean(times: &[f64], runs: usize) -> f64 {
    let Some(last) = times.last() else { return 0.0 };
    let runs = runs.max(1);
    let all = times.iter().chain(std::iter::repeat(last)).take(runs);
    (all.map(|s| s.ln()).sum::<f64>() / runs as f64).exp()
}

/// Returns the times of a program's consecutive runs alone. The program runs on the whole machine, fast cores first, or on the
/// cores of the type `only`.
fn times(
    experiment: &Experiment,
    planned: &PlannedProgram,
    only: Option<CoreTypeId>,
) -> anyhow::Result<Vec<f64>> {
    let lone = PlannedProgram {
        name: "alone".into(),
        nice: 0,
        start: Nanos::ZERO,
        launch_on: None,
        ..planned.clone()
    };
    let machine = &experiment.machine.machine.name;
    let program = (
        Arc::as_ptr(&lone.profile),
        lone.threads,
        lone.serial_share,
        lone.bursts,
        lone.barriers,
        lone.chunk,
        lone.scale,
    );
    let key = format!("{machine} {only:?} {program:?} {:?}", experiment.options);
    let known = &experiment.workload.alone.0;
    // The lock is held during the simulation, so that concurrent experiments do not simulate the same times.
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(times) = known.get(&key) {
        return Ok(times.clone());
    }
    let times = run(experiment, lone, only)?;
    known.insert(key, times.clone());
    Ok(times)
}

fn run(
    experiment: &Experiment,
    mut program: PlannedProgram,
    only: Option<CoreTypeId>,
) -> anyhow::Result<Vec<f64>> {
    let topology = &experiment.machine.topology;
    let cpus = cpus_alone(topology, only).into_iter();
    let cpus: Vec<String> = cpus
        .take(program.threads as usize)
        .map(|cpu| cpu.0.to_string())
        .collect();
    program.launch_on = Some(Arc::new(cpus.join(",").parse()?));
    let mut alone = Experiment {
        seed: 1,
        detail: None,
        policy: format!("static:*={}", cpus.join("+")),
        ..experiment.clone()
    };
    alone.options.rounds = RUNS;
    let plan = Plan {
        programs: vec![program],
        ..Plan::default()
    };
    let mut simulation = alone.simulation(&plan, &Onlooker::default())?;
    let mut policy = countersteer_policies::parse(&alone.policy, topology)?;
    let driver = DriverConfig {
        period: alone.period(),
        until: Nanos::from_secs_f64(alone.options.max_seconds),
    };
    let mut rng = policy_rng(alone.seed);
    drive(&mut simulation, policy.as_mut(), &mut [], driver, &mut rng)?;
    let outcome = simulation.outcome();
    Ok(outcome
        .programs
        .into_iter()
        .flat_map(|p| p.completions_s)
        .collect())
}
