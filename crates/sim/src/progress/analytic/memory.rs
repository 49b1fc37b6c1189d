//! Memory domains: memory latency that grows with load.
//!
//! Input: the lines per nanosecond that each pool of CPUs demands. Output: a factor on the unloaded memory latency.
//!
//! The factor balances demand and latency ([`LoadedMemory::balance`]).

use countersteer_model::corun::{LoadedMemory, MemoryDemand};
use countersteer_model::machine::Memory;
use countersteer_model::units::LINE_BYTES;

/// Threshold: utilisation below which the queue is practically empty.
const QUIET: f64 = 0.2;
/// Maximum utilisation, at which the latency factor is about 1,500.
const FULL: f64 = 0.9999;

#[derive(Clone, Debug)]
pub(crate) struct MemoryDomain {
    /// Bandwidth in lines per nanosecond, and queue.
    loaded: LoadedMemory,
    /// Latency from CPUs of other domains, relative to that from its own.
    pub remote: f64,
    /// Present factor on the unloaded latency.
    pub factor: f64,
    /// Demand of all pools at the present factor, in lines per nanosecond.
    pub demand: f64,
    /// Decrease of demand per unit of the factor.
    pub slope: f64,
    /// Indices of the pools that have CPUs in this domain.
    pub pools: Vec<u32>,
    /// Demand when the factor was last computed, in lines per nanosecond.
    pub solved: f64,
    /// True if the factor must be computed again.
    pub dirty: bool,
    /// Time at which the factor was last applied, in nanoseconds.
    pub last: u64,
    /// Time at which a postponed change of the factor is due, in nanoseconds; `u64::MAX` if there is none.
    pub due: u64,
}

impl MemoryDomain {
    pub fn new(memory: &Memory) -> Self {
        Self {
            loaded: LoadedMemory {
                bandwidth: memory.bandwidth_gb_s.max(1e-6) / LINE_BYTES as f64,
                queueing: memory.queueing,
                full: FULL,
            },
            remote: memory.remote,
            factor: 1.0,
            demand: 0.0,
            slope: 0.0,
            pools: Vec::new(),
            solved: 0.0,
            dirty: false,
            last: 0,
            due: u64::MAX,
        }
    }

    /// True if demand changed by more than the fraction `part` since the factor was last computed. Demand below 20 % of the
    /// bandwidth counts as 20 %, because it hardly changes the latency.
    #[inline]
    pub fn moved(&self, part: f64) -> bool {
        (self.demand - self.solved).abs() > part * self.solved.max(QUIET * self.loaded.bandwidth)
    }

    /// Returns the factor at which demand and latency agree; `None` if it differs from the present factor by less than
    /// `tolerance`, which is relative.
    pub fn solve(&self, tolerance: f64) -> Option<f64> {
        let demand = MemoryDemand {
            factor: self.factor,
            traffic: self.demand,
            slope: self.slope,
        };
        self.loaded.balance(&demand, tolerance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersteer_model::cpuset::CpuSet;
    use countersteer_model::machine::DEFAULT_QUEUEING;

    fn domain() -> MemoryDomain {
        MemoryDomain::new(&Memory {
            cpus: CpuSet::default(),
            latency_ns: 80.0,
            bandwidth_gb_s: 64.0,
            queueing: DEFAULT_QUEUEING,
            remote: 1.0,
            access_nj: 0.0,
        })
    }

    #[test]
    fn half_of_the_bandwidth_costs_what_the_queue_says() {
        let mut memory = domain();
        // 64 GB/s are one line per ns.
        memory.demand = 0.5;
        let factor = memory.solve(1e-3).unwrap();
        assert!((factor - (1.0 + 0.5 * DEFAULT_QUEUEING)).abs() < 1e-6);
    }

    #[test]
    fn an_idle_domain_changes_nothing() {
        assert_eq!(domain().solve(1e-3), None);
    }
}
