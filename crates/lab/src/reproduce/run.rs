//! One simulation of a case.

use std::sync::Arc;

use crate::experiment::{Experiment, Finished, LoadedMachine, SimOptions};
use crate::plan::Loaded;

/// Simulation that belongs to a case, with its row and arm.
pub(super) struct CaseRun<'a> {
    pub row: &'a str,
    pub arm: &'a str,
    pub policy: &'a str,
    pub workload: &'a Arc<Loaded>,
    pub seed: u64,
}

/// Creates the experiment of a run.
pub(super) fn experiment(
    machine: &Arc<LoadedMachine>,
    run: &CaseRun<'_>,
    options: &SimOptions,
) -> Experiment {
    Experiment {
        machine: Arc::clone(machine),
        workload: Arc::clone(run.workload),
        policy: run.policy.to_owned(),
        seed: run.seed,
        options: options.clone(),
        detail: None,
    }
}

/// Runs one simulation of a case.
pub(super) fn run(
    machine: &Arc<LoadedMachine>,
    run: &CaseRun<'_>,
    options: &SimOptions,
) -> anyhow::Result<Finished> {
    experiment(machine, run, options).run()
}
