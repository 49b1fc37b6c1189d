//! Classification of CPUs into core types.
//!
//! Input: facts about each CPU. Output: [`CoreClass`]es, fastest first.
//!
//! CPUs are of one type until two known facts differ. A CPU with an unknown fact joins the CPUs that it resembles most. The
//! facts, in order, with their reasons:
//! 1. Another PMU (Intel hybrids), part number (Arm), level-one or level-two size: another type.
//! 2. Fewer cache levels, on hybrids only, and only if the cache folder is complete: another type. A low-power island outside
//!    the ring has the PMU of its siblings but no L3. Elsewhere, a missing level is one that the kernel does not know.
//! 3. Other LLC sizes *and* clocks more than 2 % apart: another type. That is a die with stacked cache. Its kernel may also
//!    report the other die's clock, so the processor's name counts too. LLC sizes alone do not matter: the LLC belongs to the
//!    machine, not to the core.
//! 4. A gap of more than 10 % in the clocks or capacities of one type: another type (compact cores, prime cores). Favoured cores
//!    stay in the type: they clock at most 6 % higher, in small steps.

use countersteer_model::cpuset::CpuSet;

use super::caches::CacheFacts;
use super::cpus::CpuFacts;
use super::platform::{ArmPart, HybridPmu, Platform, Vendor};
use super::uarch::{self, Uarch};

/// Ratio of clocks or capacities that separates types, unless another value lies in between.
const GAP: f64 = 1.10;
/// Ratio for ranks, which spread wider than clocks among favoured cores.
const RANK_GAP: f64 = 1.25;
/// Ratio of clocks that separates types if LLC sizes differ too.
const LLC_CLOCK_GAP: f64 = 1.02;

/// Threshold of the L1 data cache size between big and small cores. All big cores of hybrids so far have 48 KiB and all small
/// ones 32. It serves virtual machines, containers and old kernels, which have no hybrid PMUs.
const BIG_CORE_L1D_KIB: u32 = 40;

/// Core type and its CPUs, as rows of the list of CPUs.
pub(super) struct CoreClass {
    pub(super) name: String,
    pub(super) uarch: &'static Uarch,
    pub(super) rows: Vec<usize>,
    /// Facts that distinguish it from the other types; empty if there is only one type.
    pub(super) why: Vec<String>,
    /// Clock that every core of the type reaches, in kHz.
    pub(super) khz: Option<u64>,
    /// The kernel's capacity of its best core.
    pub(super) capacity: Option<u32>,
    pub(super) llc_kib: u32,
    pub(super) levels: u32,
}

/// CPUs that are equal so far, and the facts that distinguish them from others.
#[derive(Clone, Default)]
struct Alike {
    rows: Vec<usize>,
    why: Vec<String>,
}

/// Fact that may separate CPUs.
struct Fact<'a, V> {
    of: &'a dyn Fn(&CpuFacts) -> Option<V>,
    /// True if two neighbouring values, the lower first, are of different types.
    apart: &'a dyn Fn(V, V) -> bool,
    /// Description of a type by the fact, from its lowest to its highest value.
    words: &'a dyn Fn(V, V) -> String,
}

/// Sorts CPUs into core types, named by their microarchitectures.
pub(super) fn classify(platform: &Platform, cpus: &[CpuFacts]) -> Vec<CoreClass> {
    let all = Alike {
        rows: (0..cpus.len()).collect(),
        why: Vec::new(),
    };
    let groups = by_kind(platform, cpus, vec![all]);
    let groups = by_llc(platform, cpus, groups);
    let groups = by_figures(cpus, groups);
    let mut classes: Vec<CoreClass> = groups
        .into_iter()
        .map(|alike| class(platform, cpus, alike))
        .collect();
    // If the kernel distinguishes neither capacities nor clocks, the larger window is the faster core. Of two dies, the one
    // without stacked cache is faster.
    classes.sort_by_key(|c| {
        (
            std::cmp::Reverse((c.capacity, c.khz, c.uarch.window)),
            c.llc_kib,
        )
    });
    classes
}

/// Splits by facts that are reliable in the kernel: PMU, part, shape of the caches.
fn by_kind(platform: &Platform, cpus: &[CpuFacts], mut groups: Vec<Alike>) -> Vec<Alike> {
    let kind = |cpu: &CpuFacts| hybrid_kind(platform, cpu);
    let hybrid = cpus.iter().any(|cpu| kind(cpu).is_some());
    let with_pmus = cpus.iter().any(|cpu| cpu.pmu.is_some());
    groups = split(
        cpus,
        groups,
        &Fact {
            of: &kind,
            apart: &|_, _| true,
            words: &|kind: HybridPmu, _| match (with_pmus, kind) {
                (true, HybridPmu::Core) => "PMU cpu_core".into(),
                (true, HybridPmu::Atom) => "PMU cpu_atom".into(),
                (true, HybridPmu::LowPower) => "PMU cpu_lowpower".into(),
                (false, HybridPmu::Core) => "level-one cache of a performance core".into(),
                (false, _) => "level-one cache of an efficient core".into(),
            },
        },
    );
    groups = split(
        cpus,
        groups,
        &Fact {
            of: &|cpu| cpu.part,
            apart: &|_, _| true,
            words: &|part: ArmPart, _| {
                format!(
                    "part {:#05x} of implementer {:#04x}",
                    part.number, part.implementer
                )
            },
        },
    );
    for level in [1, 2] {
        let of = |cpu: &CpuFacts| known_kib(cpu, level);
        let words = |kib: u32, _| format!("level-{level} cache of {kib} KiB");
        let apart = |_, _| true;
        groups = split(
            cpus,
            groups,
            &Fact {
                of: &of,
                apart: &apart,
                words: &words,
            },
        );
    }
    split(
        cpus,
        groups,
        &Fact {
            of: &|cpu| Some(levels(cpu)).filter(|_| hybrid && cpu.caches_complete),
            apart: &|_, _| true,
            words: &|levels, _| format!("{levels} levels of cache"),
        },
    )
}

/// Splits by clocks and capacities, or else by the firmware's ranking.
fn by_figures(cpus: &[CpuFacts], groups: Vec<Alike>) -> Vec<Alike> {
    let gap = |least: f64| move |low: u64, high: u64| high as f64 > low as f64 * least;
    let ghz = |low: u64, high: u64| {
        let [low, high] = [low, high].map(|khz| khz as f64 / 1e6);
        if low == high {
            format!("clock of {low} GHz")
        } else {
            format!("clocks of {low} to {high} GHz")
        }
    };
    let clocks = Fact {
        of: &|cpu: &CpuFacts| cpu.max_khz,
        apart: &gap(GAP),
        words: &ghz,
    };
    let capacities = Fact {
        of: &|cpu: &CpuFacts| cpu.capacity.map(u64::from),
        apart: &gap(GAP),
        words: &|_, best| format!("capacity {best}"),
    };
    let ranked = cpus
        .iter()
        .all(|cpu| cpu.max_khz.is_none() && cpu.capacity.is_none());
    let ranks = Fact {
        of: &|cpu: &CpuFacts| cpu.highest_perf.filter(|_| ranked),
        apart: &gap(RANK_GAP),
        words: &|_, best| format!("highest performance {best} by firmware"),
    };
    [clocks, capacities, ranks]
        .iter()
        .fold(groups, |groups, fact| split(cpus, groups, fact))
}

fn by_llc(platform: &Platform, cpus: &[CpuFacts], groups: Vec<Alike>) -> Vec<Alike> {
    let size = |cpu: &CpuFacts| cpu.outer.last().and_then(CacheFacts::known_kib);
    let best = |alike: &Alike| {
        let clocks = alike.rows.iter().filter_map(|row| cpus[*row].max_khz);
        clocks.max().map(|khz| khz as f64)
    };
    let of_group = |alike: Alike| {
        let sizes = Fact {
            of: &size,
            apart: &|_, _| true,
            words: &|kib, _| format!("last-level cache of {kib} KiB"),
        };
        let parts = split(cpus, vec![alike.clone()], &sizes);
        let clocks: Vec<f64> = parts.iter().filter_map(best).collect();
        let (low, high) = clocks.iter().fold((f64::MAX, 0.0f64), |(low, high), c| {
            (low.min(*c), high.max(*c))
        });
        if platform.title.contains("X3D") || high > low * LLC_CLOCK_GAP {
            parts
        } else {
            vec![alike]
        }
    };
    groups.into_iter().flat_map(of_group).collect()
}

/// Splits groups at gaps between known values of a fact. CPUs without a value join the group they resemble most.
fn split<V: Ord + Copy>(cpus: &[CpuFacts], groups: Vec<Alike>, fact: &Fact<'_, V>) -> Vec<Alike> {
    let of_group = |alike: Alike| {
        let value = |row: &usize| (fact.of)(&cpus[*row]);
        let mut values: Vec<V> = alike.rows.iter().filter_map(value).collect();
        values.sort_unstable();
        values.dedup();
        let jumps = values.windows(2).filter(|w| (fact.apart)(w[0], w[1]));
        let bounds: Vec<V> = jumps.map(|w| w[1]).collect();
        if bounds.is_empty() {
            return vec![alike];
        }
        let mut parts = vec![Alike::default(); bounds.len() + 1];
        let (known, unknown): (Vec<usize>, Vec<usize>) =
            alike.rows.iter().partition(|row| value(row).is_some());
        let nth = |value: V| bounds.partition_point(|b| *b <= value);
        for (row, value) in known.iter().filter_map(|row| Some((*row, value(row)?))) {
            parts[nth(value)].rows.push(row);
        }
        for part in &mut parts {
            let values = part.rows.iter().filter_map(value);
            let ends = values.clone().min().zip(values.max());
            part.why.clone_from(&alike.why);
            part.why
                .extend(ends.map(|(low, high)| (fact.words)(low, high)));
        }
        for row in unknown {
            let nearest = most_like(cpus, row, &known);
            if let Some(nearest) = value(&nearest) {
                parts[nth(nearest)].rows.push(row);
            }
        }
        parts.iter_mut().for_each(|part| part.rows.sort_unstable());
        parts
    };
    groups.into_iter().flat_map(of_group).collect()
}

/// Returns the row of `among` with the most known facts in common with a CPU; among equals, the nearest by number. Siblings have
/// equal facts and count from the first of them, so that they remain together.
fn most_like(cpus: &[CpuFacts], row: usize, among: &[usize]) -> usize {
    let first = cpus[row].core.lowest().unwrap_or(cpus[row].os);
    let row = cpus.partition_point(|cpu| cpu.os < first);
    let likeness = |other: usize| {
        let [a, b] = [row, other].map(|row| &cpus[row]);
        fn llc(cpu: &CpuFacts) -> Option<&CpuSet> {
            cpu.outer.last().map(|c| &c.cpus)
        }
        [
            common(a.pmu, b.pmu),
            common(a.part, b.part),
            common(known_kib(a, 1), known_kib(b, 1)),
            common(known_kib(a, 2), known_kib(b, 2)),
            common(a.max_khz, b.max_khz),
            common(a.capacity, b.capacity),
            common(a.highest_perf, b.highest_perf),
            common(llc(a), llc(b)),
            common(a.cluster.as_ref(), b.cluster.as_ref()),
        ]
        .iter()
        .sum::<i32>()
    };
    let nearest = among
        .iter()
        .copied()
        .max_by_key(|other| (likeness(*other), std::cmp::Reverse(other.abs_diff(row))));
    nearest.unwrap_or(row)
}

/// Returns 1 for equal values, -1 for different ones, 0 if one is unknown.
fn common<T: PartialEq>(a: Option<T>, b: Option<T>) -> i32 {
    match (a, b) {
        (Some(a), Some(b)) if a == b => 1,
        (Some(_), Some(_)) => -1,
        _ => 0,
    }
}

/// Returns the kind of an Intel hybrid's core; `None` for other processors.
fn hybrid_kind(platform: &Platform, cpu: &CpuFacts) -> Option<HybridPmu> {
    let Vendor::Intel { family, model } = platform.vendor else {
        return None;
    };
    let of_cache = || {
        let l1d = cpu
            .l1d
            .as_ref()
            .filter(|_| uarch::is_hybrid(family, model))?;
        Some(if l1d.known_kib()? >= BIG_CORE_L1D_KIB {
            HybridPmu::Core
        } else {
            HybridPmu::Atom
        })
    };
    cpu.pmu.or_else(of_cache)
}

/// Returns the size of a CPU's level-one or level-two cache; `None` if it is unknown to the kernel.
fn known_kib(cpu: &CpuFacts, level: u32) -> Option<u32> {
    let cache = if level == 1 {
        cpu.l1d.as_ref()
    } else {
        cpu.at_level(level)
    };
    cache.and_then(CacheFacts::known_kib)
}

fn levels(cpu: &CpuFacts) -> u32 {
    cpu.outer.last().map_or(1, |c| c.level)
}

fn llc_kib(cpu: &CpuFacts) -> u32 {
    cpu.outer.last().map_or(0, |c| c.size_kib)
}

fn class(platform: &Platform, cpus: &[CpuFacts], alike: Alike) -> CoreClass {
    let rows = alike.rows;
    let of_rows = || rows.iter().map(|row| &cpus[*row]);
    let part = of_rows().find_map(|cpu| cpu.part);
    let kind = of_rows().find_map(|cpu| hybrid_kind(platform, cpu));
    let uarch = match platform.vendor {
        Vendor::Intel { family, model } => uarch::intel(family, model, kind),
        Vendor::Amd { family, model } => uarch::amd(family, model),
        Vendor::Arm => uarch::arm(part),
        Vendor::Other => uarch::generic(),
    };
    CoreClass {
        name: uarch.name.clone(),
        uarch,
        why: alike.why,
        khz: of_rows().filter_map(|cpu| cpu.max_khz).min(),
        capacity: of_rows().filter_map(|cpu| cpu.capacity).max(),
        llc_kib: of_rows().map(llc_kib).max().unwrap_or(0),
        levels: of_rows().map(levels).max().unwrap_or(1),
        rows,
    }
}
