//! `steer run`: programs of this machine under a policy.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use countersteer_core::driver::{DriverConfig, drive};
use countersteer_core::policy::{self, Policy};
use countersteer_core::units::Nanos;
use countersteer_host::affinity::{self, AffinityConfig, AffinityEngine, journal_folder};
use countersteer_host::live::{Attended, Crew};
use countersteer_report::number;
use countersteer_report::record::{Collector, Detail, Manifest};
use countersteer_report::table;

use super::print_json;
use crate::error::{Kind, told};
use crate::experiment::policy_rng;
use crate::session::time;
use crate::steering::here::Here;
use crate::steering::programs::{self, Programs};
use crate::steering::tally::{Summary, Tally, Tell};

/// Run programs of this machine under a policy, or steer what runs already.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(group = clap::ArgGroup::new("whom").multiple(false).required(true))]
pub struct Args {
    /// Policy: name or name:key=value,...
    #[arg(short = 'P', long, default_value = "linux")]
    policy: String,
    /// How threads are placed
    #[arg(long, value_enum, default_value_t = EngineName::Auto)]
    engine: EngineName,
    /// A workload file whose programs are commands
    #[arg(short, long, value_name = "FILE", group = "whom")]
    workload: Option<String>,
    /// Processes that run, with all their threads and what they start
    #[arg(short = 'p', long, value_name = "PID", value_delimiter = ',', group = "whom")]
    attach: Vec<u32>,
    /// A control group: whatever is in its folder, now or later
    #[arg(long, value_name = "PATH", group = "whom")]
    cgroup: Option<PathBuf>,
    /// Time between decisions
    #[arg(short = 'i', long, value_name = "TIME", value_parser = time, default_value = "100ms")]
    period: Nanos,
    /// End after so long; programs that were started run on, unsteered
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    duration: Option<Nanos>,
    /// Change nothing; tell what would be changed
    #[arg(long)]
    dry_run: bool,
    /// Change nothing; tell at the end what the policy would gain, by its own figures
    #[arg(long, conflicts_with = "dry_run")]
    observe: bool,
    /// A machine file instead of what is found out about this machine
    #[arg(long, value_name = "MACHINE")]
    machine: Option<String>,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Keep what was seen and decided in a record: a folder of Parquet files
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// A summary as JSON on stdout; without it, as text on stderr
    #[arg(long)]
    json: bool,
    /// The program and its arguments
    #[arg(last = true, value_name = "PROGRAM", group = "whom")]
    command: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum EngineName {
    /// The best there is
    Auto,
    /// Masks of threads: any Linux, no privilege
    Affinity,
}

/// Runs the command; passes on the program's own exit code.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    put_back()?;
    let here = Here::look(args.machine.as_deref())?;
    let mut policy = policy::parse(&args.policy, &here.topology)?;
    let programs = whom(args, &here)?;
    let engine = affinity_engine(args, &here, policy.as_ref())?;
    let manifest = manifest(args, &here, &programs);
    let collector = args.output.as_ref().map(|_| Collector::new(manifest, Detail::NoSpans));
    let tell = args.dry_run.then(|| -> Tell { Box::new(|line| println!("{line}")) });
    let mut tally = Tally::new(&here.topology, collector, tell);
    let mut attended = Attended::new(engine, programs.crew)?;
    let driver = DriverConfig { period: args.period, until: args.duration.unwrap_or(Nanos::NEVER) };
    let elapsed = drive(&mut attended, policy.as_mut(), &mut tally, driver, &mut policy_rng(args.seed))?;
    if let Some(why) = attended.inner().blindness() {
        eprintln!("steer: steered without counters: {why}");
    }
    let (summary, outcome, collector) = tally.finish(attended.crew().members(), elapsed);
    let code = code(attended.crew());
    // Everything is put back before anything else can fail.
    drop(attended);
    if let (Some(collector), Some(dir)) = (collector, &args.output) {
        let score = countersteer_core::score::Score::of(&outcome);
        collector.finish(&outcome, &score).save(dir)?;
        eprintln!("steer: record in {}", dir.display());
    }
    if args.json {
        print_json(&summary)?;
    } else {
        eprint!("{}", text(&summary, args));
    }
    Ok(code)
}

fn code(crew: &Crew) -> ExitCode {
    ExitCode::from(crew.exit_code() as u8)
}

/// Undoes what engines that were killed have left behind.
fn put_back() -> anyhow::Result<()> {
    let restored = affinity::restore(&journal_folder())?;
    if restored.journals > 0 {
        let n = restored.threads;
        eprintln!("steer: {n} threads were put back that an earlier run, which was killed, had confined");
    }
    Ok(())
}

fn whom(args: &Args, here: &Here) -> anyhow::Result<Programs> {
    if let Some(name) = &args.workload {
        return programs::workload(name, &here.topology);
    }
    if let Some(folder) = &args.cgroup {
        return programs::cgroup(folder);
    }
    if !args.attach.is_empty() {
        return programs::attached(&args.attach);
    }
    if args.command.is_empty() {
        return Err(told(Kind::Usage, "name a program after `--`, or say whom to steer: -w, -p or --cgroup"));
    }
    programs::command(&args.command)
}

fn affinity_engine(args: &Args, here: &Here, policy: &dyn Policy) -> anyhow::Result<AffinityEngine> {
    let counters = here.counters(policy, args.period)?;
    if !counters.missing.is_empty() {
        let missing = counters.missing.join(", ");
        eprintln!("steer: {} reads what this machine does not count: {missing}; see `steer doctor`", args.policy);
    }
    let config = AffinityConfig {
        topology: std::sync::Arc::clone(&here.topology),
        numbers: here.numbers.clone(),
        counters: Some(counters.sets),
        period: args.period,
        journals: journal_folder(),
        dry: args.dry_run || args.observe,
    };
    Ok(AffinityEngine::open(config)?)
}

fn manifest(args: &Args, here: &Here, programs: &Programs) -> Manifest {
    let dry = (args.dry_run || args.observe).to_string();
    let machine = (here.machine.name.as_str(), here.text.as_str());
    let workload = (programs.name.as_str(), programs.text.as_str());
    let options = [("observe".to_owned(), dry)];
    let manifest = Manifest::new(
        machine,
        workload,
        &args.policy,
        args.seed,
        args.period,
        options,
        std::collections::BTreeMap::new(),
    );
    Manifest { engine: "affinity".into(), ..manifest }
}

/// The summary for people.
fn text(summary: &Summary, args: &Args) -> String {
    let mut head = vec!["program", "threads", "time s"];
    let types: Vec<String> = summary.core_types.iter().map(|t| format!("CPU s on {t}")).collect();
    head.extend(types.iter().map(String::as_str));
    head.push("IPC");
    let rows = summary.programs.iter().chain(&summary.short_lived).map(|p| {
        let mut row =
            vec![p.name.clone(), p.threads.to_string(), p.elapsed_s.map_or_else(|| "-".into(), |s| number(s, 4))];
        row.extend(p.cpu_s.iter().map(|s| number(*s, 4)));
        row.push(if p.cycles > 0.0 { number(p.instructions / p.cycles, 4) } else { "-".into() });
        row
    });
    let mut text = table::plain(&head, rows);
    let (changed, decisions) = (summary.changed, summary.decisions);
    let would = if args.dry_run || args.observe { "would have been" } else { "were" };
    text += &format!("{decisions} decisions; threads {would} confined anew {changed} times");
    if summary.refused > 0 {
        text += &format!(", {} times they could not be", summary.refused);
    }
    text.push('\n');
    if let Some(gain) = summary.predicted_gain.filter(|_| args.observe) {
        let policy = &args.policy;
        text += &format!("by their speed-up factors, threads would run {:+.1} % faster under {policy}\n", gain * 100.0);
    }
    text
}
