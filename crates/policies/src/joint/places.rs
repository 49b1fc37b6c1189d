//! Places: the cores of a machine with the caches and memory behind them, as input of predictions.

use countersteer_model::corun::LoadedMemory;
use countersteer_model::topology::{GroupBy, Topology};
use countersteer_model::units::{CoreTypeId, CpuId, GroupId};

/// Resources of a machine.
pub(super) struct MachinePlaces {
    /// Cores, by number of core.
    pub spots: Vec<CorePlace>,
    /// Kinds of cores: they differ for a thread that runs alone; fastest first.
    pub kinds: Vec<CoreKind>,
    /// Lines of each shared cache.
    pub caches: Vec<f64>,
    /// Memory domains; traffic is in lines per ns.
    pub memory: Vec<LoadedMemory>,
    pub static_w: f64,
}

/// Core.
pub(super) struct CorePlace {
    pub group: GroupId,
    pub kind: usize,
    /// Number of hardware threads.
    pub ways: usize,
    /// Caches outside the core, innermost first.
    pub chain: Vec<usize>,
    pub memory: usize,
    pub cpus: std::sync::Arc<countersteer_model::cpuset::CpuSet>,
}

/// Core type with the caches behind it.
pub(super) struct CoreKind {
    pub core_type: CoreTypeId,
    /// Published speed over that of the slowest kind.
    pub rating: f64,
    /// Position of the rating between the slowest (0) and the fastest kind (1).
    pub between: f64,
    pub width: f64,
    pub window: f64,
    pub ghz: f64,
    /// Lines of the core's last private cache.
    pub private_lines: f64,
    /// Latencies of the caches of the chain, then of memory, in ns.
    pub latency_ns: Vec<f64>,
    /// Lines of the caches of the chain.
    pub lines: Vec<f64>,
    /// Estimated energy per instruction relative to other kinds, in nJ.
    pub instruction_nj: f64,
    pub active_w: f64,
    pub idle_w: f64,
    pub cores: usize,
}

/// Utilisation at which the latency is capped.
const FULL: f64 = 0.99;

impl MachinePlaces {
    pub fn new(topology: &Topology) -> Self {
        let cores = topology.groups_by(GroupBy::Core);
        let mut places = Self {
            spots: Vec::with_capacity(cores.len()),
            kinds: Vec::new(),
            caches: topology.caches.iter().map(|c| c.lines).collect(),
            memory: Vec::new(),
            static_w: topology.static_power_w,
        };
        let line = countersteer_model::units::LINE_BYTES as f64;
        let memory = topology.memory.iter();
        places.memory = memory
            .map(|m| LoadedMemory {
                bandwidth: m.bandwidth_gb_s.max(1e-3) / line,
                queueing: m.queueing,
                full: FULL,
            })
            .collect();
        let mut order: Vec<(Vec<u64>, usize)> = Vec::new();
        let mut kinds: Vec<CoreKind> = Vec::new();
        let mut kind_of_core = Vec::with_capacity(cores.len());
        for group in cores {
            let cpu = group.cpus.lowest().unwrap_or(CpuId(0));
            let key = key(topology, cpu);
            let row = order
                .iter()
                .position(|(k, _)| *k == key)
                .unwrap_or_else(|| {
                    order.push((key, kinds.len()));
                    kinds.push(CoreKind::new(topology, cpu));
                    kinds.len() - 1
                });
            kinds[row].cores += 1;
            kind_of_core.push(row);
        }
        // Keys begin with the core type, and core types are sorted by speed: the fastest comes first.
        order.sort();
        let mut rank = vec![0; kinds.len()];
        for (nth, (_, row)) in order.iter().enumerate() {
            rank[*row] = nth;
        }
        let mut sorted: Vec<(usize, CoreKind)> = rank.iter().copied().zip(kinds).collect();
        sorted.sort_by_key(|(nth, _)| *nth);
        places.kinds = sorted.into_iter().map(|(_, kind)| kind).collect();
        places.rate();
        for (group, row) in cores.iter().zip(kind_of_core) {
            let cpu = &topology.cpus[group.cpus.lowest().unwrap_or(CpuId(0)).index()];
            places.spots.push(CorePlace {
                group: group.id,
                kind: rank[row],
                ways: group.cpus.len(),
                chain: cpu.caches.iter().map(|c| c.index()).collect(),
                memory: cpu.memory as usize,
                cpus: std::sync::Arc::clone(&group.cpus),
            });
        }
        places
    }

    /// Makes ratings relative to the slowest kind.
    fn rate(&mut self) {
        let ratings = self.kinds.iter().map(|k| k.rating);
        let (least, most) = ratings.fold((f64::MAX, f64::MIN), |(l, m), r| (l.min(r), m.max(r)));
        for kind in &mut self.kinds {
            kind.between = (kind.rating - least) / (most - least).max(1e-9);
            kind.rating /= least;
        }
    }

    /// Power of a core in W, without that of instructions: active if it runs a thread, else idle.
    pub fn core_w(&self, spot: usize, runs: bool) -> f64 {
        let kind = &self.kinds[self.spots[spot].kind];
        if runs { kind.active_w } else { kind.idle_w }
    }

    /// Last-level cache of a core.
    pub fn llc(&self, spot: usize) -> usize {
        self.spots[spot].chain.last().copied().unwrap_or(0)
    }
}

/// Key that is equal for cores that are alike for a thread alone.
fn key(topology: &Topology, cpu: CpuId) -> Vec<u64> {
    let cpu = &topology.cpus[cpu.index()];
    let mut key = vec![cpu.core_type.index() as u64];
    key.extend(
        cpu.caches
            .iter()
            .map(|c| topology.caches[c.index()].lines as u64),
    );
    key.push(topology.memory[cpu.memory as usize].latency_ns as u64);
    key
}

impl CoreKind {
    fn new(topology: &Topology, cpu: CpuId) -> Self {
        let cpu = &topology.cpus[cpu.index()];
        let core = &topology.core_types[cpu.core_type.index()];
        let chain = cpu.caches.iter().map(|c| &topology.caches[c.index()]);
        let mut latency_ns: Vec<f64> = chain.clone().map(|c| c.latency_ns).collect();
        let last = latency_ns.last().copied().unwrap_or(0.0);
        latency_ns.push(last + topology.memory[cpu.memory as usize].latency_ns.max(1.0));
        // A kernel that does not distinguish core types gives all of them one capacity; the clock is the next best figure.
        let distinguished = topology
            .core_types
            .windows(2)
            .any(|pair| pair[0].capacity != pair[1].capacity);
        Self {
            core_type: cpu.core_type,
            rating: if distinguished {
                f64::from(cpu.capacity.max(1))
            } else {
                core.freq_ghz.max(1e-3)
            },
            between: 0.0,
            width: core.dispatch_width.max(1.0),
            window: f64::from(core.window.max(1)),
            ghz: core.freq_ghz.max(1e-3),
            private_lines: core.l2.unwrap_or(core.l1d).size_kib * 16.0,
            latency_ns,
            lines: chain.map(|c| c.lines).collect(),
            instruction_nj: core.power.instruction_nj,
            active_w: core.power.active_w,
            idle_w: core.power.idle_w,
            cores: 0,
        }
    }
}
