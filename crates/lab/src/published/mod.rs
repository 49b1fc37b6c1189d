//! Published profiles of the papers' programs, created from public tables of counters.
//!
//! Input: tables that the user downloaded ([`TABLES`]). Output: a [`Published`] profile for each program of SPEC CPU2000,
//! CPU2006 and CPU2017 in the tables, and comparisons with held-out measurements. Each value has its error and its source
//! table.
//!
//! The method:
//!
//! - Instructions, branches, mispredictions and the misses of 32 KiB and 256 KiB come from the raw events (`nehalem`).
//! - Loads and stores are the retired ones of `skylake-sp`. For programs without an entry there, they are all L1 accesses of
//!   `nehalem` times a median ratio. This ratio of both tables over CPU2006 is needed because `nehalem` also counts replays and
//!   wrong paths.
//! - Misses of 1 MiB are the accesses to the last level. Misses of larger sizes are those of the last level by ways
//!   (`pbbcache`) or by size (`skylake-sp`, without prefetchers). The L3 does not contain the lines of the L2, so a size is the
//!   sum of both.
//! - The fraction of prefetched accesses has two sources. It is that of requests to L3 that are no demand accesses of the core
//!   (`nehalem`), or that of misses that prefetchers avoid (`skylake-sp`).
//! - A miss costs the cycles for which it stalls the core (`pbbcache`), or the slope of cycles over misses. The overlap follows
//!   from this cost (`fit`). Dependences account for the remaining measured cycles.
//! - Programs of CPU2017 have other builds in `silicon` than in `skylake-sp`. Their instructions, branches and cycles are those
//!   of `silicon`; their misses per instruction are multiplied by the ratio of the instructions of the two builds.

mod check;
mod figures;
mod fit;
mod reach;
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use countersteer_model::profile::Published;

pub use self::check::{Check, Checks};
use self::figures::{Typical, start};
use self::fit::Bench;
use self::tables::{Events, ProgramTable, SizeTable, SizeTexts, SuiteProgram, WayTable};
use crate::error::{FaultKind, failure};
use crate::library;

/// Public table of counters.
#[derive(Clone, Copy, Debug)]
pub struct TableSource {
    /// Name of the table, used as the source of a profile's values.
    pub name: &'static str,
    /// GitHub repository of the table.
    pub repository: &'static str,
    /// Paths of the files within the repository.
    pub files: &'static str,
    /// Machine on which the values were measured.
    pub machine: &'static str,
}

/// Tables from which the profiles are created.
pub const TABLES: [TableSource; 4] = [
    TableSource {
        name: "pbbcache",
        repository: "pbbcache/cachesim",
        files: "simulator/input/metrics.csv",
        machine: "Skylake-SP, 11 ways of 2.5 MiB behind 1 MiB of L2",
    },
    TableSource {
        name: "skylake-sp",
        repository: "agusnt/Xeon-SP_Memory_Characterization_SPEC-CPU-2K6-2K17",
        files: "figure_data/raw/XEON_SKL/{2K6,2K17Rate}",
        machine: "Xeon Gold 5120, 3.5 to 19.25 MB of L3, with and without prefetchers",
    },
    TableSource {
        name: "nehalem",
        repository: "anlongfei/spec2000-perf, anlongfei/spec2006-perf",
        files: "{950,980}/output/{int,fp}file.xls",
        machine: "Core i7 950 and 980",
    },
    TableSource {
        name: "silicon",
        repository: "jiegec/blog-source",
        files: "docs/benchmark/data-trixie",
        machine: "Core i9-12900KS and i9-10980XE, by the shipped tables of CPU2017",
    },
];

const PBBCACHE: &str = TABLES[0].name;
const SKYLAKE: &str = TABLES[1].name;
const NEHALEM: &str = TABLES[2].name;
const SILICON: &str = TABLES[3].name;

/// Paths of the downloaded tables.
#[derive(Clone, Debug, Default)]
pub struct DownloadedTables {
    /// Path of PBBCache's `metrics.csv`.
    pub ways: PathBuf,
    /// Folder that contains `2K6` and `2K17Rate`.
    pub sizes: PathBuf,
    /// Paths of the files of raw events.
    pub events: Vec<PathBuf>,
}

/// Created profiles, with comparisons to held-out measurements.
#[derive(Clone, Debug)]
pub struct ImportedProfiles {
    pub profiles: Vec<Published>,
    /// Rows of the tables that gave no profile, with the reason.
    pub left_out: Vec<String>,
    /// Prediction errors.
    pub checks: Checks,
}

/// Contents of all tables.
struct TableContents {
    ways: ProgramTable<BTreeMap<u32, WayTable>>,
    sizes: ProgramTable<SizeTable>,
    /// Raw events of each program on both machines; those of the newer machine come last.
    events: ProgramTable<Vec<Events>>,
}

/// Creates published profiles from the tables.
///
/// # Errors
/// Fails if a table does not exist or cannot be parsed, or if the model cannot run a program.
pub fn import(files: &DownloadedTables) -> anyhow::Result<ImportedProfiles> {
    let mut read = read(files)?;
    let bench = Bench::new()?;
    let typical = Typical::of(&read);
    let programs: BTreeSet<&SuiteProgram> = read
        .ways
        .rows
        .keys()
        .chain(read.sizes.rows.keys())
        .collect();
    let mut made = Vec::new();
    let mut left_out = Vec::new();
    for program in programs {
        match start(program, &read, &typical) {
            Some(start) => made.push((program.clone(), start)),
            None => left_out.push(format!("{program}: no table of events or by size has it")),
        }
    }
    let checks = check::check(&bench, &mut made, &read)?;
    left_out.append(&mut read.ways.left_out);
    left_out.append(&mut read.sizes.left_out);
    left_out.append(&mut read.events.left_out);
    let profiles = made.into_iter().map(|(_, start)| start.published).collect();
    Ok(ImportedProfiles {
        profiles,
        left_out,
        checks,
    })
}

fn read(files: &DownloadedTables) -> anyhow::Result<TableContents> {
    let text = |path: &Path| Ok::<_, anyhow::Error>(library::read(path)?.text);
    let suite = |name: &str, file: &str| {
        // The files are in a folder of the repository, or have the name of this folder as a prefix.
        let nested = files.sizes.join(name).join(file);
        let flat = files.sizes.join(format!("{name}-{file}"));
        text(if flat.is_file() { &flat } else { &nested })
    };
    let mut sizes = ProgramTable::default();
    for name in ["2K6", "2K17Rate"] {
        let read = tables::sizes(SizeTexts {
            general: &suite(name, "General_Info.csv")?,
            prefetch: &suite(name, "Associativity_Prefetch.csv")?,
            no_prefetch: &suite(name, "Associativity_NoPrefetch.csv")?,
            by_prefetcher: &suite(name, "MPKI_APKI_CPI_Prefetch.csv")?,
        });
        sizes.rows.extend(read.rows);
        sizes.left_out.extend(read.left_out);
    }
    if files.events.is_empty() {
        let why = "name at least one table of events with --events FILE";
        return Err(failure(FaultKind::Usage, why));
    }
    let mut paths = files.events.clone();
    // In this order, the 950 comes before the 980, which has fewer faulty events.
    paths.sort();
    let mut events: ProgramTable<Vec<Events>> = ProgramTable::default();
    for path in &paths {
        let read = tables::events(&text(path)?);
        for (program, row) in read.rows {
            let runs = events.rows.entry(program.clone()).or_default();
            if runs.contains(&row) {
                let why = format!("{program}: two tables of events are one and the same run");
                events.left_out.push(why);
            } else {
                runs.push(row);
            }
        }
        events.left_out.extend(read.left_out);
    }
    Ok(TableContents {
        ways: tables::ways(&text(&files.ways)?),
        sizes,
        events,
    })
}
