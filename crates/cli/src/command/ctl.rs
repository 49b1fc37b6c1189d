//! `steer ctl`: queries or changes a running `steer`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use countersteer_live::undo::journal_folder;
use countersteer_model::printable::printable;
use countersteer_report::table::plain;
use serde_json::{Value, json};

use super::{print, print_json};
use crate::error::{FaultKind, failure};
use crate::steering::socket;

/// Query or change a running `steer run` or `steer daemon`.
#[derive(Debug, clap::Args)]
pub struct CtlArgs {
    /// Socket of the run; default: the socket of the only active run
    #[arg(long, value_name = "PATH", global = true)]
    socket: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    what: ControlRequest,
}

#[derive(Debug, Subcommand)]
enum ControlRequest {
    /// List the sockets of active runs
    List,
    /// Show the state of the run and its totals so far
    Status,
    /// Show the settings: policy, period, paused, stand_back, work-stealing threshold
    Get,
    /// Change a setting: policy=hsf:margin=0.1, hsf.margin=0.1, period=50ms, paused=true, steal_above=2 (or never)
    Set {
        /// Setting and its new value
        #[arg(value_name = "KEY=VALUE")]
        change: String,
    },
    /// Explain a thread's current placement
    Why {
        /// TID of the thread
        tid: u32,
    },
}

/// Runs the command.
pub fn run(args: &CtlArgs) -> anyhow::Result<()> {
    let request = match &args.what {
        ControlRequest::List => {
            let sockets = socket::answering(&journal_folder());
            let lines: Vec<String> = sockets.iter().map(|p| p.display().to_string()).collect();
            return match lines.as_slice() {
                lines if args.json => print_json(&lines),
                [] => print("no run answers"),
                lines => print(&lines.join("\n")),
            };
        }
        ControlRequest::Status => json!({ "ask": "status" }),
        ControlRequest::Get => json!({ "ask": "get" }),
        ControlRequest::Set { change } => {
            let Some((key, value)) = change.split_once('=') else {
                return Err(failure(
                    FaultKind::Usage,
                    format!("`{change}` is not KEY=VALUE; try policy=aarr"),
                ));
            };
            json!({ "ask": "set", "key": key, "value": value })
        }
        ControlRequest::Why { tid } => json!({ "ask": "why", "thread": tid }),
    };
    let path = match &args.socket {
        Some(path) => path.clone(),
        None => only(&socket::answering(&journal_folder()))?,
    };
    let reply = socket::ask(&path, &request)?;
    match reply.get("error").and_then(Value::as_str) {
        Some(error) => Err(failure(FaultKind::Usage, error)),
        None if args.json => print_json(&reply),
        None => print(&legible(&reply, 0)),
    }
}

/// True for an empty value: names without a value are for programs that read JSON.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(inside) => inside.is_empty(),
        _ => false,
    }
}

/// Formats a reply for people: a line for each name, and a table for a list of objects with equal names.
fn legible(reply: &Value, depth: usize) -> String {
    let line = |(name, value): (&String, &Value)| {
        let indent = "  ".repeat(depth);
        let name = printable(name).replace('_', " ");
        match value {
            Value::Object(inside) if !inside.is_empty() => {
                format!("{indent}{name}:\n{}", legible(value, depth + 1))
            }
            Value::Array(rows) if rows.iter().any(Value::is_object) => {
                format!("{indent}{name}:\n{}", rows_of(rows))
            }
            other => format!("{indent}{name}: {}", word(other)),
        }
    };
    match reply {
        Value::Object(inside) => inside
            .iter()
            .filter(|(_, value)| !is_nothing(value))
            .map(line)
            .collect::<Vec<_>>()
            .join("\n"),
        other => word(other),
    }
}

fn rows_of(rows: &[Value]) -> String {
    let names: BTreeSet<&str> = rows
        .iter()
        .filter_map(Value::as_object)
        .flat_map(|r| r.keys().map(String::as_str))
        .collect();
    let names: Vec<&str> = names.into_iter().collect();
    plain(
        &names,
        rows.iter()
            .map(|row| names.iter().map(|name| word(&row[name])).collect()),
    )
}

fn word(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => printable(text).into_owned(),
        Value::Number(n) if n.is_f64() => {
            let n = n.as_f64().unwrap_or_default();
            if n.fract() == 0.0 {
                format!("{n:.0}")
            } else {
                format!("{n:.3}")
            }
        }
        Value::Array(values) => values.iter().map(word).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

fn only(paths: &[PathBuf]) -> anyhow::Result<PathBuf> {
    match paths {
        [] => Err(failure(
            FaultKind::Missing,
            "no run answers; start one with `steer run` or `steer daemon`",
        )),
        [one] => Ok(one.clone()),
        many => {
            let names: Vec<String> = many
                .iter()
                .map(|p: &PathBuf| Path::display(p).to_string())
                .collect();
            Err(failure(
                FaultKind::Usage,
                format!(
                    "several runs answer; choose with --socket: {}",
                    names.join(", ")
                ),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_nothing_is_left_out_and_names_are_words() {
        let reply =
            json!({ "short_lived": null, "unit": "", "alternatives": {}, "last_change": 2.0 });
        assert_eq!(legible(&reply, 0), "last change: 2");
    }
}
