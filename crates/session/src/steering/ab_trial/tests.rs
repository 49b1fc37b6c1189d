//! A whole trial on a simulated machine, with a foreground program whose waits are those of the simulated run queues.

use std::sync::Arc;
use std::time::Duration;

use countersteer_lab::library;
use countersteer_model::driver::{DriverConfig, drive};
use countersteer_model::engine::{Applied, Engine, Forecast, Watch};
use countersteer_model::latency::Histogram;
use countersteer_model::policy::policy_rng;
use countersteer_model::units::Nanos;
use countersteer_sim::engine::{Plan, PlannedProgram, SimConfig, SimError, Simulation};
use countersteer_sim::linux::LinuxConfig;
use countersteer_sim::progress::ProgressConfig;
use countersteer_sim::progress::synthetic::{self, profile};
use countersteer_sysfs::waits::{MeasuredWaits, Waits};

use super::super::supervisor::Supervisor;
use super::super::watchdog::PolicyCalls;
use super::*;

const PERIOD: Nanos = Nanos::from_millis(100);
const UNTIL: Nanos = Nanos::from_millis(240_000);

/// Simulated machine that reports to the trial how long the first program waited.
struct Waiting {
    simulation: Simulation,
    trial: AbTrial,
    control: RunControl,
    before: Histogram,
    /// Waits under the policy, and after it was dropped.
    waits: [Histogram; 2],
}

impl Engine for Waiting {
    type Error = SimError;

    fn topology(&self) -> &Arc<Topology> {
        self.simulation.topology()
    }

    fn observe(&mut self, watch: &Watch<'_>, until: Nanos) -> Result<Observation, SimError> {
        let seen = self.simulation.observe(watch, until)?;
        let all = self.simulation.waits(0).unwrap_or_default();
        let woken = all.since(&self.before);
        self.before = all;
        let side = self.trial.side();
        match (self.control.lock().dropped.is_some(), side) {
            (true, _) => self.waits[1].add(&woken),
            (false, 0) => self.waits[0].add(&woken),
            _ => {}
        }
        let waits = Waits {
            times: woken.count(),
            total_ns: 0,
            measured: Some(MeasuredWaits {
                longest_ns: woken.quantile_ns(1.0).unwrap_or(0),
                woken,
                ..MeasuredWaits::default()
            }),
        };
        if let Some(mut foreground) = self.trial.foreground() {
            foreground.add(side, &"game".into(), &waits);
        }
        self.trial.observe(&seen);
        Ok(seen)
    }

    fn apply(&mut self, placement: &Placement) -> Result<Applied, SimError> {
        self.simulation.apply(placement)
    }

    fn forecast(&mut self) -> Option<&mut dyn Forecast> {
        Engine::forecast(&mut self.simulation)
    }
}

fn program(name: &str, instructions: u64, bursts: Option<(f64, Nanos)>) -> PlannedProgram {
    PlannedProgram {
        name: name.into(),
        profile: Arc::new(profile(name, &[(synthetic::compute(), instructions)])),
        threads: 1,
        serial_share: 0.0,
        control: Default::default(),
        nice: 0,
        start: Nanos::ZERO,
        bursts,
        launch_on: None,
        scale: 1.0,
        barriers: 1,
        chunk: None,
    }
}

/// Runs a trial of a policy beside twelve programs that never sleep, on six CPUs. Returns the policy at the end, why the first
/// one was dropped, and the program's 99th percentile, in ns, under the policy and after that.
fn conduct(spec: &str) -> (String, Option<String>, [Option<u64>; 2]) {
    let (machine, _) = library::machine("juno-2-4").unwrap();
    let topology = Arc::new(Topology::new(&machine));
    let bursts = Some((2e6, Nanos::from_millis(10)));
    let mut programs = vec![program("game", 4_000_000_000, bursts)];
    programs.extend((0..12).map(|n| program(&format!("batch{n}"), 40_000_000_000, None)));
    let config = SimConfig {
        seed: 1,
        linux: LinuxConfig::default(),
        progress: ProgressConfig::default(),
        counter_noise: 0.0,
        sample_cost: Nanos::ZERO,
        rounds: u32::MAX,
        trace: false,
        governor: None,
    };
    let plan = TrialPlan {
        policy: Nanos::from_millis(6_000),
        baseline: Nanos::from_millis(6_000),
        settle: 0.2,
        confidence: 0.95,
        margin: 0.01,
    };
    let control = RunControl::default();
    let trial = AbTrial::new(plan).with_foreground("game");
    let mut engine = Waiting {
        simulation: Simulation::new(
            Arc::clone(&topology),
            &Plan {
                programs,
                ..Plan::default()
            },
            config,
        )
        .unwrap(),
        trial: trial.clone(),
        control: control.clone(),
        before: Histogram::default(),
        waits: Default::default(),
    };
    let [policy, linux] =
        [spec, "linux"].map(|spec| countersteer_policies::parse(spec, &topology).unwrap());
    let both = AlternatingPolicies::new(&trial, policy, linux, None, &control);
    let period = Duration::from_millis(100);
    let mut supervisor = Supervisor::new(
        (spec, Box::new(both)),
        &topology,
        &control,
        period,
        PolicyCalls::default(),
    );
    let mut rng = policy_rng(1);
    let config = DriverConfig {
        period: PERIOD,
        until: UNTIL,
    };
    drive(&mut engine, &mut supervisor, &mut [], config, &mut rng).unwrap();
    let shared = control.lock();
    let tails = engine.waits.map(|waits| waits.quantile_ns(0.99));
    (shared.policy.clone(), shared.dropped.clone(), tails)
}

#[test]
fn a_policy_under_which_the_foreground_program_waits_longer_is_rejected_and_it_waits_less_then() {
    let (policy, why, [before, after]) = conduct("static:*=cortex-a53");
    let why = why.unwrap();
    assert!(
        why.contains("game waits longer for a CPU: the 99th percentile"),
        "{why}"
    );
    assert_eq!(policy, "linux:foreground=game");
    let (before, after) = (before.unwrap(), after.unwrap());
    assert!(after < before, "{after} ns after {before} ns");
}

#[test]
fn a_policy_that_makes_others_give_way_is_kept() {
    let (policy, why, _) = conduct("static:*=cortex-a53,foreground=game");
    assert_eq!(why, None);
    assert_eq!(policy, "static:*=cortex-a53,foreground=game");
}
