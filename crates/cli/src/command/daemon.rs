//! `steer daemon`: steers the whole host with a policy, by rules.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;

use countersteer_live::LiveWorkload;
use countersteer_model::policy::Policy;
use countersteer_model::printable::printable;
use countersteer_model::rules::Rules;
use countersteer_model::trial::TrialPlan;
use countersteer_model::units::Nanos;

use crate::args::{HereArgs, PlacingArgs};
use crate::bpf::Bpf;
use crate::error::{self, Kind, failure};
use crate::library;
use crate::serving::Door;
use crate::steering::ab_trial::{AbTrial, AlternatingPolicies};
use crate::steering::engine::EngineName;
use crate::steering::exposition;
use crate::steering::here::Here;
use crate::steering::host::Host;
use crate::steering::job::{self, Job};
use crate::steering::programs::Programs;
use crate::steering::supervisor::Control;
use countersteer_policies::FOREGROUND;

/// Steer the processes of this host that match a rules file, until stopped.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Rules file: processes to steer, processes to exclude, and the policy
    #[arg(
        long,
        short_alias = 'r',
        value_name = "FILE",
        default_value = "/etc/countersteer/rules.toml"
    )]
    rules: PathBuf,
    /// Serve Prometheus metrics on this loopback address, e.g. 127.0.0.1:9190
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
    #[command(flatten)]
    placing: PlacingArgs,
    /// List the running processes that match the rules, and exit
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    here: HereArgs,
}

/// Fraction of a block to exclude at its beginning.
const SETTLE: f64 = 0.2;
/// Confidence level of the judgement on a policy.
const CONFIDENCE: f64 = 0.95;

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let text = library::read(&args.rules).with_context(|| {
        let path = args.rules.display();
        format!(
            "{path} should list the processes to steer; share/countersteer/rules.toml is an example"
        )
    })?;
    let rules = Rules::parse(&text.path, &text.text)?;
    if args.list {
        return list(rules);
    }
    job::restore()?;
    let here = args.here.look()?;
    let control = Control::default();
    // A daemon steers programs whose users may have loaded another scheduler since it started.
    control.lock().stand_back = true;
    let (policy, ab_trial) = judged(&rules, &here, &control)?;
    let engine = engine(args.placing.engine, &rules)?;
    let metrics = args.metrics.map(|address| metrics(address, &control));
    let period = Nanos::from_secs_f64(rules.period_ms * 1e-3);
    let spec = rules.policy.clone();
    let job = Job {
        spec: &spec,
        engine,
        steal_above: args.placing.steal_above,
        period,
        until: Nanos::NEVER,
        dry: false,
        seed: args.here.seed,
        record: None,
        tell: None,
        ab_trial,
        sides: None,
        latency: countersteer_policies::foreground_of(&spec).map(|_| Bpf::Auto),
        forgetful: true,
        socket: "daemon.sock".into(),
        metrics: metrics.transpose()?.flatten(),
        control,
        exit: error::exit,
    };
    let mut host = Host::new(rules);
    let workload = LiveWorkload::finding(Box::new(move || host.find()));
    let name = Path::display(&args.rules).to_string();
    // Without a service manager nothing listens; that is not a failure.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    eprintln!("steer: policy {spec} by the rules of {name}");
    let done = job::conduct(
        job,
        policy,
        &here,
        Programs {
            workload,
            name,
            text: text.text,
        },
    )?;
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    Ok(ExitCode::from(done.exit_code))
}

/// Prints the processes that the rules cover now.
fn list(rules: Rules) -> anyhow::Result<ExitCode> {
    let found = Host::new(rules).find();
    let lines: Vec<_> = found.iter().map(|r| printable(&r.name)).collect();
    super::print(&lines.join("\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Engine to use. In the sched_ext scheduler, the policy's blocks would not alternate with Linux's own scheduler.
fn engine(asked: EngineName, rules: &Rules) -> anyhow::Result<EngineName> {
    match asked {
        EngineName::Auto if rules.trust.is_some() => Ok(EngineName::Affinity),
        EngineName::Scx | EngineName::ScxFull if rules.trust.is_some() => {
            let why = "a policy can prove itself ([trust]) against Linux's own scheduler under `--engine affinity` only";
            Err(failure(Kind::Usage, why))
        }
        given => Ok(given),
    }
}

/// Opens the metrics listener. A port in use does not prevent steering.
fn metrics(address: SocketAddr, control: &Control) -> anyhow::Result<Option<Door>> {
    let door = exposition::door(address, control);
    match door {
        Err(error) if error.downcast_ref::<std::io::Error>().is_some() => {
            eprintln!("steer: no metrics are served ({error:#}); steering continues");
            Ok(None)
        }
        other => other.map(Some),
    }
}

/// The policy of the rules. It alternates with Linux's own scheduler if it must prove itself.
fn judged(
    rules: &Rules,
    here: &Here,
    control: &Control,
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
    let mut linux = "linux".to_owned();
    if let Some(program) = countersteer_policies::foreground_of(&rules.policy) {
        ab_trial = ab_trial.with_foreground(program);
        linux = countersteer_policies::with_param(&linux, FOREGROUND, program);
    }
    let linux = countersteer_policies::parse(&linux, &here.topology)?;
    let both = AlternatingPolicies::new(&ab_trial, policy, linux, Some(trust.margin), control);
    Ok((Box::new(both), Some(ab_trial)))
}
