//! Advice to threads: the core type on which each will run, its speed there, and its share of a CPU.
//!
//! Input: threads with their placements and speed-up factors. Output: [`Advice`] for each.

use std::sync::Arc;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::engine::ThreadInfo;
use countersteer_model::topology::Topology;
use countersteer_model::units::CoreTypeId;

use crate::hint_page::Advice;

/// Relative difference in speed or share from which new advice is written.
const WORTH: f64 = 0.02;

/// Load of CPUs.
pub(super) struct Outlook {
    topology: Arc<Topology>,
    /// Weights of the threads that want a CPU, spread over those they may use.
    load: Vec<f64>,
}

/// Thread, as input of its advice.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) info: &'a ThreadInfo,
    /// CPUs to which it is confined.
    pub(super) cpus: &'a CpuSet,
    /// Part of the time in which it wants a CPU.
    pub(super) demand: f64,
    pub(super) sf: Option<f64>,
}

impl Seen<'_> {
    /// Weight on each of its CPUs.
    fn part(&self) -> f64 {
        1.25f64.powi(-i32::from(self.info.nice)) / self.cpus.len().max(1) as f64
    }
}

impl Outlook {
    /// Outlook of all these threads.
    pub(super) fn new(topology: &Arc<Topology>, threads: &[Seen<'_>]) -> Self {
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

    /// Advice for one of them.
    pub(super) fn of(&self, thread: &Seen<'_>) -> Advice {
        let types = &self.topology.core_types;
        let core_type = self.core_type(thread.info, thread.cpus);
        let sf = thread.sf.filter(|sf| sf.is_finite() && *sf > 0.0);
        Advice {
            epoch: 0,
            rank: core_type.0,
            core_types: types.len() as u32,
            sf,
            speed: self.speed(core_type, sf),
            share: self.share(thread),
            name: Advice::name_of(types.get(core_type.index()).map_or("", |t| &t.name)),
        }
    }

    /// Type of the CPUs that it may use; if there are several, the type of its present CPU.
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

    /// Speed of a thread with this speed-up factor on a type, relative to the slowest.
    fn speed(&self, core_type: CoreTypeId, sf: Option<f64>) -> f64 {
        let (fast, slow) = self.topology.extremes();
        let types = &self.topology.core_types;
        // If the kernel gives all types one capacity, their clocks distinguish them.
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

    /// Its part of the CPUs that it may use, each shared by weight.
    fn share(&self, thread: &Seen<'_>) -> f64 {
        let part = thread.part();
        // Its share while it wants a CPU; its demand otherwise is part of the load.
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

/// True if the difference is too small to be written.
pub(super) fn is_near(a: &Advice, b: &Advice) -> bool {
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
