//! Which CPUs are of one core type.
//!
//! Input: facts about each CPU. Output: [`Class`]es, fastest first.
//!
//! The rules, in order, and what each is there for:
//! 1. Different PMU (Intel hybrids), part number (Arm), level-one or level-two size, or number of cache levels: different
//!    types. A low-power island outside the ring has the PMU of its siblings but no L3.
//! 2. Different LLC sizes *and* clocks more than 2 % apart: different types. That is a die with stacked cache; its kernel
//!    may also report the other die's clock, so the processor's name counts too. LLC sizes alone do not matter: a cache is
//!    the machine's, not the core's.
//! 3. A gap of more than 10 % in the clocks or capacities of one type: different types (compact cores, prime cores). Favoured
//!    cores stay together with the rest: they clock at most 6 % higher and come in small steps.

use super::cpus::{CpuFacts, HybridPmu};
use super::platform::{Part, Platform, Vendor};
use super::uarch::{GENERIC, Uarch};
use super::{arm, x86};

/// Clocks and capacities this far apart are different types, unless something lies in between.
const GAP: f64 = 1.10;
/// Ranks, as opposed to clocks, spread wide among favoured cores.
const RANK_GAP: f64 = 1.25;
/// Clocks this far apart are different where LLC sizes are too.
const LLC_CLOCK_GAP: f64 = 1.02;

/// A core type and its CPUs, as rows of the list of CPUs.
pub(super) struct Class {
    pub(super) name: String,
    pub(super) uarch: &'static Uarch,
    pub(super) rows: Vec<usize>,
    /// The clock that every core of the type reaches.
    pub(super) khz: Option<u64>,
    /// The capacity of its best core, as the kernel has it.
    pub(super) capacity: Option<u32>,
    pub(super) llc_kib: u32,
    pub(super) levels: u32,
}

/// What one type has in common: PMU, part, L1 and L2 size, cache levels.
type Key = (Option<HybridPmu>, Option<Part>, u32, u32, u32);

/// Sorts CPUs into core types, which have the names of their microarchitectures.
pub(super) fn classify(platform: &Platform, cpus: &[CpuFacts]) -> Vec<Class> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut keys: Vec<Key> = Vec::new();
    for (row, cpu) in cpus.iter().enumerate() {
        let key = key(platform, cpu);
        match keys.iter().position(|k| *k == key) {
            Some(i) => groups[i].push(row),
            None => {
                keys.push(key);
                groups.push(vec![row]);
            }
        }
    }
    let groups = groups
        .into_iter()
        .flat_map(|rows| by_llc(platform, cpus, rows));
    let groups = groups.flat_map(|rows| by_gap(cpus, rows, GAP, |c| c.max_khz));
    let groups = groups.flat_map(|rows| by_gap(cpus, rows, GAP, |c| c.capacity.map(u64::from)));
    let groups = groups.flat_map(|rows| by_gap(cpus, rows, RANK_GAP, rank));
    let mut classes: Vec<Class> = groups.map(|rows| class(platform, cpus, rows)).collect();
    // Where the kernel tells neither capacities nor clocks apart, the larger window is the faster core, and of two dies the
    // one without stacked cache.
    classes.sort_by_key(|c| {
        (
            std::cmp::Reverse((c.capacity, c.khz, c.uarch.window)),
            c.llc_kib,
        )
    });
    classes
}

fn key(platform: &Platform, cpu: &CpuFacts) -> Key {
    let pmu = match platform.vendor {
        Vendor::Intel { family, model } => x86::hybrid_kind(family, model, cpu),
        _ => None,
    };
    let l1 = cpu.l1d.as_ref().map_or(0, |c| c.size_kib);
    let l2 = cpu.at_level(2).map_or(0, |c| c.size_kib);
    (pmu, cpu.part, l1, l2, levels(cpu))
}

fn levels(cpu: &CpuFacts) -> u32 {
    cpu.outer.last().map_or(1, |c| c.level)
}

fn llc_kib(cpu: &CpuFacts) -> u32 {
    cpu.outer.last().map_or(0, |c| c.size_kib)
}

/// The firmware's ranking, where nothing better tells cores apart.
fn rank(cpu: &CpuFacts) -> Option<u64> {
    cpu.highest_perf
        .filter(|_| cpu.max_khz.is_none() && cpu.capacity.is_none())
}

fn by_llc(platform: &Platform, cpus: &[CpuFacts], rows: Vec<usize>) -> Vec<Vec<usize>> {
    let mut sizes: Vec<u32> = rows.iter().map(|r| llc_kib(&cpus[*r])).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let of_size = |size: &u32| -> Vec<usize> {
        rows.iter()
            .copied()
            .filter(|r| llc_kib(&cpus[*r]) == *size)
            .collect()
    };
    let groups: Vec<Vec<usize>> = sizes.iter().map(of_size).collect();
    let best = |rows: &Vec<usize>| {
        rows.iter()
            .filter_map(|r| cpus[*r].max_khz)
            .max()
            .map(|khz| khz as f64)
    };
    let clocks: Vec<f64> = groups.iter().filter_map(best).collect();
    let (low, high) = clocks.iter().fold((f64::MAX, 0.0f64), |(low, high), c| {
        (low.min(*c), high.max(*c))
    });
    if platform.title.contains("X3D") || high > low * LLC_CLOCK_GAP {
        groups
    } else {
        vec![rows]
    }
}

/// Splits where neighbouring figures are more than `gap` apart; CPUs without a figure stay with the slowest.
fn by_gap(
    cpus: &[CpuFacts],
    rows: Vec<usize>,
    gap: f64,
    figure: impl Fn(&CpuFacts) -> Option<u64>,
) -> Vec<Vec<usize>> {
    let of = |row: usize| figure(&cpus[row]).unwrap_or(0);
    let mut figures: Vec<u64> = rows.iter().map(|r| of(*r)).filter(|f| *f > 0).collect();
    figures.sort_unstable();
    let jumps = figures
        .windows(2)
        .filter(|w| w[1] as f64 > w[0] as f64 * gap);
    let bounds: Vec<u64> = jumps.map(|w| w[1]).collect();
    let mut groups = vec![Vec::new(); bounds.len() + 1];
    for row in rows {
        groups[bounds.partition_point(|b| *b <= of(row))].push(row);
    }
    groups
}

fn class(platform: &Platform, cpus: &[CpuFacts], rows: Vec<usize>) -> Class {
    let first = &cpus[rows[0]];
    let uarch = match platform.vendor {
        Vendor::Intel { family, model } => x86::intel(family, model, first),
        Vendor::Amd { family, model } => x86::amd(family, model),
        Vendor::Arm => arm::arm(first.part),
        Vendor::Other => &GENERIC,
    };
    Class {
        name: uarch.name.to_owned(),
        uarch,
        khz: rows.iter().filter_map(|r| cpus[*r].max_khz).min(),
        capacity: rows.iter().filter_map(|r| cpus[*r].capacity).max(),
        llc_kib: rows.iter().map(|r| llc_kib(&cpus[*r])).max().unwrap_or(0),
        levels: levels(first),
        rows,
    }
}
