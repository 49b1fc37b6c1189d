//! `steer replay`: passes a record's observations to a policy, and compares the decisions. The recorded policy must decide as
//! recorded.

use std::path::PathBuf;
use std::process::ExitCode;

use super::{print, print_json};
use crate::library;

/// Arguments of `steer replay`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder of the record
    record: PathBuf,
    /// Policy that receives the recorded observations; default: the recorded policy
    #[arg(short = 'P', short_alias = 'p', long)]
    policy: Option<String>,
    /// Random seed; default: the recorded seed
    #[arg(long)]
    seed: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs `steer replay`. Returns exit code 1 if the recorded policy decides differently than recorded.
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
