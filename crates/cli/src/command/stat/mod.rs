//! `steer stat`: counts events of a program, of processes, threads, CPUs or control groups.

mod latency;
mod repeat;
mod screen;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use countersteer_counters::{CoreTypes, CounterError, Pmus, Request, Session, Target};
use countersteer_model::counters::Per;
use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::Nanos;
use countersteer_report::readings::Style;

use crate::args::EventArgs;
use crate::bpf::{Bpf, loader};
use crate::counted::{self, Asked, Counted};
use crate::counting_record::{self, About};
use crate::error::{Kind, failure};
use crate::library;
use crate::output::{RecordOut, check_writable};
use crate::remote;
use crate::values::{pid, time};
use crate::virtuals::{Bank, Wanted};
use screen::{Screen, output};

/// Arguments of `steer stat`, which counts events of a program and all its threads, or of running threads, processes and CPUs.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(group = clap::ArgGroup::new("whom").multiple(false))]
pub struct Args {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RowPer {
    Thread,
    Process,
    Cpu,
    Total,
}

/// Replaces options of `perf stat` by the corresponding options of `steer stat`; returns an error if there is none.
fn as_here(mut args: Args) -> anyhow::Result<Args> {
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
            return Err(failure(Kind::Usage, why));
        }
    }
    Ok(args)
}

/// Runs `steer stat`; returns the exit code of the started program.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut args = as_here(args)?;
    if let Some(host) = &args.host {
        return Err(remote::run_there(host, args.command.len()));
    }
    let pmus = library::pmus(Path::new("/"), args.counted.event_lists.as_deref())?;
    let target = target(&args)?;
    let modules = args.counted.start_modules(&pmus);
    let wanted = Wanted::find(&args.counted.virtuals)?;
    let asked = Asked {
        events: &args.counted.events,
        metrics: &args.counted.metrics,
        files: &args.counted.metric_file,
        every: args.every.as_deref(),
        derived: &wanted.derived,
    };
    let counted = counted::plan(&asked, &pmus, args.interval)?;
    check_threads(&args, &wanted, &counted)?;
    let request = request(&args, target, &pmus, &counted)?;
    let core_types = request.core_types.clone();
    let dir = args.record.place()?;
    if let Some(path) = &args.to {
        check_writable(path)?;
    }
    if let Some(times) = args.repeat {
        return repeat::run(times, &request, &counted, &args);
    }
    // The measurement of waits starts first, because the program is a child of this process from its first instruction on.
    let waits = args.latency.then(|| latency::watch(&args)).transpose()?;
    let session = Session::open(request, loader(bpf(&args)?))?;
    let mut bank = Bank::open(&args.counted.root, &wanted, &counted, modules)?;
    let names = bank.names().to_vec();
    let period = args.interval.unwrap_or_default();
    let about = About {
        by: "steer stat",
        program: &args.command,
        asked: &asked,
        period,
    };
    // At this point the counters are open, so an earlier record and an earlier file of rows may be replaced.
    let keep = |dir: &PathBuf| counting_record::recorder(dir, &about, &counted, &core_types);
    let mut recorder = args.record.output.as_ref().map(keep).transpose()?;
    let mut out = output(&args)?;
    let mut screen = Screen::new(&args, &counted, &core_types, &names);
    let summary = session.run(|tick| {
        // With event-based sampling, virtual counters are read with each sample.
        if args.interval.is_some() || counted.every.is_some() || tick.last {
            bank.read(tick.readings)
        } else {
            bank.read_counts(tick.readings)
        }
        while let Some(why) = bank.complaint() {
            eprintln!("steer: {why}");
        }
        counting_record::keep(recorder.as_mut(), tick, Some(&bank));
        let flow = screen.show(tick, &bank, &mut *out);
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

/// Returns an error if virtual counters are requested that are read per thread, and no threads are counted.
fn check_threads(args: &Args, wanted: &Wanted, counted: &Counted) -> anyhow::Result<()> {
    match wanted.by_thread(counted) {
        Some(name) if !reads_threads(args) => {
            let remedy = "it is for programs, -p or -t, without --per total";
            let why = format!("`{name}` is sampled per thread: {remedy}");
            Err(failure(Kind::Usage, why))
        }
        _ => Ok(()),
    }
}

const fn style(args: &Args) -> Style {
    if args.json {
        Style::Json
    } else if args.csv {
        Style::Csv
    } else {
        Style::Table
    }
}

fn per(args: &Args) -> Per {
    let by_cpu = args.all || args.cgroup.is_some();
    match args.per {
        Some(RowPer::Thread) => Per::Thread,
        Some(RowPer::Process) => Per::Process,
        Some(RowPer::Cpu) => Per::Cpu,
        Some(RowPer::Total) => Per::Total,
        None if by_cpu => Per::Cpu,
        None => Per::Thread,
    }
}

/// Returns the counting method: without BPF programs if rows are per CPU, because BPF programs do not distinguish CPUs.
fn bpf(args: &Args) -> anyhow::Result<Bpf> {
    match (args.per, args.counted.bpf) {
        (Some(RowPer::Cpu), Bpf::Always) => Err(failure(
            Kind::Usage,
            "BPF programs do not distinguish CPUs: omit --per cpu",
        )),
        (Some(RowPer::Cpu), _) => Ok(Bpf::Never),
        (_, bpf) => Ok(bpf),
    }
}

/// Returns true if threads are counted individually, not by CPU or as one total.
fn reads_threads(args: &Args) -> bool {
    let together = args.per == Some(RowPer::Total) && args.cpus.is_none();
    !args.all && args.cgroup.is_none() && !together
}

fn request(args: &Args, target: Target, pmus: &Pmus, counted: &Counted) -> anyhow::Result<Request> {
    let by_cpu = matches!(target, Target::Cpus | Target::Cgroup(_));
    if by_cpu && matches!(args.per, Some(RowPer::Thread | RowPer::Process)) {
        return Err(failure(
            Kind::Usage,
            "-a and --cgroup count by CPU; rows can be per cpu or total",
        ));
    }
    let together = args.per == Some(RowPer::Total);
    let whole = args.interval.is_none() && counted.every.is_none() && !together;
    if let (Some(name), true) = (counted.outside.first(), whole) {
        let remedy = "give one with -i, as in -i 100ms, or ask for --per total";
        return Err(failure(
            Kind::Usage,
            format!("`{name}` is read at the end of intervals: {remedy}"),
        ));
    }
    if counted.every.is_some() && (by_cpu || args.per.is_some_and(|p| p != RowPer::Thread)) {
        return Err(failure(
            Kind::Usage,
            "--every samples single threads of a program, -p or -t, without --per",
        ));
    }
    for wanted in [&args.cpus, &args.bind].into_iter().flatten() {
        if let Some(cpu) = wanted.iter().find(|cpu| !pmus.online.contains(*cpu)) {
            return Err(CounterError::Offline {
                cpu: cpu.0,
                online: pmus.online.to_string(),
            }
            .into());
        }
    }
    Ok(Request {
        target,
        sets: counted.sets.clone(),
        plan: counted.plan.clone(),
        interval: args.interval,
        samples: args.samples,
        duration: args.duration,
        every: counted.every,
        prompt: !args.counted.virtuals.is_empty() || !counted.outside.is_empty(),
        cpus: args.cpus.clone().unwrap_or_else(|| pmus.online.clone()),
        bind: args.bind.clone(),
        total: together && args.cpus.is_none(),
        output: None,
        core_types: CoreTypes::of(pmus),
    })
}

fn target(args: &Args) -> anyhow::Result<Target> {
    if args.samples.is_some() && args.interval.is_none() {
        return Err(failure(
            Kind::Usage,
            "-n counts samples, which needs an interval: give one with -i, as in -i 100ms",
        ));
    }
    if !args.command.is_empty() {
        return Ok(Target::Launch(args.command.clone()));
    }
    if !args.pid.is_empty() {
        return Ok(Target::Processes(args.pid.clone()));
    }
    if !args.tid.is_empty() {
        return Ok(Target::Threads(args.tid.clone()));
    }
    match &args.cgroup {
        Some(path) => Ok(Target::Cgroup(path.clone())),
        None if args.all => Ok(Target::Cpus),
        None => {
            let hint = "name a program, or select targets: -p PID, -t TID, --cgroup PATH or -a";
            Err(failure(Kind::Usage, hint))
        }
    }
}
