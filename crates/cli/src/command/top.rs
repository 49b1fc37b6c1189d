//! `steer top`: shows hardware metrics of threads, on a terminal, as one table per interval, or on a page.

use std::io::{ErrorKind, IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use countersteer_counters::{
    CoreTypes, CounterError, Pmus, PresentProcesses, Request, Session, Target,
};
use countersteer_model::units::Nanos;

use crate::args::EventArgs;
use crate::bpf::{Bpf, loader};
use crate::counted::{self, Asked, Counted};
use crate::counting_record::{self, About};
use crate::error::{Kind, failure};
use crate::output::RecordOut;
use crate::top::columns::{self, Column, Measure, base_metrics, columns, silent};
use crate::top::live::{self, Outcome};
use crate::top::plain;
use crate::top::sample::{Sampler, Taker};
use crate::top::state::State;
use crate::top::tails::Tails;
use crate::top::web::{self, WebArgs};
use crate::values::{pid, time};
use crate::virtuals::{Bank, Wanted};
use crate::{interrupt, library};

/// Arguments of `steer top`, which shows hardware metrics of a started program, of processes, or of all accessible processes.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(group = clap::ArgGroup::new("whom").multiple(false))]
pub struct Args {
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
pub fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    if args.web.web {
        return web::run(&args.web, args.interval, args.command.len());
    }
    let pmus = library::pmus(Path::new("/"), args.counted.event_lists.as_deref())?;
    let modules = args.counted.start_modules(&pmus);
    let args = &args;
    let dir = args.record.place()?;
    let core_types = CoreTypes::of(&pmus);
    let hybrid = core_types.names.len() > 1;
    let wanted = Wanted::find(&args.counted.virtuals)?;
    let known = library::metrics(&args.counted.metric_file)?;
    let base = base_metrics(&known, hybrid, &wanted.derived, &pmus);
    let metrics: Vec<String> = std::iter::once(base)
        .chain(args.counted.metrics.iter().cloned())
        .collect();
    let asked = Asked {
        events: &args.counted.events,
        metrics: &metrics,
        files: &args.counted.metric_file,
        every: None,
        derived: &[],
    };
    let counted = counted::plan(&asked, &pmus, Some(args.interval))?;
    let (columns, measures) = shown(args, &counted, hybrid, &wanted)?;
    let mut state = State::new(columns, &measures, core_types.names.clone());
    state.by_process = args.per == LinePer::Process;
    state.set_sort(columns::find(&state.columns, &args.sort)?);
    let about = About {
        by: "steer top",
        program: &args.command,
        events: asked.events.join(" ; "),
        metrics: asked.metrics.join(" ; "),
        period: args.interval,
    };
    let open = |target, bpf| {
        Session::open(
            request(args, target, &pmus, &counted, core_types.clone()),
            loader(bpf),
        )
    };
    let session = match target(args) {
        Some(target) => open(target, args.counted.bpf)?,
        None => {
            let (session, note) = everybody(args.counted.bpf, &open, || {
                PresentProcesses::gather(&counted.sets, &pmus.online)
            })?;
            state.notes.extend(note);
            session
        }
    };
    let keep = |dir: &Path| counting_record::recorder(dir, &about, &counted, &core_types);
    let recorder = dir.map(keep).transpose()?;
    let mut tails = Tails::default();
    let read = Wanted::find(&tails.turn_to(&state.reads())?)?;
    let bank = Bank::open(&args.counted.root, &read, &counted, modules)?;
    let taker = Taker {
        sampler: Sampler::new(measures, args.interval),
        bank,
        tails,
        recorder,
    };
    let outcome = if std::io::stdout().is_terminal() && !args.json {
        live::show(session, state, taker, args.samples)?
    } else {
        print(session, state, taker, args)?
    };
    end(outcome, dir)
}

/// Saves the record, and prints the number of lost records. Returns the exit code.
fn end(outcome: Outcome, dir: Option<&Path>) -> anyhow::Result<ExitCode> {
    let summary = outcome.summary;
    if summary.lost > 0 {
        let lost = summary.lost;
        eprintln!(
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

/// Returns all columns, with the requested ones shown, and the measures that supply their values.
fn shown(
    args: &Args,
    counted: &Counted,
    hybrid: bool,
    wanted: &Wanted,
) -> anyhow::Result<(Vec<Column>, Vec<Measure>)> {
    let silent = silent(&args.counted.root, args.counted.bpf);
    let (mut columns, measures) = columns(counted, args.counted.events.len(), hybrid, &silent);
    if !args.columns.is_empty() {
        columns::only(&mut columns, &args.columns)?;
    }
    let of_virtuals = wanted
        .columns
        .iter()
        .map(|c| c.name)
        .chain(wanted.derived.iter().map(|m| m.name));
    of_virtuals
        .into_iter()
        .try_for_each(|name| columns::show(&mut columns, name))?;
    Ok((columns, measures))
}

/// Returns the given processes, or the command to start; `None` if neither was given.
fn target(args: &Args) -> Option<Target> {
    match args.pid.as_slice() {
        [] => (!args.command.is_empty()).then(|| Target::Launch(args.command.clone())),
        pids => Some(Target::Processes(pids.to_vec())),
    }
}

/// Opens a session for all accessible processes. Uses BPF programs if possible, since counters for each thread may exceed the
/// limit of open files. Returns a message about omitted processes if there are any.
fn everybody(
    bpf: Bpf,
    open: &dyn Fn(Target, Bpf) -> Result<Session, CounterError>,
    gather: impl FnOnce() -> PresentProcesses,
) -> anyhow::Result<(Session, Option<String>)> {
    if bpf != Bpf::Never {
        match open(Target::Present(PresentProcesses::all().pids), Bpf::Always) {
            Err(CounterError::NoBpf { .. }) if bpf == Bpf::Auto => {}
            opened => return Ok((opened?, None)),
        }
    }
    let crowd = gather();
    if crowd.pids.is_empty() {
        let hint = "no process is accessible; name some with -p, or a program after `--`";
        return Err(failure(Kind::Usage, hint));
    }
    let note = said_of(&crowd);
    Ok((open(Target::Present(crowd.pids), Bpf::Never)?, note))
}

fn said_of(crowd: &PresentProcesses) -> Option<String> {
    let forbidden = format!(
        "{} not accessible (another user's: run as root)",
        crowd.forbidden
    );
    let left_out = format!(
        "{} with the least CPU time omitted (limit of open files; select with -p)",
        crowd.left_out
    );
    let notes = [(crowd.forbidden, forbidden), (crowd.left_out, left_out)];
    let notes: Vec<String> = notes
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(_, text)| text)
        .collect();
    (!notes.is_empty()).then(|| {
        format!(
            "{} processes attached; {}",
            crowd.pids.len(),
            notes.join("; ")
        )
    })
}

fn request(
    args: &Args,
    target: Target,
    pmus: &Pmus,
    counted: &Counted,
    core_types: CoreTypes,
) -> Request {
    Request {
        target,
        sets: counted.sets.clone(),
        plan: counted.plan.clone(),
        interval: Some(args.interval),
        // The display counts the intervals and stops the session, which also ends a started program.
        samples: None,
        duration: None,
        every: None,
        prompt: false,
        cpus: pmus.online.clone(),
        bind: None,
        total: false,
        output: Some(args.stdout.clone()),
        core_types,
    }
}

/// Prints a table (or JSON lines) per interval.
fn print(
    mut session: Session,
    mut state: State,
    mut taker: Taker,
    args: &Args,
) -> anyhow::Result<Outcome> {
    state
        .notes
        .iter()
        .for_each(|note| eprintln!("steer: {note}"));
    let stopper = session.stopper()?;
    // If the reader of stdout has ended, e.g. ssh, this process must still end the program that it started.
    interrupt::survive_closed_pipes()?;
    let mut out = std::io::stdout().lock();
    let mut failed = None;
    let mut stopped = false;
    let summary = session.run(|tick| {
        let snapshot = taker.take(tick);
        counting_record::kept(taker.recorder.as_mut());
        if stopped {
            // The program has not ended after the first request, so the second call kills it.
            stopper.stop();
            return ControlFlow::Continue(());
        }
        if let Some(note) = &snapshot.note {
            eprintln!("steer: {note}");
        }
        state.ingest(snapshot);
        let text = if args.json {
            plain::json(&state)
        } else {
            plain::table(&state)
        };
        if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            failed = Some(error);
        }
        if failed.is_some() || args.samples.is_some_and(|n| tick.number + 1 >= n) {
            // If the program has ended by itself, it must not be stopped again.
            stopped = !tick.last;
            stopper.stop();
        }
        ControlFlow::Continue(())
    })?;
    match failed {
        Some(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(Outcome {
            summary,
            recorder: taker.recorder,
            stopped,
        }),
    }
}
