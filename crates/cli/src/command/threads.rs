//! `steer threads`: number of threads of a program, and cores for them.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use countersteer_lab::threads::candidates::{Candidate, candidates, chunked};
use countersteer_lab::threads::search::{self, Found, Limits, search};
use countersteer_model::cpunumbers::CpuNumbers;
use countersteer_model::cpuset::CpuSet;
use countersteer_model::topology::Topology;
use countersteer_model::units::Nanos;
use countersteer_report::table::prose;

use super::{print, print_json};
use crate::args::HereArgs;
use crate::bench::disturbance::{Disturbance, Observer};
use crate::bench::places::places;
use crate::bench::runner::Runner;
use crate::bench::series::{Arm, Conditions, Measured};
use crate::bench::threads::finals::{End, compare, finalists};
use crate::bench::threads::form::{Form, Way};
use crate::bench::threads::live::{Answers, Live, arm};
use crate::bench::threads::result::Findings;
use crate::interrupt;
use crate::library;
use crate::steering::here::Here;
use crate::values::{percent, time};

/// Arguments of `steer threads`.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Args {
    /// CPUs that candidates can use: `all`, the name of a core type or cache, or a list such as 0-3,8; repeatable
    #[arg(long, value_name = "CPUS", default_value = "all")]
    on: Vec<String>,
    /// Set an environment variable of the program; repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Chunking to try, as it replaces `{chunk}` in the command or --env; repeatable. Default: the OpenMP schedules static, dynamic,1,
    /// dynamic,64 and guided
    #[arg(long, value_name = "CHUNKING")]
    chunk: Vec<String>,
    /// Maximum number of candidates that the search runs; default: 8, with `{chunk}` 12
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=1000))]
    trials: Option<u64>,
    /// Number of unmeasured runs with all CPUs before the search
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=1000))]
    warmup: u64,
    /// Shell command that is executed before each run, outside the measured time
    #[arg(short, long, value_name = "COMMAND")]
    prepare: Option<String>,
    /// Number of rounds of the comparison with the default; default: at least 10, until the result is certain
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    repeat: Option<u64>,
    /// Start no new round of the comparison after this time
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "60s", conflicts_with = "repeat")]
    duration: Nanos,
    /// Equivalence margin: differences in speed up to this count as no difference
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "1")]
    margin: f64,
    /// Stop with an error if the program's output differs between runs of the search
    #[arg(long, conflicts_with = "show_output")]
    check_output: bool,
    /// Show the output of the program
    #[arg(long)]
    show_output: bool,
    /// List the candidates with the times that the model predicts, without running the program
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    here: HereArgs,
    /// Program and its arguments; `{threads}`, or the letter n in braces, stands for the number of threads
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Most trials of a search without and with `{chunk}`.
const TRIALS: u64 = 8;
const TRIALS_WITH_CHUNKINGS: u64 = 12;

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let form = Form::new(&args.command, &args.env, &args.chunk)?;
    if let (true, Some(name)) = (args.dry_run, &args.here.machine) {
        let machine = library::loaded(name)?;
        let numbers = CpuNumbers::new(machine.machine.os_cpu_numbers());
        let all = candidates(&machine.topology, &machine.topology.groups[0].cpus);
        let all = chunked(all, &form.chunkings());
        return expect(args, &form, all, &machine.topology, &numbers);
    }
    let here = args.here.look()?;
    let places = places(&args.on, &here)?.into_iter();
    let allowed: CpuSet = places
        .flat_map(|p| p.cpus.iter().collect::<Vec<_>>())
        .collect();
    let allowed = here.numbers.own_set(&allowed);
    let all = chunked(candidates(&here.topology, &allowed), &form.chunkings());
    if args.dry_run {
        return expect(args, &form, all, &here.topology, &here.numbers);
    }
    measured(args, &form, all, &here)
}

/// Runner of a dry run.
struct Nothing;

impl search::Runner for Nothing {
    fn seconds(&mut self, _: &Candidate) -> anyhow::Result<Option<f64>> {
        Ok(None)
    }
}

fn limits(args: &Args, form: &Form) -> Limits {
    let trials = match form.chunkings().len() {
        0 => TRIALS,
        _ => TRIALS_WITH_CHUNKINGS,
    };
    Limits {
        trials: args.trials.unwrap_or(trials) as usize,
        seed: args.here.seed,
        ..Limits::default()
    }
}

fn expect(
    args: &Args,
    form: &Form,
    mut all: Vec<Candidate>,
    topology: &Topology,
    numbers: &CpuNumbers,
) -> anyhow::Result<ExitCode> {
    let found = search(&mut all, topology, &mut Nothing, limits(args, form))?;
    tell(args, &Findings::of(form, &all, numbers, &found))?;
    Ok(ExitCode::SUCCESS)
}

fn measured(
    args: &Args,
    form: &Form,
    mut all: Vec<Candidate>,
    here: &Here,
) -> anyhow::Result<ExitCode> {
    let mut runner = Runner::new(args.show_output)?;
    let mut live = Live {
        form,
        here,
        prepare: args.prepare.as_deref(),
        runner: &mut runner,
        observer: Observer::new(Path::new("/")),
        disturbance: Disturbance::default(),
        answers: args.check_output.then(Answers::new).transpose()?,
        runs: 0,
        busy: None,
        signal: None,
    };
    let found = searched(args, &mut all, here, &mut live)?;
    let mut signal = live.signal;
    let disturbed = live.disturbance.words();
    if let Some(signal) = signal.filter(|_| found.trials.is_empty()) {
        return Ok(interrupt::said(signal, false));
    }
    let mut findings = Findings::of(form, &all, &here.numbers, &found);
    let finalists = finalists(&found);
    if signal.is_none() && !finalists.is_empty() {
        let rows = std::iter::once(0).chain(finalists).map(|row| &all[row]);
        let arms: Vec<Arm> = rows.clone().map(|c| arm(form, c, here)).collect();
        let ways: Vec<Way> = rows.map(|c| (c.threads, c.chunking.0)).collect();
        let mut runs = vec![Measured::default(); arms.len()];
        let conditions = Conditions {
            prepare: args.prepare.as_deref(),
            ..Conditions::default()
        };
        let end = End {
            rounds: args.repeat,
            most: Duration::from_nanos(args.duration.0),
            margin: args.margin,
            seed: args.here.seed,
        };
        let mut observer = Observer::new(Path::new("/"));
        signal = compare(
            &arms,
            conditions,
            end,
            &mut runner,
            &mut observer,
            &mut runs,
        )?;
        findings.judge(form, &arms, &ways, &runs, args.margin);
    }
    findings.warnings.extend(disturbed);
    tell(args, &findings)?;
    Ok(signal.map_or(ExitCode::SUCCESS, |s| interrupt::said(s, true)))
}

/// Warms up, then searches.
fn searched(
    args: &Args,
    all: &mut Vec<Candidate>,
    here: &Here,
    live: &mut Live<'_>,
) -> anyhow::Result<Found> {
    for _ in 0..args.warmup {
        if search::Runner::seconds(live, &all[0])?.is_none() {
            return Ok(Found::default());
        }
    }
    live.disturbance = Disturbance::default();
    let limits = limits(args, live.form);
    search(all, &here.topology, live, limits)
}

fn tell(args: &Args, findings: &Findings) -> anyhow::Result<()> {
    if args.json {
        return print_json(findings);
    }
    let mut text = findings.table();
    for sentence in findings.sentences() {
        text += &prose(&format!("{sentence}\n"));
    }
    print(&text)?;
    for warning in &findings.warnings {
        eprint!("{}", prose(&format!("steer: {warning}\n")));
    }
    Ok(())
}
