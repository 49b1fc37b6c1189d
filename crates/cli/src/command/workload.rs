//! `steer workload`: lists, shows and imports workloads.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use countersteer_files::read;
use countersteer_lab::import::{self, FORMATS, ImportOptions};
use countersteer_model::profile::Profile;
use countersteer_model::workload::Workload;
use countersteer_report::table::prose;
use countersteer_report::write_atomically;
use serde::Serialize;

use super::{print, print_json, print_raw};
use crate::error::{FaultKind, failure};
use crate::library;
use crate::recorded::load_workload;
use crate::values::number;

/// Subcommands of `steer workload`.
#[derive(Debug, clap::Subcommand)]
pub enum WorkloadArgs {
    /// List the shipped workloads
    List {
        /// Print JSON: an array of objects with `name`
        #[arg(long)]
        json: bool,
    },
    /// Show a workload's file, as a template
    Show {
        /// Workload: name or file
        workload: String,
        /// Print the checked file as JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a workload from another tool's recording of running and sleeping threads
    Import(WorkloadImport),
}

/// Arguments of `steer workload import`.
#[derive(Debug, clap::Args)]
pub struct WorkloadImport {
    /// Input file: perf.data, trace-cmd's trace.dat, text of ftrace, a Perfetto trace, JSON of rt-app, or - for standard input
    file: PathBuf,
    /// Format of the input file; default: detected from its contents
    #[arg(long, value_parser = FORMATS.iter().map(|f| f.name).collect::<Vec<_>>())]
    format: Option<String>,
    /// Profile that the imported threads execute: name of a recorded program, or a file
    #[arg(long, default_value = "mix")]
    profile: String,
    /// Profile that threads with the name THREAD execute; repeatable
    #[arg(long, value_name = "THREAD=PROFILE", value_parser = pair)]
    profile_of: Vec<(String, String)>,
    /// Million instructions that a thread executes per second of CPU time
    #[arg(long, default_value_t = 2000.0, value_parser = positive)]
    mips: f64,
    /// Threshold: omit threads whose share of the total CPU time is smaller
    #[arg(long, value_name = "SHARE", default_value_t = 0.001, value_parser = share)]
    min_share: f64,
    /// Write a set of tasks for vm/sets.c, which runs under a kernel, in place of a workload
    #[arg(long, value_name = "NAME", conflicts_with_all = ["json", "profile", "profile_of", "mips"])]
    task_set: Option<String>,
    /// Output file; default: standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long, requires = "output")]
    force: bool,
    /// Print the workload as JSON
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (thread, profile) = text
        .rsplit_once('=')
        .ok_or_else(|| format!("`{text}` is not THREAD=PROFILE"))?;
    Ok((thread.into(), profile.into()))
}

fn positive(text: &str) -> Result<f64, String> {
    let number = number(text)?;
    let sound = (1.0..=1e6).contains(&number);
    sound
        .then_some(number)
        .ok_or_else(|| "a core executes 1 to 1,000,000".into())
}

fn share(text: &str) -> Result<f64, String> {
    let number = number(text)?;
    let sound = (0.0..=1.0).contains(&number);
    sound
        .then_some(number)
        .ok_or_else(|| "a share is 0 to 1".into())
}

#[derive(Serialize)]
struct WorkloadRow {
    name: String,
    title: String,
    programs: u32,
    /// Core types on which all measured programs of the workload can run; `None` if there are only recorded programs.
    only_on: Option<Vec<String>>,
}

/// Runs `steer workload`.
pub fn run(args: WorkloadArgs) -> anyhow::Result<()> {
    match args {
        WorkloadArgs::List { json } => list(json),
        WorkloadArgs::Show { workload, json } => {
            let text = library::workload(&workload)?;
            let parsed = Workload::parse(&text.path, &text.text)?;
            if json {
                print_json(&parsed)
            } else {
                print_raw(&text.text)
            }
        }
        WorkloadArgs::Import(args) => import(args),
    }
}

fn check_new(path: &Path) -> anyhow::Result<()> {
    if !path.exists() {
        return Ok(());
    }
    let shown = path.display();
    let why = format!("{shown} exists already: name another file, or replace it with --force");
    Err(failure(FaultKind::Usage, why))
}

fn import(args: WorkloadImport) -> anyhow::Result<()> {
    if let Some(path) = args.output.as_deref().filter(|_| !args.force) {
        check_new(path)?;
    }
    let (name, stream) = recording(&args.file)?;
    let options = ImportOptions {
        format: args.format,
        profile: args.profile,
        profile_of: args.profile_of.into_iter().collect(),
        mips: args.mips,
        min_share: args.min_share,
    };
    if let Some(set) = &args.task_set {
        let made = import::task_set(&name, stream, &options, set)?;
        warn(&made.warnings);
        return match &args.output {
            Some(path) => Ok(write_atomically(path, made.text.as_bytes())?),
            None => print_raw(&made.text),
        };
    }
    let imported = import::import(&name, stream, &options)?;
    warn(&imported.warnings);
    let Some(path) = &args.output else {
        return if args.json {
            print_json(&imported.workload)
        } else {
            print_raw(&imported.text)
        };
    };
    write_atomically(path, imported.text.as_bytes())?;
    let programs = imported.workload.program.len();
    let shown = path.display();
    stderr_line!(
        "steer: {programs} programs in {shown}; compare policies on them with `steer compare -M MACHINE -w {shown} -P linux,hsf`"
    );
    Ok(())
}

fn warn(warnings: &[String]) {
    for warning in warnings {
        stderr_text!("{}", prose(&format!("steer: {warning}\n")));
    }
}

/// Opens a recording. Returns its name for messages, and a reader of its contents.
fn recording(file: &Path) -> anyhow::Result<(String, Box<dyn Read>)> {
    if file.as_os_str() == "-" {
        return Ok(("standard input".into(), Box::new(std::io::stdin().lock())));
    }
    let opened = read::open_within(file, read::MOST_RECORDING);
    let opened = opened.with_context(|| library::cannot_read(file))?;
    Ok((file.display().to_string(), Box::new(opened)))
}

fn list(json: bool) -> anyhow::Result<()> {
    let rows: Vec<WorkloadRow> = library::workload_names()
        .into_iter()
        .map(row)
        .collect::<Result<_, _>>()?;
    if json {
        return print_json(&rows);
    }
    let cells = rows.into_iter().map(|r| {
        let only = r.only_on.map(|types| types.join(", "));
        let what = only.map_or_else(
            || r.title.clone(),
            |types| format!("{}; only for machines of {types}", r.title),
        );
        vec![r.name, r.programs.to_string(), what]
    });
    print(&countersteer_report::table::plain(
        &["workload", "programs", "what"],
        cells,
    ))
}

fn row(name: String) -> anyhow::Result<WorkloadRow> {
    let text = library::workload(&name)?;
    let workload = Workload::parse(&text.path, &text.text)?;
    let loaded = load_workload(&name)?;
    let tables = loaded.programs.iter().map(|(_, profile)| match &**profile {
        Profile::Tabulated(table) => Some(table.core.iter().map(|c| c.core_type.clone()).collect()),
        Profile::Recorded(_) => None,
    });
    // Recorded programs run on every core type. Measured programs run only on the core types that all of them have in common.
    let only_on = tables
        .flatten()
        .reduce(|all: Vec<String>, own| all.into_iter().filter(|t| own.contains(t)).collect());
    Ok(WorkloadRow {
        name,
        title: workload.title,
        programs: workload.program.iter().map(|p| p.copies).sum(),
        only_on,
    })
}
