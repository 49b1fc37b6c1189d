//! `steer report`: an HTML report or a Perfetto timeline from records.

use std::path::PathBuf;

use countersteer_report::html::{ReportInput, render};
use countersteer_report::record::Record;
use countersteer_report::table::CompareRun;
use countersteer_report::{perfetto, write_atomically};

use crate::error::{Kind, told};
use crate::library;

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Records
    #[arg(required = true, value_name = "RECORD")]
    records: Vec<PathBuf>,
    /// Where to write: HTML, or with --perfetto a trace for ui.perfetto.dev
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Write the timeline of one record as a Perfetto trace instead
    #[arg(long)]
    perfetto: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let records: Vec<Record> = args
        .records
        .iter()
        .map(|dir| library::record(dir))
        .collect::<Result<_, _>>()?;
    let bytes = if args.perfetto {
        let [record] = records.as_slice() else {
            return Err(told(Kind::Usage, "--perfetto takes one record"));
        };
        perfetto::export(record)
    } else {
        let runs: Vec<CompareRun> = records.iter().map(CompareRun::of_record).collect();
        let title = match runs.as_slice() {
            [run] => format!("{} on {} under {}", run.workload, run.machine, run.policy),
            _ => "Comparison of records".to_owned(),
        };
        render(&ReportInput {
            title,
            runs: &runs,
            records: records.iter().collect(),
        })?
        .into_bytes()
    };
    write_atomically(&args.output, &bytes)?;
    eprintln!("steer: wrote {}", args.output.display());
    Ok(())
}
