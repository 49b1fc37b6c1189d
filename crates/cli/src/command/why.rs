//! `steer why`: prints the reason for a thread's placement.

use std::path::PathBuf;

use countersteer_report::why;

use super::{print, print_json};
use crate::library;

/// Arguments of `steer why`.
#[derive(Debug, clap::Args)]
pub struct Args {
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
pub fn run(args: &Args) -> anyhow::Result<()> {
    let record = library::record(&args.record)?;
    let answer = why::why(&record, &args.program, args.at)?;
    if args.json {
        print_json(&answer)
    } else {
        print(&answer.to_string())
    }
}
