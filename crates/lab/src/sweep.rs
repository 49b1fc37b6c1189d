//! Sweeps: comparisons of policies over machines, workloads and seeds.

use std::sync::Arc;

use countersteer_report::record::Detail;
use serde::{Deserialize, Serialize};

use crate::experiment::{Experiment, LoadedMachine, SimOptions};
use crate::plan::{self, Loaded};

/// Sweep of experiments: every policy on every machine with every workload and seed.
///
/// ```
/// use countersteer_lab::experiment::run_all;
/// use countersteer_lab::{Experiment, Sweep};
///
/// let one = Experiment::named("quickia-2b-2s", "unequal-cores", "linux")?;
/// let mut sweep = Sweep {
///     machines: vec![one.machine],
///     workloads: vec![one.workload],
///     policies: vec!["linux".to_owned(), "hsf".to_owned()],
///     seeds: 2,
///     options: one.options,
/// };
/// sweep.options.rounds = 1;
/// sweep.check()?;
/// let experiments = sweep.experiments(|_| None);
/// assert_eq!(experiments.len(), 4);
/// let finished = run_all(&experiments, &|| ())?;
/// assert!(finished[2].score.stp > finished[0].score.stp);
/// # Ok::<(), anyhow::Error>(())
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sweep {
    pub machines: Vec<Arc<LoadedMachine>>,
    pub workloads: Vec<Arc<Loaded>>,
    /// Policies with their parameters.
    pub policies: Vec<String>,
    /// Number of seeds; the first is 1.
    pub seeds: u64,
    #[serde(default)]
    pub options: SimOptions,
}

impl Sweep {
    /// Checks that every experiment can start.
    ///
    /// # Errors
    /// Fails if a policy or a group in `launch_on` does not exist on a machine.
    pub fn check(&self) -> anyhow::Result<()> {
        for machine in &self.machines {
            for policy in &self.policies {
                countersteer_policies::parse(policy, &machine.topology)?;
                crate::scx::scheduler(policy, &machine.topology, 1)?;
            }
            for workload in &self.workloads {
                plan::plan(workload, &machine.topology)?;
            }
        }
        Ok(())
    }

    /// Returns the experiments in the order machine, workload, policy, seed. `detail` returns the level of
    /// detail of the record for a seed.
    pub fn experiments(&self, detail: impl Fn(u64) -> Option<Detail>) -> Vec<Experiment> {
        let mut experiments = Vec::new();
        for machine in &self.machines {
            for workload in &self.workloads {
                for policy in &self.policies {
                    experiments.extend((1..=self.seeds).map(|seed| Experiment {
                        machine: Arc::clone(machine),
                        workload: Arc::clone(workload),
                        policy: policy.clone(),
                        seed,
                        options: self.options.clone(),
                        detail: detail(seed),
                    }));
                }
            }
        }
        experiments
    }
}
