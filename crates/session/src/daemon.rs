//! Steering of a whole host by rules, as a value.
//!
//! Input: rules, which name processes and a policy. Output: steered processes until a signal arrives or the time is over.
//!
//! ```
//! use countersteer_model::units::Nanos;
//! use countersteer_session::daemon::Daemon;
//!
//! # let folder = tempfile::tempdir()?;
//! # // SAFETY: this program has one thread.
//! # unsafe { std::env::set_var("RUNTIME_DIRECTORY", folder.path()) };
//! let rules = r#"
//!     schema = "countersteer.rules/1"
//!     policy = "aarr"
//!     [[steer]]
//!     name = "chess-*"
//! "#;
//! let mut daemon = Daemon::new("rules.toml", rules)?;
//! daemon.until = Nanos::from_millis(300);
//! assert_eq!(daemon.run()?, 0);
//! # Ok::<(), anyhow::Error>(())
//! ```

use std::net::SocketAddr;

use countersteer_live::LiveWorkload;
use countersteer_model::driver::DriverConfig;
use countersteer_model::policy::Policy;
use countersteer_model::rules::Rules;
use countersteer_model::trial::TrialPlan;
use countersteer_model::units::Nanos;
use countersteer_policies::{FOREGROUND, LINUX};

use crate::bpf::Bpf;
use crate::error::{FaultKind, failure};
use crate::live::{Live, Targets};
use crate::serving::Door;
use crate::steering::ab_trial::{AbTrial, AlternatingPolicies};
use crate::steering::engine::EngineName;
use crate::steering::exposition;
use crate::steering::here::SteeredMachine;
use crate::steering::host::SteeringHost;
use crate::steering::job::{self, Job, Placing};
use crate::steering::programs::SteeredPrograms;
use crate::steering::supervisor::RunControl;

/// Fraction of a block to exclude at its beginning.
const SETTLE: f64 = 0.2;
/// Confidence level of the judgement on a policy.
const CONFIDENCE: f64 = 0.95;

/// Steering of all processes that match rules.
pub struct Daemon {
    pub rules: Rules,
    /// Name and text of the rules' file, for messages.
    pub name: String,
    pub text: String,
    pub engine: EngineName,
    /// Run-queue length above which an idle CPU takes a thread; sched_ext scheduler only. `None` without work stealing.
    pub steal_above: Option<u32>,
    /// Loopback address on which metrics are served for Prometheus; `None` to serve none.
    pub metrics: Option<SocketAddr>,
    /// Name or file of a machine; `None` for the detected one.
    pub machine: Option<String>,
    pub seed: u64,
    /// Time from the start at which steering ends; [`Nanos::NEVER`] without a limit.
    pub until: Nanos,
    /// Function that is called when steering is about to begin.
    pub ready: fn(),
}

impl Daemon {
    /// Begins with the defaults of `steer daemon`, without a limit of time. `name` stands for the text in messages.
    ///
    /// # Errors
    /// The text is no rules file.
    pub fn new(name: &str, text: &str) -> anyhow::Result<Self> {
        let Live { seed, .. } = Live::new(Targets::Command(Vec::new()));
        Ok(Self {
            rules: Rules::parse(name, text)?,
            name: name.to_owned(),
            text: text.to_owned(),
            engine: EngineName::Auto,
            steal_above: None,
            metrics: None,
            machine: None,
            seed,
            until: Nanos::NEVER,
            ready: || {},
        })
    }

    /// Steers until a signal arrives or the time is over; returns the exit code.
    ///
    /// # Errors
    /// The policy or machine does not exist, another daemon runs, the host cannot be steered, or the policy does not
    /// return from a decision.
    pub fn run(self) -> anyhow::Result<u8> {
        job::restore()?;
        let here = SteeredMachine::look(self.machine.as_deref())?;
        let rules = self.rules;
        let control = RunControl::default();
        // A daemon steers programs whose users may have loaded another scheduler since it started.
        control.lock().stand_back = true;
        let (policy, ab_trial) = judged(&rules, &here, &control)?;
        let engine = engine(self.engine, &rules)?;
        let metrics = self.metrics.map(|address| metrics(address, &control));
        let spec = rules.policy.clone();
        let job = Job {
            placing: Placing {
                engine,
                steal_above: self.steal_above,
                dry: false,
            },
            driver: DriverConfig {
                period: Nanos::from_secs_f64(rules.period_ms * 1e-3),
                until: self.until,
            },
            seed: self.seed,
            ab_trial,
            latency: countersteer_policies::foreground_of(&spec).map(|_| Bpf::Auto),
            forgetful: true,
            metrics: metrics.transpose()?.flatten(),
            ..Job::new(spec.clone(), policy, control, "daemon.sock".into())
        };
        let mut host = SteeringHost::new(rules);
        let programs = SteeredPrograms {
            workload: LiveWorkload::finding(Box::new(move || host.find())),
            name: self.name.clone(),
            text: self.text,
        };
        (self.ready)();
        say!("policy {spec} by the rules of {}", self.name);
        Ok(job::conduct(job, here, programs)?.exit_code)
    }
}

/// Engine to use. In the sched_ext scheduler, the policy's blocks would not alternate with Linux's own scheduler.
fn engine(asked: EngineName, rules: &Rules) -> anyhow::Result<EngineName> {
    match asked {
        EngineName::Auto if rules.trust.is_some() => Ok(EngineName::Affinity),
        EngineName::Scx | EngineName::ScxFull if rules.trust.is_some() => {
            let why = "a policy can prove itself ([trust]) against Linux's own scheduler under `--engine affinity` only";
            Err(failure(FaultKind::Usage, why))
        }
        given => Ok(given),
    }
}

/// Opens the metrics listener. A port in use does not prevent steering.
fn metrics(address: SocketAddr, control: &RunControl) -> anyhow::Result<Option<Door>> {
    let door = exposition::door(address, control);
    match door {
        Err(error) if error.downcast_ref::<std::io::Error>().is_some() => {
            say!("no metrics are served ({error:#}); steering continues");
            Ok(None)
        }
        other => other.map(Some),
    }
}

/// The policy of the rules. It alternates with Linux's own scheduler if it must prove itself.
fn judged(
    rules: &Rules,
    here: &SteeredMachine,
    control: &RunControl,
) -> anyhow::Result<(Box<dyn Policy>, Option<AbTrial>)> {
    let policy = here.policy(&rules.policy)?;
    let Some(trust) = rules.trust else {
        return Ok((policy, None));
    };
    let plan = TrialPlan {
        policy: Nanos::from_secs_f64(trust.policy_s),
        baseline: Nanos::from_secs_f64(trust.linux_s),
        settle: SETTLE,
        confidence: CONFIDENCE,
        margin: trust.margin,
    };
    let mut ab_trial = AbTrial::new(plan);
    let mut linux = LINUX.to_owned();
    if let Some(program) = countersteer_policies::foreground_of(&rules.policy) {
        ab_trial = ab_trial.with_foreground(program);
        linux = countersteer_policies::with_param(&linux, FOREGROUND, program);
    }
    let linux = countersteer_policies::parse(&linux, &here.topology)?;
    let both = AlternatingPolicies::new(&ab_trial, policy, linux, Some(trust.margin), control);
    Ok((Box::new(both), Some(ab_trial)))
}
