//! `steer top`: shows hardware metrics of threads, on a terminal, as one table per interval, or on a page.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use countersteer_model::units::Nanos;
use countersteer_session::top::{OpenedTop, Top, TopOutcome};

use crate::args::EventArgs;
use crate::counting_record;
use crate::interrupt;
use crate::output::RecordOut;
use crate::top::web::{self, WebArgs};
use crate::top::{live, plain};
use crate::values::{pid, time};

/// Arguments of `steer top`, which shows hardware metrics of a started program, of processes, or of all accessible processes.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(group = clap::ArgGroup::new("whom").multiple(false))]
pub struct TopArgs {
    /// PIDs of processes to show, with all their threads
    #[arg(short, long, value_name = "PID", value_parser = pid, value_delimiter = ',', group = "whom")]
    pid: Vec<u32>,
    /// Refresh interval, e.g. 200ms or 1s
    #[arg(short, long, value_name = "TIME", value_parser = time, default_value = "1s")]
    interval: Nanos,
    /// Stop after N intervals
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    samples: Option<u64>,
    #[command(flatten)]
    counted: EventArgs,
    /// Columns to show, in this order: name,cpu%,energy%,llc_occupancy_bytes
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Vec<String>,
    /// Show one line per thread or per process
    #[arg(long, value_name = "WHAT", default_value = "thread")]
    per: LinePer,
    /// Initial sort column
    #[arg(long, value_name = "COLUMN", default_value = "cpu%")]
    sort: String,
    /// Print JSON lines: one object per thread (or process) and interval
    #[arg(long)]
    json: bool,
    /// File for the program's output
    #[arg(long, alias = "to", value_name = "FILE", default_value = "/dev/null")]
    stdout: PathBuf,
    #[command(flatten)]
    record: RecordOut,
    #[command(flatten)]
    web: WebArgs,
    /// Program and its arguments
    #[arg(trailing_var_arg = true, value_name = "PROGRAM", group = "whom")]
    command: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LinePer {
    Thread,
    Process,
}

/// Runs `steer top`. Returns the exit code of the started program if it exited without a request.
pub fn run(args: TopArgs) -> anyhow::Result<ExitCode> {
    if args.web.web {
        return web::run(&args.web, args.interval, args.command.len());
    }
    let dir = args.record.place()?;
    let top = Top {
        pids: args.pid.clone(),
        command: args.command.clone(),
        output: args.stdout.clone(),
        events: args.counted.events.clone(),
        metrics: args.counted.metrics.clone(),
        metric_files: args.counted.metric_file.clone(),
        event_lists: args.counted.event_lists.clone(),
        virtuals: args.counted.virtuals.clone(),
        modules: args.counted.modules.clone(),
        root: args.counted.root.clone(),
        bpf: args.counted.bpf,
        columns: args.columns.clone(),
        sort: args.sort.clone(),
        by_process: args.per == LinePer::Process,
        record: dir.map(Path::to_owned),
        ..Top::new(args.interval)
    };
    let opened = top.open()?;
    let outcome = if std::io::stdout().is_terminal() && !args.json {
        live::show(opened, args.samples)?
    } else {
        print(opened, &args)?
    };
    end(outcome, dir)
}

/// Saves the record, and prints the number of lost records. Returns the exit code.
fn end(outcome: TopOutcome, dir: Option<&Path>) -> anyhow::Result<ExitCode> {
    let summary = outcome.summary;
    if summary.lost > 0 {
        let lost = summary.lost;
        stderr_line!(
            "steer: {lost} records were lost, so some values are too low; a shorter interval (-i) helps"
        );
    }
    counting_record::save(outcome.recorder, dir, &summary)?;
    // The program was asked to end, so its exit code reports no failure.
    Ok(if outcome.stopped {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(counting_record::exit_code(&summary))
    })
}

/// Prints a table (or JSON lines) per interval.
fn print(opened: OpenedTop, args: &TopArgs) -> anyhow::Result<TopOutcome> {
    (opened.state.notes.iter()).for_each(|note| stderr_line!("steer: {note}"));
    // If the reader of stdout has ended, e.g. ssh, this process must still end the program that it started.
    interrupt::survive_closed_pipes()?;
    let mut out = std::io::stdout().lock();
    opened.each(args.samples, |state| {
        let text = if args.json {
            plain::json(state)
        } else {
            plain::table(state)
        };
        out.write_all(text.as_bytes()).and_then(|()| out.flush())
    })
}
