//! Kinds of CPUs that differ in the speed of programs.
//!
//! Input: a topology. Output: [`Class`]es, for which rate tables are made, and the rows of each CPU in all other tables. Even
//! large machines have few classes.

use countersteer_model::machine::{CoreType, Point};
use countersteer_model::topology::Topology;
use countersteer_model::units::CoreTypeId;

use super::table::MAX_LEVELS;

pub const NONE: u32 = u32::MAX;

/// A shared cache as seen from a core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    pub lines: f64,
    /// Load-to-use latency in cycles of the core.
    pub latency_cycles: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Row of the topology's core types.
    pub core_type: CoreTypeId,
    /// Number of SMT siblings that run at once, itself included.
    pub threads: u32,
    /// Frequency in GHz.
    pub ghz: f64,
    /// Power of a busy core and energy per instruction, relative to those at the core type's `freq_ghz`.
    pub power: f64,
    pub energy: f64,
    /// Shared caches, inner first; empty if the last level is private.
    pub levels: Vec<Level>,
    /// Latency of unloaded memory in cycles of the core.
    pub memory_cycles: f64,
}

#[derive(Clone, Debug)]
pub struct Cpu {
    /// Class at the present frequency while it runs alone on its core; the classes with 2, 3, ... running siblings follow.
    pub class: u32,
    /// Class at its slowest operating point; the classes of faster points follow.
    pub first_class: u32,
    /// Number of threads of its core.
    pub smt: u32,
    pub core: u32,
    pub core_type: u32,
    /// Last-level cache with all its CPUs.
    pub pool: u32,
    /// Position among the pool's CPUs.
    pub slot: u32,
    pub memory: u32,
    /// Rows of its shared caches, inner first.
    pub chain: [u32; MAX_LEVELS],
    pub levels: usize,
    /// Cycles per nanosecond.
    pub freq: f64,
    /// Nanoseconds per cycle.
    pub cycle_ns: f64,
    /// CPUs of the same core, without this one.
    pub siblings: Vec<u32>,
    /// Energy of an access to each level, inner first.
    pub access_nj: [f64; MAX_LEVELS],
    /// Energy of a line from or to memory.
    pub memory_nj: f64,
}

/// Classes and CPUs of a topology.
pub fn classify(topology: &Topology) -> (Vec<Class>, Vec<Cpu>) {
    let mut classes: Vec<Class> = Vec::new();
    let mut slots = vec![0u32; topology.caches.len()];
    let mut cpus = Vec::with_capacity(topology.cpus.len());
    for cpu in &topology.cpus {
        let core_type = &topology.core_types[cpu.core_type.index()];
        let siblings: Vec<u32> = topology
            .cpus
            .iter()
            .filter(|c| c.core == cpu.core && c.id != cpu.id)
            .map(|c| c.id.0)
            .collect();
        let chain: Vec<_> = cpu
            .caches
            .iter()
            .filter(|c| !topology.caches[c.index()].private)
            .collect();
        let chain = &chain[chain.len().saturating_sub(MAX_LEVELS)..];
        let chain_rows: Vec<_> = chain.iter().map(|c| c.index()).collect();
        let row = first_class(topology, cpu, &chain_rows, &mut classes);
        let pool = topology.llc_of(cpu.id).0;
        let level = |k: usize| chain.get(k).map(|c| &topology.caches[c.index()]);
        let mut made = Cpu {
            class: row as u32,
            first_class: row as u32,
            smt: core_type.smt.max(1),
            core: cpu.core,
            core_type: cpu.core_type.0,
            pool,
            slot: slots[pool as usize],
            memory: cpu.memory,
            chain: std::array::from_fn(|k| level(k).map_or(NONE, |c| c.id.0)),
            levels: chain.len(),
            freq: core_type.freq_ghz,
            cycle_ns: 1.0 / core_type.freq_ghz,
            siblings,
            access_nj: std::array::from_fn(|k| level(k).map_or(0.0, |c| c.access_nj)),
            memory_nj: topology
                .memory
                .get(cpu.memory as usize)
                .map_or(0.0, |m| m.access_nj),
        };
        made.run_at(core_type.nominal_point(), core_type.freq_ghz);
        cpus.push(made);
        slots[pool as usize] += 1;
    }
    (classes, cpus)
}

impl Cpu {
    /// Sets the frequency to a row of the core type's operating points.
    pub fn run_at(&mut self, point: usize, ghz: f64) {
        self.class = self.first_class + point as u32 * self.smt;
        self.freq = ghz;
        self.cycle_ns = 1.0 / ghz;
    }
}

/// Row of the class of a CPU at its slowest point; the classes of all its points are added if missing.
fn first_class(
    topology: &Topology,
    cpu: &countersteer_model::topology::Cpu,
    chain: &[usize],
    classes: &mut Vec<Class>,
) -> usize {
    let core_type = &topology.core_types[cpu.core_type.index()];
    let points = core_type.points();
    let at = |point: &Point| class_of(topology, cpu, (core_type, *point), chain.iter().copied());
    let slowest = points.first().map(at);
    if let Some(row) = classes.iter().position(|c| Some(c) == slowest.as_ref()) {
        return row;
    }
    let row = classes.len();
    for class in points.iter().map(at) {
        for threads in 1..=core_type.smt.max(1) {
            classes.push(Class {
                threads,
                ..class.clone()
            });
        }
    }
    row
}

fn class_of(
    topology: &Topology,
    cpu: &countersteer_model::topology::Cpu,
    (core_type, point): (&CoreType, Point),
    chain: impl Iterator<Item = usize>,
) -> Class {
    let cycles = |ns: f64| ns * point.ghz;
    let level = |row: usize| {
        let cache = &topology.caches[row];
        Level {
            lines: cache.lines,
            latency_cycles: cycles(cache.latency_ns),
        }
    };
    Class {
        core_type: cpu.core_type,
        threads: 1,
        ghz: point.ghz,
        power: point.power,
        energy: point.energy(core_type.freq_ghz),
        levels: chain.map(level).collect(),
        memory_cycles: cycles(
            topology
                .memory
                .get(cpu.memory as usize)
                .map_or(0.0, |m| m.latency_ns),
        ),
    }
}

/// Class of each core type on which a program is fastest alone: at the frequency of one active core, with the largest last-level
/// cache.
pub fn best_classes(topology: &Topology, classes: &[Class]) -> Vec<u32> {
    let llc = |c: &Class| c.levels.last().map_or(0.0, |l| l.lines);
    (0..topology.core_types.len())
        .map(|core_type| {
            let of = &topology.core_types[core_type];
            let ghz = of.points()[of.fastest_point(1)].ghz;
            let mut best = NONE;
            let alone = |(_, c): &(usize, &Class)| c.threads == 1 && c.ghz == ghz;
            for (row, class) in classes.iter().enumerate().filter(alone) {
                let better = best == NONE || llc(class) > llc(&classes[best as usize]);
                if class.core_type.index() == core_type && better {
                    best = row as u32;
                }
            }
            if best == NONE { 0 } else { best }
        })
        .collect()
}
