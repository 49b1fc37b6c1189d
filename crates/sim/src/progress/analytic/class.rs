//! Kinds of CPUs: what distinguishes them for a program's speed.
//!
//! Input: a topology. Output: [`Class`]es, few even on large machines, for which rate tables are made, and per CPU the
//! rows of everything it belongs to.

use countersteer_core::machine::CoreType;
use countersteer_core::topology::Topology;
use countersteer_core::units::CoreTypeId;

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
    /// SMT siblings that run at once, itself included.
    pub threads: u32,
    /// Shared caches, inner first; empty where the last level is private.
    pub levels: Vec<Level>,
    /// Latency of unloaded memory in cycles of the core.
    pub memory_cycles: f64,
}

#[derive(Clone, Debug)]
pub struct Cpu {
    /// Its class when it runs alone on its core; those with 2, 3, ... siblings running follow.
    pub class: u32,
    pub core: u32,
    pub core_type: u32,
    /// Last-level cache and everything inside.
    pub pool: u32,
    /// Its place among the pool's CPUs.
    pub slot: u32,
    pub memory: u32,
    /// Rows of its shared caches, inner first.
    pub chain: [u32; MAX_LEVELS],
    pub levels: usize,
    /// Cycles per nanosecond.
    pub freq: f64,
    /// Nanoseconds per cycle.
    pub cycle_ns: f64,
    /// CPUs of the same core, this one excluded.
    pub siblings: Vec<u32>,
    /// Energy of an access to each level, inner first.
    pub access_nj: [f64; MAX_LEVELS],
    /// Energy of a line from or to memory.
    pub memory_nj: f64,
}

/// The topology's CPUs and their classes.
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
        let class = class_of(topology, cpu, core_type, chain.iter().map(|c| c.index()));
        let row = classes.iter().position(|c| *c == class).unwrap_or_else(|| {
            for threads in 1..=core_type.smt.max(1) {
                classes.push(Class {
                    threads,
                    ..class.clone()
                });
            }
            classes.len() - core_type.smt.max(1) as usize
        });
        let pool = topology.llc_of(cpu.id).0;
        let level = |k: usize| chain.get(k).map(|c| &topology.caches[c.index()]);
        cpus.push(Cpu {
            class: row as u32,
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
        });
        slots[pool as usize] += 1;
    }
    (classes, cpus)
}

fn class_of(
    topology: &Topology,
    cpu: &countersteer_core::topology::Cpu,
    core_type: &CoreType,
    chain: impl Iterator<Item = usize>,
) -> Class {
    let cycles = |ns: f64| ns * core_type.freq_ghz;
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
        levels: chain.map(level).collect(),
        memory_cycles: cycles(
            topology
                .memory
                .get(cpu.memory as usize)
                .map_or(0.0, |m| m.latency_ns),
        ),
    }
}

/// For each core type the class on which a program is fastest alone: that with the most last-level cache.
pub fn best_classes(topology: &Topology, classes: &[Class]) -> Vec<u32> {
    let llc = |c: &Class| c.levels.last().map_or(0.0, |l| l.lines);
    (0..topology.core_types.len())
        .map(|core_type| {
            let mut best = NONE;
            for (row, class) in classes.iter().enumerate().filter(|(_, c)| c.threads == 1) {
                let better = best == NONE || llc(class) > llc(&classes[best as usize]);
                if class.core_type.index() == core_type && better {
                    best = row as u32;
                }
            }
            if best == NONE { 0 } else { best }
        })
        .collect()
}
