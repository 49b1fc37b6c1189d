//! Speed-up factors: instructions per second on the fastest core type over those on the slowest.
//!
//! Three sources (PMCSched, section 4; PMCTrack, section 4.1): a model over counters of the core type the thread runs on;
//! its own speeds, measured when it last ran on each type ("IPC sampling"); and the truth, which only a simulator has.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{MetricDef, MetricSource};
use crate::machine::CoreType;
use crate::sample::{Event, Sample};
use crate::topology::Topology;
use crate::units::{CoreTypeId, ThreadId};

pub(super) const SF_MODEL: MetricDef = MetricDef {
    name: "sf",
    unit: "ratio",
    prose: "speed-up factor predicted from counters of the core type the thread runs on",
    source: |topology| Box::new(Model { topology: Arc::clone(topology) }),
};

pub(super) const SF_SAMPLED: MetricDef = MetricDef {
    name: "sf_sampled",
    unit: "ratio",
    prose: "speed-up factor from the thread's own speed when it last ran on the fastest and the slowest type",
    source: |topology| Box::new(Sampled { topology: Arc::clone(topology), speeds: BTreeMap::new() }),
};

pub(super) const SF_ORACLE: MetricDef = MetricDef {
    name: "sf_oracle",
    unit: "ratio",
    prose: "true speed-up factor of the current phase; only in the simulator",
    source: |_| Box::new(Oracle),
};

struct Oracle;

impl MetricSource for Oracle {
    fn read(&mut self, sample: &Sample) -> Option<f64> {
        sample.counts.get(Event::SfTrue)
    }
}

struct Sampled {
    topology: Arc<Topology>,
    /// Instructions per second by core type.
    speeds: BTreeMap<ThreadId, Vec<Option<f64>>>,
}

impl MetricSource for Sampled {
    fn read(&mut self, sample: &Sample) -> Option<f64> {
        let seconds = sample.running.as_secs_f64();
        let types = self.topology.core_types.len();
        let speeds = self.speeds.entry(sample.thread).or_insert_with(|| vec![None; types]);
        if seconds > 0.0 {
            let ips = sample.counts.get(Event::Instructions).map(|i| i / seconds);
            let slot = &mut speeds[sample.core_type.index()];
            *slot = ips.or(*slot);
        }
        let (fast, slow) = self.topology.extremes();
        Some(speeds[fast.index()]? / speeds[slow.index()].filter(|s| *s > 0.0)?)
    }

    fn forget(&mut self, thread: ThreadId) {
        self.speeds.remove(&thread);
    }
}

/// Splits the cycles seen here into base, branch and memory parts by the core type's own figures, then adds the parts up as
/// another core type would pay for them (interval analysis; the idea of performance impact estimation, Van Craeynest et
/// al. 2012).
///
/// Assumes: the miss counters mean the same on all types; the base part scales with the dispatch width as far as the thread
/// used it; out-of-order windows overlap misses in proportion to the square root of their size.
struct Model {
    topology: Arc<Topology>,
}

/// What a thread does, per instruction, as far as counters tell.
struct Demand {
    l2_misses: f64,
    llc_misses: f64,
    branch_misses: f64,
}

impl MetricSource for Model {
    fn read(&mut self, sample: &Sample) -> Option<f64> {
        let cpi = sample.counts.ratio(Event::Cycles, Event::Instructions)?;
        let per_instruction = |event| sample.counts.ratio(event, Event::Instructions).unwrap_or(0.0);
        let demand = Demand {
            l2_misses: per_instruction(Event::L2Misses),
            llc_misses: per_instruction(Event::LlcMisses),
            branch_misses: per_instruction(Event::BranchMisses),
        };
        let here = sample.core_type;
        let (branch, memory) = self.stalls(here, &demand);
        // Counters are noisy and overlap is guessed: at least the width's worth of cycles must be left as base.
        let floor = 1.0 / self.core(here).dispatch_width;
        let base = (cpi - branch - memory).max(floor);
        let (fast, slow) = self.topology.extremes();
        let speed = |core_type| {
            let (branch, memory) = self.stalls(core_type, &demand);
            let cpi = self.base_elsewhere(base, here, core_type) + branch + memory;
            self.core(core_type).freq_ghz / cpi
        };
        Some(speed(fast) / speed(slow))
    }
}

impl Model {
    fn core(&self, id: CoreTypeId) -> &CoreType {
        &self.topology.core_types[id.index()]
    }

    /// (branch, memory) cycles per instruction on a core type.
    fn stalls(&self, id: CoreTypeId, demand: &Demand) -> (f64, f64) {
        let core = self.core(id);
        let branch = demand.branch_misses * core.branch_penalty_cycles;
        let Some(cpu) = self.topology.cpus.iter().find(|c| c.core_type == id) else { return (branch, 0.0) };
        let llc = &self.topology.caches[cpu.caches.last().map_or(0, |c| c.index())];
        let memory_ns = self.topology.memory[cpu.memory as usize].latency_ns;
        let overlap = overlap(core);
        let on_chip = if llc.private { 0.0 } else { demand.l2_misses * llc.latency_ns * core.freq_ghz };
        (branch, (on_chip + demand.llc_misses * memory_ns * core.freq_ghz) / overlap)
    }

    /// The base part of the cycles on another core type.
    fn base_elsewhere(&self, base: f64, here: CoreTypeId, there: CoreTypeId) -> f64 {
        let (from, to) = (self.core(here), self.core(there));
        // What the thread cannot fill of this core's width it cannot fill elsewhere either; what limits it is split
        // between width and dependences, which a smaller window exposes more of.
        let width = from.dispatch_width / to.dispatch_width;
        let window = (f64::from(from.window) / f64::from(to.window)).powf(0.25);
        let filled = (1.0 / (base * from.dispatch_width)).clamp(0.0, 1.0);
        let scaled = base * (filled * width + (1.0 - filled) * window);
        let in_order = match (from.in_order, to.in_order) {
            (false, true) => 1.3,
            (true, false) => 1.0 / 1.3,
            _ => 1.0,
        };
        (scaled * in_order).max(1.0 / to.dispatch_width)
    }
}

/// Misses that a core type overlaps, for a typical program.
fn overlap(core: &CoreType) -> f64 {
    if core.in_order { 1.1 } else { (f64::from(core.window) / 24.0).sqrt().max(1.0) }
}
