//! `steer profile check`: compares a profile with cachegrind's counts of the same command.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use countersteer_lab::error::{FaultKind, failure};
use countersteer_model::profile::{Profile, Recorded};
use countersteer_report::table;
use serde::Serialize;

use super::{print, print_json};
use crate::library;

/// Arguments of `steer profile check`.
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// Profile: file or name of a shipped profile
    profile: PathBuf,
    /// Output file of cachegrind for the same command (`valgrind --tool=cachegrind --cache-sim=yes --branch-sim=yes`)
    #[arg(long, value_name = "FILE")]
    cachegrind: PathBuf,
    /// Print JSON: an array of objects with `what`, `profile` and `cachegrind`
    #[arg(long)]
    json: bool,
}

/// Relative difference of the numbers of instructions up to which both tools are taken to have run one command.
const SAME_COMMAND: f64 = 0.2;

/// Value of both tools; those after the number of instructions are per 1,000 instructions.
#[derive(Debug, PartialEq, Serialize)]
struct CheckRow {
    what: String,
    profile: f64,
    cachegrind: f64,
}

/// Runs `steer profile check`.
pub fn run(args: &CheckArgs) -> anyhow::Result<()> {
    let profile = match library::profile(&args.profile)? {
        Profile::Recorded(profile) => profile,
        Profile::Tabulated(_) => {
            let why = "this profile was measured by counters; cachegrind's counts are those of recorded programs";
            return Err(failure(
                FaultKind::BadInput,
                format!("{}: {why}", args.profile.display()),
            ));
        }
    };
    let text = library::read(&args.cachegrind)?;
    let counts = CachegrindTotals::parse(&text.text).map_err(|why| {
        failure(
            FaultKind::BadInput,
            format!("{}: {why}", Path::new(&text.path).display()),
        )
    })?;
    let rows = rows(&profile, &counts);
    if args.json {
        return print_json(&rows);
    }
    let cells = rows.iter().map(|row| {
        let difference = 100.0 * (row.profile / row.cachegrind - 1.0);
        let shown = |value: f64| match value {
            value if value >= 1e5 => format!("{value:.0}"),
            value => format!("{value:.2}"),
        };
        let difference = match row.cachegrind > 0.0 {
            true => format!("{difference:+.1} %"),
            false => String::new(),
        };
        vec![
            row.what.clone(),
            shown(row.profile),
            shown(row.cachegrind),
            difference,
        ]
    });
    let head = [
        "per 1,000 instructions",
        "profile",
        "cachegrind",
        "difference",
    ];
    let is_other = (rows[0].profile / rows[0].cachegrind - 1.0).abs() > SAME_COMMAND;
    let remarks = format!(
        "cachegrind ran: {}\n\n{}The misses of a profile are those of caches that replace the least recently used of all lines; \
         cachegrind's caches have sets.\n",
        counts.command,
        if is_other {
            "The numbers of instructions differ much: is it the same command? "
        } else {
            ""
        },
    );
    print(&format!(
        "{}\n{}",
        table::plain(&head, cells),
        table::prose(&remarks)
    ))
}

/// Totals of a file of cachegrind, and the sizes of its caches.
#[derive(Debug, Default)]
struct CachegrindTotals {
    command: String,
    /// Lines of the first-level data cache and of the last level.
    lines: BTreeMap<&'static str, f64>,
    totals: BTreeMap<String, f64>,
}

impl CachegrindTotals {
    /// Parses the head and the summary: `desc: D1 cache: 32768 B, 64 B, 8-way associative`, `events: Ir Dr ...`, `summary: 10 5 ...`.
    fn parse(text: &str) -> Result<Self, String> {
        let mut counts = Self::default();
        let mut events: Vec<&str> = Vec::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("desc: ") {
                for level in ["D1", "LL"] {
                    if let Some(lines) = lines_of(rest, level) {
                        counts.lines.insert(level, lines);
                    }
                }
            } else if let Some(command) = line.strip_prefix("cmd: ") {
                command.clone_into(&mut counts.command);
            } else if let Some(names) = line.strip_prefix("events: ") {
                events = names.split_whitespace().collect();
            } else if let Some(values) = line.strip_prefix("summary: ") {
                let values = values
                    .split_whitespace()
                    .map(|value| value.replace(',', "").parse::<f64>());
                for (name, value) in events.iter().zip(values) {
                    let value =
                        value.map_err(|_| format!("`{name}` of its summary is no number"))?;
                    counts.totals.insert((*name).to_owned(), value);
                }
            }
        }
        if counts.totals.get("Ir").is_none_or(|count| *count <= 0.0) {
            return Err("this is no output of cachegrind: it has no summary with `Ir`".into());
        }
        Ok(counts)
    }

    /// Returns the sum of events per 1,000 instructions; `None` if cachegrind did not count them.
    fn pki(&self, events: &[&str]) -> Option<f64> {
        let values = events.iter().map(|event| self.totals.get(*event));
        let sum = values.sum::<Option<f64>>()?;
        Some(1000.0 * sum / self.totals.get("Ir")?)
    }
}

/// Parses the number of lines in `D1 cache:   32768 B, 64 B, 8-way associative`.
fn lines_of(text: &str, level: &str) -> Option<f64> {
    let rest = text.strip_prefix(level)?.strip_prefix(" cache:")?;
    let mut sizes = rest
        .split(',')
        .map(|part| part.trim().strip_suffix(" B")?.parse::<f64>().ok());
    let (bytes, line_bytes) = (sizes.next()??, sizes.next()??);
    (line_bytes > 0.0).then_some(bytes / line_bytes)
}

fn rows(profile: &Recorded, counts: &CachegrindTotals) -> Vec<CheckRow> {
    let shares = profile.shares();
    let mean = |of: fn(&countersteer_model::profile::Behaviour) -> f64| -> f64 {
        profile
            .behaviours
            .iter()
            .zip(&shares)
            .map(|(b, share)| of(b) * share)
            .sum()
    };
    let curve = Profile::Recorded(profile.clone()).miss_curve();
    let misses = |level: &str| {
        let lines = counts.lines.get(level)?;
        Some(curve.as_ref()?.mpki(*lines))
    };
    let values = [
        (
            "loads",
            Some(1000.0 * mean(|b| b.mix.loads)),
            counts.pki(&["Dr"]),
        ),
        (
            "stores",
            Some(1000.0 * mean(|b| b.mix.stores)),
            counts.pki(&["Dw"]),
        ),
        (
            "branches",
            Some(1000.0 * mean(|b| b.mix.branches)),
            counts.pki(&["Bc", "Bi"]),
        ),
        (
            "mispredicted branches",
            Some(mean(|b| b.branch_mpki)),
            counts.pki(&["Bcm", "Bim"]),
        ),
        (
            "data misses of the first level",
            misses("D1"),
            counts.pki(&["D1mr", "D1mw"]),
        ),
        (
            "data misses of the last level",
            misses("LL"),
            counts.pki(&["DLmr", "DLmw"]),
        ),
    ];
    let instructions = CheckRow {
        what: "instructions, in all".into(),
        profile: profile.instructions as f64,
        cachegrind: counts.totals["Ir"],
    };
    let known = values
        .into_iter()
        .filter_map(|(what, profile, cachegrind)| {
            Some(CheckRow {
                what: what.into(),
                profile: profile?,
                cachegrind: cachegrind?,
            })
        });
    std::iter::once(instructions).chain(known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "desc: I1 cache:         32768 B, 64 B, 8-way associative\n\
        desc: D1 cache:         32768 B, 64 B, 8-way associative\ndesc: LL cache:         8388608 B, 64 B, 16-way associative\n\
        cmd: gzip -c x\nevents: Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw Bc Bcm Bi Bim\nfn=main\n1 5 5 5\n\
        summary: 2000 1 1 500 20 4 100 10 2 300 8 20 2\n";

    fn gzip() -> Recorded {
        match library::profile(Path::new("gzip")).unwrap() {
            Profile::Recorded(profile) => profile,
            Profile::Tabulated(_) => unreachable!("gzip was recorded"),
        }
    }

    #[test]
    fn counts_are_those_of_the_same_caches() {
        let counts = CachegrindTotals::parse(FILE).unwrap();
        assert_eq!(counts.lines["D1"], 512.0);
        let profile = gzip();
        let rows = rows(&profile, &counts);
        let of = |what: &str| rows.iter().find(|row| row.what == what).unwrap();
        assert_eq!(of("loads").cachegrind, 250.0);
        assert_eq!(of("branches").cachegrind, 160.0);
        assert_eq!(of("data misses of the first level").cachegrind, 15.0);
        assert_eq!(of("data misses of the last level").cachegrind, 3.0);
        let curve = Profile::Recorded(profile.clone()).miss_curve().unwrap();
        assert_eq!(
            of("data misses of the first level").profile,
            curve.mpki(512.0)
        );
        assert_eq!(
            of("instructions, in all").profile,
            profile.instructions as f64
        );
    }

    #[test]
    fn counts_that_are_missing_are_left_out() {
        let only = CachegrindTotals::parse("cmd: x\nevents: Ir\nsummary: 1,000\n").unwrap();
        assert_eq!(rows(&gzip(), &only).len(), 1);
        assert!(
            CachegrindTotals::parse("events: Ir\n")
                .unwrap_err()
                .contains("no output of cachegrind")
        );
        assert!(
            CachegrindTotals::parse("events: Ir\nsummary: x\n")
                .unwrap_err()
                .contains("`Ir`")
        );
    }
}
