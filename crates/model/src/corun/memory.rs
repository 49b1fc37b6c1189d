//! Loaded memory: latency that grows with traffic.
//!
//! Input: bandwidth, strength of queueing, and the traffic that threads demand. Output: a factor on the unloaded latency.
//!
//! The queue is open in the factor (a convex function of utilisation) and closed in the demand: threads that wait longer demand
//! less. Throughput therefore never exceeds the bandwidth, since the factor rises until demand fits.

/// Memory whose latency grows with its load.
#[derive(Clone, Copy, Debug)]
pub struct LoadedMemory {
    /// Greatest traffic, in lines (or bytes) per unit of time.
    pub bandwidth: f64,
    /// Strength q of queueing: the factor at utilisation u is 1 + q u^2 / (1 - u).
    pub queueing: f64,
    /// Utilisation above which latency does not grow.
    pub full: f64,
}

/// Traffic that threads demand, near a factor on latency.
///
/// Traffic at factor f is D / (1 + s (f - f0)), with the traffic D and its relative slope s at f0. This is exact for one thread.
#[derive(Clone, Copy, Debug)]
pub struct MemoryDemand {
    /// Factor f0.
    pub factor: f64,
    /// Traffic D, in the unit of the bandwidth.
    pub traffic: f64,
    /// Decrease of traffic per unit of the factor, D s.
    pub slope: f64,
}

impl LoadedMemory {
    /// Returns the factor on latency with this traffic.
    #[inline]
    #[must_use]
    pub fn factor(&self, traffic: f64) -> f64 {
        self.at(traffic / self.bandwidth)
    }

    /// Returns the traffic at which latency has this factor.
    #[must_use]
    pub fn traffic_at(&self, factor: f64) -> f64 {
        // queueing u^2 + (factor - 1) (u - 1) = 0.
        let above = (factor - 1.0).max(0.0);
        let root = (above * above + 4.0 * self.queueing * above).sqrt();
        (root - above) / (2.0 * self.queueing) * self.bandwidth
    }

    /// Returns the factor at which demand and latency agree; `None` if it differs from that of `demand` by less than the fraction
    /// `tolerance`.
    ///
    /// ```
    /// use countersteer_model::corun::{LoadedMemory, MemoryDemand};
    ///
    /// let memory = LoadedMemory { bandwidth: 1.0, queueing: 0.15, full: 0.99 };
    /// // A stream that does not wait uses half of the bandwidth.
    /// let stream = MemoryDemand { factor: 1.0, traffic: 0.5, slope: 0.0 };
    /// assert!((memory.balance(&stream, 1e-3).unwrap() - 1.075).abs() < 1e-5);
    /// // An idle memory keeps its latency.
    /// assert_eq!(memory.balance(&MemoryDemand { traffic: 0.0, ..stream }, 1e-3), None);
    /// ```
    #[inline]
    #[must_use]
    pub fn balance(&self, demand: &MemoryDemand, tolerance: f64) -> Option<f64> {
        let steepness = if demand.traffic > 0.0 {
            demand.slope / demand.traffic
        } else {
            0.0
        };
        let demanded = |f: f64| {
            demand.traffic / (1.0 + steepness * (f - demand.factor)).max(1e-3) / self.bandwidth
        };
        let mut low = 0.0;
        let mut high = self.full;
        let mut u = demanded(demand.factor).min(self.full);
        for _ in 0..50 {
            let gap = demanded(self.at(u)) - u;
            if gap.abs() < 1e-5 {
                break;
            }
            if gap > 0.0 {
                low = u
            } else {
                high = u
            }
            // A Newton step converges fast in the flat part of the queue's curve; bisection takes over in the steep part.
            let next = u + gap / (1.0 + self.sensitivity(u, demand, steepness));
            u = if next > low && next < high {
                next
            } else {
                0.5 * (low + high)
            };
            if high - low < 1e-9 {
                break;
            }
        }
        let factor = self.at(u);
        ((factor - demand.factor).abs() > tolerance * demand.factor).then_some(factor)
    }

    /// Returns the decrease of demand per unit of utilisation that results from the longer latency, relative to the bandwidth.
    #[inline]
    fn sensitivity(&self, u: f64, demand: &MemoryDemand, steepness: f64) -> f64 {
        let rest = (1.0 - u).max(1e-6);
        let queue = self.queueing * u * (2.0 - u) / (rest * rest);
        let scale = (1.0 + steepness * (self.at(u) - demand.factor)).max(1e-3);
        demand.traffic / self.bandwidth * steepness * queue / (scale * scale)
    }

    /// Returns the factor on latency at a utilisation.
    #[inline]
    fn at(&self, utilisation: f64) -> f64 {
        let utilisation = utilisation.clamp(0.0, self.full);
        1.0 + self.queueing * utilisation * utilisation / (1.0 - utilisation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::DEFAULT_QUEUEING;

    fn memory(bandwidth: f64, queueing: f64) -> LoadedMemory {
        LoadedMemory {
            bandwidth,
            queueing,
            full: 0.9999,
        }
    }

    #[test]
    fn latency_tells_traffic() {
        for queueing in [0.05, 0.15, 1.5] {
            let memory = LoadedMemory {
                full: 0.99,
                ..memory(2.0, queueing)
            };
            for traffic in [0.0, 0.2, 1.0, 1.8] {
                let found = memory.traffic_at(memory.factor(traffic));
                assert!((found - traffic).abs() < 1e-9, "{queueing} {traffic}");
            }
            assert_eq!(memory.factor(1.98), memory.factor(3.0));
        }
    }

    /// Demand at a factor of a thread that takes `a + b f` ns per line.
    fn thread(a: f64, b: f64, factor: f64) -> MemoryDemand {
        let ns = a + b * factor;
        MemoryDemand {
            factor,
            traffic: 1.0 / ns,
            slope: b / (ns * ns),
        }
    }

    #[test]
    fn the_factor_balances_demand_and_latency() {
        // One thread: lines per ns = 1 / (0.2 + 0.5 f), demand 1.43 at factor 1 on a bandwidth of 1.
        let memory = memory(1.0, DEFAULT_QUEUEING);
        let factor = memory.balance(&thread(0.2, 0.5, 1.0), 1e-3).unwrap();
        let demand = 1.0 / (0.2 + 0.5 * factor);
        assert!(demand < 1.0);
        assert!(
            (memory.factor(demand) / factor - 1.0).abs() < 1e-3,
            "{factor}"
        );
    }

    #[test]
    fn one_thread_balances_where_its_equation_does_from_any_factor() {
        // At utilisation u, f = 1 + q u^2 / (1 - u), and the thread demands u of the bandwidth 1 / (u (a + b f)).
        for (a, b) in [(0.2, 0.5), (0.0, 1.0), (5.0, 0.1)] {
            for (u, queueing) in [(0.05f64, 0.15), (0.5, 0.15), (0.5, 1.5), (0.9, 0.15)] {
                let exact = 1.0 + queueing * u * u / (1.0 - u);
                let memory = memory(1.0 / (u * (a + b * exact)), queueing);
                for factor in [1.0, 1.5, 20.0] {
                    let found = memory.balance(&thread(a, b, factor), 0.0).unwrap();
                    // The search ends 1e-5 from the balance in u; there, f rises by q u (2 - u) / (1 - u)^2 per unit of u.
                    let near = 1e-5 * queueing * u * (2.0 - u) / (1.0 - u).powi(2) + 1e-9;
                    assert!(
                        (found - exact).abs() < 1.1 * near,
                        "{a} {b} {u} {queueing} {factor}: {found} {exact}"
                    );
                }
            }
        }
    }

    #[test]
    fn demand_that_does_not_fall_fills_memory() {
        let stream = MemoryDemand {
            factor: 1.0,
            traffic: 3.0,
            slope: 0.0,
        };
        let memory = memory(1.0, DEFAULT_QUEUEING);
        let factor = memory.balance(&stream, 1e-3).unwrap();
        assert!((factor / memory.factor(3.0) - 1.0).abs() < 1e-6, "{factor}");
    }
}
