//! `steer compare`: compares policies by simulation, over machines, workloads, seeds and kernels.

mod kernels;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use countersteer_lab::{
    Experiment, Finished, Loaded, LoadedMachine, Sweep, bound, experiment, probe,
};
use countersteer_policies::reach;
use countersteer_report::html::{Axis, ReportInput};
use countersteer_report::judge::{Facts, Ranking, judge};
use countersteer_report::record::Detail;
use countersteer_report::table::{self, CompareRun, JudgedComparison};

use super::{print, print_json};
use crate::error::{FaultKind, failure};
use crate::output::{self, check_unused};
use crate::recorded::load_workload;
use crate::sim_args::{SimArgs, warn_of_cut, warn_of_unmet};
use crate::values::specs;
use crate::{library, progress, signals};

/// Arguments of `steer compare`.
#[derive(Debug, clap::Args)]
pub struct CompareArgs {
    /// Machines: names or files; repeatable
    #[arg(
        short = 'M',
        short_alias = 'm',
        long = "machine",
        required = true,
        value_name = "MACHINE"
    )]
    machines: Vec<String>,
    /// Workloads: names or files; repeatable
    #[arg(short, long = "workload", required = true, value_name = "WORKLOAD")]
    workloads: Vec<String>,
    /// Policies: names, or name:key=value; separated by commas, or repeated. Default: all policies that apply to the machine
    #[arg(
        short = 'P',
        short_alias = 'p',
        long = "policy",
        value_name = "POLICY,..."
    )]
    policies: Vec<String>,
    /// Simulate with seeds 1 to N
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: u64,
    /// Write a self-contained HTML report
    #[arg(long, value_name = "OUT.html")]
    report: Option<PathBuf>,
    /// Write the record of every run into this folder
    #[arg(short, long, alias = "records", value_name = "DIR")]
    output: Option<PathBuf>,
    /// Replace existing records
    #[arg(long, requires = "output")]
    force: bool,
    /// Number of worker threads, which does not affect the results; 0: one per CPU
    #[arg(long, default_value_t = 0, value_name = "N")]
    jobs: usize,
    /// Also print an upper bound on throughput, and the best policy's distance from it
    #[arg(long)]
    bound: bool,
    /// Print every score with its range over seeds, instead of changes against linux
    #[arg(long, short_alias = 'v')]
    verbose: bool,
    /// Print JSON, one object with every run
    #[arg(long)]
    json: bool,
    /// Print CSV, one line per run
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    #[command(flatten)]
    options: SimArgs,
}

/// Runs `steer compare`.
pub fn run(args: &CompareArgs) -> anyhow::Result<()> {
    signals::listen()?;
    let kernels = args.options.kernels();
    if kernels.len() > 1 {
        return kernels::compare(args, &kernels);
    }
    let sweep = sweep(args)?;
    check(&sweep)?;
    args.report
        .as_deref()
        .map_or(Ok(()), crate::output::check_writable)?;
    let done = simulate(args, &sweep)?;
    if let Some(path) = &args.report {
        report(path, &sweep, &done)?;
    }
    save_records(args, &done)?;
    if args.json {
        return print_json(&JudgedComparison::new(done.runs, &done.rankings));
    }
    if args.csv {
        return print(&table::csv(&done.runs));
    }
    print(&tables(&done.runs, &done.rankings, args.verbose))
}

/// All simulations of a comparison, with the ranking of the policies.
struct FinishedComparison {
    experiments: Vec<Experiment>,
    finished: Vec<Finished>,
    runs: Vec<CompareRun>,
    facts: Facts,
    rankings: Vec<Ranking>,
}

fn check(sweep: &Sweep) -> anyhow::Result<()> {
    sweep.check()?;
    for machine in &sweep.machines {
        tell_idle(&sweep.policies, machine);
        for policy in &sweep.policies {
            warn_of_unmet(policy, machine)?;
        }
    }
    Ok(())
}

fn simulate(args: &CompareArgs, sweep: &Sweep) -> anyhow::Result<FinishedComparison> {
    let experiments = sweep.experiments(|seed| {
        // Only the first seed's record is kept for the report's timelines; the other seeds only need scores.
        let drawn = args.report.is_some() && seed == 1;
        (args.output.is_some() || drawn).then_some(Detail::Everything)
    });
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(args.jobs)
        .build()
        .context("cannot start a thread")?;
    let bar = progress::bar(experiments.len() as u64, "simulating");
    let finished = pool.install(|| experiment::run_all(&experiments, &|| bar.inc(1)));
    bar.finish_and_clear();
    let finished = finished?;
    warn_of_cut(&finished);
    let mut runs: Vec<CompareRun> = experiments
        .iter()
        .zip(&finished)
        .map(|(e, f)| e.scored(f))
        .collect();
    if args.bound {
        pool.install(|| bound::attach(&experiments, &finished, &mut runs))?;
        warn_of_unbounded(&runs);
    }
    let facts = pool.install(|| probe::facts(sweep, &runs))?;
    let rankings = judge(&runs, &facts);
    Ok(FinishedComparison {
        experiments,
        finished,
        runs,
        facts,
        rankings,
    })
}

/// Prints the number of runs without an upper bound on throughput.
fn warn_of_unbounded(runs: &[CompareRun]) {
    let without = runs.iter().filter(|run| run.bound_stp.is_none()).count();
    if without > 0 {
        stderr_line!(
            "steer: no bound for {without} runs: it holds for analytic simulations in which every program finishes all its rounds"
        );
    }
}

/// Writes an HTML report with the scores of all seeds, and the timelines of the first seed.
fn report(path: &Path, sweep: &Sweep, done: &FinishedComparison) -> anyhow::Result<()> {
    let workloads = names(&sweep.workloads, |w| &w.name);
    let machines = names(&sweep.machines, |m| &m.machine.name);
    let records = done.finished.iter().filter_map(|f| f.record.as_ref());
    let input = ReportInput {
        title: format!("{workloads} on {machines}"),
        runs: &done.runs,
        records: records.filter(|r| r.manifest.seed == 1).collect(),
        axis: Axis::Time,
        facts: done.facts.clone(),
    };
    output::report(path, &input)
}

/// Formats the ranking of the policies. Without a ranking, or if `verbose`, lists the scores of each run.
fn tables(runs: &[CompareRun], rankings: &[Ranking], verbose: bool) -> String {
    let mut places = rankings
        .iter()
        .flat_map(|r| r.deployable.iter().chain(&r.simulator_only));
    let ranked = places.next().is_some();
    let mut text = String::new();
    if verbose || !ranked {
        text += &table::comparison(runs);
    }
    if ranked {
        text += &table::ranking(rankings);
    }
    text
}

fn sweep(args: &CompareArgs) -> anyhow::Result<Sweep> {
    let machines = args.machines.iter().map(|m| library::loaded(m));
    let machines: Vec<Arc<LoadedMachine>> = machines.collect::<Result<_, _>>()?;
    let load = |w: &String| -> anyhow::Result<Arc<Loaded>> { Ok(Arc::new(load_workload(w)?)) };
    Ok(Sweep {
        workloads: args.workloads.iter().map(load).collect::<Result<_, _>>()?,
        policies: policies(args, &machines)?,
        machines,
        seeds: args.seeds,
        options: args.options.options()?,
    })
}

/// Returns the policies in command-line order. Duplicates are removed, since equal policies give equal results. By default,
/// returns the policies applicable to each machine.
fn policies(args: &CompareArgs, machines: &[Arc<LoadedMachine>]) -> anyhow::Result<Vec<String>> {
    let shelves = machines.iter().map(|m| reach::shelf(&m.topology).policies);
    let asked: Vec<String> = if args.policies.is_empty() {
        shelves.flatten().collect()
    } else {
        (args.policies.iter())
            .flat_map(|list| specs(list))
            .collect()
    };
    if asked.is_empty() {
        let why = "`-P` names no policy: leave it out for all, or see `steer policy list`";
        return Err(failure(FaultKind::Usage, why));
    }
    let mut policies: Vec<String> = Vec::new();
    for policy in asked {
        if !policies.contains(&policy) {
            policies.push(policy);
        }
    }
    Ok(policies)
}

/// Prints the policies that have no effect on a machine, because they let Linux choose among all CPUs.
fn tell_idle(policies: &[String], machine: &LoadedMachine) {
    let mut by_reason: std::collections::BTreeMap<&str, Vec<&str>> = Default::default();
    for policy in policies {
        if let Some(why) = reach::idle_on(policy, &machine.topology) {
            by_reason.entry(why).or_default().push(policy);
        }
    }
    for (why, policies) in by_reason {
        let name = &machine.machine.name;
        let policies = policies.join(", ");
        stderr_line!(
            "steer: on {name}, {policies} would not distinguish any CPUs: {why}; Linux chooses among all CPUs"
        );
    }
}

fn save_records(args: &CompareArgs, done: &FinishedComparison) -> anyhow::Result<()> {
    let Some(dir) = &args.output else {
        return Ok(());
    };
    output::make_folder(dir)?;
    for (e, f) in done.experiments.iter().zip(&done.finished) {
        let policy = e
            .policy
            .replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "_");
        let name = format!(
            "{}-{}-{policy}-{}.rec",
            e.machine.machine.name, e.workload.name, e.seed
        );
        if let Some(record) = &f.record {
            let place = dir.join(name);
            check_unused(&place, args.force)?;
            record.save(&place)?;
        }
    }
    let count = done.finished.len();
    stderr_line!("steer: {count} records in {}", dir.display());
    Ok(())
}

fn names<T>(items: &[Arc<T>], name: impl Fn(&T) -> &String) -> String {
    items
        .iter()
        .map(|i| name(i).as_str())
        .collect::<Vec<_>>()
        .join(", ")
}
