//! A/B trial: alternates a policy and a baseline (Linux's own scheduler, or another policy) in randomized blocks on the live workload.
//!
//! Input: a policy, a baseline, a plan of blocks. Output: the decisions of the one that is active; at each change all threads that
//! it does not place are let go. What is measured in between is a [`Trial`]'s business.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use countersteer_model::engine::Observation;
use countersteer_model::placement::{Placement, PlacementState};
use countersteer_model::policy::{Needs, Params, Policy, PolicyError, PolicyRng, View, decide};
use countersteer_model::topology::Topology;
use countersteer_model::trial::{Arm, Trial, TrialPlan};
use countersteer_report::judge::trial::shortfall;

use super::supervisor::{Control, take_back};

/// A trial that the policy turns and the tally feeds.
#[derive(Clone)]
pub struct AbTrial {
    trial: Arc<Mutex<Trial>>,
    /// The run ends when all programs together are decided about.
    until_decided: bool,
}

impl AbTrial {
    /// An A/B trial by this plan.
    pub fn new(plan: TrialPlan) -> Self {
        Self {
            trial: Arc::new(Mutex::new(Trial::new(plan))),
            until_decided: false,
        }
    }

    /// Ends the run with the first verdict about all programs together.
    pub fn ending_when_decided(self) -> Self {
        Self {
            until_decided: true,
            ..self
        }
    }

    /// Whether nothing is left to find out.
    pub fn is_over(&self) -> bool {
        self.until_decided && self.trial().overall().verdict.is_some()
    }

    pub fn trial(&self) -> MutexGuard<'_, Trial> {
        self.trial.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which side decides now: 0 for the policy, 1 for the baseline.
    pub fn side(&self) -> usize {
        usize::from(self.trial().arm() == Arm::Baseline)
    }

    /// Gains by program, then of all together, as JSON for the record.
    pub fn found(&self) -> serde_json::Result<String> {
        let trial = self.trial();
        let mut gains = trial.gains();
        gains.push(trial.overall());
        serde_json::to_string(&gains)
    }

    /// Takes in what was seen.
    pub fn observe(&self, seen: &Observation) {
        self.trial().observe(seen);
    }
}

/// Two policies that alternate.
pub struct AlternatingPolicies {
    ab_trial: AbTrial,
    needs: Needs,
    policy: Box<dyn Policy>,
    baseline: Box<dyn Policy>,
    /// What either side has said, to be said again in its next block.
    said: [PlacementState; 2],
    /// How far below the predicted gain the measured one may lie; for trials that only measure, nothing is enough.
    margin: Option<f64>,
    control: Control,
    judged: u64,
}

impl AlternatingPolicies {
    /// A policy and what it is compared with.
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

    /// Gives the policy up when it gains less than it predicts.
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
            "steer: policy {} is given up: {why}; Linux's own scheduler goes on",
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
                "the other side of a trial decides from now on",
            );
        }
        placement
    }
}
