//! `steer sim`: simulates one experiment, and writes its record if requested.

use std::sync::Arc;

use countersteer_lab::Experiment;
use countersteer_report::judge::{lead, meaning};
use countersteer_report::record::Detail;
use countersteer_report::table::{self, CompareRun};

use super::{print, print_json};
use crate::output::RecordOut;
use crate::recorded::load_workload;
use crate::sim_args::{SimArgs, warn_of_cut, warn_of_unmet};
use crate::{library, signals};

/// Arguments of `steer sim`.
#[derive(Debug, clap::Args)]
pub struct SimulateArgs {
    /// Machine: name or file
    #[arg(short = 'M', short_alias = 'm', long)]
    machine: String,
    /// Workload: name or file
    #[arg(short, long)]
    workload: String,
    /// Policy: name or name:key=value,...
    #[arg(short = 'P', short_alias = 'p', long, default_value = countersteer_policies::LINUX)]
    policy: String,
    /// Random seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    record: RecordOut,
    /// Print the scores as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: SimArgs,
}

/// Runs `steer sim`.
pub fn run(args: &SimulateArgs) -> anyhow::Result<()> {
    signals::listen()?;
    args.options.one_kernel()?;
    let dir = args.record.place()?;
    let experiment = Experiment {
        machine: library::loaded(&args.machine)?,
        workload: Arc::new(load_workload(&args.workload)?),
        policy: args.policy.clone(),
        seed: args.seed,
        options: args.options.options()?,
        detail: dir.map(|_| Detail::Everything),
    };
    warn_of_unmet(&experiment.policy, &experiment.machine)?;
    let finished = experiment.run()?;
    warn_of_cut([&finished]);
    if let (Some(dir), Some(record)) = (dir, &finished.record) {
        record.save(dir)?;
        stderr_line!("steer: record in {}", dir.display());
    }
    let run = CompareRun::new(
        &experiment.machine.machine.name,
        &experiment.workload.name,
        &args.policy,
        args.seed,
        &finished.score,
    );
    if args.json {
        return print_json(&run);
    }
    let runs = std::slice::from_ref(&run);
    print(&format!(
        "{}\n{}\n{}\n",
        table::comparison(runs),
        table::programs(&run),
        table::prose(meaning(lead(&table::summarise(runs))))
    ))
}
