//! `steer run`: runs programs on this machine under a policy, or steers running processes.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use countersteer_report::{number, table};

use super::print_json;
use crate::args::{DecisionArgs, HereArgs, PlacingArgs, Whom};
use crate::live::Live;
use crate::output::{RecordOut, check_writable};
use crate::steering::summary::{ProgramTally, SteeringSummary};
use crate::steering::tally::Tell;
use crate::waits::Wait;

/// Arguments of `steer run`.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct RunArgs {
    /// Policy: name or name:key=value,...
    #[arg(short = 'P', long, value_name = "POLICY", default_value = countersteer_policies::LINUX)]
    policy: String,
    /// Name of the foreground program: Linux alone schedules it, and the threads of all other programs get a lower weight
    #[arg(long, value_name = "PROGRAM")]
    foreground: Option<String>,
    #[command(flatten)]
    placing: PlacingArgs,
    #[command(flatten)]
    whom: Whom,
    #[command(flatten)]
    decisions: DecisionArgs,
    /// Change nothing; print the intended changes to stdout, or with --json to stderr
    #[arg(long)]
    dry_run: bool,
    /// Change nothing; report the policy's own estimate of its gain at the end
    #[arg(long, conflicts_with = "dry_run")]
    observe: bool,
    #[command(flatten)]
    here: HereArgs,
    #[command(flatten)]
    record: RecordOut,
    /// Write the summary as JSON to this file
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
    /// Print the summary as JSON to stdout, instead of as text to stderr
    #[arg(long)]
    json: bool,
}

/// Runs `steer run`; returns the exit code of the started program.
pub fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let record = args.record.place()?;
    if let Some(path) = &args.summary {
        check_writable(path)?;
    }
    let live = Live {
        policy: args.policy.clone(),
        foreground: args.foreground.clone(),
        engine: args.placing.engine,
        steal_above: args.placing.steal_above,
        period: args.decisions.interval,
        until: args.decisions.until(),
        dry: args.dry_run || args.observe,
        machine: args.here.machine.clone(),
        seed: args.here.seed,
        record: record.map(Path::to_owned),
        latency: args.decisions.latency,
        tell: args.dry_run.then(|| teller(args.json)),
        ..Live::new(args.whom.targets())
    };
    let done = live.run()?;
    if let Some(path) = &args.summary {
        let text = serde_json::to_string_pretty(&done.summary)?;
        countersteer_report::write_atomically(path, text.as_bytes())?;
    }
    if args.json {
        print_json(&done.summary)?;
    } else {
        stderr_text!("{}", text(&done.summary, args));
    }
    Ok(ExitCode::from(done.exit_code))
}

/// Returns a function that prints planned changes: to stderr if the summary goes to stdout (`json`), otherwise to stdout.
fn teller(json: bool) -> Tell {
    if json {
        Box::new(|line| stderr_line!("{line}"))
    } else {
        Box::new(|line| println!("{line}"))
    }
}

/// Returns table cells with the run-queue latency of a program's threads: the mean, and percentiles if each wait was measured.
fn waits(program: &ProgramTally, measured: bool) -> Vec<String> {
    let cell = |of: fn(&Wait) -> Option<f64>| {
        let value = program.wait.as_ref().and_then(of);
        value.map_or_else(|| "-".into(), |ms| number(ms, 3))
    };
    let mut cells = vec![cell(|w| Some(w.mean_ms))];
    if measured {
        cells.push(cell(|w| Some(w.percentiles?.p50_ms)));
        cells.push(cell(|w| Some(w.percentiles?.p99_ms)));
        cells.push(cell(|w| Some(w.wakeups?.percentiles.p99_ms)));
    }
    cells
}

/// Formats the summary of the run as text.
fn text(summary: &SteeringSummary, args: &RunArgs) -> String {
    programs_table(summary, args) + &decisions(summary, args)
}

/// Formats a table with one row per program.
fn programs_table(summary: &SteeringSummary, args: &RunArgs) -> String {
    let mut head = vec!["program", "threads", "time s"];
    let types: Vec<String> = summary
        .core_types
        .iter()
        .map(|t| format!("CPU s on {t}"))
        .collect();
    head.extend(types.iter().map(String::as_str));
    head.push("wait ms");
    if args.decisions.latency {
        head.extend(["50 %", "99 %", "woken 99 %"]);
    }
    head.push("IPC");
    let tells = |p: &ProgramTally| p.work > 0.0;
    let any_work = summary
        .programs
        .iter()
        .chain(&summary.short_lived)
        .any(tells);
    head.extend(any_work.then_some("work"));
    let rows = summary
        .programs
        .iter()
        .chain(&summary.short_lived)
        .map(|p| {
            let mut row = vec![
                p.name.clone(),
                p.threads.to_string(),
                p.elapsed_s.map_or_else(|| "-".into(), |s| number(s, 4)),
            ];
            row.extend(p.cpu_s.iter().map(|s| number(*s, 4)));
            row.extend(waits(p, args.decisions.latency));
            row.push(if p.cycles > 0.0 {
                number(p.instructions / p.cycles, 4)
            } else {
                "-".into()
            });
            row.extend(any_work.then(|| {
                if tells(p) {
                    number(p.work, 4)
                } else {
                    "-".into()
                }
            }));
            row
        });
    table::plain(&head, rows)
}

/// Returns sentences about the policy's decisions and their effects.
fn decisions(summary: &SteeringSummary, args: &RunArgs) -> String {
    let changed = summary.changed;
    let decisions = summary.decisions;
    let would = if args.dry_run || args.observe {
        "would have been"
    } else {
        "were"
    };
    let mut text = format!("{decisions} decisions; affinities {would} changed {changed} times");
    if summary.refused > 0 {
        text += &format!(", {} times they could not be", summary.refused);
    }
    if summary.unsupported > 0 {
        text += &format!("; {} hints are unsupported here", summary.unsupported);
    }
    if let Some(stolen) = summary.stolen.filter(|n| *n > 0) {
        text += &format!("; work stealing moved threads {stolen} times");
    }
    if let Some(effect) = summary.effect {
        text += &format!(
            "; 99 of 100 decisions held within {} ms",
            number(effect.p99_ms, 2)
        );
    }
    text.push('\n');
    text + &predicted(summary, args)
}

/// Returns a sentence with the gain that the policy predicts; empty without `--observe` or without a prediction.
fn predicted(summary: &SteeringSummary, args: &RunArgs) -> String {
    let Some(gain) = summary.predicted_gain.filter(|_| args.observe) else {
        return String::new();
    };
    format!(
        "by their speed-up factors, threads would run {:+.1} % faster under {}\n",
        gain * 100.0,
        args.policy
    )
}
