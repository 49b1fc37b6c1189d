//! `steer blame`: shows programs that slow others down, and placements or cache partitions that prevent it.

use std::path::PathBuf;
use std::sync::Arc;

use countersteer_lab::blame::{self, Blame};
use countersteer_lab::{Experiment, LoadedMachine, plan};
use countersteer_report::judge::percent;
use countersteer_report::number;
use countersteer_report::record::Record;
use countersteer_report::table::{divided, prose};

use super::{print, print_json};
use crate::error::{FaultKind, failure};
use crate::recorded::load_workload;
use crate::sim_args::SimArgs;
use crate::{library, signals};

/// Placement policies that are tried as remedies by default.
const PLACES: &str = "mpi,joint";

/// Arguments of `steer blame`.
#[derive(Debug, clap::Args)]
pub struct BlameArgs {
    /// Record of a simulation, which determines machine, workload, policy, seed and options
    #[arg(required_unless_present = "workload", conflicts_with_all = ["workload", "machine", "SimArgs"])]
    record: Option<PathBuf>,
    /// Workload: name or file
    #[arg(short, long, requires = "machine")]
    workload: Option<String>,
    /// Machine: name or file
    #[arg(short = 'M', short_alias = 'm', long)]
    machine: Option<String>,
    /// Policy under which the slowdowns are measured; default: the record's policy, otherwise linux
    #[arg(short = 'P', short_alias = 'p', long)]
    policy: Option<String>,
    /// Policies to try as remedies, separated by commas
    #[arg(long, default_value = PLACES, value_name = "POLICY,...")]
    instead: String,
    /// Simulate with seeds 1 to N; with a record, use N seeds that begin with the record's seed
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: SimArgs,
}

/// Runs `steer blame`.
pub fn run(args: &BlameArgs) -> anyhow::Result<()> {
    signals::listen()?;
    args.options.one_kernel()?;
    let experiment = experiment(args)?;
    let places: Vec<String> = args.instead.split(',').map(str::to_owned).collect();
    let found = blame::blame(&experiment, args.seeds, &places)?;
    if args.json {
        return print_json(&found);
    }
    print(&text(&found))
}

fn experiment(args: &BlameArgs) -> anyhow::Result<Experiment> {
    let mut experiment = match (&args.record, &args.machine, &args.workload) {
        (Some(record), ..) => of_record(record)?,
        (None, Some(machine), Some(workload)) => Experiment {
            machine: library::loaded(machine)?,
            workload: Arc::new(load_workload(workload)?),
            policy: countersteer_policies::LINUX.into(),
            seed: 1,
            options: args.options.options()?,
            detail: None,
        },
        _ => {
            return Err(failure(
                FaultKind::Usage,
                "name a record, or a machine and a workload",
            ));
        }
    };
    if let Some(policy) = &args.policy {
        experiment.policy.clone_from(policy);
    }
    Ok(experiment)
}

/// Reads machine, workload, policy, seed and options of a simulation from its record.
fn of_record(path: &std::path::Path) -> anyhow::Result<Experiment> {
    let manifest = library::record_by(Record::load_inputs, path)?.manifest;
    if manifest.profiles.is_empty() {
        let why = format!(
            "{}: it has no profiles, like all records of live runs; profile the programs (`steer profile`) and use a workload of \
             them with --workload and --machine",
            path.display()
        );
        return Err(failure(FaultKind::BadInput, why));
    }
    let machine = LoadedMachine::of_text(&manifest.machine.name, &manifest.machine.text)?;
    Ok(Experiment {
        machine: Arc::new(machine),
        workload: Arc::new(plan::of_record(&manifest)?),
        policy: manifest.policy.clone(),
        seed: manifest.seed,
        options: countersteer_lab::SimOptions::of_record(&manifest),
        detail: None,
    })
}

fn text(found: &Blame) -> String {
    let mut head = vec!["victim", "slowdown"];
    let without: Vec<String> = found
        .programs
        .iter()
        .map(|p| format!("without {p}"))
        .collect();
    head.extend(without.iter().map(String::as_str));
    let rows = found.programs.iter().enumerate().map(|(victim, name)| {
        let mut row = vec![name.clone(), number(found.slowdown[victim], 4)];
        row.extend((0..found.programs.len()).map(|by| match by == victim {
            true => String::new(),
            false => number(found.without(victim, by), 4),
        }));
        row
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let title = format!(
        "{} on {} under {}: slowdown of each program, and without one of the others",
        found.workload, found.machine, found.policy
    );
    format!(
        "{}\n{}\n\n{}\n\n{}{}",
        prose(&title),
        divided(&head, &rows, 2),
        prose(APART),
        remedies(found),
        sentence(found),
    )
}

/// Note, printed below the table, that the differences between the columns do not add up to the slowdown.
const APART: &str = "Each column is a separate simulation without that one program. The differences do not add up to the slowdown: cache \
    that two programs take is free only without both, and other programs may take what one leaves.";

/// Formats the slowdowns under other policies and with a cache partition.
fn remedies(found: &Blame) -> String {
    let mut head = vec!["instead"];
    head.extend(found.programs.iter().map(String::as_str));
    head.push("mean");
    let row = |name: String, slowdown: &[f64]| {
        let mean = slowdown.iter().sum::<f64>() / slowdown.len().max(1) as f64;
        let figures = slowdown.iter().chain([&mean]);
        let mut row = vec![name];
        row.extend(figures.map(|s| number(*s, 4)));
        row
    };
    let mut rows = vec![row(format!("({})", found.policy), &found.slowdown)];
    rows.extend(
        found
            .places
            .iter()
            .map(|p| row(p.policy.clone(), &p.slowdown)),
    );
    let places = format!(
        "Slowdown under other policies:\n{}",
        divided(&head, &rows, 1)
    );
    let Some(partition) = &found.partition else {
        return places;
    };
    // The partition's slowdowns are in a separate table: they exclude the sharing of CPUs and bandwidth, which the rows above
    // include.
    head[0] = "";
    let ways = partition.ways.iter().map(u32::to_string);
    let ways = std::iter::once("ways".to_owned())
        .chain(ways)
        .chain([String::new()]);
    let rows = vec![ways.collect(), row("slowdown".into(), &partition.slowdown)];
    let title = prose(&format!(
        "With a part of the last-level cache's {} ways, and CPU and bandwidth to itself:",
        partition.of_ways
    ));
    format!("{places}\n\n{title}\n{}", divided(&head, &rows, 1))
}

/// Returns a sentence about the pair of programs with the greatest slowdown, and the best remedy for the slower program.
fn sentence(found: &Blame) -> String {
    let pairs = found.caused.iter().enumerate().flat_map(|(victim, by)| {
        by.iter()
            .enumerate()
            .map(move |(cause, more)| (victim, cause, *more))
    });
    let worst = pairs.max_by(|a, b| a.2.total_cmp(&b.2));
    let Some((victim, cause, more)) = worst.filter(|w| w.2 >= WORTH) else {
        return format!(
            "\n\nNo program slows another by {} or more.",
            percent(WORTH)
        );
    };
    let programs = &found.programs;
    let places = found
        .places
        .iter()
        .map(|p| (p.policy.clone(), p.slowdown[victim]));
    let best = places.min_by(|a, b| a.1.total_cmp(&b.1));
    let help = match best {
        Some((what, slowdown)) if slowdown < found.slowdown[victim] - WORTH => format!(
            "{what} would bring its slowdown from {} to {}.",
            number(found.slowdown[victim], 4),
            number(slowdown, 4)
        ),
        _ => "no tried policy prevents it.".to_owned(),
    };
    let partition = found.partition.iter().map(|p| {
        format!(
            " With {} of {} ways, and CPU and bandwidth to itself, {} would be {} slower than with the whole cache.",
            p.ways[victim],
            p.of_ways,
            programs[victim],
            percent(p.slowdown[victim] - 1.0)
        )
    });
    let sentence = format!(
        "Without {}, {} would be {} instead of {} times slower than alone, the greatest difference ({}): {help}{}",
        programs[cause],
        programs[victim],
        number(found.without(victim, cause), 4),
        number(found.slowdown[victim], 4),
        percent(more),
        partition.collect::<String>()
    );
    format!("\n\n{}", prose(&sentence))
}

/// Threshold: a slowdown below this fraction is not mentioned.
const WORTH: f64 = 0.01;
