//! Bounds on the speed of a core between miss events: width, execution ports, dependences.
//!
//! Input: a behaviour and a core type. Output: cycles per instruction that the behaviour's operations need in the busiest part of
//! the core, and that its dependences need.

use countersteer_model::machine::{CorePipeline, CoreType, WorkUnit};
use countersteer_model::profile::{
    Behaviour, CONFLICT_SETS, ChainPoint, MissCurve, Mix, Operation, Operations, Pipeline,
    REFERENCE_LOAD_CYCLES, Resolution,
};

use super::curves;
use super::siblings::{DISPATCH, SHARED_PARTS, Uses};

const UNITS: usize = WorkUnit::ALL.len();
/// Fraction of branches that are taken, if not recorded (median of the shipped profiles).
const TAKEN: f64 = 0.55;
/// Fraction of branches that fuse with the compare before them, if not recorded (median of the shipped profiles).
const FUSED: f64 = 0.65;
/// Resolution of a misprediction, if not recorded: cycles at unit latency, and cycles added by slow loads and by slow operations.
const RESOLUTION: Resolution = Resolution {
    unit: 3.3,
    loads: 6.0,
    operations: 0.34,
};
/// Load latency in cycles that is assumed for a core without a known pipeline.
const GENERIC_LOAD: f64 = 4.0;

/// Work that a behaviour requires of any core, in operations per instruction.
pub(crate) struct CoreDemand {
    mix: Mix,
    pipeline: Pipeline,
}

impl CoreDemand {
    /// Creates the demand of a behaviour. Pipeline data are estimated from the instruction mix if the recording lacks them.
    pub fn new(behaviour: &Behaviour) -> Self {
        Self {
            mix: behaviour.mix,
            pipeline: behaviour
                .pipeline
                .clone()
                .unwrap_or_else(|| estimated(behaviour)),
        }
    }

    /// Returns the operations per instruction of each of [`WorkUnit::ALL`]; `fused` is true if the core fuses compares with branches.
    fn work(&self, fused: bool) -> [f64; UNITS] {
        WorkUnit::ALL.map(|unit| match unit {
            // The compare of a fused pair executes with its branch.
            WorkUnit::Compute(Operation::Alu) if fused => {
                (self.pipeline.operations.alu - self.pipeline.fused).max(0.0)
            }
            WorkUnit::Compute(operation) => self.pipeline.operations.of(operation),
            WorkUnit::Load => self.mix.loads,
            WorkUnit::Store => self.mix.stores,
            WorkUnit::Branch => self.mix.branches,
        })
    }

    /// Returns the misses per instruction of a first-level cache of `lines` lines and `ways` ways.
    ///
    /// Misses were recorded for 64 sets. With more sets of the same associativity, conflicts are assumed to add misses in the
    /// same proportion. Accesses that hit with 64 sets hit with more sets too. Each of these sets holds some of the lines of one
    /// of the 64.
    pub(crate) fn first_misses(&self, curve: &MissCurve, lines: f64, ways: u32) -> f64 {
        let expected = curves::private_misses(curve, lines, ways);
        let sets = f64::from(CONFLICT_SETS);
        let recorded = (ways as usize)
            .checked_sub(1)
            .and_then(|i| self.pipeline.conflicts.get(i));
        let Some(recorded) = recorded.map(|mpki| mpki / 1000.0) else {
            return expected;
        };
        let more = lines / f64::from(ways) / sets;
        if (more - 1.0).abs() < 0.01 {
            return recorded;
        }
        let of_64_sets = curves::private_misses(curve, sets * f64::from(ways), ways);
        if more < 1.0 || of_64_sets <= 0.0 {
            return expected;
        }
        (expected * recorded / of_64_sets).min(recorded)
    }

    /// Returns the fraction of the misses of a cache of `lines` lines that a stream prefetcher predicts.
    pub fn streamed(&self, lines: f64) -> f64 {
        let points = self.pipeline.streams.iter();
        let shares: Vec<_> = points.map(|p| (p.cache_lines as f64, p.share)).collect();
        curves::interpolate(&shares, lines.max(1.0)).unwrap_or(0.0)
    }
}

/// Estimates the pipeline data of a behaviour that was recorded without them.
fn estimated(behaviour: &Behaviour) -> Pipeline {
    let m = behaviour.mix;
    let rest = 1.0 - m.branches - m.fp - m.simd - 0.5 * (m.loads + m.stores);
    let chain = |point: &countersteer_model::profile::IlpPoint| {
        // All latencies are assumed to lengthen all chains in proportion.
        let unit = 1.0 / point.ipc;
        let loads = m.loads * f64::from(REFERENCE_LOAD_CYCLES - 1);
        ChainPoint {
            window: point.window,
            loads: unit * loads,
            operations: unit * m.fp * 2.5,
        }
    };
    Pipeline {
        operations: Operations {
            alu: rest.max(0.0),
            fp_add: 0.5 * m.fp,
            fp_multiply: 0.5 * m.fp,
            simd: m.simd,
            ..Operations::default()
        },
        fused: FUSED * m.branches,
        taken: TAKEN * m.branches,
        chains: behaviour.ilp.iter().map(chain).collect(),
        resolution: RESOLUTION,
        streams: Vec::new(),
        conflicts: Vec::new(),
    }
}

/// Bounds on the speed of a core type for one behaviour.
pub(crate) struct CoreBounds {
    /// Cycles per instruction that dispatch width and ports need.
    pub throughput: f64,
    /// Cycles per instruction for which each resource of the core is used: dispatch, taken branches, sets of ports.
    pub uses: Uses,
    pub chains: Chains,
    /// Dependence chains while SMT siblings fill their share of the schedulers.
    pub crowded: Chains,
    /// Cycles between the dispatch of a mispredicted branch and its resolution.
    pub resolution: f64,
    /// Number of instructions that fit the reorder buffer and the registers.
    pub retained: f64,
    pub miss_buffers: f64,
    pub prefetch_lines: f64,
}

/// Cycles that dependence chains cost.
#[derive(Clone, Copy)]
pub(crate) struct Chains {
    /// Cycles per instruction that dependences need if all loads hit the first-level cache.
    pub cycles: f64,
    /// Additional cycles per instruction for each additional cycle of load latency.
    pub per_load_cycle: f64,
}

impl Chains {
    const NONE: Self = Self {
        cycles: 0.0,
        per_load_cycle: 0.0,
    };

    /// Increases the latency of every load by `cycles` on average.
    pub fn lengthen(&mut self, cycles: f64) {
        self.cycles += cycles * self.per_load_cycle;
    }
}

/// Average number of integer registers that an instruction allocates (52 to 65 % of instructions write one).
const REGISTERS: f64 = 0.58;

/// Returns the bounds of a behaviour on a core type whose buffers `siblings` threads share.
pub fn bounds(
    behaviour: &Behaviour,
    demand: &CoreDemand,
    core_type: &CoreType,
    siblings: f64,
) -> CoreBounds {
    let named = core_type.pipeline.as_deref().and_then(CorePipeline::named);
    let Some(pipeline) = named else {
        return generic(behaviour, demand, core_type, siblings);
    };
    let work = demand.work(pipeline.fused_branches);
    let fused = if pipeline.fused_branches {
        demand.pipeline.fused
    } else {
        0.0
    };
    let mut uses = Uses::default();
    let width = core_type.dispatch_width * pipeline.sustained;
    let front_end = [
        (1.0 - fused) / width,
        demand.pipeline.taken / pipeline.taken_per_cycle,
    ];
    for (part, cycles) in uses
        .iter_mut()
        .zip(front_end.into_iter().chain(pipeline.port_uses(&work)))
    {
        *part = cycles;
    }
    let throughput = uses.iter().copied().fold(0.0, f64::max);
    let registers = pipeline.registers.map_or(f64::INFINITY, |r| r / REGISTERS);
    let retained = (f64::from(core_type.window).min(registers) / siblings).max(1.0);
    let view = if core_type.in_order {
        f64::from(core_type.window)
    } else {
        retained
    };
    let operations = operation_scale(&demand.pipeline.operations, pipeline);
    latencies(
        behaviour,
        demand,
        (pipeline.load_cycles, operations),
        (view, siblings),
        CoreBounds {
            throughput,
            uses,
            retained,
            miss_buffers: (pipeline.miss_buffers / siblings).max(1.0),
            prefetch_lines: pipeline.prefetch_lines,
            ..empty()
        },
    )
}

/// Returns the bounds on a core of which only width and window are known.
fn generic(
    behaviour: &Behaviour,
    demand: &CoreDemand,
    core_type: &CoreType,
    siblings: f64,
) -> CoreBounds {
    let window = (f64::from(core_type.window) / siblings).max(1.0);
    let mut uses = Uses::default();
    uses[DISPATCH] = 1.0 / core_type.dispatch_width;
    latencies(
        behaviour,
        demand,
        (core_type.l1d.latency_cycles.max(GENERIC_LOAD.min(2.0)), 1.0),
        (window, 1.0),
        CoreBounds {
            throughput: 1.0 / core_type.dispatch_width,
            uses,
            retained: window,
            miss_buffers: (window / 20.0).max(2.0),
            ..empty()
        },
    )
}

const fn empty() -> CoreBounds {
    CoreBounds {
        throughput: 0.0,
        uses: [0.0; SHARED_PARTS],
        chains: Chains::NONE,
        crowded: Chains::NONE,
        resolution: 0.0,
        retained: 1.0,
        miss_buffers: 1.0,
        prefetch_lines: 0.0,
    }
}

/// Returns the ratio of two latencies for this mix of operations: those in dependence chains of the core, and those that the
/// recorder assumed.
fn operation_scale(operations: &Operations, pipeline: &CorePipeline) -> f64 {
    let beyond = |cycles: &dyn Fn(Operation) -> f64| -> f64 {
        let all = Operation::ALL.iter();
        all.map(|o| operations.of(*o) * (cycles(*o) - 1.0)).sum()
    };
    let reference = beyond(&|o| f64::from(o.reference_cycles()));
    if reference <= 0.0 {
        return 1.0;
    }
    let waiting = |o: Operation| if o.is_fp() { pipeline.fp_wait } else { 0.0 };
    beyond(&|o| pipeline.latency.of(o) + waiting(o)) / reference
}

/// Adds the costs of dependences among the `view` instructions that a thread holds in the core. It holds fewer while its siblings
/// wait, too, because `siblings` threads share the schedulers.
///
/// `operations` scales the operation latencies that the recorder assumed.
fn latencies(
    behaviour: &Behaviour,
    demand: &CoreDemand,
    (load_cycles, operations): (f64, f64),
    (view, siblings): (f64, f64),
    bounds: CoreBounds,
) -> CoreBounds {
    let chains = |view: f64| {
        let at = |value: fn(&ChainPoint) -> f64| {
            let points = demand.pipeline.chains.iter();
            let points: Vec<_> = points.map(|c| (f64::from(c.window), value(c))).collect();
            curves::interpolate(&points, view).unwrap_or(0.0)
        };
        let per_load_cycle = at(|c| c.loads) / f64::from(REFERENCE_LOAD_CYCLES - 1);
        let loads = (load_cycles - 1.0) * per_load_cycle;
        Chains {
            cycles: 1.0 / curves::ilp(&behaviour.ilp, view)
                + loads
                + at(|c| c.operations) * operations,
            per_load_cycle,
        }
    };
    let r = demand.pipeline.resolution;
    let slow = f64::from(REFERENCE_LOAD_CYCLES - 1);
    CoreBounds {
        chains: chains(view),
        crowded: chains((view / siblings).max(1.0)),
        resolution: r.unit + r.loads * (load_cycles - 1.0) / slow + r.operations * operations,
        ..bounds
    }
}

#[cfg(test)]
mod tests {
    use super::super::synthetic::{compute, profile};
    use super::*;
    use countersteer_model::profile::Profile;

    fn demand(conflicts: Vec<f64>) -> (CoreDemand, MissCurve) {
        let profile = profile("p", &[(compute(), 1_000_000)]);
        let Profile::Recorded(recorded) = &profile else {
            panic!("synthetic profiles are recorded ones");
        };
        let behaviour = &recorded.behaviours[0];
        let mut demand = CoreDemand::new(behaviour);
        demand.pipeline.conflicts = conflicts;
        let curve = MissCurve::from_points(vec![(0.0, 100.0), (400.0, 50.0), (2000.0, 0.0)]);
        (demand, curve)
    }

    #[test]
    fn conflicts_are_as_recorded_with_64_sets_and_carried_over_to_more() {
        let (recorded, curve) = demand((0..16).map(|ways| 90.0 - 3.0 * f64::from(ways)).collect());
        let misses = |lines: f64, ways| recorded.first_misses(&curve, lines, ways) * 1000.0;
        assert_eq!(misses(512.0, 8), 69.0);
        assert_eq!(misses(256.0, 4), 81.0, "siblings have ways each");
        let larger = misses(1024.0, 8);
        let expected = curve.mpki(1024.0) * 69.0 / curve.mpki(512.0);
        assert!((larger - expected).abs() < 1e-9, "{larger} {expected}");
        // One way of that many sets would be worse by the binomial rule than the hits recorded with 64 sets.
        assert!(misses(65_536.0, 1) <= 90.0);
        assert_eq!(
            misses(256.0, 8),
            curve.mpki(256.0),
            "fewer sets say nothing"
        );
        let unrecorded = demand(Vec::new()).0;
        assert_eq!(
            unrecorded.first_misses(&curve, 512.0, 8) * 1000.0,
            curve.mpki(512.0)
        );
    }
}
