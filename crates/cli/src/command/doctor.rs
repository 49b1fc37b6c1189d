//! `steer doctor`: reports the capabilities of this machine, and fixes for missing ones.

use std::path::PathBuf;

use countersteer_report::table::labelled;

use crate::doctor::{FindingState, examine};
use serde::Serialize;

use super::{print, print_json};

/// Arguments of `steer doctor`.
#[derive(Debug, clap::Args)]
pub struct DoctorArgs {
    /// Root folder that contains the folders sys and proc, for example a copy from another machine
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    checks: Vec<DoctorRow>,
}

#[derive(Serialize)]
struct DoctorRow {
    name: &'static str,
    needed_for: &'static str,
    state: &'static str,
    found: String,
    #[serde(rename = "mend")]
    remedy: Option<String>,
}

/// Runs `steer doctor`.
pub fn run(args: &DoctorArgs) -> anyhow::Result<()> {
    let findings = examine(&args.root);
    if args.json {
        let row = |(name, needed_for, f): (&'static str, &'static str, crate::doctor::Finding)| {
            let remedy = Some(f.remedy).filter(|m| !m.is_empty());
            DoctorRow {
                name,
                needed_for,
                state: f.state.name(),
                found: f.found,
                remedy,
            }
        };
        let checks = findings.into_iter().map(row).collect();
        return print_json(&Report {
            schema: "countersteer.doctor/1",
            checks,
        });
    }
    let mut text = String::new();
    for (name, needed_for, finding) in findings {
        let mark = match finding.state {
            FindingState::Works => "+",
            FindingState::Limited => "~",
            FindingState::Missing => "-",
        };
        text += &labelled(&format!("{mark} {name:<22} "), &finding.found);
        if finding.state != FindingState::Works {
            let remedy = format!("for {needed_for}: {}", finding.remedy);
            text += &labelled(&format!("  {:<22} ", ""), &remedy);
        }
    }
    print(&text)
}
