//! Energy-aware placement of woken threads.
//!
//! Input: utilisation of all CPUs and an energy model. Output: the CPU on which a woken thread costs least energy, if it fits
//! any. Models `find_energy_efficient_cpu`, `compute_energy`, `em_cpu_energy` and `cpu_overutilized`. Each core type is one
//! performance domain. Machine files give power at the sustained frequency only, so the other operating points are assumed. They
//! are five frequencies from 40 % upwards, and power falls with the cube of frequency, because voltage is assumed proportional to
//! frequency. The kernel sets the overutilised flag at ticks and wake-ups, and clears it when it balances. The model computes it
//! at most once per tick.

use countersteer_model::machine::{CoreType, LinuxKind};
use countersteer_model::topology::Topology;

use super::Linux;
use super::schedule::fits;

/// Operating points as fractions of the sustained frequency.
const POINTS: [f64; 5] = [0.4, 0.55, 0.7, 0.85, 1.0];

/// Performance domain: CPUs that share one frequency and one power curve.
#[derive(Clone, Debug)]
struct PerformanceDomain {
    cpus: Vec<u32>,
    /// For each operating point: capacity, and power in watts per unit of used capacity.
    points: [(f64, f64); POINTS.len()],
}

/// Energy model of the machine, and the cached overutilised flag.
#[derive(Clone, Debug)]
pub(super) struct EnergyModel {
    domains: Vec<PerformanceDomain>,
    overutilised: bool,
    checked_until: u64,
}

/// CPU of a performance domain on which the woken thread may be placed.
struct Candidate {
    cpu: usize,
    spare: f64,
}

impl EnergyModel {
    /// Creates the energy model of a machine; `None` if Linux uses none there.
    pub(super) fn new(topology: &Topology) -> Option<Self> {
        if topology.linux != LinuxKind::EnergyAware {
            return None;
        }
        let domain = |(row, kind): (usize, &CoreType)| {
            let of_type = topology.cpus.iter().filter(|c| c.core_type.index() == row);
            let cpus: Vec<u32> = of_type.map(|c| c.id.0).collect();
            let full = f64::from(kind.capacity);
            // A busy core is assumed to dispatch half of its maximum width on average.
            let busy = kind.power.active_w
                + kind.power.instruction_nj * kind.freq_ghz * kind.dispatch_width * 0.5;
            PerformanceDomain {
                cpus,
                points: POINTS.map(|f| (full * f, busy * f * f / full)),
            }
        };
        let domains: Vec<_> = topology
            .core_types
            .iter()
            .enumerate()
            .map(domain)
            .filter(|d| !d.cpus.is_empty())
            .collect();
        Some(Self {
            domains,
            overutilised: false,
            checked_until: 0,
        })
    }
}

impl PerformanceDomain {
    /// Returns the power of the domain in watts. The utilisation of its busiest CPU, plus 25 % headroom, determines the frequency
    /// of all CPUs.
    fn power(&self, largest: f64, total: f64) -> f64 {
        let wanted = largest * 1.25;
        let point = self
            .points
            .iter()
            .find(|p| p.0 >= wanted)
            .unwrap_or(&self.points[POINTS.len() - 1]);
        point.1 * total
    }
}

impl Linux {
    /// True if at least one CPU has no headroom left, so that performance takes precedence over energy; true without an energy
    /// model.
    pub(super) fn overutilised(&self, now: u64) -> bool {
        match &self.energy {
            Some(model) if model.checked_until > now => model.overutilised,
            Some(_) => self
                .rqs
                .iter()
                .any(|rq| !rq.idle && !fits(rq.util(now), f64::from(rq.capacity))),
            None => true,
        }
    }

    fn refresh_overutilised(&mut self, now: u64) {
        let overutilised = self.overutilised(now);
        let until = now + self.tick_ns;
        if let Some(model) = self.energy.as_mut().filter(|m| m.checked_until <= now) {
            (model.overutilised, model.checked_until) = (overutilised, until);
        }
    }

    /// Returns the CPU on which the thread costs least energy; `None` if the usual wake-up path must choose the CPU.
    pub(super) fn place_by_energy(
        &mut self,
        t: u32,
        this: usize,
        prev: usize,
        now: u64,
    ) -> Option<usize> {
        self.refresh_overutilised(now);
        let clock = self.rqs[prev].pelt_clock(now);
        let thread = &mut self.threads[t as usize];
        thread.avg.update(clock, thread.rate());
        let sd = self.domains.full_capacity[this];
        if !self.domains.asymmetric || !self.domains.node(sd).mask.has(prev) {
            return None;
        }
        let thread = &self.threads[t as usize];
        // `find_energy_efficient_cpu` (kernel/sched/fair.c): a thread without utilisation stays on its previous CPU.
        if thread.planned_util() <= 0.0 {
            return Some(prev);
        }
        let model = self.energy.as_ref()?;
        let mut cost_of_prev = f64::INFINITY;
        let mut best: Option<(usize, f64)> = None;
        for domain in &model.domains {
            let (at_prev, widest) = self.candidates(domain, t, prev, now);
            if at_prev.is_none() && widest.is_none() {
                continue;
            }
            let base = self.energy_with(domain, t, None, prev, now);
            if let Some(c) = &at_prev {
                cost_of_prev = self.energy_with(domain, t, Some(c.cpu), prev, now) - base;
                best = best
                    .filter(|b| b.1 < cost_of_prev)
                    .or(Some((prev, cost_of_prev)));
            }
            if let Some(c) = widest.filter(|w| at_prev.as_ref().is_none_or(|p| w.spare > p.spare)) {
                let cost = self.energy_with(domain, t, Some(c.cpu), prev, now) - base;
                if best.is_none_or(|b| cost < b.1) {
                    best = Some((c.cpu, cost));
                }
            }
        }
        // A thread that fits no CPU stays on its previous CPU.
        Some(best.filter(|b| b.1 < cost_of_prev).map_or(prev, |b| b.0))
    }

    /// Returns the candidates of a domain that the thread fits: the previous CPU, and the other CPU with most spare capacity.
    fn candidates(
        &self,
        domain: &PerformanceDomain,
        t: u32,
        prev: usize,
        now: u64,
    ) -> (Option<Candidate>, Option<Candidate>) {
        let thread = &self.threads[t as usize];
        let mut at_prev: Option<Candidate> = None;
        let mut widest: Option<Candidate> = None;
        let cpus = domain.cpus.iter().map(|c| *c as usize);
        for cpu in cpus.filter(|c| thread.allowed.has(*c)) {
            let util = self.util_with(cpu, t, Some(cpu), prev, now);
            let capacity = f64::from(self.rqs[cpu].capacity);
            if !fits(util, capacity) {
                continue;
            }
            let candidate = Candidate {
                cpu,
                spare: (capacity - util).max(0.0),
            };
            if cpu == prev {
                at_prev = Some(candidate);
            } else if widest.as_ref().is_none_or(|w| candidate.spare > w.spare) {
                widest = Some(candidate);
            }
        }
        (at_prev, widest)
    }

    /// Returns the utilisation that a CPU would have if the thread ran on CPU `to`. The thread's blocked utilisation is
    /// subtracted on its previous CPU.
    fn util_with(&self, cpu: usize, t: u32, to: Option<usize>, prev: usize, now: u64) -> f64 {
        let thread = &self.threads[t as usize];
        let rq = &self.rqs[cpu];
        let mut util = rq.avg_at(now).util;
        let mut estimate = rq.util_est;
        if cpu == prev && to != Some(cpu) {
            util = (util - thread.avg.util).max(0.0);
        } else if cpu != prev && to == Some(cpu) {
            util += thread.avg.util;
        }
        if to == Some(cpu) {
            estimate += thread.util_est;
        }
        util.max(estimate).min(f64::from(rq.capacity))
    }

    fn energy_with(
        &self,
        domain: &PerformanceDomain,
        t: u32,
        to: Option<usize>,
        prev: usize,
        now: u64,
    ) -> f64 {
        let utils = domain
            .cpus
            .iter()
            .map(|c| self.util_with(*c as usize, t, to, prev, now));
        let (largest, total) = utils.fold((0.0_f64, 0.0), |(m, s), u| (m.max(u), s + u));
        domain.power(largest, total)
    }
}
