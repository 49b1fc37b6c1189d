//! Speed-up factors: instructions per second on the fastest core type, divided by those on the slowest.
//!
//! There are three sources (PMCSched, section 4; PMCTrack, section 4.1). The first is a model over counters of the current core
//! type: trained ([`super::trained`]), or untrained for core types without a trained one. The second is the thread's own speeds,
//! measured when it last ran on each type ("IPC sampling"). The third is the true value, which only a simulator has.

use std::sync::Arc;

use super::{MetricDef, MetricSource, ReadBy, Round};
use crate::by_id::ByThread;
use crate::sample::Event;
use crate::topology::Topology;
use crate::units::{CoreTypeId, ThreadId};

pub(super) const SF_SAMPLED: MetricDef = MetricDef {
    name: "sf_sampled",
    unit: "ratio",
    prose: "speed-up factor from the thread's own speed when it last ran on the fastest and the slowest type",
    needs: &[Event::Instructions],
    helps: &[],
    read_by: ReadBy::Source(|topology| Box::new(SampledFactor::new(topology))),
};

pub(super) const SF_ORACLE: MetricDef = MetricDef {
    name: "sf_oracle",
    unit: "ratio",
    prose: "true speed-up factor of the current phase; only in the simulator",
    needs: &[Event::SfTrue],
    helps: &[],
    read_by: ReadBy::Source(|_| Box::new(Oracle(Event::SfTrue))),
};

pub(super) const EF_ORACLE: MetricDef = MetricDef {
    name: "ef_oracle",
    unit: "ratio",
    prose: "true efficiency factor of the current phase; only in the simulator",
    needs: &[Event::EfTrue],
    helps: &[],
    read_by: ReadBy::Source(|_| Box::new(Oracle(Event::EfTrue))),
};

/// Metric source that returns the true value, which a simulator reports as an event.
struct Oracle(Event);

impl MetricSource for Oracle {
    fn read(&mut self, round: &Round<'_>) -> Option<f64> {
        round.sample.counts.get(self.0)
    }
}

pub(super) struct SampledFactor {
    topology: Arc<Topology>,
    /// Instructions per second of each thread by core type; `None` for a type on which the thread has not run.
    speeds: ByThread<Box<[Option<f64>]>>,
}

impl SampledFactor {
    pub(super) fn new(topology: &Arc<Topology>) -> Self {
        Self {
            topology: Arc::clone(topology),
            speeds: ByThread::default(),
        }
    }
}

impl MetricSource for SampledFactor {
    fn read(&mut self, round: &Round<'_>) -> Option<f64> {
        let sample = round.sample;
        let seconds = sample.running.as_secs_f64();
        let types = self.topology.core_types.len();
        let speeds = (self.speeds).entry(round.thread, || vec![None; types].into());
        if seconds > 0.0 {
            let ips = sample.counts.get(Event::Instructions).map(|i| i / seconds);
            let slot = &mut speeds[sample.core_type.index()];
            *slot = ips.or(*slot);
        }
        let (fast, slow) = self.topology.extremes();
        Some(speeds[fast.index()]? / speeds[slow.index()].filter(|s| *s > 0.0)?)
    }

    fn forget(&mut self, thread: ThreadId) {
        self.speeds.remove(thread);
    }
}

/// Untrained model. It splits the measured cycles into base, branch and memory parts by the core type's parameters. Then it adds
/// up the cost of these parts on another core type. This is interval analysis (Karkhanis and Smith 2004, Eyerman et al. 2009),
/// applied to core types as in performance impact estimation (Van Craeynest et al. 2012). No parameter is trained.
///
/// - Misses overlap if they are within one instruction window and independent of each other. With m misses per instruction, a
///   window of W instructions contains mW misses; the independent fraction of them is a property of the thread. The stall per
///   miss is the latency minus half a window of dispatched work, divided by the number of overlapping misses.
/// - The base part and the independent fraction cannot both follow from one number of cycles. If there are fewer cycles than
///   typical, both are reduced by the same factor, down to the dispatch width. If there are more, they are attributed to
///   dependent misses as far as possible, and the rest to the base part.
/// - Types differ in the cache before the last-level cache: the core's own, or one that a cluster shares. References to the last
///   level are therefore compared, not misses of the private caches.
/// - The base part scales with the dispatch width to the extent that the thread used this width. The rest scales with the
///   dependencies that the window exposes.
/// - If the other type has a cache of another size, the number of misses falls with the square root of the size (Hartstein et
///   al. 2006).
///
/// Assumption: references to and misses of the last-level cache are counted in the same way on all types. The model is wrong for
/// threads whose working set fits the cache of one type and not that of the other. It ignores strengths of a core type that
/// intervals do not contain (prefetching, vector units).
pub(super) struct UntrainedModel {
    types: Vec<Type>,
    fast: usize,
    slow: usize,
}

/// Parameters of a core type that the untrained model uses.
struct Type {
    freq_ghz: f64,
    width: f64,
    window: f64,
    in_order: bool,
    branch_penalty: f64,
    /// Latency of the shared last-level cache in cycles; `None` if the last-level cache is private to the core.
    llc: Option<f64>,
    memory: f64,
    /// Number of lines of the cache before the last-level cache: the core's own, or one that a cluster shares.
    near_lines: f64,
    /// Index and size in lines of the last-level cache.
    last_level: (usize, f64),
}

/// Events of a thread per instruction, from counters.
#[derive(Clone, Copy)]
struct CounterDemand {
    llc_references: f64,
    llc_misses: f64,
    branch_misses: f64,
}

/// Fraction of the misses in a window that are independent of each other, for a typical thread.
const INDEPENDENT: f64 = 0.5;
/// Fraction of the window that is occupied at a miss, on average.
const COVER: f64 = 0.5;
/// Tolerance: relative error of the stall cycles at which the root search stops.
const CLOSE: f64 = 5e-3;
/// Number of window entries per miss buffer on current cores; the miss buffers limit the number of overlapping misses.
const WINDOW_PER_BUFFER: f64 = 20.0;

/// Returns the source of a thread's speed-up factor by the untrained model alone, which does not abstain.
#[must_use]
pub fn untrained(topology: &Topology) -> Box<dyn MetricSource> {
    Box::new(UntrainedModel::new(topology))
}

impl MetricSource for UntrainedModel {
    fn read(&mut self, round: &Round<'_>) -> Option<f64> {
        if !round.is_whole() {
            return None;
        }
        let cpi = round.ratio(Event::Cycles, Event::Instructions)?;
        let per_instruction = |event| round.ratio(event, Event::Instructions).unwrap_or(0.0);
        let demand = CounterDemand {
            llc_references: round
                .ratio(Event::LlcReferences, Event::Instructions)
                .unwrap_or_else(|| per_instruction(Event::L2Misses)),
            llc_misses: per_instruction(Event::LlcMisses),
            branch_misses: per_instruction(Event::BranchMisses),
        };
        let here = self.types.get(round.sample.core_type.index())?;
        let (base, independent) = here.split(cpi, &demand);
        let speed = |there: &Type| {
            let demand = demand.moved(here, there);
            let base = here.base_elsewhere(base, there);
            let cpi = base
                + demand.branch_misses * there.branch_penalty
                + there.stalls(&demand, base, independent);
            there.freq_ghz / cpi
        };
        let sf = speed(self.types.get(self.fast)?) / speed(self.types.get(self.slow)?);
        (sf.is_finite() && sf > 0.0).then_some(sf)
    }
}

impl UntrainedModel {
    pub(super) fn new(topology: &Topology) -> Self {
        let (fast, slow) = topology.extremes();
        let types = (0..topology.core_types.len())
            .map(|row| Type::new(topology, CoreTypeId::from_index(row)));
        Self {
            types: types.collect(),
            fast: fast.index(),
            slow: slow.index(),
        }
    }

    /// True if the fastest and the slowest type are the same core at different frequencies; their caches may differ.
    pub(super) fn scales_clock_only(&self) -> bool {
        let [fast, slow] = [self.fast, self.slow].map(|row| self.types[row].design());
        fast == slow
    }
}

impl CounterDemand {
    /// Returns the thread's events per instruction, rescaled to the cache sizes of core type `there`.
    fn moved(self, here: &Type, there: &Type) -> Self {
        let rule = |from: f64, to: f64| {
            if from > 0.0 && to > 0.0 {
                (from / to).sqrt()
            } else {
                1.0
            }
        };
        let same = here.last_level.0 == there.last_level.0;
        let last = if same {
            1.0
        } else {
            rule(here.last_level.1, there.last_level.1)
        };
        let llc_references = self.llc_references * rule(here.near_lines, there.near_lines);
        Self {
            llc_references,
            llc_misses: (self.llc_misses * last).min(llc_references.max(self.llc_misses)),
            ..self
        }
    }
}

impl Type {
    /// Parameters of the core's design, which do not depend on its frequency.
    const fn design(&self) -> (bool, [f64; 3]) {
        (
            self.in_order,
            [self.width, self.window, self.branch_penalty],
        )
    }

    fn new(topology: &Topology, id: CoreTypeId) -> Self {
        let core = &topology.core_types[id.index()];
        let cpu = topology.cpus.iter().find(|c| c.core_type == id);
        let last = cpu.and_then(|c| topology.caches.get(c.caches.last()?.index()));
        let inner = cpu.and_then(|c| topology.caches.get(c.caches.iter().rev().nth(1)?.index()));
        let memory = cpu.and_then(|c| topology.memory.get(c.memory as usize));
        Self {
            freq_ghz: core.freq_ghz,
            width: core.dispatch_width.max(1.0),
            window: f64::from(core.window.max(1)),
            in_order: core.in_order,
            branch_penalty: core.branch_penalty_cycles,
            llc: last
                .filter(|c| !c.private)
                .map(|c| c.latency_ns * core.freq_ghz),
            memory: memory.map_or(0.0, |m| m.latency_ns) * core.freq_ghz,
            near_lines: inner.map_or(core.l2.unwrap_or(core.l1d).size_kib * 16.0, |c| c.lines),
            last_level: last.map_or((0, 0.0), |c| (c.id.index(), c.lines)),
        }
    }

    /// Splits the measured cycles per instruction. Returns the base part, and the independent fraction of the misses.
    fn split(&self, cpi: f64, demand: &CounterDemand) -> (f64, f64) {
        let floor = 1.0 / self.width;
        // The base CPI of a typical thread lies between 1/width and 1, a chain of dependent instructions.
        let typical = floor.sqrt();
        let here = (cpi - demand.branch_misses * self.branch_penalty).max(floor);
        let alone = self.stalls(demand, typical, 0.0);
        let usual = self.stalls(demand, typical, INDEPENDENT);
        let factor = here / (typical + usual);
        let stalls = if factor > 1.0 {
            (here - typical).min(alone)
        } else {
            (usual * factor).min(here - floor)
        };
        let base = here - stalls;
        // Without misses, or on a core that overlaps none, the independent fraction cannot be determined.
        if alone < 0.05 * here {
            return (base, INDEPENDENT);
        }
        (base, self.independence(demand, base, stalls))
    }

    /// Returns the independent fraction of the misses for which the model predicts `stalls` stall cycles per instruction.
    fn independence(&self, demand: &CounterDemand, base: f64, stalls: f64) -> f64 {
        // The stall cycles are almost linear in the fraction of its latency that each miss pays, so the false-position method
        // needs few steps.
        let in_window = demand.llc_references.max(demand.llc_misses) * self.window;
        let part = |share: f64| ((1.0 / share - 1.0) / in_window).clamp(0.0, 1.0);
        let excess = |share: f64| self.stalls(demand, base, part(share)) - stalls;
        let mut few = 1.0 / (1.0 + in_window);
        let mut all = 1.0;
        let mut under = excess(few);
        let mut over = excess(all);
        if under >= 0.0 || over <= 0.0 {
            return if under >= 0.0 { 1.0 } else { 0.0 };
        }
        for _ in 0..8 {
            let share = (few * over - all * under) / (over - under);
            let left = excess(share);
            if left.abs() < CLOSE * stalls {
                return part(share);
            }
            // The value at the unchanged end of the bracket is halved (Illinois method). Otherwise that end would never move.
            if left > 0.0 {
                (all, over, under) = (share, left, under / 2.0);
            } else {
                (few, under, over) = (share, left, over / 2.0);
            }
        }
        part((few + all) / 2.0)
    }

    /// Returns the stall cycles per instruction that misses cause on this core type.
    fn stalls(&self, demand: &CounterDemand, base: f64, independent: f64) -> f64 {
        let cover = if self.in_order {
            0.0
        } else {
            COVER * self.window * base
        };
        let stall = |misses: f64, latency: f64| {
            let in_window = misses * self.window;
            let overlap =
                (1.0 + independent * in_window).min((self.window / WINDOW_PER_BUFFER).max(2.0));
            // A window hides the latency only once, even if its misses form several clusters.
            let clusters = (in_window / overlap).max(1.0);
            misses * (latency - (cover / clusters).min(latency)) / overlap
        };
        let hits = (demand.llc_references - demand.llc_misses).max(0.0);
        let on_chip = self.llc.unwrap_or(0.0);
        stall(hits, on_chip) + stall(demand.llc_misses, on_chip + self.memory)
    }

    /// Returns the base part of the cycles per instruction on another core type.
    fn base_elsewhere(&self, base: f64, there: &Self) -> f64 {
        let width = self.width / there.width;
        let window = (self.window / there.window).sqrt().sqrt();
        let filled = (1.0 / (base * self.width)).clamp(0.0, 1.0);
        let scaled = base * (filled * width + (1.0 - filled) * window);
        let in_order = match (self.in_order, there.in_order) {
            (false, true) => 1.3,
            (true, false) => 1.0 / 1.3,
            _ => 1.0,
        };
        (scaled * in_order).max(1.0 / there.width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Sample, Samples};
    use crate::testing;
    use crate::units::{CpuId, Nanos};

    /// Returns a sample with cycles, references to and misses of the last-level cache, and mispredictions, each per 1,000
    /// instructions.
    fn sample(core_type: u32, cycles: f64, references: f64, misses: f64, branches: f64) -> Samples {
        let mut counts = Vec::new();
        for (event, value) in [
            (Event::Instructions, 1e3),
            (Event::Cycles, cycles),
            (Event::LlcReferences, references),
            (Event::LlcMisses, misses),
            (Event::BranchMisses, branches),
        ] {
            counts.push((event, value));
        }
        let thread = ThreadId(0);
        let length = Nanos::from_millis(1);
        let core_type = CoreTypeId(core_type);
        Samples::of(
            Sample::of_thread(thread, CpuId(0), core_type, length, length),
            1,
            &counts,
        )
    }

    /// Returns two core types that differ only in frequency: 3 and 1.5 GHz.
    fn two_clocks() -> Topology {
        let mut topology = (*testing::topology(testing::SMT)).clone();
        topology.core_types[1] = topology.core_types[0].clone();
        topology.core_types[1].freq_ghz = topology.core_types[0].freq_ghz / 2.0;
        topology
    }

    #[test]
    fn without_misses_only_clocks_and_widths_count() {
        let mut model = UntrainedModel::new(&two_clocks());
        let sf = model
            .read(&Round::of(&sample(0, 600.0, 0.0, 0.0, 5.0)).unwrap())
            .unwrap();
        assert!((sf - 2.0).abs() < 1e-9, "{sf}");
        // Full width on the big core: 4 wide at 3 GHz against 2 wide at 2 GHz.
        let mut model = UntrainedModel::new(&testing::topology(testing::SMT));
        let sf = model
            .read(&Round::of(&sample(0, 250.0, 0.0, 0.0, 0.0)).unwrap())
            .unwrap();
        assert!((sf - 3.0).abs() < 1e-9, "{sf}");
    }

    #[test]
    fn issue_in_order_makes_dependences_longer() {
        let mut topology = two_clocks();
        topology.core_types[1].in_order = true;
        let mut model = UntrainedModel::new(&topology);
        for core_type in [0, 1] {
            let sf = model
                .read(&Round::of(&sample(core_type, 600.0, 0.0, 0.0, 0.0)).unwrap())
                .unwrap();
            assert!(sf > 2.5, "half the clock and in order: {sf}");
        }
    }

    #[test]
    fn time_in_memory_does_not_depend_on_the_clock() {
        // Twenty dependent misses at 90 ns behind 500 cycles of base: 1.97 us at 3 GHz, 2.13 us at 1.5 GHz. The window hides
        // part of each miss in proportion to the base, at either clock.
        let mut model = UntrainedModel::new(&two_clocks());
        let typical = 500.0;
        let covered = 96.0 * 0.5 / (20.0 * 0.192);
        let fast = typical + 20.0 * (270.0 - covered);
        let slow = typical + 20.0 * (135.0 - covered);
        let truth = slow * 2.0 / fast;
        for (core_type, cycles) in [(0, fast), (1, slow)] {
            let sf = model
                .read(&Round::of(&sample(core_type, cycles, 20.0, 20.0, 0.0)).unwrap())
                .unwrap();
            assert!(
                (sf / truth - 1.0).abs() < 0.01,
                "from type {core_type}: {sf}, in truth {truth}"
            );
        }
    }

    #[test]
    fn more_misses_mean_less_to_gain_from_the_clock() {
        let mut model = UntrainedModel::new(&two_clocks());
        let sf = |misses: f64| {
            model
                .read(&Round::of(&sample(0, 500.0 + misses * 200.0, misses, misses, 1.0)).unwrap())
                .unwrap()
        };
        let factors: Vec<f64> = [0.0, 1.0, 5.0, 20.0, 50.0].map(sf).to_vec();
        assert!(factors.is_sorted_by(|a, b| a >= b), "{factors:?}");
        assert!(
            factors.iter().all(|sf| (1.0..=2.0 + 1e-9).contains(sf)),
            "{factors:?}"
        );
    }

    #[test]
    fn a_sample_that_retired_nothing_tells_nothing() {
        let mut empty = sample(0, 100.0, 0.0, 0.0, 0.0);
        empty.set(0, Event::Instructions, 0.0);
        assert_eq!(
            UntrainedModel::new(&two_clocks()).read(&Round::of(&empty).unwrap()),
            None
        );
    }

    #[test]
    fn own_speeds_make_a_factor_once_both_types_were_seen() {
        let topology = testing::topology(testing::SMT);
        let mut sampled = SampledFactor::new(&topology);
        let mut fast = sample(0, 500.0, 0.0, 0.0, 0.0);
        fast.set(0, Event::Instructions, 3e3);
        assert_eq!(sampled.read(&Round::of(&fast).unwrap()), None);
        let sf = sampled
            .read(&Round::of(&sample(1, 500.0, 0.0, 0.0, 0.0)).unwrap())
            .unwrap();
        assert!((sf - 3.0).abs() < 1e-9, "{sf}");
        sampled.forget(ThreadId(0));
        assert_eq!(sampled.read(&Round::of(&fast).unwrap()), None);
    }
}
