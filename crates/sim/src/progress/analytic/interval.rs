//! Interval analysis: computes a rate table from a recorded behaviour and a class of CPUs.
//!
//! Input: a [`Behaviour`], a [`CpuClass`] and its core type. Output: a [`RateTable`]. Sources: Karkhanis and Smith (A first-order
//! superscalar processor model, ISCA 2004); Eyerman, Eeckhout, Karkhanis and Smith (A mechanistic performance model for
//! superscalar out-of-order processors, TOCS 2009).
//!
//! - Between miss events, an instruction costs the sum of two parts. One comes from width and ports, the other from dependences
//!   among the instructions that the reorder buffer holds. Latencies of loads and operations lengthen the dependences.
//! - A mispredicted branch costs the refill of the front end and the resolution of the branch.
//! - Misses of the instruction cache and page walks for code stop fetching; translations of data lengthen loads ([`super::reach`]).
//! - A miss that hits in the second level lengthens the dependences through it. A miss of a farther level stalls the core.
//!   The stall is the latency minus the cycles that the reorder buffer covers while it fills, divided by the number of overlapping
//!   misses. In-order cores cover nothing, and their misses stall at every level.
//! - Misses that continue a stream cost nothing if a cache has the line. From memory they cost the time by which the prefetcher's
//!   lines in flight take longer than the base part, about.

use countersteer_model::machine::CoreType;
use countersteer_model::profile::{Behaviour, MissCurve};

use super::class::{CpuClass, MAX_LEVELS};
use super::core_bounds::{CoreBounds, CoreDemand, bounds};
use super::curves;
use super::reach::{ReachCost, reach_cost};
use super::shared_data::BehaviourSharing;
use super::siblings::{Beside, CoreShares};
use super::table::{COLD_STEPS, InstructionDetail, LevelTable, OccupancyPoint, RateTable};

/// Fraction of a window's cycles that covers a miss: the window is half full on average. The fraction is zero if the miss is the
/// oldest instruction, and one if it is the youngest (Karkhanis and Smith, section 4.3).
const COVER: f64 = 0.5;
/// Fraction of a stream's misses that the prefetcher brings in time; the other misses occur at the starts and ends of streams.
const FORESEEN: f64 = 0.9;

/// Lower bound on loads per instruction, which keeps costs per load finite.
const FEW_LOADS: f64 = 1e-3;

/// Model of a core that executes one behaviour while a number of SMT siblings run.
struct IntervalCore<'a> {
    behaviour: &'a Behaviour,
    demand: CoreDemand,
    bounds: CoreBounds,
    /// Cycles per instruction between miss events.
    base: f64,
    /// Cycles of work that the reorder buffer covers during a miss.
    cover: f64,
    /// Latency of the first level in cycles.
    first_cycles: f64,
    in_order: bool,
    /// Costs of misses of the instruction cache and of translation buffers.
    reach: ReachCost,
}

impl<'a> IntervalCore<'a> {
    fn new(
        behaviour: &'a Behaviour,
        core_type: &CoreType,
        class: &CpuClass,
        reach: ReachCost,
    ) -> Self {
        let siblings = f64::from(class.threads);
        let demand = CoreDemand::new(behaviour);
        let bounds = bounds(behaviour, &demand, core_type, siblings);
        let mut core = Self {
            behaviour,
            demand,
            bounds,
            base: 0.0,
            cover: 0.0,
            first_cycles: core_type.l1d.latency_cycles,
            in_order: core_type.in_order,
            reach,
        };
        // In-order cores wait for every translation; on others it is a part of the latency of a load.
        let accesses = (behaviour.mix.loads + behaviour.mix.stores).max(FEW_LOADS);
        let delay = if core.in_order {
            core.reach.fetch += core.reach.translation;
            0.0
        } else {
            core.reach.translation / accesses
        };
        core.lengthen(delay);
        core
    }

    /// Increases the latency of every load by `cycles` on average, which lengthens the dependences.
    fn lengthen(&mut self, cycles: f64) {
        self.bounds.chains.lengthen(cycles);
        self.bounds.crowded.lengthen(cycles);
        self.base = self.bounds.throughput + self.bounds.chains.cycles;
        if !self.in_order {
            self.cover = COVER * self.bounds.retained * self.base;
        }
    }

    /// Returns the behaviour's use of the core resources that SMT siblings share.
    fn shares(&self) -> CoreShares {
        CoreShares {
            uses: self.bounds.uses,
            chains: self.bounds.chains.cycles,
            crowded: self.bounds.crowded.cycles,
            waiting: self.bounds.chains.cycles / self.base,
            wrong_path: self.wrong_path(),
        }
    }

    /// Returns the wrong-path instructions per retired instruction: those dispatched at the base rate while a mispredicted branch
    /// resolves.
    fn wrong_path(&self) -> f64 {
        if self.in_order {
            return 0.0;
        }
        self.behaviour.branch_mpki / 1000.0 * self.bounds.resolution / self.base
    }

    fn overlap(&self, lines: f64) -> f64 {
        curves::overlap(&self.behaviour.mlp, self.bounds.retained, lines)
            .min(self.bounds.miss_buffers)
    }

    /// Returns the cycles of each miss that the reorder buffer covers, at `misses` misses per instruction. A window covers once,
    /// however many clusters of misses it contains.
    fn covered(&self, latency: f64, misses: f64, overlap: f64) -> f64 {
        let clusters = (misses * self.bounds.retained / overlap).max(1.0);
        (self.cover / clusters).min(latency)
    }

    /// Returns the cycles per hit of a second level that is shared. Its latency lengthens the dependences.
    fn next_level(&self, latency: f64, misses: f64, lines: f64) -> f64 {
        if self.in_order {
            return self.penalty(latency, misses, lines);
        }
        let beyond = (latency - self.first_cycles).max(0.0) * (1.0 - self.foreseen(lines));
        self.bounds.chains.per_load_cycle * beyond / self.behaviour.mix.loads.max(FEW_LOADS)
    }

    /// Returns the cycles per miss of a cache of `lines` lines if the misses hit in the next level after `latency` cycles.
    fn penalty(&self, latency: f64, misses: f64, lines: f64) -> f64 {
        let overlap = self.overlap(lines);
        let demanded = 1.0 - self.foreseen(lines);
        let beyond = (latency - self.first_cycles).max(0.0);
        let blocked = (beyond - self.covered(beyond, misses * demanded, overlap)) / overlap;
        demanded * blocked
    }

    /// Returns the fraction of the misses of a cache of `lines` lines that a prefetcher brings in time.
    fn foreseen(&self, lines: f64) -> f64 {
        if self.bounds.prefetch_lines > 0.0 {
            FORESEEN * self.demand.streamed(lines)
        } else {
            0.0
        }
    }

    /// Returns the cycles per instruction of `misses` misses that go to memory. The first part does not depend on memory load;
    /// the second part is proportional to memory latency.
    fn memory(&self, latency: f64, misses: f64, lines: f64) -> (f64, f64) {
        let overlap = self.overlap(lines);
        let foreseen = self.foreseen(lines);
        let (demanded, streamed) = (misses * (1.0 - foreseen), misses * foreseen);
        let covered = self.covered(latency, demanded, overlap);
        let coming = streamed * latency / self.bounds.prefetch_lines.max(overlap);
        (
            -demanded * covered / overlap + self.late(coming) - coming,
            demanded * latency / overlap + coming,
        )
    }
}

impl IntervalCore<'_> {
    /// Returns the cycles per instruction that the lines of a stream, which take `coming` cycles, add to the base part. Both run
    /// at the same time; the result is a mean of order 4, because bursts of one meet slack of the other.
    fn late(&self, coming: f64) -> f64 {
        let (base, coming) = (self.base * self.base, coming * coming);
        (base * base + coming * coming).sqrt().sqrt() - self.base
    }
}

/// Actual misses of a thread per instruction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MeasuredMisses {
    /// Data accesses per instruction that missed the first-level cache.
    pub first: f64,
    /// Data accesses per instruction that missed all private caches.
    pub private: f64,
    /// Data accesses per instruction that missed each shared level, inner first.
    pub shared: [f64; MAX_LEVELS],
    /// Number of lines that the program holds in each shared level.
    pub held: [f64; MAX_LEVELS],
    /// Mispredicted branches per instruction.
    pub mispredicted: f64,
}

/// Cycles per instruction, by cause.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cycles {
    pub base: f64,
    pub branches: f64,
    /// Cycles for which fetching stops at misses of the instruction cache and at translations of code.
    pub fetch: f64,
    pub memory: f64,
    /// Cycles of dispatch at full width, which `base` includes.
    pub dispatch: f64,
}

impl Cycles {
    pub fn total(&self) -> f64 {
        (self.base + self.branches + self.fetch + self.memory).max(self.dispatch)
    }
}

/// Timing of a behaviour on a class of CPUs, for actual instead of expected misses.
#[derive(Clone, Debug)]
pub struct Timing {
    behaviour: Behaviour,
    core_type: CoreType,
    class: CpuClass,
    shares: CoreShares,
    reach: ReachCost,
}

impl Timing {
    pub fn new(behaviour: &Behaviour, core_type: &CoreType, class: &CpuClass) -> Self {
        let reach = reach_cost(behaviour, core_type, class);
        Self {
            behaviour: behaviour.clone(),
            core_type: core_type.clone(),
            class: class.clone(),
            shares: IntervalCore::new(behaviour, core_type, class, reach).shares(),
            reach,
        }
    }

    /// Returns the behaviour's use of the core resources that SMT siblings share.
    pub fn shares(&self) -> &CoreShares {
        &self.shares
    }

    /// Returns the cycles per instruction with the misses `m` next to the siblings `beside`; `factor` scales the memory latency.
    pub fn cycles(&self, m: &MeasuredMisses, factor: f64, beside: &Beside) -> Cycles {
        let (core_type, class) = (&self.core_type, &self.class);
        let siblings = f64::from(class.threads);
        let mut core = IntervalCore::new(&self.behaviour, core_type, class, self.reach);
        let branches = m.mispredicted * misprediction(core_type, &core.bounds);
        let l1_lines = core_type.l1d.size_kib * 16.0 / siblings;
        let mut lines = l1_lines;
        let mut memory = 0.0;
        if let Some(l2) = core_type.l2 {
            lines = l2.size_kib * 16.0 / siblings;
            let hits = (m.first - m.private).max(0.0);
            if core.in_order {
                memory += hits * core.penalty(l2.latency_cycles, m.first, l1_lines);
            } else {
                let demanded = hits * (1.0 - core.foreseen(l1_lines));
                let beyond = (l2.latency_cycles - core_type.l1d.latency_cycles).max(0.0);
                core.lengthen(beyond * demanded / self.behaviour.mix.loads.max(demanded).max(1e-9));
            }
        }
        let mut before = m.private;
        for (level, cache) in class.levels.iter().enumerate() {
            let miss = m.shared[level].min(before);
            let hit = if level == 0 && core_type.l2.is_none() {
                core.next_level(cache.latency_cycles, before, lines)
            } else {
                core.penalty(cache.latency_cycles, before, lines)
            };
            memory += (before - miss) * hit;
            lines = m.held[level].max(lines);
            before = miss;
        }
        let (fixed, waiting) = core.memory(class.memory_cycles, before, lines);
        let base = if beside.threads > 0.0 {
            core.shares().base(beside)
        } else {
            core.base
        };
        Cycles {
            base,
            branches,
            fetch: core.reach.fetch,
            memory: memory + fixed + waiting * factor,
            dispatch: 1.0 / core_type.dispatch_width,
        }
    }
}

/// Creates the rate table of a behaviour on a class of CPUs.
pub fn table(behaviour: &Behaviour, core_type: &CoreType, class: &CpuClass) -> RateTable {
    let siblings = f64::from(class.threads);
    let reach = reach_cost(behaviour, core_type, class);
    let mut core = IntervalCore::new(behaviour, core_type, class, reach);
    let curve = MissCurve::from_locality(&behaviour.locality);
    let l1_lines = core_type.l1d.size_kib * 16.0 / siblings;
    // SMT siblings use some of the ways of each set.
    let l1_ways = (core_type.l1d.ways / class.threads).max(1);
    let l1_misses = core.demand.first_misses(&curve, l1_lines, l1_ways);
    let mut lines = l1_lines;
    let mut misses = l1_misses;
    let branch_cycles = behaviour.branch_mpki / 1000.0 * misprediction(core_type, &core.bounds);
    let mut fixed = branch_cycles + core.reach.fetch;
    if let Some(l2) = core_type.l2 {
        lines = l2.size_kib * 16.0 / siblings;
        misses = curves::private_misses(&curve, lines, l2.ways).min(l1_misses);
        let hits = l1_misses - misses;
        if core.in_order {
            fixed += hits * core.penalty(l2.latency_cycles, l1_misses, l1_lines);
        } else {
            let demanded = hits * (1.0 - core.foreseen(l1_lines));
            let beyond = (l2.latency_cycles - core_type.l1d.latency_cycles).max(0.0);
            core.lengthen(beyond * demanded / behaviour.mix.loads.max(demanded).max(1e-9));
        }
    }
    let mix = behaviour.mix;
    let power = core_type.power;
    let first_latency = class
        .levels
        .first()
        .map_or(class.memory_cycles, |l| l.latency_cycles);
    let mut table = RateTable {
        base: core.base,
        shares: core.shares(),
        fixed,
        private_misses: misses,
        private_references: if core_type.l2.is_some() {
            l1_misses
        } else {
            mix.loads + mix.stores
        },
        near_cycles: if core_type.l2.is_some() {
            core.penalty(first_latency, misses, lines)
        } else {
            core.next_level(first_latency, misses, lines)
        },
        far_cycles: core.penalty(class.memory_cycles, misses, lines),
        useful_lines: lines.min(curve.footprint_lines()),
        branches: mix.branches,
        branch_misses: behaviour.branch_mpki / 1000.0,
        detail: Some(InstructionDetail {
            mix,
            l1d_misses: l1_misses,
            branch_cycles,
            fetch_cycles: core.reach.fetch,
            dispatch_cycles: 1.0 / core_type.dispatch_width,
        }),
        instruction_nj: class.energy
            * (power.instruction_nj + mix.fp * power.fp_nj + mix.simd * power.simd_nj),
        active_w: class.power * power.active_w / siblings,
        sharing: BehaviourSharing::new(
            behaviour,
            lines,
            class.levels.last().map_or(0.0, |l| l.lines),
        ),
        lines_per_miss: 1.0 + mix.stores / (mix.loads + mix.stores).max(1e-9),
        ..RateTable::default()
    };
    table.cold = cold_misses(&curve, table.useful_lines);
    add_levels(&mut table, class, &core, &curve, lines);
    table
}

/// Returns the cycles of a branch misprediction: front-end refill, and on out-of-order cores also resolution.
fn misprediction(core_type: &CoreType, bounds: &CoreBounds) -> f64 {
    let resolution = if core_type.in_order {
        0.0
    } else {
        bounds.resolution
    };
    core_type.branch_penalty_cycles + resolution
}

/// Returns the additional misses while the private caches fill up to `useful` lines, by the number of lines at the start.
///
/// Filling by `dc` takes dc / miss(c) instructions, each of which misses miss(c) instead of miss(useful) times.
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
    table: &mut RateTable,
    class: &CpuClass,
    core: &IntervalCore,
    curve: &MissCurve,
    private_lines: f64,
) {
    let entering = table.private_misses;
    let memory = |misses: f64, lines: f64| core.memory(class.memory_cycles, misses, lines);
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
            OccupancyPoint { miss, a, b }
        }));
    }
}
