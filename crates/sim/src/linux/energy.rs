//! Energy-aware placement of woken threads.
//!
//! Input: utilisation of all CPUs and an energy model. Output: the CPU on which a woken thread costs least energy, if it fits
//! any. Models `find_energy_efficient_cpu`, `compute_energy`, `em_cpu_energy` and `cpu_overutilized`. Each core type is one
//! performance domain. Machine files give power at the sustained frequency only, so the other operating points are assumed. They
//! are five frequencies from 40 % upwards, and power falls with the cube of frequency, because voltage is assumed proportional to
//! frequency. The kernel sets the overutilised flag at ticks and wake-ups, and clears it when it balances. The model computes it
//! at most once per tick.

use countersteer_model::machine::{CoreType, LinuxKind};
use countersteer_model::placement::Clamp;
use countersteer_model::topology::Topology;

use super::Linux;
use super::clamps::{CapacityFit, fit};

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
#[derive(Clone, Copy)]
struct EnergyCandidate {
    cpu: usize,
    spare: f64,
    fit: CapacityFit,
    capacity: u32,
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
                .enumerate()
                .filter(|(_, rq)| !rq.idle)
                .any(|(cpu, rq)| {
                    // `cpu_overutilized` ignores the lower clamp.
                    let most = self.clamp_of_queue(cpu, None).most;
                    let clamp = Clamp { least: 0, most };
                    fit(rq.util(now), clamp, rq.capacity) == CapacityFit::No
                }),
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
        if thread.planned_util() <= 0.0 && thread.clamp.least == 0 {
            return Some(prev);
        }
        let model = self.energy.as_ref()?;
        let mut at_prev_cpu: Option<(EnergyCandidate, f64)> = None;
        let mut best: Option<(EnergyCandidate, f64)> = None;
        for domain in &model.domains {
            let (at_prev, widest) = self.candidates(domain, t, prev, now);
            if at_prev.is_none() && widest.is_none() {
                continue;
            }
            let base = self.energy_with(domain, t, None, prev, now);
            let cost_of =
                |c: &EnergyCandidate| self.energy_with(domain, t, Some(c.cpu), prev, now) - base;
            if let Some(c) = at_prev {
                at_prev_cpu = Some((c, cost_of(&c)));
            }
            let Some(c) = widest.filter(|w| at_prev.is_none_or(|p| w.spare > p.spare)) else {
                continue;
            };
            let cost = cost_of(&c);
            let beats = |(than, its): &(EnergyCandidate, f64)| match (c.fit, than.fit) {
                (CapacityFit::TooSlow, CapacityFit::TooSlow) => c.capacity > than.capacity,
                (here, there) if here == there => cost < *its,
                (here, there) => here > there,
            };
            // `best_delta` is at most the cost of the previous CPU, once that is known.
            let dearer = at_prev_cpu.is_some_and(|(p, its)| {
                p.fit == CapacityFit::Yes && c.fit == CapacityFit::Yes && cost >= its
            });
            if best.as_ref().is_none_or(beats) && !dearer {
                best = Some((c, cost));
            }
        }
        let (Some((best, cost)), prev_cpu) = (best, at_prev_cpu) else {
            // A thread that fits no CPU stays on its previous CPU.
            return Some(prev);
        };
        let leaves = prev_cpu.is_none_or(|(p, its)| match (best.fit, p.fit) {
            (CapacityFit::TooSlow, CapacityFit::TooSlow) => best.capacity > p.capacity,
            (here, there) if here == there => cost < its,
            (here, there) => here > there,
        });
        Some(if leaves { best.cpu } else { prev })
    }

    /// Returns the candidates of a domain that the thread fits: the previous CPU, and the other CPU with most spare capacity.
    fn candidates(
        &self,
        domain: &PerformanceDomain,
        t: u32,
        prev: usize,
        now: u64,
    ) -> (Option<EnergyCandidate>, Option<EnergyCandidate>) {
        let thread = &self.threads[t as usize];
        let mut at_prev: Option<EnergyCandidate> = None;
        let mut widest: Option<EnergyCandidate> = None;
        let cpus = domain.cpus.iter().map(|c| *c as usize);
        for cpu in cpus.filter(|c| thread.allowed.has(*c)) {
            let util = self.util_with(cpu, t, Some(cpu), prev, now);
            let capacity = f64::from(self.rqs[cpu].capacity);
            let clamp = self.clamp_of_queue(cpu, Some(thread.clamp));
            let fit = fit(util, clamp, self.rqs[cpu].capacity);
            if fit == CapacityFit::No {
                continue;
            }
            let candidate = EnergyCandidate {
                cpu,
                spare: (capacity - util).max(0.0),
                fit,
                capacity: self.rqs[cpu].capacity,
            };
            if cpu == prev {
                at_prev = Some(candidate);
            } else if widest
                .as_ref()
                .is_none_or(|w| (candidate.fit, candidate.spare) > (w.fit, w.spare))
            {
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
        let utils = domain.cpus.iter().map(|c| {
            let cpu = *c as usize;
            let util = self.util_with(cpu, t, to, prev, now);
            // `eenv_pd_max_util`: clamps limit the frequency that a CPU asks for, not the time that it is busy.
            let woken = (to == Some(cpu)).then_some(self.threads[t as usize].clamp);
            let clamp = self.clamp_of_queue(cpu, woken);
            let asked = util.max(f64::from(clamp.least)).min(f64::from(clamp.most));
            (asked, util)
        });
        let (largest, total) = utils.fold((0.0_f64, 0.0), |(m, s), u| (m.max(u.0), s + u.1));
        domain.power(largest, total)
    }
}
