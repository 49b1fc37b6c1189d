//! A/B trial: alternates a policy and a baseline in randomized blocks of time on the live workload. The baseline is Linux's own
//! scheduler, or another policy.
//!
//! Input: a policy, a baseline, and a plan of blocks. Output: the decisions of the active arm. At each change of the arm,
//! threads that the new arm does not place are released. The [`Trial`] measures the blocks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use countersteer_model::engine::{Observation, Span};
use countersteer_model::placement::{Placement, PlacementState};
use countersteer_model::policy::{Needs, Params, Policy, PolicyError, PolicyRng, View, decide};
use countersteer_model::topology::Topology;
use countersteer_model::trial::{Arm, Trial, TrialPlan};
use countersteer_policies::{FOREGROUND, LINUX};
use countersteer_report::judge::trial::shortfall;

use super::foreground::Foreground;
use super::supervisor::{RunControl, take_back};

/// Handle of a trial, shared by the policy, which ends the blocks, and the tally, which passes observations to the trial.
#[derive(Clone)]
pub struct AbTrial {
    trial: Arc<Mutex<Trial>>,
    /// True if the run ends as soon as there is a verdict on all programs together.
    until_decided: bool,
    /// Program whose run-queue latency must not rise.
    foreground: Option<Arc<Mutex<Foreground>>>,
    /// Names of the policy and the baseline in the record.
    names: [String; 2],
}

impl AbTrial {
    /// Creates an A/B trial from a plan of blocks.
    pub fn new(plan: TrialPlan) -> Self {
        Self {
            trial: Arc::new(Mutex::new(Trial::new(plan))),
            until_decided: false,
            foreground: None,
            names: Default::default(),
        }
    }

    /// Returns the trial with the names of the policy and the baseline, for the record.
    pub fn between(self, policy: &str, baseline: &str) -> Self {
        let names = [policy, baseline].map(str::to_owned);
        Self { names, ..self }
    }

    pub const fn names(&self) -> &[String; 2] {
        &self.names
    }

    /// Returns the trial with a foreground program: its speed does not count, and its run-queue latency must not rise.
    pub fn with_foreground(self, program: &str) -> Self {
        let foreground = Arc::new(Mutex::new(Foreground::new(program)));
        Self {
            foreground: Some(foreground),
            ..self
        }
    }

    pub fn foreground(&self) -> Option<MutexGuard<'_, Foreground>> {
        let foreground = self.foreground.as_ref()?;
        Some(foreground.lock().unwrap_or_else(PoisonError::into_inner))
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
        let Some(foreground) = self.foreground() else {
            return self.trial().observe(seen);
        };
        let mut others = seen.clone();
        others.threads.retain(|t| !foreground.is_it(&t.name));
        others.programs.retain(|p| !foreground.is_it(&p.name));
        self.trial().observe(&others);
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
    /// Policy that replaces a rejected one.
    fallback: String,
    control: RunControl,
    judged: u64,
    /// Number of disturbances so far.
    disturbances: u64,
}

impl AlternatingPolicies {
    /// Creates a policy that alternates between `policy` and `baseline`, as the trial demands.
    pub fn new(
        ab_trial: &AbTrial,
        policy: Box<dyn Policy>,
        baseline: Box<dyn Policy>,
        margin: Option<f64>,
        control: &RunControl,
    ) -> Self {
        let (one, other) = (policy.needs(), baseline.needs());
        let needs = Needs {
            metrics: [&one.metrics[..], &other.metrics].concat(),
            events: one.events || other.events,
            phases: one.phases || other.phases,
            switches: one.switches || other.switches,
            period: None,
            groups: None,
        };
        let foreground = ab_trial.foreground();
        let fallback = foreground.map_or_else(
            || LINUX.to_owned(),
            |f| countersteer_policies::with_param(LINUX, FOREGROUND, f.program()),
        );
        Self {
            ab_trial: ab_trial.clone(),
            fallback,
            needs,
            policy,
            baseline,
            said: Default::default(),
            margin,
            control: control.clone(),
            judged: 0,
            disturbances: 0,
        }
    }

    /// Replaces the policy by `linux` if the foreground program waits longer, or if the measured gain is too far below the
    /// predicted gain.
    fn judge(&mut self) {
        let rejects = self.ab_trial.foreground().and_then(|mut f| f.compare());
        if let Some(why) = rejects {
            self.reject(why);
            return;
        }
        let Some(margin) = self.margin else { return };
        let overall = self.ab_trial.trial().overall();
        if overall.pairs == self.judged {
            return;
        }
        self.judged = overall.pairs;
        let predicted = self.control.lock().summary.predicted_gain;
        if let Some(why) = shortfall(&overall, predicted.unwrap_or(0.0), margin) {
            self.reject(why);
        }
    }

    fn reject(&self, why: String) {
        let mut shared = self.control.lock();
        say!(
            "policy {} was dropped: {why}; Linux's own scheduler continues",
            shared.policy
        );
        shared.exchange(&self.fallback, Some(why));
    }
}

impl Policy for AlternatingPolicies {
    fn needs(&self) -> &Needs {
        &self.needs
    }

    fn tune(&mut self, params: &Params, topology: &Arc<Topology>) -> Result<(), PolicyError> {
        self.policy.tune(params, topology)
    }

    fn switched(&mut self, ended: &[Span]) {
        for policy in [&mut self.policy, &mut self.baseline] {
            if policy.needs().switches {
                policy.switched(ended);
            }
        }
    }

    fn decide(&mut self, view: &mut View<'_>, rng: &mut PolicyRng) -> Placement {
        let disturbances = self.control.lock().disturbances;
        if std::mem::replace(&mut self.disturbances, disturbances) != disturbances {
            self.ab_trial.trial().interrupt();
        }
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

#[cfg(test)]
mod tests;
