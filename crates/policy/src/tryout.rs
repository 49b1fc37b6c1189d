//! Simulation of a policy in a test.
//!
//! Input: a machine, programs, and a policy. Output: the [`Score`] of the run.

use std::sync::Arc;

use countersteer_model::driver::{DriverConfig, drive};
use countersteer_model::machine::Machine;
use countersteer_model::policy::{Params, Policy, PolicyDef, PolicyError, policy_rng};
use countersteer_model::profile::Profile;
use countersteer_model::score::Score;
use countersteer_model::topology::Topology;
use countersteer_model::units::Nanos;
use countersteer_sim::engine::{Plan, PlannedProgram, SimConfig, SimError, Simulation};
use countersteer_sim::linux::LinuxConfig;
use countersteer_sim::progress::ProgressConfig;

/// Time between two decisions, as `steer sim` has it by default.
const PERIOD: Nanos = Nanos::from_millis(100);
/// Relative standard deviation of the noise on counter values.
const COUNTER_NOISE: f64 = 0.01;
/// CPU time that reading the counters of one thread costs.
const SAMPLE_COST: Nanos = Nanos::from_micros(2);

/// Programs on a simulated machine, for a policy that is tried.
///
/// The simulator is that of `steer sim`, with its default options. The same programs, policy and seed give the same score.
#[derive(Clone, Debug)]
pub struct Tryout {
    topology: Arc<Topology>,
    plan: Plan,
    seed: u64,
    period: Nanos,
    rounds: u32,
}

/// Reasons why a policy cannot be tried.
#[derive(Debug, thiserror::Error)]
pub enum TryoutError {
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Simulation(#[from] SimError),
    /// There is no program to run.
    #[error("no program is given: call `program` first")]
    NoProgram,
}

impl Tryout {
    /// Begins with a machine and no programs.
    #[must_use]
    pub fn on(machine: &Machine) -> Self {
        Self {
            topology: Arc::new(Topology::new(machine)),
            plan: Plan::default(),
            seed: 1,
            period: PERIOD,
            rounds: 3,
        }
    }

    /// Adds a program with one thread, which runs again and again.
    #[must_use]
    pub fn program(self, profile: Profile) -> Self {
        self.threads(profile, 1)
    }

    /// Adds a program with this number of threads, at least 1, which share its work equally.
    #[must_use]
    pub fn threads(mut self, profile: Profile, threads: u32) -> Self {
        self.plan.programs.push(PlannedProgram {
            name: profile.name().into(),
            profile: Arc::new(profile),
            threads: threads.max(1),
            serial_share: 0.0,
            nice: 0,
            control: Default::default(),
            start: Nanos::ZERO,
            bursts: None,
            barriers: 1,
            chunk: None,
            launch_on: None,
            scale: 1.0,
        });
        self
    }

    /// Sets the seed of the random numbers; 1 by default.
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the time between two decisions; 100 ms by default.
    #[must_use]
    pub const fn period(mut self, period: Nanos) -> Self {
        self.period = period;
        self
    }

    /// Sets the number of runs that every program completes before the end; 3 by default.
    #[must_use]
    pub const fn rounds(mut self, rounds: u32) -> Self {
        self.rounds = rounds;
        self
    }

    /// Machine on which the programs run, as the policy sees it.
    #[must_use]
    pub const fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// Runs the programs under a policy with parameters, e.g. `most=1.5,patience=2`, or an empty text.
    ///
    /// # Errors
    /// The parameters are not the policy's, there is no program, or the machine cannot run a program.
    pub fn run(&self, policy: &PolicyDef, params: &str) -> Result<Score, TryoutError> {
        let params = Params::parse(policy, params)?;
        let mut policy = (policy.make)(&params, &self.topology)?;
        self.simulate(policy.as_mut())
    }

    /// Runs the programs under a shipped policy, e.g. `hsf:sf=sampled`.
    ///
    /// # Errors
    /// There is no such policy; see also [`Self::run`].
    pub fn shipped(&self, policy: &str) -> Result<Score, TryoutError> {
        let mut policy = countersteer_policies::parse(policy, &self.topology)?;
        self.simulate(policy.as_mut())
    }

    /// Runs the programs under the simulated Linux alone.
    ///
    /// # Errors
    /// See [`Self::run`].
    pub fn linux(&self) -> Result<Score, TryoutError> {
        self.shipped(countersteer_policies::LINUX)
    }

    fn simulate(&self, policy: &mut dyn Policy) -> Result<Score, TryoutError> {
        if self.plan.programs.is_empty() {
            return Err(TryoutError::NoProgram);
        }
        let config = SimConfig {
            seed: self.seed,
            linux: LinuxConfig {
                seed: self.seed,
                ..LinuxConfig::default()
            },
            progress: ProgressConfig::default(),
            counter_noise: COUNTER_NOISE,
            sample_cost: SAMPLE_COST,
            rounds: self.rounds,
            trace: false,
            governor: None,
        };
        let mut simulation = Simulation::new(Arc::clone(&self.topology), &self.plan, config)?;
        let driver = DriverConfig {
            period: self.period,
            until: Nanos::NEVER,
        };
        let mut rng = policy_rng(self.seed);
        drive(&mut simulation, policy, &mut [], driver, &mut rng)?;
        Ok(Score::of(&simulation.outcome()))
    }
}
