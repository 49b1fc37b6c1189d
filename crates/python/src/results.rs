//! Tables of the results of runs, searches and simulations.
//!
//! Input: typed results of the core. Output: tables. Their columns are documented with the Python classes.

use countersteer_lab::blame::{Blame, PolicySlowdowns, WayPartition};
use countersteer_lab::company::CacheCompany;
use countersteer_session::bench::threads::result::{CandidateRow, Final};
use countersteer_session::steering::summary::{ProgramTally, SteeringSummary};
use countersteer_session::waits::{Percentiles, Wait};
use pyo3::prelude::*;

use crate::gains;
use crate::table::{Table, counts, floats, texts};

/// Programs of a run, with a column of CPU time for each core type at the end.
pub fn of_run(summary: &SteeringSummary) -> PyResult<Table> {
    let rows = || summary.programs.iter();
    let waits = |of: fn(&Wait) -> f64| floats(rows().map(|row| row.wait.as_ref().map(of)));
    let percentiles = |of: fn(&Percentiles) -> f64| {
        let known = |row: &ProgramTally| row.wait.and_then(|wait| wait.percentiles);
        floats(rows().map(|row| known(row).as_ref().map(of)))
    };
    let exit_code = |row: &ProgramTally| row.exit_code.and_then(|code| u64::try_from(code).ok());
    let columns = [
        ("program", texts(rows().map(|row| &*row.name))),
        ("threads", counts(rows().map(|row| row.threads))),
        ("elapsed_s", floats(rows().map(|row| row.elapsed_s))),
        ("exit_code", counts(rows().map(exit_code))),
        ("instructions", floats(rows().map(|row| row.instructions))),
        ("cycles", floats(rows().map(|row| row.cycles))),
        ("work", floats(rows().map(|row| row.work))),
        ("wait_s", waits(|wait| wait.total_s)),
        ("wait_mean_ms", waits(|wait| wait.mean_ms)),
        ("wait_p50_ms", percentiles(|wait| wait.p50_ms)),
        ("wait_p90_ms", percentiles(|wait| wait.p90_ms)),
        ("wait_p99_ms", percentiles(|wait| wait.p99_ms)),
        (
            "cpu_s",
            floats(rows().map(|row| row.cpu_s.iter().sum::<f64>())),
        ),
    ];
    let columns = columns.map(|(name, column)| (name.to_owned(), column));
    let by_type = summary.core_types.iter().enumerate();
    let by_type = by_type.map(|(nth, name)| {
        let of_type = rows().map(move |row| row.cpu_s.get(nth).copied());
        (format!("cpu_s_{name}"), floats(of_type))
    });
    Table::of(columns.into_iter().chain(by_type))
}

/// Candidates of a search.
pub fn of_candidates(rows: &[CandidateRow]) -> PyResult<Table> {
    let rows = || rows.iter();
    let predicted = || rows().map(|row| row.predicted);
    Table::of([
        ("threads", counts(rows().map(|row| row.threads as u64))),
        ("chunking", texts(rows().map(|row| row.chunking.as_deref()))),
        ("cores", texts(rows().map(|row| &*row.cores))),
        ("cpus", texts(rows().map(|row| &*row.cpus))),
        ("predicted", floats(predicted().map(|p| p.map(|p| p.time)))),
        (
            "predicted_low",
            floats(predicted().map(|p| p.map(|p| p.low))),
        ),
        (
            "predicted_high",
            floats(predicted().map(|p| p.map(|p| p.high))),
        ),
        ("measured_s", floats(rows().map(|row| row.measured_s))),
    ])
}

/// Candidates that were compared with the default.
pub fn of_finals(finals: &[Final]) -> PyResult<Table> {
    let rows = || finals.iter();
    let columns = [
        ("threads", counts(rows().map(|row| row.threads as u64))),
        ("chunking", texts(rows().map(|row| row.chunking.as_deref()))),
        ("cores", texts(rows().map(|row| &*row.cores))),
        ("cpus", texts(rows().map(|row| &*row.cpus))),
        (
            "median_s",
            floats(rows().map(|row| row.time.as_ref().map(|time| time.median))),
        ),
        ("command", texts(rows().map(|row| &*row.command))),
        ("bound", texts(rows().map(|row| row.bound.as_deref()))),
    ];
    let gains = gains::columns(rows().map(|row| &row.gain));
    Table::of(columns.into_iter().chain(gains))
}

/// Programs of a workload with their slowdowns, slowdowns by cause, those under other policies, and a partition of the cache.
pub fn of_blame(found: &Blame) -> PyResult<(Table, Table, Table, Option<Table>)> {
    let names = || found.programs.iter().map(String::as_str);
    let slowdowns = |slowdowns: &[f64]| floats(slowdowns.iter().copied());
    let programs = Table::of([
        ("program", texts(names())),
        ("slowdown", slowdowns(&found.slowdown)),
    ])?;
    let count = found.programs.len();
    let pairs = || (0..count * count).map(|nth| (nth / count, nth % count));
    let pairs = || pairs().filter(|(victim, cause)| victim != cause);
    let caused = Table::of([
        (
            "victim",
            texts(pairs().map(|(victim, _)| &*found.programs[victim])),
        ),
        (
            "cause",
            texts(pairs().map(|(_, cause)| &*found.programs[cause])),
        ),
        (
            "slowdown",
            floats(pairs().map(|(victim, cause)| found.caused[victim][cause])),
        ),
    ])?;
    let of_policy = |place: &'_ PolicySlowdowns| vec![place.policy.clone(); count];
    let policies: Vec<String> = found.places.iter().flat_map(of_policy).collect();
    let places = found.places.iter();
    let places = Table::of([
        ("policy", texts(policies.iter().map(String::as_str))),
        ("program", texts(found.places.iter().flat_map(|_| names()))),
        (
            "slowdown",
            floats(places.flat_map(|place| place.slowdown.iter().copied())),
        ),
    ])?;
    let partition = |partition: &WayPartition| {
        Table::of([
            ("program", texts(names())),
            (
                "ways",
                counts(partition.ways.iter().map(|ways| u64::from(*ways))),
            ),
            ("slowdown", slowdowns(&partition.slowdown)),
        ])
    };
    let partition = found.partition.as_ref().map(partition).transpose()?;
    Ok((programs, caused, places, partition))
}

/// Programs in caches of several sizes.
pub fn of_company(found: &CacheCompany) -> PyResult<Table> {
    let rows = || {
        found.sizes.iter().flat_map(|size| {
            let parts = found.programs.iter().zip(&size.parts);
            parts.map(|(name, part)| (name.as_str(), size.bytes, part))
        })
    };
    Table::of([
        ("program", texts(rows().map(|row| row.0))),
        ("cache_bytes", counts(rows().map(|row| row.1))),
        ("bytes", floats(rows().map(|row| row.2.bytes))),
        ("mpki", floats(rows().map(|row| row.2.mpki))),
        ("ipc", floats(rows().map(|row| row.2.ipc))),
        ("mpki_alone", floats(rows().map(|row| row.2.mpki_alone))),
        ("ipc_alone", floats(rows().map(|row| row.2.ipc_alone))),
    ])
}
