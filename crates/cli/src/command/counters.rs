//! `steer profile import-counters` makes profiles from public tables of counters; `steer profile list` lists the shipped
//! profiles.

use std::path::PathBuf;

use anyhow::Context;
use countersteer_lab::published::{self, Checks, DownloadedTables, ImportedProfiles};
use countersteer_model::profile::published::ASSUMED;
use countersteer_model::profile::{Profile, Published};
use countersteer_report::table::plain;
use countersteer_report::write_atomically;
use serde::Serialize;

use super::{print, print_json};
use crate::library;
use crate::output::make_folder;

/// Arguments of `steer profile import-counters`: the tables of counters, and the output folder.
#[derive(Debug, clap::Args)]
pub struct CountersArgs {
    /// Path of PBBCache's file metrics.csv: counters of SPEC CPU2000 and CPU2006 programs for each number of cache ways
    #[arg(long, value_name = "FILE")]
    ways: PathBuf,
    /// Folder of the Skylake-SP data set (repository agusnt/Xeon-SP_Memory_Characterization_SPEC-CPU-2K6-2K17) that contains the
    /// subfolders 2K6 (SPEC CPU2006) and 2K17Rate (SPEC CPU2017)
    #[arg(long, value_name = "DIR")]
    sizes: PathBuf,
    /// Paths of the files fpfile.xls and intfile.xls: event counts of SPEC CPU2000 and CPU2006 programs on Nehalem
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    events: Vec<PathBuf>,
    /// Output folder for the profiles, one file per program
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Print the prediction errors and the omitted programs as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct TrialOutcome<'a> {
    programs: Vec<&'a str>,
    checks: &'a Checks,
    left_out: &'a [String],
}

/// Makes profiles from tables of counters, and prints their prediction errors.
///
/// # Errors
/// A table cannot be read, or a profile cannot be fitted or written.
pub fn import(args: CountersArgs) -> anyhow::Result<()> {
    let imported = published::import(&DownloadedTables {
        ways: args.ways,
        sizes: args.sizes,
        events: args.events,
    })?;
    make_folder(&args.output)?;
    for profile in &imported.profiles {
        let path = args.output.join(format!("{}.toml", profile.name));
        let text = toml::to_string(profile).context("a profile cannot be written as TOML")?;
        write_atomically(&path, text.as_bytes())?;
    }
    let shown = args.output.display();
    let count = imported.profiles.len();
    stderr_line!("steer: {count} profiles in {shown}");
    if args.json {
        return print_json(&TrialOutcome {
            programs: imported.profiles.iter().map(|p| p.name.as_str()).collect(),
            checks: &imported.checks,
            left_out: &imported.left_out,
        });
    }
    print(&text(&imported))
}

fn text(imported: &ImportedProfiles) -> String {
    let checks = &imported.checks;
    let cell = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.1}"));
    let rows = checks.programs.iter().map(|check| {
        vec![
            check.program.clone(),
            cell(check.held_out_sizes),
            cell(check.other_table),
            cell(check.between_tables),
        ]
    });
    let mean = vec![
        "mean".to_owned(),
        cell(Some(checks.held_out_sizes)),
        cell(Some(checks.other_table)),
        cell(Some(checks.between_tables)),
    ];
    let mut text = String::from("errors of predicted cycles per instruction, in per cent\n\n");
    text += &plain(
        &[
            "program",
            "held-out sizes",
            "other table",
            "between the tables",
        ],
        rows.chain([mean]),
    );
    text += &format!("\nleft out: {}\n", imported.left_out.len());
    for why in &imported.left_out {
        text += &format!("  {why}\n");
    }
    text
}

#[derive(Serialize)]
struct CounterRow {
    name: String,
    /// Kind of the profile: `recorded`, `published` or `tabulated`.
    kind: &'static str,
    giga_instructions: f64,
    source: String,
}

/// Lists the shipped profiles.
///
/// # Errors
/// A shipped profile is invalid, or standard output is closed.
pub fn list(json: bool) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for folder in library::PROFILE_FOLDERS {
        for path in library::shipped_profiles(folder.name) {
            let Some(text) = library::shipped_profile(&path) else {
                continue;
            };
            let profile = Profile::parse(&text.path, &text.text)?;
            let source = match &profile {
                Profile::Recorded(p) => &p.source,
                Profile::Tabulated(p) => &p.source,
            };
            rows.push(CounterRow {
                name: profile.name().to_owned(),
                kind: folder.kind,
                giga_instructions: profile.instructions() as f64 / 1e9,
                source: source.detail.clone(),
            });
        }
    }
    if json {
        return print_json(&rows);
    }
    let cells = rows.into_iter().map(|r| {
        let giga = format!("{:.1}", r.giga_instructions);
        let source = brief(r.kind, &r.source);
        vec![r.name, r.kind.to_owned(), giga, source]
    });
    print(&plain(
        &["profile", "kind", "billion instructions", "source"],
        cells,
    ))
}

/// Returns the names of a published profile's tables, as in `docs/published.md`. For other kinds of profiles, returns `source`
/// unchanged.
fn brief(kind: &str, source: &str) -> String {
    let tables = source
        .split("; ")
        .filter_map(|table| table.split_once(": "));
    let tables: Vec<&str> = tables.map(|(name, _)| name).collect();
    if kind == "published" && !tables.is_empty() {
        return tables.join(", ");
    }
    source.to_owned()
}

/// Describes the values of a published profile, each with its error and its table.
pub fn provenance(published: &Published) -> String {
    let figure = |name: &str, value: f64, error: f64, from: &str| {
        let from = if from == ASSUMED {
            "assumed: no table gives it"
        } else {
            from
        };
        vec![
            name.to_owned(),
            format!("{value}"),
            format!("{error}"),
            from.to_owned(),
        ]
    };
    let listed = published.listed();
    let figures = listed
        .iter()
        .map(|(name, f)| figure(name, f.value, f.error, &f.from));
    let misses = published.curve.iter().map(|p| {
        let name = format!("misses at {} KiB", p.cache_kib);
        figure(&name, p.mpki, p.error, &p.from)
    });
    format!(
        "\n{}",
        plain(
            &["figure", "value", "standard error", "table"],
            figures.chain(misses)
        )
    )
}
