//! `steer report`: writes an HTML report or a Perfetto timeline of records.

use std::path::PathBuf;

use countersteer_report::counted::is_counted;
use countersteer_report::html::{Axis, ReportInput, render};
use countersteer_report::judge::Facts;
use countersteer_report::record::Record;
use countersteer_report::table::CompareRun;
use countersteer_report::{perfetto, write_atomically};

use crate::error::{FaultKind, failure};
use crate::library;

/// Arguments of `steer report`.
#[derive(Debug, clap::Args)]
pub struct ReportArgs {
    /// Folders of the records
    #[arg(required = true, value_name = "RECORD")]
    records: Vec<PathBuf>,
    /// Output file: HTML, or with --perfetto a trace for ui.perfetto.dev
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Write the timeline of one record as a Perfetto trace instead
    #[arg(long)]
    perfetto: bool,
    /// Horizontal axis for counts of `steer stat`
    #[arg(long, value_enum, default_value = "time")]
    axis: AxisArg,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum AxisArg {
    Time,
    Instructions,
}

impl From<AxisArg> for Axis {
    fn from(axis: AxisArg) -> Self {
        match axis {
            AxisArg::Time => Self::Time,
            AxisArg::Instructions => Self::Instructions,
        }
    }
}

/// Runs `steer report`.
pub fn run(args: &ReportArgs) -> anyhow::Result<()> {
    let records: Vec<Record> = args
        .records
        .iter()
        .map(|dir| match args.perfetto {
            true => library::record(dir),
            false => library::record_by(Record::load_for_report, dir),
        })
        .collect::<Result<_, _>>()?;
    let bytes = if args.perfetto {
        let [record] = records.as_slice() else {
            return Err(failure(FaultKind::Usage, "--perfetto takes one record"));
        };
        perfetto::export(record)
    } else {
        let scored = records.iter().filter(|record| !is_counted(record));
        let runs: Vec<CompareRun> = scored.map(CompareRun::of_record).collect();
        render(&ReportInput {
            title: title(&runs),
            runs: &runs,
            records: records.iter().collect(),
            axis: args.axis.into(),
            facts: Facts::default(),
        })?
        .into_bytes()
    };
    write_atomically(&args.output, &bytes)?;
    stderr_line!("steer: wrote {}", args.output.display());
    Ok(())
}

fn title(runs: &[CompareRun]) -> String {
    match runs {
        [] => "What was counted".to_owned(),
        [run] => format!("{} on {} under {}", run.workload, run.machine, run.policy),
        _ => "Comparison of records".to_owned(),
    }
}
