//! `steer profile --online`: measures miss curves of running programs, and writes a profile of each.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use countersteer_report::table;

use super::print_json;
use crate::error::{FaultKind, failure};
use crate::online::{self, CurveSummary, Online};
use crate::output::{self, make_folder};

/// Measures, writes the profiles, and prints the summaries. Returns the exit code of the program that was started, or 0.
pub fn run(online: &Online<'_>, output: Option<&Path>, json: bool) -> anyhow::Result<ExitCode> {
    if json && online.pids.is_empty() {
        let why = "--json needs -p: a started program writes to stdout";
        return Err(failure(FaultKind::Usage, why));
    }
    let several = online.pids.len() > 1;
    if let (Some(output), false) = (output, several) {
        output::check_writable(output)?;
    }
    let measured = online::run(online, &mut |name, profile| {
        let path = place(output, several, name)?;
        output::profile(&path, profile)?;
        let points: usize = profile.core.iter().map(|c| c.points.len()).sum();
        stderr_line!(
            "steer: {points} points of the miss curve; profile in {}",
            path.display()
        );
        Ok(())
    })?;
    if json {
        print_json(&measured.summaries)?;
    } else {
        stderr_text!("{}", table_of(&measured.summaries));
    }
    Ok(ExitCode::from(measured.exit_code))
}

/// Returns the path of a program's profile. For several programs, `output` is the folder.
fn place(output: Option<&Path>, several: bool, name: &str) -> anyhow::Result<PathBuf> {
    let file = format!("{}.profile.toml", name.replace('/', "-"));
    match output {
        Some(folder) if several => {
            make_folder(folder)?;
            Ok(folder.join(file))
        }
        Some(output) => Ok(output.to_owned()),
        None => Ok(PathBuf::from(file)),
    }
}

/// Formats the summaries of the measured curves as a table.
fn table_of(measured: &[CurveSummary]) -> String {
    let head = [
        "program",
        "core type",
        "points",
        "KiB",
        "curve",
        "off by (MPKI)",
    ];
    let rows = measured.iter().map(|m| {
        let form = m.form.clone();
        let error = m.error_mpki.map(|error| format!("{error:.2}"));
        vec![
            m.program.clone(),
            m.core_type.clone(),
            m.points.to_string(),
            format!("{:.0} to {:.0}", m.from_kib, m.to_kib),
            form.unwrap_or_else(|| "none: too few sizes".into()),
            error.unwrap_or_else(|| "-".into()),
        ]
    });
    table::plain(&head, rows)
}
