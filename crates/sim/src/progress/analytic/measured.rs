//! Rate tables from tabulated profiles.
//!
//! Input: a [`CoreTable`] of measured speeds, and a [`CpuClass`]. Output: a [`RateTable`] with the measured instructions per cycle at
//! this machine's frequency. If misses were measured too, the time of waiting for memory depends on memory load, and the program
//! contends for caches and memory. Otherwise the program does not contend.

use countersteer_model::machine::CoreType;
use countersteer_model::profile::CoreTable;

use super::class::CpuClass;
use super::curves::interpolate;
use super::siblings::{CoreShares, DISPATCH};
use super::table::{LevelTable, OccupancyPoint, RateTable};
use crate::progress::Unmeasured;

/// Assumed number of overlapping misses; the overlap was not measured.
const OVERLAP: f64 = 2.0;
/// Maximum fraction of the cycles that counts as waiting for memory.
const MEMORY_PART: f64 = 0.6;
/// Fraction by which a second running SMT sibling increases a core's throughput.
const SMT_GAIN: f64 = 0.25;

/// Creates the rate table of a measured program on a class of CPUs.
pub fn table(measured: &CoreTable, core_type: &CoreType, class: &CpuClass) -> RateTable {
    let mut points = measured.points.clone();
    points.sort_by(|a, b| a.cache_kib.total_cmp(&b.cache_kib));
    let cpi: Vec<_> = points
        .iter()
        .map(|p| (p.cache_kib * 16.0, 1.0 / p.ipc))
        .collect();
    let miss: Option<Vec<_>> = points
        .iter()
        .map(|p| Some((p.cache_kib * 16.0, p.llc_mpki? / 1000.0)))
        .collect();
    let threads = f64::from(class.threads);
    let slowdown = threads / (1.0 + SMT_GAIN * threads.log2());
    // Speeds were measured at the core type's `freq_ghz`: waiting for memory takes more cycles at a faster clock.
    let clock = class.ghz / core_type.freq_ghz;
    let measured_cycles = class.memory_cycles / clock;
    let at = |lines: f64| {
        let cpi = interpolate(&cpi, lines).unwrap_or(1.0) * slowdown;
        let miss = miss
            .as_ref()
            .and_then(|m| interpolate(m, lines))
            .unwrap_or(0.0);
        let waiting = (miss * measured_cycles / OVERLAP).min(MEMORY_PART * cpi);
        OccupancyPoint {
            miss,
            a: cpi - waiting,
            b: waiting * clock,
        }
    };
    let most = miss
        .as_ref()
        .map_or(0.0, |m| m.iter().map(|p| p.1).fold(0.0, f64::max));
    let mut shares = CoreShares::default();
    shares.uses[DISPATCH] = 1.0 / core_type.dispatch_width;
    let siblings_power = measured.power_w.unwrap_or(core_type.power.active_w) / threads;
    let mut table = RateTable {
        shares,
        private_misses: most,
        private_references: most,
        branch_misses: measured.branch_mpki.unwrap_or(0.0) / 1000.0,
        unmeasured: Unmeasured {
            misses: f64::from(miss.is_none()),
            branch_misses: f64::from(measured.branch_mpki.is_none()),
            sharing: 1.0,
        },
        instruction_nj: if measured.power_w.is_some() {
            0.0
        } else {
            core_type.power.instruction_nj * class.energy
        },
        active_w: siblings_power * class.power,
        lines_per_miss: 1.0,
        ..RateTable::default()
    };
    let Some((last, inner)) = class.levels.split_last() else {
        let lines = core_type.l2.unwrap_or(core_type.l1d).size_kib * 16.0;
        let p = at(lines);
        (table.fixed, table.memory) = (p.a, p.b);
        (table.private_misses, table.private_references) = (p.miss, p.miss);
        return table;
    };
    for level in inner {
        table.push(LevelTable::new(64.0, level.lines, |_| OccupancyPoint {
            miss: most,
            ..OccupancyPoint::default()
        }));
    }
    // Without misses the program holds no lines, so that its speed must not depend on them.
    let contends = miss.is_some();
    table.push(LevelTable::new(64.0, last.lines, |lines| {
        at(if contends { lines } else { last.lines })
    }));
    table
}
