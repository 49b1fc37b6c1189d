//! `steer ctl`: ask a run how it stands, and tell it to go on otherwise.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use countersteer_host::affinity::journal_folder;
use serde_json::{Value, json};

use super::{print, print_json};
use crate::error::{Kind, told};
use crate::steering::socket;

/// Ask a run how it stands, and tell it to go on otherwise.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Its socket; the only run's when absent
    #[arg(long, value_name = "PATH", global = true)]
    socket: Option<PathBuf>,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Sockets of runs
    List,
    /// How it stands, as JSON
    Status,
    /// What can be set: its policy, the time between its decisions, whether it is paused, from which backlogs it steals
    Get,
    /// Exchange the policy (policy=hsf:margin=0.1), decide more or less often (period=50ms), pause and go on (paused=true),
    /// let idle CPUs take threads from where more than two wait (steal_above=2, or never)
    Set {
        /// What to change
        #[arg(value_name = "KEY=VALUE")]
        change: String,
    },
    /// Why a thread is where it is
    Why {
        /// The thread
        tid: u32,
    },
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let request = match &args.what {
        What::List => {
            let lines: Vec<String> =
                socket::answering(&journal_folder()).iter().map(|p| p.display().to_string()).collect();
            return if lines.is_empty() { print("no run answers") } else { print(&lines.join("\n")) };
        }
        What::Status => json!({ "ask": "status" }),
        What::Get => json!({ "ask": "get" }),
        What::Set { change } => {
            let Some((key, value)) = change.split_once('=') else {
                return Err(told(Kind::Usage, format!("`{change}` is no KEY=VALUE; try policy=aarr")));
            };
            json!({ "ask": "set", "key": key, "value": value })
        }
        What::Why { tid } => json!({ "ask": "why", "thread": tid }),
    };
    let path = match &args.socket {
        Some(path) => path.clone(),
        None => only(&socket::answering(&journal_folder()))?,
    };
    let reply = socket::ask(&path, &request)?;
    match reply.get("error").and_then(Value::as_str) {
        Some(error) => Err(told(Kind::Usage, error)),
        None => print_json(&reply),
    }
}

fn only(paths: &[PathBuf]) -> anyhow::Result<PathBuf> {
    match paths {
        [] => Err(told(Kind::Missing, "no run answers; start one with `steer run` or `steer daemon`")),
        [one] => Ok(one.clone()),
        many => {
            let names: Vec<String> = many.iter().map(|p: &PathBuf| Path::display(p).to_string()).collect();
            Err(told(Kind::Usage, format!("several runs answer; choose with --socket: {}", names.join(", "))))
        }
    }
}
