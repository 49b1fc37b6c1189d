//! Classes of CPUs that differ in the speed of programs.
//!
//! Input: a topology. Output: [`CpuClass`]es, for which rate tables are made, and the indices of each CPU in all other tables. Even
//! large machines have only a small number of classes.

use countersteer_model::machine::{CoreType, Point};
use countersteer_model::topology::Topology;
use countersteer_model::units::CoreTypeId;

/// Maximum number of shared cache levels between a core and memory (levels 2, 3 and 4).
pub(crate) const MAX_LEVELS: usize = 3;

pub const NONE: u32 = u32::MAX;

/// Shared cache as seen from a core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SharedLevel {
    pub lines: f64,
    /// Load-to-use latency in cycles of the core.
    pub latency_cycles: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CpuClass {
    /// Index of the core type in the topology.
    pub core_type: CoreTypeId,
    /// Number of threads that run on the core at the same time.
    pub threads: u32,
    /// Frequency in GHz.
    pub ghz: f64,
    /// Power of a busy core, relative to the power at the core type's `freq_ghz`.
    pub power: f64,
    /// Energy per instruction, relative to the energy at the core type's `freq_ghz`.
    pub energy: f64,
    /// Shared caches, inner first; empty if the last level is private.
    pub levels: Vec<SharedLevel>,
    /// Latency of unloaded memory in cycles of the core.
    pub memory_cycles: f64,
}

#[derive(Clone, Debug)]
pub(crate) struct ClassCpu {
    /// Index of the CPU's class at the present frequency while no SMT sibling runs. The classes for 2, 3, ... running threads
    /// follow.
    pub class: u32,
    /// Index of the CPU's class at its slowest operating point; the classes of faster points follow.
    pub first_class: u32,
    /// Number of CPUs of the CPU's core (SMT threads).
    pub smt: u32,
    pub core: u32,
    pub core_type: u32,
    /// Index of the CPU's pool: the CPUs that share one last-level cache.
    pub pool: u32,
    /// Position of the CPU among the CPUs of its pool.
    pub slot: u32,
    pub memory: u32,
    /// Indices of the CPU's shared caches, inner first.
    pub chain: [u32; MAX_LEVELS],
    pub levels: usize,
    /// Present frequency in cycles per nanosecond.
    pub freq: f64,
    /// Nanoseconds per cycle.
    pub cycle_ns: f64,
    /// Other CPUs of the same core.
    pub siblings: Vec<u32>,
    /// Energy of an access to each shared cache in nanojoules, inner first.
    pub access_nj: [f64; MAX_LEVELS],
    /// Energy of the transfer of one line from or to memory, in nanojoules.
    pub memory_nj: f64,
}

/// Returns the classes and CPUs of a topology.
pub fn classify(topology: &Topology) -> (Vec<CpuClass>, Vec<ClassCpu>) {
    let mut classes: Vec<CpuClass> = Vec::new();
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
        let mut made = ClassCpu {
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

impl ClassCpu {
    /// Sets the CPU's frequency to operating point `point` of its core type, which is `ghz`.
    pub(crate) fn run_at(&mut self, point: usize, ghz: f64) {
        self.class = self.first_class + point as u32 * self.smt;
        self.freq = ghz;
        self.cycle_ns = 1.0 / ghz;
    }
}

/// Returns the index of a CPU's class at its slowest operating point; adds the classes of all its points if missing.
fn first_class(
    topology: &Topology,
    cpu: &countersteer_model::topology::Cpu,
    chain: &[usize],
    classes: &mut Vec<CpuClass>,
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
            classes.push(CpuClass {
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
) -> CpuClass {
    let cycles = |ns: f64| ns * point.ghz;
    let level = |row: usize| {
        let cache = &topology.caches[row];
        SharedLevel {
            lines: cache.lines,
            latency_cycles: cycles(cache.latency_ns),
        }
    };
    CpuClass {
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
                .map_or(0.0, |m| m.latency_ns)
                + core_type.memory_extra_ns,
        ),
    }
}

/// Returns, for each core type, the index of the class on which a program is fastest alone. This class has the frequency of one
/// active core and the largest last-level cache.
pub(crate) fn best_classes(topology: &Topology, classes: &[CpuClass]) -> Vec<u32> {
    let llc = |c: &CpuClass| c.levels.last().map_or(0.0, |l| l.lines);
    (0..topology.core_types.len())
        .map(|core_type| {
            let of = &topology.core_types[core_type];
            let ghz = of.points()[of.fastest_point(1)].ghz;
            let mut best = NONE;
            let alone = |(_, c): &(usize, &CpuClass)| c.threads == 1 && c.ghz == ghz;
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
