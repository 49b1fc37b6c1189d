//! `steer stat`: count events of a program, of processes, threads, CPUs or control groups.

use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::ValueEnum;
use countersteer_core::counters::{Fold, Owner, Per, Readings};
use countersteer_core::cpuset::CpuSet;
use countersteer_core::units::Nanos;
use countersteer_host::counters::{
    CoreTypes, CounterError, Pmus, Request, Session, Summary, Target, Tick,
};
use countersteer_report::readings::{Form, Style, Writer};

use crate::counted::{self, Asked, Counted};
use crate::error::{Kind, told};
use crate::inside::{Bpf, inside};
use crate::library;
use crate::live_table::LiveTable;
use crate::remote;
use crate::session::{self, About, time};
use crate::virtuals::{Bank, Sums, Wanted};

/// Count events of a program and all its threads, or of what runs already.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(group = clap::ArgGroup::new("whom").multiple(false))]
pub struct Args {
    /// Events that count together; several -e take turns, one per interval
    #[arg(short, long = "event", value_name = "EVENTS")]
    events: Vec<String>,
    /// Metrics by name or formula: ipc,llc_mpki,page_faults/seconds; their events form a set
    #[arg(short, long = "metric", value_name = "METRICS")]
    metrics: Vec<String>,
    /// More metrics: a file like those in `metrics/`
    #[arg(long, value_name = "FILE")]
    metric_file: Vec<PathBuf>,
    /// Vendors' event lists (JSON as in Intel's perfmon); ~/.local/share/countersteer/events when absent
    #[arg(long, value_name = "DIR")]
    event_lists: Option<PathBuf>,
    /// Virtual counters, read at the end of each interval: energy_j, llc_occupancy_bytes, temperature_c, sf, ... (`steer
    /// events` lists them); formulas of -m may name them too
    #[arg(short, long = "virtual", value_name = "NAMES", value_delimiter = ',')]
    virtuals: Vec<String>,
    /// Read virtual counters below this folder
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    root: PathBuf,
    /// Time between readings: 100ms, 1s; without it a thread is read at its end
    #[arg(short, long, value_name = "TIME", value_parser = time)]
    interval: Option<Nanos>,
    /// A reading each so many events instead: 100M:instructions
    #[arg(long, value_name = "N:EVENT", conflicts_with = "interval")]
    every: Option<String>,
    /// Processes with all their threads
    #[arg(short, long, value_name = "PID", value_delimiter = ',', group = "whom")]
    pid: Vec<u32>,
    /// Single threads
    #[arg(short, long, value_name = "TID", value_delimiter = ',', group = "whom")]
    tid: Vec<u32>,
    /// A control group: its folder
    #[arg(long, value_name = "PATH", group = "whom")]
    cgroup: Option<PathBuf>,
    /// Everything, by CPU
    #[arg(short, long, group = "whom")]
    all: bool,
    /// Only on these CPUs
    #[arg(short = 'C', long, value_name = "CPUS")]
    cpus: Option<CpuSet>,
    /// Confine the program to these CPUs
    #[arg(long, value_name = "CPUS")]
    bind: Option<CpuSet>,
    /// Stop counting after so many readings
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    samples: Option<u64>,
    /// Stop counting after so long: 10s
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    duration: Option<Nanos>,
    /// What a row is for; thread, or cpu where CPUs are looked at
    #[arg(long, value_name = "WHAT")]
    per: Option<RowPer>,
    /// Who counts threads: BPF programs, which cost less and need root, or counters of the threads' own
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    bpf: Bpf,
    /// Extrapolate counts that had to share counters, and mark them
    #[arg(long)]
    scale: bool,
    /// JSON lines
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Comma-separated values
    #[arg(long)]
    csv: bool,
    /// On a terminal too, print every row instead of a table of the last interval that is drawn again in its place
    #[arg(long)]
    no_live: bool,
    /// Write rows to this file instead of stdout
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Keep everything that was read in a record: a folder of Parquet files
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Count on another machine instead, over ssh; steer must be in PATH there, and files are written there
    #[arg(long, value_name = "USER@MACHINE")]
    host: Option<String>,
    /// The program and its arguments
    #[arg(last = true, value_name = "PROGRAM", group = "whom")]
    command: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RowPer {
    Thread,
    Process,
    Cpu,
    Total,
}

/// Runs the command; passes on the program's own exit code.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Some(host) = &args.host {
        return Err(remote::run_there(host));
    }
    let pmus = library::pmus(Path::new("/"), args.event_lists.as_deref())?;
    let target = target(&args)?;
    let wanted = Wanted::find(&args.virtuals)?;
    let asked = Asked {
        events: &args.events,
        metrics: &args.metrics,
        files: &args.metric_file,
        every: args.every.as_deref(),
        derived: &wanted.derived,
    };
    let counted = counted::plan(&asked, &pmus, args.interval)?;
    if let (Some(name), false) = (wanted.by_thread(&counted), reads_threads(&args)) {
        let mend = "it is for programs, -p or -t, without --per total";
        return Err(told(
            Kind::Usage,
            format!("`{name}` is read thread by thread: {mend}"),
        ));
    }
    let request = request(&args, target, &pmus, &counted)?;
    let core_types = request.core_types.clone();
    let mut out = output(args.to.as_deref())?;
    let session = Session::open(request, inside(bpf(&args)?))?;
    let mut bank = Bank::open(&args.root, &wanted, &counted)?;
    let names = bank.names().to_vec();
    let period = args.interval.unwrap_or_default();
    let about = About {
        by: "steer stat",
        program: &args.command,
        asked: &asked,
        period,
    };
    // Not before it is known that something will be counted: a former record is replaced.
    let keep = |dir: &PathBuf| session::recorder(dir, &about, &counted, &core_types);
    let mut recorder = args.output.as_ref().map(keep).transpose()?;
    let mut screen = Screen::new(&args, &counted, &core_types, &names);
    let summary = session.run(|tick| {
        if args.interval.is_some() || tick.last {
            bank.read(tick.readings)
        } else {
            bank.read_counts(tick.readings)
        }
        session::keep(recorder.as_mut(), tick, Some(&bank));
        let flow = screen.show(tick, &bank, &mut *out);
        session::kept(recorder.as_mut());
        flow
    })?;
    screen.end(&summary, &mut *out)?;
    session::save(recorder, args.output.as_deref(), &summary)?;
    Ok(session::exit_code(&summary))
}

/// Rows as they come.
struct Screen<'a> {
    writer: Writer<'a>,
    fold: Fold,
    /// A table that is drawn again, and the sums of the whole run.
    live: Option<Live>,
    /// Readings stand for themselves and are not added up.
    single: bool,
    text: Vec<u8>,
    failed: Option<std::io::Error>,
}

impl<'a> Screen<'a> {
    fn new(
        args: &Args,
        counted: &'a Counted,
        core_types: &'a CoreTypes,
        names: &'a [&'a str],
    ) -> Self {
        let per = per(args);
        // With -e, or with -v's that come of counts, counts are shown too.
        let own_events = !args.events.is_empty() || counted.sets.len() > args.metrics.len();
        let writer = Writer::new(Form {
            style: style(args),
            plan: &counted.plan,
            metrics: &counted.metrics,
            only_metrics: !own_events && !counted.metrics.is_empty(),
            core_types: &core_types.names,
            scale: args.scale,
            per,
            virtuals: names,
        });
        Self {
            writer,
            fold: Fold::new(per),
            live: is_live(args).then(|| Live::new(per, counted)),
            single: counted.every.is_some(),
            text: Vec::new(),
            failed: None,
        }
    }

    /// Says how it went.
    fn end(&mut self, summary: &Summary, out: &mut dyn Write) -> anyhow::Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error.into());
        }
        if self.writer.style() == Style::Json {
            writeln!(out, "{}", end_line(summary))?;
        }
        out.flush()?;
        warn(summary);
        Ok(())
    }

    fn show(&mut self, tick: &Tick<'_>, bank: &Bank, out: &mut dyn Write) -> ControlFlow<()> {
        self.text.clear();
        if tick.number == 0 {
            self.writer.since(tick.origin);
        }
        if tick.number == 0 || self.live.is_some() {
            self.writer.head(&mut self.text);
        }
        let rows: &Readings = if self.single {
            tick.readings
        } else {
            self.fold.fold(tick.readings)
        };
        self.writer
            .lines(rows, |id| tick.name(id), &*bank.outside(), &mut self.text);
        bank.each(
            |id| tick.name(id),
            |_, value| self.writer.value(tick.at, value, &mut self.text),
        );
        if let Some(live) = &mut self.live {
            live.virtuals.add(rows, bank);
            self.text = live
                .frame(tick, &self.writer, &String::from_utf8_lossy(&self.text))
                .into_bytes();
        }
        match out.write_all(&self.text).and_then(|()| out.flush()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.failed = Some(error);
                ControlFlow::Break(())
            }
        }
    }
}

/// What a terminal shows: the last interval, in the end the whole run.
struct Live {
    table: LiveTable,
    whole: Fold,
    virtuals: Sums,
    /// Of threads that were read.
    names: HashMap<u32, String>,
}

impl Live {
    fn new(per: Per, counted: &Counted) -> Self {
        let table = LiveTable::default();
        let names = HashMap::new();
        Self {
            table,
            whole: Fold::new(per),
            virtuals: Sums::new(counted),
            names,
        }
    }

    fn frame(&mut self, tick: &Tick<'_>, writer: &Writer<'_>, text: &str) -> String {
        self.whole.add(tick.readings);
        for row in tick.readings.rows() {
            if let Owner::Thread { pid, tid } = row.owner {
                for id in [pid, tid] {
                    self.names.insert(id, tick.name(id).to_owned());
                }
            }
        }
        if !tick.last {
            return self.table.frame(text);
        }
        let mut text = Vec::new();
        writer.head(&mut text);
        let name = |id: u32| self.names.get(&id).map_or("", String::as_str);
        writer.lines(
            self.whole.sums(),
            name,
            &|name, row| self.virtuals.of(name, row),
            &mut text,
        );
        self.virtuals
            .each(name, |_, value| writer.value(tick.at, value, &mut text));
        self.table.last(&String::from_utf8_lossy(&text))
    }
}

/// Whether somebody looks at intervals as they come.
fn is_live(args: &Args) -> bool {
    let elsewhere = args.json || args.csv || args.no_live || args.to.is_some();
    args.interval.is_some()
        && !elsewhere
        && std::io::stdout().is_terminal()
        && LiveTable::possible()
}

fn output(to: Option<&Path>) -> anyhow::Result<Box<dyn Write>> {
    let Some(path) = to else {
        return Ok(Box::new(std::io::stdout().lock()));
    };
    let file =
        std::fs::File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Box::new(std::io::BufWriter::new(file)))
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

/// Who counts threads. Programs inside the kernel do not tell CPUs apart.
fn bpf(args: &Args) -> anyhow::Result<Bpf> {
    match (args.per, args.bpf) {
        (Some(RowPer::Cpu), Bpf::Always) => Err(told(
            Kind::Usage,
            "BPF programs do not tell CPUs apart: leave --per cpu out",
        )),
        (Some(RowPer::Cpu), _) => Ok(Bpf::Never),
        (_, bpf) => Ok(bpf),
    }
}

/// Whether threads are looked at one by one.
fn reads_threads(args: &Args) -> bool {
    let together = args.per == Some(RowPer::Total) && args.cpus.is_none();
    !args.all && args.cgroup.is_none() && !together
}

fn request(args: &Args, target: Target, pmus: &Pmus, counted: &Counted) -> anyhow::Result<Request> {
    let by_cpu = matches!(target, Target::Cpus | Target::Cgroup(_));
    if by_cpu && matches!(args.per, Some(RowPer::Thread | RowPer::Process)) {
        return Err(told(
            Kind::Usage,
            "-a and --cgroup count by CPU; rows can be per cpu or total",
        ));
    }
    let together = args.per == Some(RowPer::Total);
    if let (Some(name), None, false) = (counted.outside.first(), args.interval, together) {
        let mend = "give one with -i, as in -i 100ms, or ask for --per total";
        return Err(told(
            Kind::Usage,
            format!("`{name}` is read at the end of intervals: {mend}"),
        ));
    }
    if counted.every.is_some() && (by_cpu || args.per.is_some_and(|p| p != RowPer::Thread)) {
        return Err(told(
            Kind::Usage,
            "--every reads single threads: of a program, of -p or of -t, without --per",
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
        cpus: args.cpus.clone().unwrap_or_else(|| pmus.online.clone()),
        bind: args.bind.clone(),
        total: together && args.cpus.is_none(),
        output: None,
        core_types: CoreTypes::of(pmus),
    })
}

fn target(args: &Args) -> anyhow::Result<Target> {
    if args.samples.is_some() && args.interval.is_none() {
        return Err(told(
            Kind::Usage,
            "-n counts readings, which needs an interval: give one with -i, as in -i 100ms",
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
            let hint = "name a program after `--`, or say what to look at: -p PID, -t TID, --cgroup PATH or -a";
            Err(told(Kind::Usage, hint))
        }
    }
}

fn end_line(summary: &Summary) -> serde_json::Value {
    serde_json::json!({
        "kind": "end",
        "elapsed_s": summary.elapsed.as_secs_f64(),
        "exit_code": summary.ending.map(|e| e.code()),
        "threads_born": summary.born,
        "records_lost": summary.lost,
        "user_only": summary.user_only,
    })
}

/// Says what the numbers are not.
fn warn(summary: &Summary) {
    if summary.user_only {
        eprintln!(
            "steer: only user mode was counted, since kernel.perf_event_paranoid permits no more"
        );
    }
    if summary.lost > 0 {
        let lost = summary.lost;
        eprintln!(
            "steer: {lost} records did not fit; what they told of threads is in the row (rest), totals are right"
        );
    }
    if summary.partial > 0 {
        let n = summary.partial;
        eprintln!(
            "steer: the kernel told {n} final counts in part; what is missing is in the row (rest)"
        );
    }
}
