//! A/B trial: alternates a policy and a baseline in randomized blocks of time on the live workload. The baseline is Linux's own
//! scheduler, or another policy.
//!
//! Input: a policy, a baseline, and a plan of blocks. Output: the decisions of the active arm. At each change of the arm,
//! threads that the new arm does not place are released. The [`Trial`] measures the blocks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use countersteer_model::engine::Observation;
use countersteer_model::placement::{Placement, PlacementState};
use countersteer_model::policy::{Needs, Params, Policy, PolicyError, PolicyRng, View, decide};
use countersteer_model::topology::Topology;
use countersteer_model::trial::{Arm, Trial, TrialPlan};
use countersteer_report::judge::trial::shortfall;

use super::supervisor::{Control, take_back};

/// Handle of a trial, shared by the policy, which ends the blocks, and the tally, which passes observations to the trial.
#[derive(Clone)]
pub struct AbTrial {
    trial: Arc<Mutex<Trial>>,
    /// True if the run ends as soon as there is a verdict on all programs together.
    until_decided: bool,
}

impl AbTrial {
    /// Creates an A/B trial from a plan of blocks.
    pub fn new(plan: TrialPlan) -> Self {
        Self {
            trial: Arc::new(Mutex::new(Trial::new(plan))),
            until_decided: false,
        }
    }

    /// Returns the trial with a changed rule: the first verdict on all programs together ends the run.
    pub fn ending_when_decided(self) -> Self {
        Self {
            until_decided: true,
            ..self
        }
    }

    /// Returns true if a verdict ends the trial, and there is one.
    pub fn is_over(&self) -> bool {
        self.until_decided && self.trial().overall().verdict.is_some()
    }

    pub fn trial(&self) -> MutexGuard<'_, Trial> {
        self.trial.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the index of the active arm: 0 for the policy, 1 for the baseline.
    pub fn side(&self) -> usize {
        usize::from(self.trial().arm() == Arm::Baseline)
    }

    /// Returns the gains of each program and of all programs together, as JSON for the record.
    pub fn found(&self) -> serde_json::Result<String> {
        let trial = self.trial();
        let mut gains = trial.gains();
        gains.push(trial.overall());
        serde_json::to_string(&gains)
    }

    /// Passes an observation of the threads to the trial.
    pub fn observe(&self, seen: &Observation) {
        self.trial().observe(seen);
    }
}

/// Policy that alternates between a policy and a baseline.
pub struct AlternatingPolicies {
    ab_trial: AbTrial,
    needs: Needs,
    policy: Box<dyn Policy>,
    baseline: Box<dyn Policy>,
    /// Placement of each arm at its last decision, which is restored at the start of the arm's next block.
    said: [PlacementState; 2],
    /// Maximum difference by which the measured gain may be below the predicted gain; `None` if the trial only measures.
    margin: Option<f64>,
    control: Control,
    judged: u64,
}

impl AlternatingPolicies {
    /// Creates a policy that alternates between `policy` and `baseline`, as the trial demands.
    pub fn new(
        ab_trial: &AbTrial,
        policy: Box<dyn Policy>,
        baseline: Box<dyn Policy>,
        margin: Option<f64>,
        control: &Control,
    ) -> Self {
        let (one, other) = (policy.needs(), baseline.needs());
        let needs = Needs {
            metrics: [&one.metrics[..], &other.metrics].concat(),
            events: one.events || other.events,
            phases: one.phases || other.phases,
            period: None,
            groups: None,
        };
        Self {
            ab_trial: ab_trial.clone(),
            needs,
            policy,
            baseline,
            said: Default::default(),
            margin,
            control: control.clone(),
            judged: 0,
        }
    }

    /// Replaces the policy by `linux` if the measured gain is too far below the predicted gain.
    fn judge(&mut self) {
        let Some(margin) = self.margin else { return };
        let overall = self.ab_trial.trial().overall();
        if overall.pairs == self.judged {
            return;
        }
        self.judged = overall.pairs;
        let mut shared = self.control.lock();
        let predicted = shared.summary.predicted_gain.unwrap_or(0.0);
        let Some(why) = shortfall(&overall, predicted, margin) else {
            return;
        };
        eprintln!(
            "steer: policy {} was dropped: {why}; Linux's own scheduler continues",
            shared.policy
        );
        shared.exchange("linux", Some(why));
    }
}

impl Policy for AlternatingPolicies {
    fn needs(&self) -> &Needs {
        &self.needs
    }

    fn tune(&mut self, params: &Params, topology: &Arc<Topology>) -> Result<(), PolicyError> {
        self.policy.tune(params, topology)
    }

    fn decide(&mut self, view: &mut View<'_>, rng: &mut PolicyRng) -> Placement {
        let changed = self.ab_trial.trial().turn(view.now, rng);
        if changed {
            self.judge();
        }
        let arm = self.ab_trial.trial().arm();
        let mut placement = match arm {
            Arm::Policy => decide(self.policy.as_mut(), view, rng),
            Arm::Baseline => decide(self.baseline.as_mut(), view, rng),
        };
        let said = &mut self.said[usize::from(arm == Arm::Baseline)];
        said.retain(|id| view.lives(id));
        said.add(&placement);
        if changed {
            placement = said.placement();
            take_back(
                &mut placement,
                view,
                "the other arm of the trial decides from now on",
            );
        }
        placement
    }
}
