//! Times alone of programs whose accesses are simulated.
//!
//! Input: an experiment with traces, and its outcome. Output: the time alone of each program, from runs alone through simulated
//! caches. It is the geometric mean of as many consecutive runs as the program finished with its co-runners. The first of them
//! starts with empty caches.
//!
//! The analytic model's time alone does not fit: its profile has the misses of a program that begins with empty caches. A program
//! that restarts finds its lines cached, so programs seemed faster with co-runners than alone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use countersteer_model::driver::{DriverConfig, drive};
use countersteer_model::policy::policy_rng;
use countersteer_model::score::Outcome;
use countersteer_model::units::{CoreTypeId, Nanos};
use countersteer_sim::engine::{Plan, PlannedProgram, cpus_alone};

use crate::experiment::{Experiment, Onlooker};

/// Consecutive runs alone: the first starts with empty caches, the second with the program's own lines.
const RUNS: u32 = 2;

/// Cache of simulated times alone by program, machine and options. Policies and seeds share them.
#[derive(Debug, Default)]
pub struct TimesAlone(Mutex<BTreeMap<String, Vec<f64>>>);

/// Replaces the analytic model's times alone by simulated ones.
pub(crate) fn simulate(
    experiment: &Experiment,
    plan: &Plan,
    outcome: &mut Outcome,
) -> anyhow::Result<()> {
    let (fast, slow) = experiment.machine.topology.extremes();
    for (planned, program) in plan.programs.iter().zip(&mut outcome.programs) {
        let runs = program.completions_s.len();
        program.alone_fast_s = mean(&times(experiment, planned, None)?, runs);
        program.alone_slow_s = if fast == slow {
            program.alone_fast_s
        } else {
            mean(&times(experiment, planned, Some(slow))?, runs)
        };
    }
    Ok(())
}

/// Geometric mean of the given number of consecutive runs; 0 if `times` is empty. The last known time repeats for missing runs.
fn mean(times: &[f64], runs: usize) -> f64 {
    let Some(last) = times.last() else { return 0.0 };
    let runs = runs.max(1);
    let all = times.iter().chain(std::iter::repeat(last)).take(runs);
    (all.map(|s| s.ln()).sum::<f64>() / runs as f64).exp()
}

/// Times of a program's consecutive runs alone. It runs on the whole machine, fast cores first, or on the cores of one type.
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
        lone.scale,
    );
    let key = format!("{machine} {only:?} {program:?} {:?}", experiment.options);
    let known = &experiment.workload.alone.0;
    // The lock is held during the simulation: concurrent experiments need the same times.
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
