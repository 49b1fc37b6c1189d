//! `steer why`: prints the reason for a thread's placement.

use std::path::{Path, PathBuf};

use countersteer_report::record::Record;
use countersteer_report::why;

use super::{print, print_json};
use crate::library;

/// Arguments of `steer why`.
#[derive(Debug, clap::Args)]
pub struct WhyArgs {
    /// Folder of the record
    record: PathBuf,
    /// Program whose placement to explain, or `thread7` for thread 7
    #[arg(long)]
    program: String,
    /// Time in seconds since the start
    #[arg(long, value_name = "SECONDS")]
    at: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs `steer why`.
pub fn run(args: &WhyArgs) -> anyhow::Result<()> {
    let load = |dir: &Path| Record::load_for_why(dir, args.at);
    let record = library::record_by(load, &args.record)?;
    let answer = why::why(&record, &args.program, args.at)?;
    if args.json {
        print_json(&answer)
    } else {
        print(&answer.to_string())
    }
}
