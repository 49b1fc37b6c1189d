//! `steer stat`: counts events of a program, of processes, threads, CPUs or control groups.

mod latency;
mod repeat;
mod screen;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::Nanos;
use countersteer_report::readings::Style;

use crate::args::EventArgs;
use crate::count::{Count, CountTarget, RowPer};
use crate::counting_record::{self, About};
use crate::error::{FaultKind, failure};
use crate::output::{RecordOut, check_writable};
use crate::remote;
use crate::values::{pid, time};
use screen::{RowScreen, output};

/// Arguments of `steer stat`, which counts events of a program and all its threads, or of running threads, processes and CPUs.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(group = clap::ArgGroup::new("whom").multiple(false))]
pub struct StatArgs {
    #[command(flatten)]
    counted: EventArgs,
    /// Sampling interval, e.g. 100ms or 1s; without it, threads are sampled only at exit
    #[arg(short, long, value_name = "TIME", value_parser = time)]
    interval: Option<Nanos>,
    /// Sampling interval in milliseconds, as in perf stat
    #[arg(short = 'I', hide = true, value_name = "MS", conflicts_with_all = ["interval", "every", "repeat"], value_parser = clap::value_parser!(u64).range(1..))]
    interval_ms: Option<u64>,
    /// Separator of values, as in perf stat; only a comma is supported
    #[arg(
        short = 'x',
        hide = true,
        value_name = "SEPARATOR",
        conflicts_with = "json"
    )]
    separator: Option<String>,
    /// Sample every N occurrences of EVENT (e.g. 100M:instructions) instead of by time
    #[arg(long, value_name = "N:EVENT", conflicts_with = "interval")]
    every: Option<String>,
    /// PIDs of processes to count, with all their threads
    #[arg(short, long, value_name = "PID", value_parser = pid, value_delimiter = ',', group = "whom")]
    pid: Vec<u32>,
    /// TIDs of threads to count
    #[arg(short, long, value_name = "TID", value_delimiter = ',', group = "whom")]
    tid: Vec<u32>,
    /// Folder of a control group to count
    #[arg(long, value_name = "PATH", group = "whom")]
    cgroup: Option<PathBuf>,
    /// Count all threads of the machine, by CPU
    #[arg(short, long, group = "whom")]
    all: bool,
    /// Count only on these CPUs
    #[arg(short = 'C', long, value_name = "CPUS")]
    cpus: Option<CpuSet>,
    /// Confine the program to these CPUs
    #[arg(long, value_name = "CPUS")]
    bind: Option<CpuSet>,
    /// Stop after N samples
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    samples: Option<u64>,
    /// Stop after TIME, e.g. 10s
    #[arg(long, alias = "for", value_name = "TIME", value_parser = time)]
    duration: Option<Nanos>,
    /// Aggregate rows by thread (default), process, cpu (default with -a and --cgroup) or total
    #[arg(long, value_name = "WHAT")]
    per: Option<RowPer>,
    /// Report run-queue latency at the end: percentiles with BPF programs (root), otherwise totals and means
    #[arg(long, conflicts_with_all = ["csv", "cgroup", "repeat"])]
    latency: bool,
    /// Scale multiplexed counts to the full time, and mark them
    #[arg(long)]
    scale: bool,
    /// Print JSON lines
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values
    #[arg(long)]
    csv: bool,
    /// Print every row, even on a terminal, instead of a live table
    #[arg(long)]
    no_live: bool,
    /// Write rows to this file instead of stdout
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Run the program N times; print mean and standard deviation of the totals
    #[arg(
        short,
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(2..=10_000),
        conflicts_with_all = ["interval", "every", "output", "per", "virtuals"]
    )]
    repeat: Option<u32>,
    #[command(flatten)]
    record: RecordOut,
    /// Count on another machine over ssh; steer must be in the PATH there, and output files are written there
    #[arg(long, value_name = "USER@MACHINE")]
    host: Option<String>,
    /// Program and its arguments
    #[arg(trailing_var_arg = true, value_name = "PROGRAM", group = "whom")]
    command: Vec<String>,
}

/// Replaces options of `perf stat` by the corresponding options of `steer stat`; returns an error if there is none.
fn as_here(mut args: StatArgs) -> anyhow::Result<StatArgs> {
    let milliseconds = args
        .interval_ms
        .map(|ms| Nanos(ms.saturating_mul(1_000_000)));
    args.interval = args.interval.or(milliseconds);
    match args.separator.as_deref() {
        None => {}
        Some(",") => args.csv = true,
        Some(other) => {
            let why = format!(
                "-x `{other}`: values are separated by commas here (--csv), or are JSON (--json)"
            );
            return Err(failure(FaultKind::Usage, why));
        }
    }
    Ok(args)
}

/// Runs `steer stat`; returns the exit code of the started program.
pub fn run(args: StatArgs) -> anyhow::Result<ExitCode> {
    let args = as_here(args)?;
    if let Some(host) = &args.host {
        return Err(remote::run_there(host, args.command.len()));
    }
    let planned = count(&args)?.plan()?;
    let dir = args.record.place()?;
    if let Some(path) = &args.to {
        check_writable(path)?;
    }
    if let Some(times) = args.repeat {
        return repeat::run(times, &planned, &args);
    }
    // The measurement of waits starts first, because the program is a child of this process from its first instruction on.
    let waits = args.latency.then(|| latency::watch(&args)).transpose()?;
    let asked = planned.count.asked(&planned.wanted);
    let about = About {
        by: "steer stat",
        program: &args.command,
        events: asked.events.join(" ; "),
        metrics: asked.metrics.join(" ; "),
        period: args.interval.unwrap_or_default(),
    };
    let per = planned.count.per();
    let counting = planned.open()?;
    let (counted, core_types) = (Arc::clone(&counting.counted), counting.core_types.clone());
    let names = counting.names.clone();
    // At this point the counters are open, so an earlier record and an earlier file of rows may be replaced.
    let keep = |dir: &PathBuf| counting_record::recorder(dir, &about, &counted, &core_types);
    let mut recorder = args.record.output.as_ref().map(keep).transpose()?;
    let mut out = output(&args)?;
    let mut screen = RowScreen::new(&args, per, &counted, &core_types, &names);
    let summary = counting.run(|tick, bank| {
        counting_record::keep(recorder.as_mut(), tick, Some(bank));
        let flow = screen.show(tick, bank, &mut *out);
        counting_record::kept(recorder.as_mut());
        flow
    })?;
    if let Some(waits) = waits {
        let found = latency::tell(waits, &args, &mut *out)?;
        if let Some(recorder) = &mut recorder {
            recorder.note("waits", found);
        }
    }
    screen.end(&summary, &mut *out)?;
    counting_record::save(recorder, dir, &summary)?;
    Ok(ExitCode::from(counting_record::exit_code(&summary)))
}

const fn style(args: &StatArgs) -> Style {
    if args.json {
        Style::Json
    } else if args.csv {
        Style::Csv
    } else {
        Style::Table
    }
}

/// Returns the requested count.
fn count(args: &StatArgs) -> anyhow::Result<Count> {
    let counted = &args.counted;
    Ok(Count {
        events: counted.events.clone(),
        metrics: counted.metrics.clone(),
        metric_files: counted.metric_file.clone(),
        event_lists: counted.event_lists.clone(),
        virtuals: counted.virtuals.clone(),
        modules: counted.modules.clone(),
        root: counted.root.clone(),
        bpf: counted.bpf,
        interval: args.interval,
        every: args.every.clone(),
        samples: args.samples,
        duration: args.duration,
        per: args.per,
        cpus: args.cpus.clone(),
        bind: args.bind.clone(),
        ..Count::new(target(args)?)
    })
}

fn target(args: &StatArgs) -> anyhow::Result<CountTarget> {
    if !args.command.is_empty() {
        return Ok(CountTarget::Launch(args.command.clone()));
    }
    if !args.pid.is_empty() {
        return Ok(CountTarget::Processes(args.pid.clone()));
    }
    if !args.tid.is_empty() {
        return Ok(CountTarget::Threads(args.tid.clone()));
    }
    match &args.cgroup {
        Some(path) => Ok(CountTarget::Cgroup(path.clone())),
        None if args.all => Ok(CountTarget::Cpus),
        None => {
            let hint = "name a program, or select targets: -p PID, -t TID, --cgroup PATH or -a";
            Err(failure(FaultKind::Usage, hint))
        }
    }
}
