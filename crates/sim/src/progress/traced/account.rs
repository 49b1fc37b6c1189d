//! Energy in the traced model.

use countersteer_model::topology::Topology;

use super::NOBODY;
use crate::progress::analytic::ClassCpu;

/// Energy of a thread in a step, and number of lines that it transferred from and to memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StepEnergy {
    pub core_nj: f64,
    pub cache_nj: f64,
    pub memory_nj: f64,
    pub memory_lines: f64,
}

/// Energy of the whole run, summed over cores and threads.
pub(crate) struct TracedEnergy {
    active_nj: f64,
    idle_nj: f64,
    /// Index of the first CPU of each core.
    leaders: Vec<usize>,
}

impl TracedEnergy {
    pub fn new(topology: &Topology) -> Self {
        let first = |core: u32| topology.cpus.iter().position(|c| c.core == core);
        let cores = topology.cpus.iter().map(|c| c.core + 1).max().unwrap_or(0);
        Self {
            active_nj: 0.0,
            idle_nj: 0.0,
            leaders: (0..cores).filter_map(first).collect(),
        }
    }

    pub fn add(&mut self, energy: &StepEnergy) {
        self.active_nj += energy.core_nj + energy.cache_nj + energy.memory_nj;
    }

    /// Adds the energy that idle cores use in `ns` nanoseconds.
    pub fn pass(&mut self, topology: &Topology, cpus: &[ClassCpu], on_cpu: &[u32], ns: u64) {
        for row in &self.leaders {
            let cpu = &cpus[*row];
            let siblings = cpu.siblings.iter().map(|s| *s as usize);
            if siblings.chain([*row]).all(|row| on_cpu[row] == NOBODY) {
                self.idle_nj +=
                    topology.core_types[cpu.core_type as usize].power.idle_w * ns as f64;
            }
        }
    }

    pub(crate) fn total_j(&self, topology: &Topology, clock: u64) -> f64 {
        (self.active_nj + self.idle_nj) * 1e-9 + topology.static_power_w * clock as f64 * 1e-9
    }
}
