//! `steer trial`: compares a policy with a baseline on live programs, in alternating blocks or whole runs, with confidence
//! intervals.

use std::path::Path;
use std::process::ExitCode;

use countersteer_model::trial::{Gain, TrialMeasure};
use countersteer_model::units::Nanos;
use countersteer_report::judge::trial::TrialLimits;
use countersteer_report::{judge, number, table, write_atomically};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::print_json;
use crate::args::{DecisionArgs, HereArgs, Whom};
use crate::error::{FaultKind, failure};
use crate::output::{RecordOut, make_folder};
use crate::signals;
use crate::steering::whole_runs::{RunMeasure, RunsResult, RunsTrial, TrialSide};
use crate::trial::{BlockTrial, TrialResult};
use crate::values::{number as parsed, time};
use crate::waits::Wait;

/// Arguments of `steer trial`, which compares a policy with Linux's own scheduler, or with another policy, on live programs.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct TrialArgs {
    /// Policy: name or name:key=value,...; or a command that starts the programs: 'taskset -c 0-3', 'nice -n 5', 'scx_lavd'
    #[arg(short = 'P', long)]
    policy: String,
    /// Baseline: a policy or a command
    #[arg(short, long, default_value = "linux", value_name = "POLICY")]
    baseline: String,
    /// Compare whole runs of the program by this measure, instead of blocks within one run
    #[arg(long, value_enum)]
    by: Option<RunMeasure>,
    /// Compare whole runs by a score, which this command prints after each run; $STEER_OUTPUT names the file with the
    /// program's output
    #[arg(long, value_name = "COMMAND", conflicts_with = "by")]
    score: Option<String>,
    /// Maximum number of pairs of whole runs; default: 10, for short runs 3 to 10, as many as fit into 10 s
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=10_000))]
    pairs: Option<u64>,
    #[command(flatten)]
    whom: Whom,
    /// Length of the time blocks in which policy and baseline alternate
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "5s")]
    block: Nanos,
    #[command(flatten)]
    decisions: DecisionArgs,
    /// Confidence of the intervals, in percent
    #[arg(long, default_value_t = 95.0, value_name = "PERCENT", value_parser = confidence)]
    confidence: f64,
    /// Equivalence margin: smaller differences count as no difference
    #[arg(long, default_value_t = 1.0, value_name = "PERCENT")]
    margin: f64,
    /// Stop once a gain, a loss or equivalence within the margin is certain for all programs together
    #[arg(long)]
    until_decided: bool,
    #[command(flatten)]
    here: HereArgs,
    #[command(flatten)]
    record: RecordOut,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Parses a confidence level from 50 to 99.99 percent; rejects other values and NaN.
fn confidence(text: &str) -> Result<f64, String> {
    let percent = parsed(text)?;
    if (50.0..=99.99).contains(&percent) {
        Ok(percent)
    } else {
        Err("it must be 50 to 99.99".into())
    }
}

/// Runs `steer trial`; returns the exit code of the started program.
pub fn run(args: &TrialArgs) -> anyhow::Result<ExitCode> {
    let sides = [
        TrialSide::parse(&args.policy)?,
        TrialSide::parse(&args.baseline)?,
    ];
    let commands = sides.iter().any(|s| !matches!(s, TrialSide::Policy(_)));
    if commands || args.by.is_some() || args.score.is_some() {
        return by_whole_runs(args, sides);
    }
    let record = args.record.place()?;
    let trial = BlockTrial {
        baseline: args.baseline.clone(),
        block: args.block,
        confidence: args.confidence / 100.0,
        margin: args.margin / 100.0,
        until_decided: args.until_decided,
        period: args.decisions.interval,
        until: args.decisions.until(),
        machine: args.here.machine.clone(),
        seed: args.here.seed,
        record: record.map(Path::to_owned),
        latency: args.decisions.latency,
        ..BlockTrial::new(args.whom.targets(), &args.policy)
    };
    let found = trial.run()?;
    let done = &found.done;
    if done.exit_code != 0 && !was_interrupted(done.exit_code) {
        stderr_line!(
            "steer: no verdict: the program failed with exit code {}, so neither arm did the work",
            done.exit_code
        );
        return Ok(ExitCode::from(done.exit_code));
    }
    tell(args, &found)?;
    Ok(ExitCode::from(done.exit_code))
}

/// Returns true if an exit code means that the program was ended by a signal. The measurements before the signal are valid.
fn was_interrupted(code: u8) -> bool {
    [SIGHUP, SIGINT, SIGTERM]
        .map(|signal| 128 + signal)
        .contains(&i32::from(code))
}

/// Prints the result of a trial: JSON on stdout, or a table on stderr.
fn tell(args: &TrialArgs, found: &TrialResult) -> anyhow::Result<()> {
    let TrialResult {
        gains,
        overall,
        measure,
        done,
    } = found;
    let of = match measure {
        TrialMeasure::Work => "work per second, reported by the programs",
        TrialMeasure::Instructions => "instructions per second",
        TrialMeasure::CpuTime => {
            "CPU time, because instructions are not counted here; --by wall measures more"
        }
    };
    let title = format!("{} against {}: {of}", args.policy, args.baseline);
    if args.json {
        let [policy, baseline] = &done.waits;
        let waits = serde_json::json!({ "policy": policy, "baseline": baseline });
        return print_json(&serde_json::json!({
            "measure": measure, "programs": gains, "all": overall, "waits": waits,
        }));
    }
    let limits = TrialLimits {
        confidence: args.confidence,
        margin: args.margin,
    };
    stderr_text!("{}", text(&title, gains, overall, limits));
    stderr_text!("{}", waited([&args.policy, &args.baseline], done.waits));
    Ok(())
}

/// Compares whole runs of the program under the two arms `sides`.
fn by_whole_runs(args: &TrialArgs, sides: [TrialSide; 2]) -> anyhow::Result<ExitCode> {
    let Some(command) = args.whom.command() else {
        return Err(failure(
            FaultKind::Usage,
            "whole runs need a program that can be started: steer trial ... -- PROGRAM",
        ));
    };
    let records = args.record.output.as_deref();
    if let Some(dir) = records {
        if dir.join(RESULT).exists() && !args.record.force {
            let why = format!(
                "{} has a trial already: name another folder, or replace it with --force",
                dir.display()
            );
            return Err(failure(FaultKind::Usage, why));
        }
        make_folder(dir)?;
    }
    if args.here.machine.is_some() {
        return Err(failure(
            FaultKind::Usage,
            "whole runs are of this machine: leave --machine out",
        ));
    }
    let trial = RunsTrial {
        sides,
        commands: vec![command.to_vec()],
        by: args.by.unwrap_or(RunMeasure::Wall),
        score: args.score.clone(),
        pairs: args.pairs,
        until: args
            .decisions
            .duration
            .map(|d| std::time::Duration::from_nanos(d.0)),
        until_decided: args.until_decided,
        confidence: args.confidence / 100.0,
        margin: args.margin / 100.0,
        seed: args.here.seed,
        records: records.map(Path::to_owned),
    };
    tell_whole_runs(&trial, args.json)
}

/// Compares whole runs under a policy and under Linux by wall time, until there is a verdict or ten pairs are complete.
pub fn whole_runs(policy: &str, commands: &[Vec<String>]) -> anyhow::Result<ExitCode> {
    let trial = RunsTrial {
        pairs: Some(10),
        until_decided: true,
        ..RunsTrial::new(commands.to_vec(), TrialSide::Policy(policy.into()))
    };
    tell_whole_runs(&trial, false)
}

/// Name of the file with the result, in the folder of the runs' records.
const RESULT: &str = "trial.json";

/// Runs a trial of whole runs, prints its result, and writes it to the folder of the records. After a signal, the result is
/// partial or missing.
fn tell_whole_runs(trial: &RunsTrial, json: bool) -> anyhow::Result<ExitCode> {
    let of = match (&trial.score, trial.by) {
        (Some(_), _) => "score",
        (None, RunMeasure::Wall) => "speed of whole runs by wall time",
        (None, RunMeasure::Latency) => "inverse of mean run-queue latency, in whole runs",
        (None, RunMeasure::LatencyP99) => {
            "inverse of the 99th percentile of run-queue latency, in whole runs"
        }
    };
    let found = {
        let _handled = signals::handled();
        trial.run()?
    };
    let reported = found.overall.pairs > 0;
    if reported {
        tell_pairs(trial, of, &found, json)?;
    }
    Ok(match found.signal {
        Some(signal) => signals::said(signal, reported),
        None => ExitCode::SUCCESS,
    })
}

fn tell_pairs(trial: &RunsTrial, of: &str, found: &RunsResult, json: bool) -> anyhow::Result<()> {
    let RunsResult { gains, overall, .. } = found;
    let result = serde_json::json!({ "measure": of, "programs": gains, "all": overall });
    if let Some(folder) = &trial.records {
        let text = serde_json::to_string_pretty(&result)? + "\n";
        write_atomically(&folder.join(RESULT), text.as_bytes())?;
    }
    if json {
        print_json(&result)?;
    } else {
        let [policy, baseline] = trial.sides.each_ref().map(TrialSide::name);
        let title = format!("{policy} against {baseline}: {of}");
        let limits = TrialLimits {
            confidence: trial.confidence * 100.0,
            margin: trial.margin * 100.0,
        };
        stderr_text!("{}", text(&title, gains, overall, limits));
    }
    if let Some(folder) = &trial.records {
        let folder = folder.display();
        stderr_line!(
            "steer: records of the runs in {folder}; `steer report {folder}/*.rec -o OUT.html` shows them"
        );
    }
    Ok(())
}

/// Formats the run-queue latencies of both arms; empty unless both are known.
fn waited(names: [&str; 2], waits: [Option<Wait>; 2]) -> String {
    let ms = |ms: f64| format!("{} ms", number(ms, 3));
    let of = |(name, wait): (&str, Wait)| match wait.percentiles {
        Some(p) => format!(
            "{name}: mean {}, 99th percentile {}",
            ms(wait.mean_ms),
            ms(p.p99_ms)
        ),
        None => format!("{name}: mean {}", ms(wait.mean_ms)),
    };
    match waits {
        [Some(policy), Some(baseline)] => format!(
            "Run-queue latency under {}; {}.\n",
            of((names[0], policy)),
            of((names[1], baseline))
        ),
        _ => String::new(),
    }
}

fn text(title: &str, gains: &[Gain], overall: &Gain, limits: TrialLimits) -> String {
    let row = |g: &Gain| {
        vec![
            g.program.clone(),
            g.pairs.to_string(),
            judge::percent(g.gain),
            judge::trial::interval(g).unwrap_or_else(|| "-".into()),
            judge::trial::word(g, limits),
        ]
    };
    let interval = format!("{} % interval", limits.confidence);
    let head = ["program", "pairs", "gain", interval.as_str(), ""];
    let table = table::plain(&head, gains.iter().chain(std::iter::once(overall)).map(row));
    format!(
        "{title}\n{table}{}\n",
        judge::trial::sentence(overall, limits)
    )
}
