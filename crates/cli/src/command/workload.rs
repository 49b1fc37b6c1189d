//! `steer workload list|show`.

use countersteer_core::profile::Profile;
use countersteer_core::workload::Workload;
use serde::Serialize;

use super::profile::load_workload;
use super::{print, print_json, print_raw};
use crate::library;

/// Workloads.
#[derive(Debug, clap::Subcommand)]
pub enum Args {
    /// List the shipped workloads
    List {
        /// As JSON: an array of objects with `name`
        #[arg(long)]
        json: bool,
    },
    /// Show a workload's file, to start one's own from
    Show {
        /// Name or file
        workload: String,
        /// The checked file as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Serialize)]
struct Row {
    name: String,
    title: String,
    programs: u32,
    /// Core types that its programs were measured on, where they run on no others.
    only_on: Option<Vec<String>>,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args {
        Args::List { json } => list(json),
        Args::Show { workload, json } => {
            let text = library::workload(&workload)?;
            let parsed = Workload::parse(&text.path, &text.text)?;
            if json {
                print_json(&parsed)
            } else {
                print_raw(&text.text)
            }
        }
    }
}

fn list(json: bool) -> anyhow::Result<()> {
    let rows: Vec<Row> = library::workload_names()
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

fn row(name: String) -> anyhow::Result<Row> {
    let text = library::workload(&name)?;
    let workload = Workload::parse(&text.path, &text.text)?;
    let loaded = load_workload(&name)?;
    let tables = loaded.programs.iter().map(|(_, profile)| match &**profile {
        Profile::Tabulated(table) => Some(table.core.iter().map(|c| c.core_type.clone()).collect()),
        Profile::Recorded(_) => None,
    });
    // What was recorded runs on every core; what was measured, where all its programs were.
    let only_on = tables
        .flatten()
        .reduce(|all: Vec<String>, own| all.into_iter().filter(|t| own.contains(t)).collect());
    Ok(Row {
        name,
        title: workload.title,
        programs: workload.program.iter().map(|p| p.copies).sum(),
        only_on,
    })
}
