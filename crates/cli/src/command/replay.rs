//! `steer replay`: passes a record's observations to a policy; the recorded policy must decide the same again.

use std::path::PathBuf;
use std::process::ExitCode;

use super::{print, print_json};
use crate::library;

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Record
    record: PathBuf,
    /// Policy; default: the recorded one
    #[arg(short = 'P', short_alias = 'p', long)]
    policy: Option<String>,
    /// Seed; default: the recorded one
    #[arg(long)]
    seed: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command. Exit code 1 means that the recorded policy decided differently this time.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let record = library::record(&args.record)?;
    let manifest = &record.manifest;
    let spec = args.policy.as_deref().unwrap_or(&manifest.policy);
    let seed = args.seed.unwrap_or(manifest.seed);
    let differences = countersteer_lab::replay::replay(&record, spec, seed)?;
    if args.json {
        print_json(&differences)?
    } else {
        print(&differences.to_string())?
    }
    let broken = !differences.is_empty() && spec == manifest.policy && seed == manifest.seed;
    Ok(if broken {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}
