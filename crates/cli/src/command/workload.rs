//! `steer workload list|show`.

use countersteer_core::workload::Workload;
use serde::Serialize;

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
    let cells = rows
        .into_iter()
        .map(|r| vec![r.name, r.programs.to_string(), r.title]);
    print(&countersteer_report::table::plain(
        &["workload", "programs", "what"],
        cells,
    ))
}

fn row(name: String) -> anyhow::Result<Row> {
    let text = library::workload(&name)?;
    let workload = Workload::parse(&text.path, &text.text)?;
    Ok(Row {
        name,
        title: workload.title,
        programs: workload.program.iter().map(|p| p.copies).sum(),
    })
}
