//! `steer trial`: a policy against a baseline on the same live load, turn by turn, with confidence intervals.

use std::process::ExitCode;

use countersteer_core::evidence::Verdict;
use countersteer_core::trial::{Gain, Measure, TrialPlan};
use countersteer_core::units::Nanos;
use countersteer_report::table;

use super::{print, print_json};
use crate::output::RecordOut;
use crate::session::time;
use crate::steering::contest::{Contest, Contestants};
use crate::steering::engine::EngineName;
use crate::steering::governed::Control;
use crate::steering::here::Here;
use crate::steering::job::{self, Job};
use crate::steering::programs::Whom;

/// Compare a policy with Linux's own scheduler, or another policy, on live programs.
///
/// Both take turns in random order; the report says by how much faster each program got on under the policy.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Policy: name or name:key=value,...
    #[arg(short = 'P', long)]
    policy: String,
    /// What it is compared with
    #[arg(short, long, default_value = "linux", value_name = "POLICY")]
    baseline: String,
    #[command(flatten)]
    whom: Whom,
    /// Length of a turn
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "5s")]
    block: Nanos,
    /// Time between decisions
    #[arg(short = 'i', long, value_name = "TIME", value_parser = time, default_value = "100ms")]
    period: Nanos,
    /// End after so long; programs that were started run on
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    duration: Option<Nanos>,
    /// Confidence of the intervals, in percent
    #[arg(long, default_value_t = 95.0, value_name = "PERCENT")]
    confidence: f64,
    /// Gains up to this, either way, are as good as none
    #[arg(long, default_value_t = 1.0, value_name = "PERCENT")]
    margin: f64,
    /// End as soon as a gain, a loss or no difference above the margin is certain for all programs together
    #[arg(long)]
    until_decided: bool,
    /// A machine file instead of what is found out about this machine
    #[arg(long, value_name = "MACHINE")]
    machine: Option<String>,
    /// Seed of everything random, the order of turns included
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    record: RecordOut,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Part of a turn that is left out at its beginning.
const SETTLE: f64 = 0.2;

/// Runs the command; passes on the program's own exit code.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let record = args.record.place()?;
    job::put_back()?;
    let here = Here::look(args.machine.as_deref())?;
    let (policy, baseline) = (here.policy(&args.policy)?, here.policy(&args.baseline)?);
    let programs = args.whom.programs(&here.topology)?;
    let confidence = (args.confidence / 100.0).clamp(0.5, 0.9999);
    let contest = Contest::new(TrialPlan {
        policy: args.block,
        baseline: args.block,
        settle: SETTLE,
        confidence,
        margin: args.margin / 100.0,
    });
    let contest = if args.until_decided {
        contest.ending_when_decided()
    } else {
        contest
    };
    let control = Control::default();
    let both = Contestants::new(&contest, policy, baseline, None, &control);
    let spec = format!("{} and {} in turns", args.policy, args.baseline);
    let job = Job {
        spec: &spec,
        // Under the scheduler in the kernel the baseline would not be Linux's own.
        engine: EngineName::Affinity,
        steal_above: None,
        period: args.period,
        until: args.duration.unwrap_or(Nanos::NEVER),
        dry: false,
        seed: args.seed,
        record,
        tell: None,
        contest: Some(contest.clone()),
        forgetful: args.whom.is_endless(),
        socket: format!("trial-{}.sock", std::process::id()),
        metrics: None,
        control,
    };
    let done = job::conduct(job, Box::new(both), &here, programs)?;
    let (gains, overall, measure) = {
        let trial = contest.trial();
        (trial.gains(), trial.overall(), trial.measure())
    };
    if args.json {
        print_json(&serde_json::json!({ "measure": measure, "programs": gains, "all": overall }))?;
    } else {
        print(&text(&gains, &overall, measure, args))?;
    }
    Ok(ExitCode::from(done.exit_code))
}

fn text(gains: &[Gain], overall: &Gain, measure: Measure, args: &Args) -> String {
    let of = match measure {
        Measure::Work => "work per second by the programs' own word",
        Measure::Instructions => "instructions per second",
        Measure::CpuTime => "CPU time (instructions are not counted here)",
    };
    let percent = |x: f64| format!("{:+.2} %", x * 100.0);
    let row = |g: &Gain| {
        let interval = g.interval.map_or_else(
            || "-".into(),
            |(l, h)| format!("{} to {}", percent(l), percent(h)),
        );
        let verdict = match (g.verdict, g.interval) {
            (Some(Verdict::Faster), _) => "faster".into(),
            (Some(Verdict::Slower), _) => "slower".into(),
            (Some(Verdict::Equivalent), _) => format!("no difference above {} %", args.margin),
            (None, Some(_)) => "undecided".into(),
            (None, None) => "too few pairs".into(),
        };
        vec![
            g.program.clone(),
            g.pairs.to_string(),
            percent(g.gain),
            interval,
            verdict,
        ]
    };
    let interval = format!("{} % interval", args.confidence);
    let head = ["program", "pairs", "gain", interval.as_str(), ""];
    let table = table::plain(&head, gains.iter().chain(std::iter::once(overall)).map(row));
    format!("{} against {}: {of}\n{table}", args.policy, args.baseline)
}
