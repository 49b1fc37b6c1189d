//! Energy since time zero, by component.

use countersteer_model::units::{CpuId, Nanos};

use super::Analytic;
use super::class::NONE;
use crate::progress::ProgressModel;

/// Energy by component, in joules since time zero.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EnergyParts {
    /// Energy of cores while they ran threads, by core type.
    pub core_j: Vec<f64>,
    /// Energy of cores while they were idle, by core type.
    pub idle_j: Vec<f64>,
    pub cache_j: f64,
    pub memory_j: f64,
    /// Energy of the rest of the package.
    pub static_j: f64,
}

impl EnergyParts {
    #[must_use]
    pub(crate) fn total_j(&self) -> f64 {
        let cores: f64 = self.core_j.iter().chain(&self.idle_j).sum();
        cores + self.cache_j + self.memory_j + self.static_j
    }
}

pub(super) struct AnalyticEnergy {
    pub core_nj: Vec<f64>,
    pub cache_nj: f64,
    pub memory_nj: f64,
}

impl Analytic {
    pub fn energy(&mut self, now: Nanos) -> EnergyParts {
        self.advance(now);
        for row in 0..self.on_cpu.len() {
            if self.on_cpu[row] != NONE {
                self.close(self.on_cpu[row]);
            }
        }
        EnergyParts {
            core_j: self.spent.core_nj.iter().map(|nj| nj * 1e-9).collect(),
            idle_j: self.idle_j(),
            cache_j: self.spent.cache_nj * 1e-9,
            memory_j: self.spent.memory_nj * 1e-9,
            static_j: self.topology.static_power_w * self.now().as_secs_f64(),
        }
    }

    /// Returns the energy of idle cores in joules, by core type.
    fn idle_j(&self) -> Vec<f64> {
        let mut idle_j = vec![0.0; self.topology.core_types.len()];
        let leads = |cpu: CpuId| {
            let siblings = &self.cpus[cpu.index()].siblings;
            siblings.iter().all(|sibling| *sibling > cpu.0)
        };
        for cpu in self.topology.cpus.iter().filter(|c| leads(c.id)) {
            let core = &self.cores[cpu.core as usize];
            let of = &self.topology.core_types[cpu.core_type.index()];
            let since = if core.busy == 0 {
                (self.clock - core.idle_since) as f64
            } else {
                0.0
            };
            idle_j[cpu.core_type.index()] += (core.idle_nj + of.idle_nj(since)) * 1e-9;
        }
        idle_j
    }
}
