//! `steer sim`: one experiment, with its record.

use countersteer_report::record::Detail;
use countersteer_report::table::{self, CompareRun};

use super::{print, print_json};
use crate::experiment::{self, Experiment, SimOptions};
use crate::output::RecordOut;
use crate::plan;

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Machine: name or file
    #[arg(short, long)]
    machine: String,
    /// Workload: name or file
    #[arg(short, long)]
    workload: String,
    /// Policy: name or name:key=value,...
    #[arg(short = 'P', short_alias = 'p', long, default_value = "linux")]
    policy: String,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    record: RecordOut,
    /// Scores as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: SimOptions,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let dir = args.record.place()?;
    let machine = experiment::machine(&args.machine)?;
    let workload = plan::load(&args.workload)?;
    let detail = dir.map(|_| Detail::Everything);
    let experiment = Experiment {
        machine: &machine,
        workload: &workload,
        policy: &args.policy,
        seed: args.seed,
        detail,
    };
    let finished = experiment::run(&experiment, &args.options)?;
    if let (Some(dir), Some(record)) = (dir, &finished.record) {
        record.save(dir)?;
        eprintln!("steer: record in {}", dir.display());
    }
    let run = CompareRun::new(
        &machine.machine.name,
        &workload.name,
        &args.policy,
        args.seed,
        &finished.score,
    );
    if args.json {
        return print_json(&run);
    }
    print(&format!(
        "{}\n{}",
        table::comparison(std::slice::from_ref(&run)),
        table::programs(&run)
    ))
}
