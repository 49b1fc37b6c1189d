//! `steer bench`: repeatable timing of commands on unequal cores.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use countersteer_counters::{
    CoreTypes, CountRequest, CountTarget, EventProbe, Session, probe_event,
};
use countersteer_model::counters::{Fold, Per};
use countersteer_model::cpuset::CpuSet;
use countersteer_model::events::Event;
use countersteer_model::units::Nanos;
use countersteer_report::table::prose;
use countersteer_report::write_atomically;

use super::{print, print_json};
use crate::args::HereArgs;
use crate::bench::commands::{ParameterScan, combinations};
use crate::bench::disturbance::Observer;
use crate::bench::places::places;
use crate::bench::result::{ArmResults, RunCounts};
use crate::bench::runner::CommandRunner;
use crate::bench::series::{ArmSeries, BenchArm, Conditions, MeasuredArm, SeriesLimits, measure};
use crate::counted::{self, RequestedMetrics};
use crate::error::{FaultKind, failure};
use crate::output::check_writable;
use crate::signals;
use crate::steering::here::SteeredMachine;
use crate::values::{percent, time};

/// Arguments of `steer bench`.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct BenchArgs {
    /// CPUs on which the commands run: `all`, `each` (one arm per core type), the name of a core type or cache, or a list such
    /// as 0-3,8; repeatable
    #[arg(long, value_name = "CPUS", default_value = "all")]
    on: Vec<String>,
    /// Number of unmeasured rounds before the measured rounds
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=1000))]
    warmup: u64,
    /// Shell command that is executed before each run, outside the measured time
    #[arg(short, long, value_name = "COMMAND")]
    prepare: Option<String>,
    /// Number of runs of each arm; default: 10, or more until the runs of each arm take 3 s in total
    #[arg(short, long, alias = "runs", value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    repeat: Option<u64>,
    /// Run until the interval of each arm's median is narrow enough: half-width relative to the median, e.g. 1%
    #[arg(long, value_name = "PERCENT", value_parser = percent, conflicts_with = "repeat")]
    within: Option<f64>,
    /// Start no new round after this time; default: 60s with --within or --compare, otherwise no time limit
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "repeat")]
    duration: Option<Nanos>,
    /// Compare two commands until one is certainly faster, or their difference is certainly within the margin
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with = "command")]
    compare: Vec<String>,
    /// Equivalence margin: differences in speed up to this count as no difference
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "1")]
    margin: f64,
    /// Replace {NAME} in the command by each number from LO to HI, with one arm per number
    #[arg(short = 'P', long, num_args = 3, value_names = ["NAME", "LO", "HI"])]
    parameter_scan: Vec<String>,
    /// Step between the numbers of --parameter-scan
    #[arg(short = 'D', long, value_name = "STEP", default_value = "1")]
    parameter_step_size: String,
    /// Replace {NAME} in the command by each of the comma-separated VALUES, with one arm per value; repeatable
    #[arg(short = 'L', long, num_args = 2, value_names = ["NAME", "VALUES"])]
    parameter_list: Vec<String>,
    /// Also measure commands that exit with an error
    #[arg(short, long)]
    ignore_failure: bool,
    /// Show the output of the commands
    #[arg(long)]
    show_output: bool,
    /// Write the results to this file, in hyperfine's JSON format
    #[arg(long, value_name = "FILE")]
    export_json: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    here: HereArgs,
    /// Command and its arguments
    #[arg(
        trailing_var_arg = true,
        required_unless_present = "compare",
        value_name = "COMMAND"
    )]
    command: Vec<String>,
}

/// Longest time of a series that goes on until something is known.
const MOST: Duration = Duration::from_secs(60);

/// Runs the command.
pub fn run(args: &BenchArgs) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.export_json {
        check_writable(path)?;
    }
    let here = args.here.look()?;
    let arms = arms(args, &here)?;
    let mut runner = CommandRunner::new(args.show_output)?;
    let mut measured = vec![MeasuredArm::default(); arms.len()];
    let series = ArmSeries {
        arms: &arms,
        warmups: args.warmup,
        conditions: Conditions {
            prepare: args.prepare.as_deref(),
            ignores_failure: args.ignore_failure,
            output: None,
        },
        limits: limits(args),
        seed: args.here.seed,
    };
    let mut observer = Observer::new(Path::new("/"));
    let signal = measure(&series, &mut runner, &mut observer, &mut measured)?;
    let mut findings = ArmResults::of(&arms, &measured, args.margin);
    if signal.is_none() {
        count(&arms, &here, &mut findings);
    }
    let is_known = !findings.arms.is_empty();
    if is_known {
        tell(args, &findings)?;
    }
    Ok(signal.map_or(ExitCode::SUCCESS, |s| signals::said(s, is_known)))
}

/// Every command on every place, in the order of the command line.
fn arms(args: &BenchArgs, here: &SteeredMachine) -> anyhow::Result<Vec<BenchArm>> {
    let places = places(&args.on, here)?;
    let mut scans = Vec::new();
    for scan in args.parameter_scan.chunks(3) {
        scans.push(ParameterScan::range(
            &scan[0],
            &scan[1],
            &scan[2],
            &args.parameter_step_size,
        )?);
    }
    let lists = args.parameter_list.chunks(2);
    scans.extend(lists.map(|list| ParameterScan::list(&list[0], &list[1])));
    let commands: Vec<Vec<String>> = if args.compare.is_empty() {
        vec![args.command.clone()]
    } else {
        args.compare.iter().map(|text| vec![text.clone()]).collect()
    };
    let mut arms = Vec::new();
    for words in &commands {
        for command in combinations(words, &scans)? {
            countersteer_sysfs::launch::find_program(&command.words)?;
            arms.extend(places.iter().map(|place| BenchArm {
                command: command.clone(),
                place: place.clone(),
            }));
        }
    }
    if arms.len() > MOST_ARMS {
        let why = format!("{} arms are more than {MOST_ARMS}", arms.len());
        return Err(failure(FaultKind::Usage, why));
    }
    Ok(arms)
}

const MOST_ARMS: usize = 1_000;

fn limits(args: &BenchArgs) -> SeriesLimits {
    let decides = args.within.is_some() || !args.compare.is_empty();
    let asked = args.duration.map(|d| Duration::from_nanos(d.0));
    SeriesLimits {
        repeat: args.repeat,
        within: args.within,
        margin: (!args.compare.is_empty()).then_some(args.margin),
        most: asked.or(decides.then_some(MOST)),
    }
}

/// Counts one run of each arm, where this machine counts instructions and cycles.
fn count(arms: &[BenchArm], here: &SteeredMachine, findings: &mut ArmResults) {
    let counts = |event: Event| {
        matches!(
            probe_event(event.def(), &here.pmus),
            EventProbe::Counts | EventProbe::UserOnly
        )
    };
    if !counts(Event::Instructions) || !counts(Event::Cycles) {
        return;
    }
    for (arm, row) in arms.iter().zip(&mut findings.arms) {
        let sums = sums(
            &arm.command.words,
            arm.place.mask(),
            here,
            "instructions,cycles",
        );
        row.counts = sums.ok().and_then(|sums| match sums[..] {
            [instructions, cycles] => Some(RunCounts {
                instructions,
                cycles,
            }),
            _ => None,
        });
    }
}

/// Counts of events over a run with all its threads.
fn sums(
    command: &[String],
    bind: Option<&CpuSet>,
    here: &SteeredMachine,
    events: &str,
) -> anyhow::Result<Vec<f64>> {
    let asked = RequestedMetrics {
        events: &[events.to_owned()],
        metrics: &[],
        files: &[],
        every: None,
        derived: &[],
    };
    let counted = counted::plan(&asked, &here.pmus, None)?;
    let session = Session::open(
        CountRequest {
            bind: bind.cloned(),
            total: true,
            output: Some("/dev/null".into()),
            ..CountRequest::new(
                CountTarget::Launch(command.to_vec()),
                (counted.sets, counted.plan),
                None,
                here.pmus.online.clone(),
                CoreTypes::of(&here.pmus),
            )
        },
        None,
    )?;
    let mut fold = Fold::new(Per::Total);
    session.run(|tick| {
        fold.add(tick.readings);
        std::ops::ControlFlow::Continue(())
    })?;
    let sums = fold.sums();
    let of = |event: usize| {
        let rows = 0..sums.rows().len();
        rows.filter_map(|row| sums.value(row, event)).sum()
    };
    Ok((0..events.split(',').count()).map(of).collect())
}

fn tell(args: &BenchArgs, findings: &ArmResults) -> anyhow::Result<()> {
    if let Some(path) = &args.export_json {
        let text = serde_json::to_string_pretty(&findings.as_hyperfine())? + "\n";
        write_atomically(path, text.as_bytes())?;
    }
    if args.json {
        return print_json(findings);
    }
    let mut text = findings.table();
    for sentence in findings.comparisons(args.margin) {
        text += &prose(&format!("{sentence}\n"));
    }
    print(&text)?;
    for warning in &findings.warnings {
        stderr_text!("{}", prose(&format!("steer: {warning}\n")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_counted_with_its_children() {
        let pmus = crate::library::pmus(Path::new("/"), None).unwrap();
        if probe_event(Event::TaskClock.def(), &pmus) != EventProbe::Counts {
            countersteer_fuzz::skipped("nothing is counted here");
            return;
        }
        let machine = countersteer_sysfs::topology::detect(Path::new("/")).unwrap();
        let here = SteeredMachine::new(machine, String::new(), pmus).unwrap();
        let words = [
            "sh",
            "-c",
            "sh -c 'i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done'; true",
        ];
        let words = words.map(str::to_owned);
        let sums = sums(&words, None, &here, "task_clock,page_faults").unwrap();
        assert!(sums[0] > 5e6 && sums[1] > 50.0, "{sums:?}");
    }
}
