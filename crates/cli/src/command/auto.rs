//! `steer auto`: chooses the best policy for a program on this machine, stores this verdict, and runs the program under the
//! policy.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use countersteer_lab::error::{FaultKind, failure};
use countersteer_model::units::Nanos;
use countersteer_report::table;
use countersteer_session::auto::Auto;

use super::{print, print_json};
use crate::args::HereArgs;
use crate::values::time;
use crate::verdicts::{Remembered, Verdicts};

/// Arguments of `steer auto`, which runs a program under the best policy for this machine, determined once and stored.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[group(skip)]
pub struct AutoArgs {
    #[command(subcommand)]
    kept: Option<ListedVerdict>,
    /// Judge the program again and ignore the stored verdict
    #[arg(long)]
    again: bool,
    /// Print the verdict without running the program; a new program still runs once, to be recorded
    #[arg(long)]
    dry_run: bool,
    /// Maximum recording time
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "20s")]
    duration: Nanos,
    /// Length of each time block under the policy
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "20s")]
    block: Nanos,
    /// Length of each time block under Linux
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "5s")]
    linux_block: Nanos,
    /// Name of a running program that comes first: Linux alone schedules it, all other threads get a lower weight, and a policy is
    /// rejected if that program's run-queue latency rises
    #[arg(long, value_name = "PROGRAM")]
    foreground: Option<String>,
    #[command(flatten)]
    here: HereArgs,
    /// Program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    command: Vec<String>,
}

#[derive(Debug, clap::Subcommand)]
enum ListedVerdict {
    /// List the stored verdicts
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Delete the stored verdicts on a program, or all stored verdicts
    Forget {
        /// Delete all verdicts
        #[arg(long, conflicts_with = "program")]
        all: bool,
        /// Path of the program, or the last components of this path
        #[arg(required_unless_present = "all")]
        program: Option<String>,
    },
    /// Write the stored verdicts to a file
    Export {
        /// Output file
        file: PathBuf,
    },
    /// Add the verdicts of a file to the stored verdicts
    Import {
        /// Input file
        file: PathBuf,
    },
}

/// Runs `steer auto`; returns the exit code of the started program.
pub fn run(args: &AutoArgs) -> anyhow::Result<ExitCode> {
    if let Some(kept) = &args.kept {
        return keep(kept).map(|()| ExitCode::SUCCESS);
    }
    let auto = Auto {
        again: args.again,
        duration: args.duration,
        block: args.block,
        linux_block: args.linux_block,
        foreground: args.foreground.clone(),
        machine: args.here.machine.clone(),
        seed: args.here.seed,
        ..Auto::new(args.command.clone())
    };
    let judged = auto.judge()?;
    if args.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    let done = judged.run()?;
    Ok(ExitCode::from(done.exit_code))
}

fn keep(kept: &ListedVerdict) -> anyhow::Result<()> {
    let mut verdicts = Verdicts::load()?;
    match kept {
        ListedVerdict::List { json: true } => print_json(&verdicts.all),
        ListedVerdict::List { json: false } => {
            let rows = verdicts.all.iter().map(|v| {
                let measured = v.measured.as_ref();
                let gain =
                    measured.map_or_else(|| "-".into(), |m| format!("{:+.1} %", 100.0 * m.gain));
                vec![
                    v.program.clone(),
                    v.machine.clone(),
                    v.policy.clone(),
                    gain,
                    v.why.clone(),
                ]
            });
            let head = ["program", "machine", "policy", "measured", "why"];
            print(&table::plain(&head, rows))
        }
        ListedVerdict::Forget { all, program } => {
            let before = verdicts.all.len();
            let ends = |v: &Remembered| {
                let of = |name: &String| Path::new(&v.program).ends_with(name);
                *all || program.as_ref().is_some_and(of)
            };
            verdicts.all.retain(|v| !ends(v));
            let forgotten = before - verdicts.all.len();
            if forgotten == 0 && !all {
                let why = "there is no verdict on that program; `steer auto list` shows them";
                return Err(failure(FaultKind::Missing, why));
            }
            verdicts.save()?;
            print(&format!("forgotten: {forgotten}"))
        }
        ListedVerdict::Export { file } => verdicts.export(file),
        ListedVerdict::Import { file } => {
            let count = verdicts.import(file)?;
            verdicts.save()?;
            print(&format!("imported: {count}"))
        }
    }
}
