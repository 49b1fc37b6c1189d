//! `steer replay`: passes a record's observations to a policy, and compares the decisions. The recorded policy must decide as
//! recorded.

use std::path::PathBuf;
use std::process::ExitCode;

use countersteer_lab::replay::replay_with;
use countersteer_report::record::ReplayEngine;

use super::{print, print_json};

/// Arguments of `steer replay`.
#[derive(Debug, clap::Args)]
pub struct ReplayArgs {
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
pub fn run(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let record = ReplayEngine::open(&args.record)?;
    let manifest = record.manifest();
    if let Some(note) = record.cut_short(&args.record) {
        stderr_line!("steer: {note}");
    }
    let recorded = (manifest.policy.clone(), manifest.seed);
    let spec = args.policy.as_deref().unwrap_or(&recorded.0);
    let seed = args.seed.unwrap_or(recorded.1);
    let differences = replay_with(record, spec, seed)?;
    if args.json {
        print_json(&differences)?
    } else {
        print(&differences.to_string())?
    }
    let broken = !differences.is_empty() && (spec, seed) == (recorded.0.as_str(), recorded.1);
    Ok(if broken {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}
