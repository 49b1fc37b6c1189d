//! Memory domains: memory latency that grows with load.
//!
//! Input: the lines per nanosecond that each pool of CPUs demands. Output: a factor on the unloaded memory latency.
//!
//! The queue is open in the factor (a convex function of utilisation) and closed in the demand (threads that wait longer demand
//! less). Throughput therefore never exceeds the bandwidth: the factor rises until demand fits.

use countersteer_model::machine::{Memory, load_factor};
use countersteer_model::units::LINE_BYTES;

/// Threshold: utilisation below which the queue is practically empty.
const QUIET: f64 = 0.2;
/// Maximum utilisation, at which the latency factor is about 1,500.
const FULL: f64 = 0.9999;

#[derive(Clone, Debug)]
pub struct MemoryDomain {
    /// Bandwidth in lines per nanosecond.
    bandwidth: f64,
    /// Strength of queueing.
    queueing: f64,
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
            bandwidth: memory.bandwidth_gb_s.max(1e-6) / LINE_BYTES as f64,
            queueing: memory.queueing,
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
        (self.demand - self.solved).abs() > part * self.solved.max(QUIET * self.bandwidth)
    }

    /// Returns the factor at which demand and latency agree; `None` if it differs from the present factor by less than
    /// `tolerance`.
    ///
    /// Demand at factor f is approximated as D / (1 + s (f - f0)). D and s are the threads' demand and its relative slope at
    /// the present factor f0. This is exact for one thread. `tolerance` is relative.
    pub fn solve(&self, tolerance: f64) -> Option<f64> {
        let steepness = if self.demand > 0.0 {
            self.slope / self.demand
        } else {
            0.0
        };
        let demanded =
            |f: f64| self.demand / (1.0 + steepness * (f - self.factor)).max(1e-3) / self.bandwidth;
        let mut low = 0.0;
        let mut high = FULL;
        let mut u = demanded(self.factor).min(FULL);
        for _ in 0..50 {
            let gap = demanded(self.factor_at(u)) - u;
            if gap.abs() < 1e-5 {
                break;
            }
            if gap > 0.0 {
                low = u
            } else {
                high = u
            }
            // A Newton step converges fast in the flat part of the queue's curve; bisection takes over in the steep part.
            let next = u + gap / (1.0 + self.sensitivity(u, steepness));
            u = if next > low && next < high {
                next
            } else {
                0.5 * (low + high)
            };
            if high - low < 1e-9 {
                break;
            }
        }
        let factor = self.factor_at(u);
        ((factor - self.factor).abs() > tolerance * self.factor).then_some(factor)
    }

    /// Returns the decrease of demand per unit of utilisation that results from the longer latency, relative to the bandwidth.
    fn sensitivity(&self, u: f64, steepness: f64) -> f64 {
        let rest = (1.0 - u).max(1e-6);
        let queue = self.queueing * u * (2.0 - u) / (rest * rest);
        let scale = (1.0 + steepness * (self.factor_at(u) - self.factor)).max(1e-3);
        self.demand / self.bandwidth * steepness * queue / (scale * scale)
    }

    /// Returns the latency factor at utilisation `u`.
    fn factor_at(&self, u: f64) -> f64 {
        load_factor(self.queueing, u.clamp(0.0, FULL))
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
    fn the_factor_balances_demand_and_latency() {
        let mut memory = domain();
        // One thread: lines per ns = 1 / (0.2 + 0.5 f), demand 1.43 at factor 1 on a bandwidth of 1.
        memory.demand = 1.0 / 0.7;
        memory.slope = 0.5 / (0.7 * 0.7);
        let factor = memory.solve(1e-3).unwrap();
        let demand = 1.0 / (0.2 + 0.5 * factor);
        assert!(demand < 1.0);
        assert!(
            (memory.factor_at(demand) / factor - 1.0).abs() < 1e-3,
            "{factor}"
        );
    }

    #[test]
    fn latency_under_load_is_as_measured_on_ddr4_and_ddr5() {
        for (utilisation, factor) in [(0.0, 1.0), (0.5, 1.1), (0.7, 1.3), (0.9, 2.2)] {
            let modelled = domain().factor_at(utilisation);
            assert!(
                (modelled / factor - 1.0).abs() < 0.05,
                "{utilisation}: {modelled}"
            );
        }
    }

    #[test]
    fn an_idle_domain_changes_nothing() {
        assert_eq!(domain().solve(1e-3), None);
    }
}
