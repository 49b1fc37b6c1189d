//! SMT siblings: how threads share the resources of a core.
//!
//! Input: each thread's use of its core per instruction, and the speed of its siblings. Output: cycles per instruction next to
//! running siblings. Dispatch slots, taken branches and execution ports are shared round robin: a thread gets what its siblings
//! leave, but at least an equal share. Waiting operations occupy scheduler entries. A thread bound by dependences fills all
//! entries it can get, so that two such threads have half of the entries each. A thread bound by width or ports leaves nearly all
//! entries to its sibling.

use countersteer_model::machine::MAX_PORT_SETS;

/// Number of core resources that SMT siblings share: dispatch, taken branches, sets of ports.
pub const SHARED_PARTS: usize = 2 + MAX_PORT_SETS;
/// Index of dispatch among the shared resources.
pub(crate) const DISPATCH: usize = 0;

/// Cycles for which each shared resource is used.
pub type Uses = [f64; SHARED_PARTS];

/// Use of a core by one thread.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CoreShares {
    /// Cycles per instruction for which the thread uses each shared resource.
    pub uses: Uses,
    /// Cycles per instruction that dependences need while no sibling runs.
    pub chains: f64,
    /// Cycles per instruction that dependences need while siblings fill their share of the schedulers.
    pub crowded: f64,
    /// Fraction of the scheduler entries available to the thread that it fills.
    pub waiting: f64,
    /// Wrong-path instructions per retired instruction: a core dispatches until a mispredicted branch is resolved.
    pub wrong_path: f64,
}

impl CoreShares {
    /// Returns the cycles per instruction between miss events next to the siblings `beside`.
    pub fn base(&self, beside: &Beside) -> f64 {
        let least = 1.0 / (1.0 + beside.threads);
        let parts = self.uses.iter().zip(&beside.used);
        let throughput = parts
            .map(|(use_, used)| use_ / (1.0 - used).max(least))
            .fold(0.0, f64::max);
        let waiting = beside.waiting / beside.threads.max(1.0);
        let chains = self.chains + (self.crowded - self.chains) * waiting;
        throughput + chains
    }

    /// Returns the mean of several uses of a core, weighted by instructions.
    pub fn mean(all: &[(&Self, f64)]) -> Self {
        let sum = |of: &dyn Fn(&Self) -> f64| all.iter().map(|(s, w)| w * of(s)).sum::<f64>();
        Self {
            uses: std::array::from_fn(|part| sum(&|s| s.uses[part])),
            chains: sum(&|s| s.chains),
            crowded: sum(&|s| s.crowded),
            waiting: sum(&|s| s.waiting),
            wrong_path: sum(&|s| s.wrong_path),
        }
    }
}

/// Use of the core by the running siblings of a thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beside {
    /// Fraction of the time during which the siblings use each shared resource.
    used: Uses,
    /// Sum over the siblings of the fraction of the schedulers that each fills.
    waiting: f64,
    pub threads: f64,
}

impl Beside {
    /// Creates the use of a core by `threads` siblings that run but use no shared resource.
    pub fn modest(threads: f64) -> Self {
        Self {
            threads,
            ..Self::default()
        }
    }

    /// Adds a sibling that runs at `ipc` instructions per cycle for the fraction `share` of the time.
    pub fn add(&mut self, shares: &CoreShares, ipc: f64, share: f64) {
        let dispatched = share * ipc * (1.0 + shares.wrong_path);
        for (used, each) in self.used.iter_mut().zip(shares.uses) {
            *used += dispatched * each;
        }
        self.waiting += share * shares.waiting;
        self.threads += share;
    }

    /// Adds the fraction `share` of the use by `others`.
    pub(crate) fn add_all(&mut self, others: &Self, share: f64) {
        for (used, other) in self.used.iter_mut().zip(others.used) {
            *used += share * other;
        }
        self.waiting += share * others.waiting;
        self.threads += share * others.threads;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread bound by dependences to one instruction per cycle, and to half of that with half of the schedulers.
    fn chained(uses: &[f64]) -> CoreShares {
        let mut shares = CoreShares {
            chains: 1.0,
            crowded: 2.0,
            waiting: 1.0,
            ..CoreShares::default()
        };
        shares.uses[..uses.len()].copy_from_slice(uses);
        shares
    }

    fn beside(shares: &CoreShares, ipc: f64) -> Beside {
        let mut beside = Beside::default();
        beside.add(shares, ipc, 1.0);
        beside
    }

    #[test]
    fn a_busy_port_holds_up_only_those_who_need_it() {
        let width_and_ports = |one: f64, other: f64| CoreShares {
            uses: chained(&[0.1, 0.0, one, other]).uses,
            chains: 1e-9,
            crowded: 1e-9,
            ..CoreShares::default()
        };
        let (loads, adds) = (width_and_ports(0.5, 0.0), width_and_ports(0.0, 0.5));
        let alone = loads.base(&Beside::default());
        assert!((alone - 0.5).abs() < 1e-6, "{alone}");
        assert!(
            (loads.base(&beside(&adds, 2.0)) - alone).abs() < 1e-6,
            "ports of their own"
        );
        assert!(
            (loads.base(&beside(&loads, 1.0)) - 2.0 * alone).abs() < 1e-6,
            "half of one port"
        );
        assert!(
            (loads.base(&beside(&loads, 0.4)) - alone / 0.8).abs() < 1e-6,
            "what it leaves"
        );
    }

    #[test]
    fn who_waits_in_the_schedulers_shortens_the_view_of_others() {
        let alone = chained(&[]).base(&Beside::default());
        let crowded = chained(&[]).base(&beside(&chained(&[]), 0.1));
        let roomy = chained(&[]).base(&beside(&CoreShares::default(), 4.0));
        assert!((alone - 1.0).abs() < 1e-9 && (crowded - 2.0).abs() < 1e-9);
        assert!(
            (roomy - alone).abs() < 1e-9,
            "one that waits for nothing takes no entries"
        );
    }
}
