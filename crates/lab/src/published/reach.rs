//! Misses of the instruction cache and of translation buffers, from the raw events.

use countersteer_model::profile::published::Figure;
use countersteer_model::profile::{ReachKind, ReachPoint};

use super::NEHALEM;
use super::tables::{CODE_MISSES, Events, ONE_RUN};

/// Size of Nehalem's instruction cache in lines.
const CODE_LINES: f64 = 512.0;
/// Entries of Nehalem's translation buffers: for loads, for code and second level together, and of the second level.
const DATA_ENTRIES: f64 = 64.0;
const CODE_ENTRIES: f64 = 640.0;
const SECOND_ENTRIES: f64 = 512.0;
/// Events of loads that miss the first level of translation: those that the second level has, and page walks.
const LOADS_SECOND: &str = "DTLB_LOAD_MISSES.STLB_HIT";
const LOADS_WALK: &str = "DTLB_LOAD_MISSES.ANY";
/// Page walks of loads and stores, and of code.
const DATA_WALKS: &str = "DTLB_MISSES.ANY";
const CODE_WALKS: &str = "ITLB_MISSES.ANY";

/// Returns the points of a program; its runs are on the older and on the newer machine. Empty without the events.
pub fn points(runs: &[Events]) -> Vec<ReachPoint> {
    made(runs).unwrap_or_default()
}

fn made(runs: &[Events]) -> Option<Vec<ReachPoint>> {
    let (first, last) = (runs.first()?, runs.last()?);
    let mut points: Vec<ReachPoint> = Vec::new();
    let mut add = |kind, entries, of: &dyn Fn(&Events) -> Option<f64>| {
        let (mpki, other) = (1000.0 * of(last)?, 1000.0 * of(first)?);
        let error = (0.5 * (mpki - other).abs()).max(ONE_RUN * mpki);
        let Figure { value, error, from } = Figure::new(mpki, error, NEHALEM);
        points.push(ReachPoint {
            kind,
            entries,
            mpki: value,
            error,
            from,
        });
        Some(())
    };
    add(ReachKind::DataPages, DATA_ENTRIES, &|e| {
        Some(e.of(LOADS_SECOND)? + e.of(LOADS_WALK)?.max(e.of(DATA_WALKS)?))
    })?;
    add(ReachKind::DataPages, SECOND_ENTRIES, &|e| {
        Some(e.of(LOADS_WALK)?.max(e.of(DATA_WALKS)?))
    })?;
    add(ReachKind::CodePages, CODE_ENTRIES, &|e| e.of(CODE_WALKS))?;
    add(ReachKind::CodeLines, CODE_LINES, &|e| e.of(CODE_MISSES))?;
    Some(points)
}
