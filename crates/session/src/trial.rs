//! Trial of a policy against a baseline in alternating blocks of one run, as a value.
//!
//! Whole runs are compared by [`crate::steering::whole_runs`].
//!
//! ```
//! use countersteer_model::units::Nanos;
//! use countersteer_session::live::Targets;
//! use countersteer_session::trial::BlockTrial;
//!
//! let program = Targets::Command(vec!["sleep".into(), "1".into()]);
//! let mut trial = BlockTrial::new(program, "aarr");
//! trial.block = Nanos::from_millis(100);
//! let found = trial.run()?;
//! println!("{:+.1} %", found.overall.gain * 100.0);
//! # Ok::<(), anyhow::Error>(())
//! ```

use std::path::PathBuf;

use countersteer_model::driver::DriverConfig;
use countersteer_model::trial::{Gain, TrialMeasure, TrialPlan};
use countersteer_model::units::Nanos;

use crate::bpf::Bpf;
use crate::live::{Live, Targets};
use crate::steering::ab_trial::{AbTrial, AlternatingPolicies};
use crate::steering::here::SteeredMachine;
use crate::steering::job::{self, Job, JobResult, Placing};
use crate::steering::socket;
use crate::steering::supervisor::RunControl;

/// Fraction of each block that is excluded from the measurement at the block's start.
const SETTLE: f64 = 0.2;

/// Trial in which a policy and a baseline alternate.
pub struct BlockTrial {
    pub targets: Targets,
    /// Name and parameters of the policy, and of the baseline.
    pub policy: String,
    pub baseline: String,
    /// Length of a block.
    pub block: Nanos,
    /// Confidence of the intervals, and difference up to which two arms count as equal; fractions.
    pub confidence: f64,
    pub margin: f64,
    /// True to end once a gain, a loss or equivalence is certain for all programs together.
    pub until_decided: bool,
    /// Time between decisions.
    pub period: Nanos,
    /// Time at which the trial ends at the latest; [`Nanos::NEVER`] without a limit.
    pub until: Nanos,
    /// Name or file of a machine; `None` for the detected one.
    pub machine: Option<String>,
    pub seed: u64,
    /// Folder of the record; an earlier record there is replaced. `None` without one.
    pub record: Option<PathBuf>,
    /// True to measure each wait in run queues by BPF programs (root).
    pub latency: bool,
}

/// Results of a trial.
pub struct TrialResult {
    /// Gain of each program, and of all together.
    pub gains: Vec<Gain>,
    pub overall: Gain,
    /// Quantity by which the arms were compared.
    pub measure: TrialMeasure,
    /// Results of the run; without them, the program failed and the gains mean nothing.
    pub done: JobResult,
}

impl BlockTrial {
    /// Begins with the defaults of `steer trial`: against Linux, blocks of 5 s, 95 % intervals, a margin of 1 %.
    #[must_use]
    pub fn new(targets: Targets, policy: &str) -> Self {
        let Live {
            targets,
            period,
            until,
            machine,
            seed,
            record,
            latency,
            ..
        } = Live::new(targets);
        Self {
            targets,
            policy: policy.to_owned(),
            baseline: countersteer_policies::LINUX.into(),
            block: Nanos::from_millis(5_000),
            confidence: 0.95,
            margin: 0.01,
            until_decided: false,
            period,
            until,
            machine,
            seed,
            record,
            latency,
        }
    }

    /// Runs the trial until the programs end, the time is over, it is decided, or a signal arrives.
    ///
    /// # Errors
    /// A program, policy or machine does not exist or cannot be steered, or the record cannot be written. It is also an error if a
    /// policy does not return from a decision.
    pub fn run(self) -> anyhow::Result<TrialResult> {
        job::restore()?;
        let here = SteeredMachine::look(self.machine.as_deref())?;
        let (policy, baseline) = (here.policy(&self.policy)?, here.policy(&self.baseline)?);
        let programs = self.targets.programs(&here.topology)?;
        let plan = TrialPlan {
            policy: self.block,
            baseline: self.block,
            settle: SETTLE,
            confidence: self.confidence,
            margin: self.margin,
        };
        let ab_trial = AbTrial::new(plan).between(&self.policy, &self.baseline);
        let ab_trial = if self.until_decided {
            ab_trial.ending_when_decided()
        } else {
            ab_trial
        };
        let control = RunControl::default();
        control.lock().fixed = Some("a trial compares two policies; neither can be changed");
        let both = AlternatingPolicies::new(&ab_trial, policy, baseline, None, &control);
        let spec = format!(
            "{} and {} in alternating blocks",
            self.policy, self.baseline
        );
        let job = Job {
            placing: Placing::AFFINITY,
            driver: DriverConfig {
                period: self.period,
                until: self.until,
            },
            seed: self.seed,
            record: self.record,
            ab_trial: Some(ab_trial.clone()),
            latency: self.latency.then_some(Bpf::Always),
            forgetful: self.targets.is_endless(),
            ..Job::new(spec, Box::new(both), control, socket::name("trial"))
        };
        let done = job::conduct(job, here, programs)?;
        let trial = ab_trial.trial();
        Ok(TrialResult {
            gains: trial.gains(),
            overall: trial.overall(),
            measure: trial.measure(),
            done,
        })
    }
}
