//! Interval analysis: from a recorded behaviour and a kind of core to a rate table.
//!
//! Input: a [`Behaviour`], a [`Class`], its core type. Output: a [`Table`]. After Karkhanis and Smith (A first-order
//! superscalar processor model, ISCA 2004) and Eyerman, Eeckhout, Karkhanis and Smith (A mechanistic performance model for
//! superscalar out-of-order processors, TOCS 2009):
//!
//! - Between miss events a core dispatches at the lower of its width and what dependencies allow in its window; unit-latency
//!   parallelism is divided by the mean latency (Little's law).
//! - A mispredicted branch costs the refill of the front end and its resolution: the window's drain up to the branch.
//! - A miss stalls for its latency less what the window covers while it fills, divided by the misses that overlap. In-order
//!   cores cover nothing.

use countersteer_core::machine::CoreType;
use countersteer_core::profile::{Behaviour, MissCurve, Mix};

use super::class::Class;
use super::curves;
use super::table::{COLD_STEPS, LevelTable, Point, Table, limit};

/// Latency of scalar floating-point and of vector instructions beyond one cycle, on the cores modelled 3 to 4 cycles.
const FP_EXTRA_CYCLES: f64 = 3.0;
const SIMD_EXTRA_CYCLES: f64 = 2.0;
/// A miss finds the window on average half full, so half a window covers it (between none for the oldest instruction and
/// all for the youngest, Karkhanis and Smith section 4.3).
const COVER: f64 = 0.5;
/// A mispredicted branch lies on average half-way down the critical path of what was dispatched before it.
const RESOLVE: f64 = 0.5;
/// Window entries per miss buffer (the line fill buffers of Skylake, Zen and Golden Cove: 224/12, 256/22, 512/16).
const WINDOW_PER_BUFFER: f64 = 20.0;

/// The parts of a core that a thread has to itself while `threads` siblings run.
struct Core<'a> {
    behaviour: &'a Behaviour,
    window: f64,
    /// Cycles that the window covers per instruction-window of work.
    cover: f64,
    buffers: f64,
}

impl Core<'_> {
    fn overlap(&self, lines: f64) -> f64 {
        curves::overlap(&self.behaviour.mlp, self.window, lines).min(self.buffers)
    }

    /// Cycles covered of each of `misses` (per instruction): a window covers once, however many clusters of misses it has.
    fn covered(&self, latency: f64, misses: f64, overlap: f64) -> f64 {
        let clusters = (misses * self.window / overlap).max(1.0);
        (self.cover / clusters).min(latency)
    }

    fn penalty(&self, latency: f64, misses: f64, lines: f64) -> f64 {
        let overlap = self.overlap(lines);
        (latency - self.covered(latency, misses, overlap)) / overlap
    }
}

/// Makes the table of a behaviour on a class of CPUs.
pub fn table(behaviour: &Behaviour, core_type: &CoreType, class: &Class) -> Table {
    let siblings = f64::from(class.threads);
    let window = (f64::from(core_type.window) / siblings).max(1.0);
    let latency = mean_latency(&behaviour.mix, core_type.l1d.latency_cycles);
    let ilp = curves::ilp(&behaviour.ilp, window) / latency;
    let base = limit(core_type.dispatch_width, ilp);
    let core = Core {
        behaviour,
        window,
        cover: if core_type.in_order {
            0.0
        } else {
            COVER * window * base
        },
        buffers: (window / WINDOW_PER_BUFFER).max(2.0),
    };
    let curve = MissCurve::from_locality(&behaviour.locality);
    let l1_lines = core_type.l1d.size_kib * 16.0 / siblings;
    let l1_misses = curves::private_misses(&curve, l1_lines, core_type.l1d.ways);
    let mut fixed =
        behaviour.branch_mpki / 1000.0 * branch_penalty(behaviour, core_type, window, latency);
    let mut lines = l1_lines;
    let mut misses = l1_misses;
    if let Some(l2) = core_type.l2 {
        lines = l2.size_kib * 16.0 / siblings;
        misses = curves::private_misses(&curve, lines, l2.ways).min(l1_misses);
        fixed += (l1_misses - misses) * core.penalty(l2.latency_cycles, l1_misses, l1_lines);
    }
    let mix = behaviour.mix;
    let power = core_type.power;
    let first_latency = class
        .levels
        .first()
        .map_or(class.memory_cycles, |l| l.latency_cycles);
    let mut table = Table {
        base,
        ilp,
        width: core_type.dispatch_width,
        fixed,
        private_misses: misses,
        private_references: if core_type.l2.is_some() {
            l1_misses
        } else {
            mix.loads + mix.stores
        },
        near_cycles: core.penalty(first_latency, misses, lines),
        far_cycles: core.penalty(class.memory_cycles, misses, lines),
        useful_lines: lines.min(curve.footprint_lines()),
        branches: mix.branches,
        branch_misses: behaviour.branch_mpki / 1000.0,
        instruction_nj: power.instruction_nj + mix.fp * power.fp_nj + mix.simd * power.simd_nj,
        active_w: power.active_w / siblings,
        lines_per_miss: 1.0 + mix.stores / (mix.loads + mix.stores).max(1e-9),
        ..Table::default()
    };
    table.cold = cold_misses(&curve, table.useful_lines);
    add_levels(&mut table, class, &core, &curve, lines);
    table
}

fn mean_latency(mix: &Mix, l1_cycles: f64) -> f64 {
    1.0 + mix.loads * (l1_cycles - 1.0).max(0.0)
        + mix.fp * FP_EXTRA_CYCLES
        + mix.simd * SIMD_EXTRA_CYCLES
}

/// Front-end refill plus resolution.
///
/// At a misprediction the window holds what was dispatched since the last one, but never more than it takes to keep the
/// dispatch width busy; the branch resolves when the part of it that it depends on has executed.
fn branch_penalty(behaviour: &Behaviour, core_type: &CoreType, window: f64, latency: f64) -> f64 {
    if core_type.in_order {
        return core_type.branch_penalty_cycles;
    }
    let interval = 1000.0 / behaviour.branch_mpki.max(1e-3);
    let mut held = window.min(interval);
    // Halving finds the occupancy that sustains the width closely enough for a mean.
    while held > 1.0 && curves::ilp(&behaviour.ilp, held / 2.0) / latency > core_type.dispatch_width
    {
        held /= 2.0;
    }
    let drain = held / (curves::ilp(&behaviour.ilp, held) / latency);
    core_type.branch_penalty_cycles + RESOLVE * drain
}

/// Additional misses while the private caches fill from `c0` to `useful` lines: filling by `dc` takes dc / miss(c)
/// instructions, each of which misses miss(c) instead of miss(useful) times.
fn cold_misses(curve: &MissCurve, useful: f64) -> [f64; COLD_STEPS + 1] {
    let mut cold = [0.0; COLD_STEPS + 1];
    let warm = curve.mpki(useful);
    let step = useful / COLD_STEPS as f64;
    for i in (0..COLD_STEPS).rev() {
        let miss = curve.mpki((i as f64 + 0.5) * step).max(1e-9);
        cold[i] = cold[i + 1] + step * (1.0 - (warm / miss).min(1.0));
    }
    cold
}

fn add_levels(
    table: &mut Table,
    class: &Class,
    core: &Core,
    curve: &MissCurve,
    private_lines: f64,
) {
    let entering = table.private_misses;
    let memory = |misses: f64, lines: f64| {
        let overlap = core.overlap(lines);
        let covered = core.covered(class.memory_cycles, misses, overlap);
        (
            -misses * covered / overlap,
            misses * class.memory_cycles / overlap,
        )
    };
    if class.levels.is_empty() {
        let (a, b) = memory(entering, private_lines);
        table.fixed += a;
        table.memory = b;
    }
    for (k, level) in class.levels.iter().enumerate() {
        let next = class.levels.get(k + 1);
        let hit = if k == 0 { table.near_cycles } else { 0.0 };
        table.push(LevelTable::new(private_lines, level.lines, |lines| {
            let miss = (curve.mpki(lines) / 1000.0).min(entering);
            let hits = (entering - miss) * hit;
            let (a, b) = match next {
                Some(next) => (hits, core.penalty(next.latency_cycles, miss, lines)),
                None => {
                    let (a, b) = memory(miss, lines);
                    (hits + a, b)
                }
            };
            Point { miss, a, b }
        }));
    }
}
