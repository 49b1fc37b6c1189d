//! `steer why`: the reason for a thread's place.

use std::path::PathBuf;

use countersteer_report::why;

use super::{print, print_json};
use crate::library;

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Record
    record: PathBuf,
    /// Program, or `thread7` for thread 7
    #[arg(long)]
    program: String,
    /// Time in seconds since the start
    #[arg(long, value_name = "SECONDS")]
    at: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let record = library::record(&args.record)?;
    let answer = why::why(&record, &args.program, args.at)?;
    if args.json {
        print_json(&answer)
    } else {
        print(&answer.to_string())
    }
}
