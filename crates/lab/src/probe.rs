//! Probing runs, which show if a gain comes from the start CPUs of programs or from later decisions of the policy.
//!
//! Input: a sweep and the rankings of its runs. Output: further runs for the verdict, with the first `SEEDS` seeds:
//!
//! - The best policy decides only in the first period, and Linux continues from the current CPUs of the threads. The remaining
//!   gain comes from the start CPUs.
//! - If the workload fixes the start CPUs of programs, `linux` and the best policy run once more without this.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use countersteer_policies::LINUX;
use countersteer_policies::reach::shelf;
use countersteer_report::judge::{Facts, Probed, ProbingGap, Ranking, WORTH, judge};
use countersteer_report::table::CompareRun;
use rayon::prelude::*;

use crate::experiment::{Experiment, LoadedMachine, SimOptions};
use crate::plan::Loaded;
use crate::sweep::Sweep;

/// Limit on the number of seeds for probing runs.
const SEEDS: u64 = 3;

/// True if a workload fixes the start CPUs of at least one program.
fn is_pinned(workload: &Loaded) -> bool {
    workload.programs.iter().any(|(p, _)| p.launch_on.is_some())
}

/// Returns the unmet requirements of a sweep's policies by machine, as pairs (policy, reason).
fn unmet(sweep: &Sweep) -> anyhow::Result<BTreeMap<String, Vec<(String, String)>>> {
    let mut by_machine = BTreeMap::new();
    for machine in &sweep.machines {
        let mut rows = Vec::new();
        for policy in &sweep.policies {
            let unmet = machine.unmet(policy)?.into_iter();
            rows.extend(unmet.map(|why| (policy.clone(), why)));
        }
        by_machine.insert(machine.machine.name.clone(), rows);
    }
    Ok(by_machine)
}

/// Returns the facts for the verdict that a sweep's runs do not contain. Runs further experiments if needed.
///
/// # Errors
/// Fails with the errors of the experiments.
pub fn facts(sweep: &Sweep, runs: &[CompareRun]) -> anyhow::Result<Facts> {
    let shelf = |m: &Arc<LoadedMachine>| (m.machine.name.clone(), shelf(&m.topology).policies);
    let pinned = sweep.workloads.iter().filter(|w| is_pinned(w));
    let mut facts = Facts {
        probed: Vec::new(),
        unmet: unmet(sweep)?,
        shelves: sweep.machines.iter().map(shelf).collect(),
        pinned: pinned.map(|w| w.name.clone()).collect(),
    };
    facts.probed = probe(sweep, &judge(runs, &facts))?;
    Ok(facts)
}

fn probe(sweep: &Sweep, rankings: &[Ranking]) -> anyhow::Result<Vec<Probed>> {
    let mut wanted = Vec::new();
    for ranking in rankings {
        wanted.extend(experiments(sweep, ranking)?);
    }
    wanted
        .par_iter()
        .map(|(probe, experiment)| {
            let probe = *probe;
            let run = experiment.scored(&experiment.run()?);
            Ok(Probed { probe, run })
        })
        .collect()
}

/// Returns the probing experiments for one ranking.
fn experiments(sweep: &Sweep, ranking: &Ranking) -> anyhow::Result<Vec<(ProbingGap, Experiment)>> {
    let best = ranking.best().filter(|b| b.throughput.mean >= WORTH);
    let Some(best) = best else {
        return Ok(Vec::new());
    };
    let machine = sweep
        .machines
        .iter()
        .find(|m| m.machine.name == ranking.machine);
    let workload = sweep.workloads.iter().find(|w| w.name == ranking.workload);
    let (machine, workload) = machine
        .zip(workload)
        .context("a ranking is of another sweep")?;
    let mut wanted = Vec::new();
    let mut want = |probe, policy: &str, options: SimOptions| {
        wanted.extend((1..=sweep.seeds.min(SEEDS)).map(|seed| {
            let experiment = Experiment {
                machine: Arc::clone(machine),
                workload: Arc::clone(workload),
                policy: policy.to_owned(),
                seed,
                options: options.clone(),
                detail: None,
            };
            (probe, experiment)
        }));
    };
    let first_period = SimOptions {
        steer_ms: Some(sweep.options.period_ms),
        ..sweep.options.clone()
    };
    want(ProbingGap::Start, &best.policy, first_period);
    if is_pinned(workload) {
        let fair = SimOptions {
            ignore_launch: true,
            ..sweep.options.clone()
        };
        want(ProbingGap::FairLaunch, LINUX, fair.clone());
        want(ProbingGap::FairLaunch, &best.policy, fair);
    }
    Ok(wanted)
}
