//! Advice to threads: the core type on which each thread will run, its speed there, and its fraction
//! of a CPU.
//!
//! Input: threads with their placements and speed-up factors. Output: an [`HintAdvice`] for each.

use std::sync::Arc;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::engine::ThreadInfo;
use countersteer_model::topology::Topology;
use countersteer_model::units::CoreTypeId;

use crate::hint_page::HintAdvice;

/// Threshold: minimum relative difference in speed or CPU time at which new advice is written.
const WORTH: f64 = 0.02;

/// Load of the CPUs under a placement, from which advice is computed.
pub(super) struct LoadOutlook {
    topology: Arc<Topology>,
    /// Load of each CPU: weights of the threads that demand CPU time, each spread over the thread's
    /// CPUs.
    load: Vec<f64>,
}

/// Thread with the data for its advice.
#[derive(Clone, Copy)]
pub(super) struct AdvisedThread<'a> {
    pub(super) info: &'a ThreadInfo,
    /// CPUs on which the thread may run.
    pub(super) cpus: &'a CpuSet,
    /// Fraction of the time in which the thread demands a CPU.
    pub(super) demand: f64,
    /// Speed-up factor of the thread; `None` if unknown.
    pub(super) sf: Option<f64>,
}

impl AdvisedThread<'_> {
    /// Returns the thread's weight on each of its CPUs.
    fn part(&self) -> f64 {
        1.25f64.powi(-i32::from(self.info.nice)) / self.cpus.len().max(1) as f64
    }
}

impl LoadOutlook {
    /// Computes the load from these threads.
    pub(super) fn new(topology: &Arc<Topology>, threads: &[AdvisedThread<'_>]) -> Self {
        let mut load = vec![0.0; topology.cpus.len()];
        for thread in threads {
            for cpu in thread
                .cpus
                .iter()
                .filter(|cpu| cpu.index() < topology.cpus.len())
            {
                load[cpu.index()] += thread.part() * thread.demand;
            }
        }
        Self {
            topology: Arc::clone(topology),
            load,
        }
    }

    /// Returns the advice for a thread.
    pub(super) fn of(&self, thread: &AdvisedThread<'_>) -> HintAdvice {
        let types = &self.topology.core_types;
        let core_type = self.core_type(thread.info, thread.cpus);
        let sf = thread.sf.filter(|sf| sf.is_finite() && *sf > 0.0);
        HintAdvice {
            epoch: 0,
            rank: core_type.0,
            core_types: types.len() as u32,
            sf,
            speed: self.speed(core_type, sf),
            share: self.share(thread),
            name: HintAdvice::name_of(types.get(core_type.index()).map_or("", |t| &t.name)),
        }
    }

    /// Returns the core type of the CPUs on which a thread may run. If there are several types,
    /// returns the type of its current CPU.
    fn core_type(&self, info: &ThreadInfo, cpus: &CpuSet) -> CoreTypeId {
        let mut types = cpus
            .iter()
            .filter(|c| c.index() < self.load.len())
            .map(|c| self.topology.core_type_of(c));
        let first = types.next().unwrap_or_default();
        if types.all(|t| t == first)
            || info.cpu.index() >= self.load.len()
            || !cpus.contains(info.cpu)
        {
            return first;
        }
        self.topology.core_type_of(info.cpu)
    }

    /// Returns the speed of a thread on a core type relative to the slowest type, given its speed-up
    /// factor.
    fn speed(&self, core_type: CoreTypeId, sf: Option<f64>) -> f64 {
        let (fast, slow) = self.topology.extremes();
        let types = &self.topology.core_types;
        // If the kernel gives all types one capacity, their clock frequencies distinguish them.
        let alike = types.iter().all(|t| t.capacity == types[0].capacity);
        let nominal = |t: CoreTypeId| {
            types.get(t.index()).map_or(1.0, |t| {
                if alike {
                    t.freq_ghz
                } else {
                    f64::from(t.capacity)
                }
            })
        };
        let range = nominal(fast) - nominal(slow);
        if range <= 0.0 {
            return 1.0;
        }
        let most = sf.unwrap_or(nominal(fast) / nominal(slow));
        1.0 + (most - 1.0) * (nominal(core_type) - nominal(slow)) / range
    }

    /// Returns the fraction of a CPU that the thread gets, if its CPUs are shared by weight.
    fn share(&self, thread: &AdvisedThread<'_>) -> f64 {
        let part = thread.part();
        // The load contains only the demanded fraction of the thread's weight. While the thread
        // runs, its whole weight counts.
        let of = |load: &f64| part / (load + part * (1.0 - thread.demand)).max(part);
        let sum: f64 = thread
            .cpus
            .iter()
            .filter_map(|cpu| self.load.get(cpu.index()))
            .map(of)
            .sum();
        sum.min(1.0)
    }
}

/// True if two pieces of advice differ too little for the new one to be written.
pub(super) fn is_near(a: &HintAdvice, b: &HintAdvice) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= WORTH * a.abs().max(b.abs());
    let factors = match (a.sf, b.sf) {
        (Some(a), Some(b)) => near(a, b),
        (None, None) => true,
        _ => false,
    };
    (a.rank, a.core_types, a.name) == (b.rank, b.core_types, b.name)
        && factors
        && near(a.speed, b.speed)
        && near(a.share, b.share)
}
