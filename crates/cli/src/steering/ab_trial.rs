//! A/B trial: alternates a policy and a baseline in randomized blocks on the live workload. The baseline is Linux's own
//! scheduler, or another policy.
//!
//! Input: a policy, a baseline, a plan of blocks. Output: the decisions of the active one. At each change, threads that it does
//! not place are released. The [`Trial`] measures the blocks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use countersteer_model::engine::Observation;
use countersteer_model::placement::{Placement, PlacementState};
use countersteer_model::policy::{Needs, Params, Policy, PolicyError, PolicyRng, View, decide};
use countersteer_model::topology::Topology;
use countersteer_model::trial::{Arm, Trial, TrialPlan};
use countersteer_report::judge::trial::shortfall;

use super::supervisor::{Control, take_back};

/// A trial; the policy ends its blocks, and the tally feeds it observations.
#[derive(Clone)]
pub struct AbTrial {
    trial: Arc<Mutex<Trial>>,
    /// Ends the run once there is a verdict about all programs together.
    until_decided: bool,
}

impl AbTrial {
    /// Creates an A/B trial from this plan.
    pub fn new(plan: TrialPlan) -> Self {
        Self {
            trial: Arc::new(Mutex::new(Trial::new(plan))),
            until_decided: false,
        }
    }

    /// Makes the first verdict about all programs together end the run.
    pub fn ending_when_decided(self) -> Self {
        Self {
            until_decided: true,
            ..self
        }
    }

    /// True if the trial ends on a verdict, and has one.
    pub fn is_over(&self) -> bool {
        self.until_decided && self.trial().overall().verdict.is_some()
    }

    pub fn trial(&self) -> MutexGuard<'_, Trial> {
        self.trial.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Index of the active arm: 0 for the policy, 1 for the baseline.
    pub fn side(&self) -> usize {
        usize::from(self.trial().arm() == Arm::Baseline)
    }

    /// Gains by program, then of all programs together, as JSON for the record.
    pub fn found(&self) -> serde_json::Result<String> {
        let trial = self.trial();
        let mut gains = trial.gains();
        gains.push(trial.overall());
        serde_json::to_string(&gains)
    }

    /// Processes an observation.
    pub fn observe(&self, seen: &Observation) {
        self.trial().observe(seen);
    }
}

/// Policy that alternates between two policies.
pub struct AlternatingPolicies {
    ab_trial: AbTrial,
    needs: Needs,
    policy: Box<dyn Policy>,
    baseline: Box<dyn Policy>,
    /// Placement state of each arm, to restore in its next block.
    said: [PlacementState; 2],
    /// Largest accepted shortfall of the measured gain below the predicted gain; `None` if the trial only measures.
    margin: Option<f64>,
    control: Control,
    judged: u64,
}

impl AlternatingPolicies {
    /// Combines a policy and its baseline.
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

    /// Drops the policy if it gains less than it predicts.
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
