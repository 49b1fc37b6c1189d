//! Frequencies of CPUs, computed from the load of each CPU, the clamps of the policy, and the power limit of the package.
//!
//! Input: a topology with operating points, and at each update the running threads, utilisations and clamps. Output: an operating
//! point for each clock. Without operating points, no frequencies are computed.
//!
//! - Turbo: the table of a core type limits the frequency of its cores, by the number of cores that run a thread.
//! - Governor: `performance` selects this limit. `schedutil` selects the slowest point that is fast enough for 5/4 of the
//!   utilisation. It stays within the clamps of the runnable threads (the maximum of each bound, as in the kernel).
//!   Utilisation is relative to the capacity of the type at `freq_ghz`. A CPU that uses all of its capacity gets the turbo
//!   limit (kernel/sched/cpufreq_schedutil.c of 6.8 and later). CPUs of one clock get the point of the busiest CPU.
//! - Limits of the policy: a clock does not exceed the lowest limit of its CPUs, whatever the governor and the clamps ask for
//!   (`scaling_max_freq` of cpufreq). A limit below the slowest point means the slowest point.
//! - Power limit: a moving average of the package's power is compared with the limit every 10 ms. While it is above the limit,
//!   all types go down one more point. While it is more than 2 % below, they go up again.

use countersteer_model::machine::{Governor, Point, PowerLimit};
use countersteer_model::placement::{Clamp, ClockLimit};
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos};

/// Time between two checks of the package's power.
const POWER_LOOK: Nanos = Nanos(10_000_000);
/// Threshold: fraction of the power limit below which the average power must fall before cores become faster again.
const RELIEVED: f64 = 0.98;
/// Factor by which schedutil increases utilisation as headroom.
const HEADROOM: f64 = 1.25;

/// Clock domain: CPUs that share one frequency.
#[derive(Clone, Debug)]
struct ClockDomain {
    cpus: Vec<CpuId>,
    core_type: usize,
    point: usize,
    /// Index of the fastest point that the policy's limits allow.
    most: usize,
}

/// Request of a CPU to its clock: utilisation and clamps.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockRequest {
    pub cpu: CpuId,
    /// Utilisation of the CPU; 1,024 is full use of the largest CPU.
    pub utilisation: f64,
    /// Clamps of the CPU's runnable threads, aggregated to the maximum of each bound.
    pub clamp: Clamp,
}

/// Power limit of the package, and moving average of its power.
#[derive(Clone, Copy, Debug)]
struct PowerBudget {
    limit: PowerLimit,
    average_w: f64,
    energy_j: f64,
    at: Nanos,
}

impl PowerBudget {
    /// Updates the average power with the energy used since the last check. Returns 1 if cores must go down one operating point,
    /// -1 if they may go up one point, and otherwise 0.
    fn look(&mut self, energy_j: f64, now: Nanos) -> i32 {
        let seconds = now.since(self.at).as_secs_f64();
        if seconds <= 0.0 {
            return 0;
        }
        let power = (energy_j - self.energy_j) / seconds;
        let kept = (-seconds / self.limit.seconds).exp();
        self.average_w = power + (self.average_w - power) * kept;
        (self.energy_j, self.at) = (energy_j, now);
        if self.average_w > self.limit.watts {
            1
        } else {
            -i32::from(self.average_w < RELIEVED * self.limit.watts)
        }
    }
}

/// Clock domains of a machine.
#[derive(Clone, Debug)]
pub(super) struct ClockDomains {
    governor: Governor,
    /// Operating points of each core type, and the index of the point with `freq_ghz`.
    points: Vec<(Vec<Point>, usize)>,
    clocks: Vec<ClockDomain>,
    budget: Option<PowerBudget>,
    /// Number of operating points by which the power limit lowers every core type.
    throttled: usize,
    /// Time of the next update if no thread is switched before.
    next: Nanos,
    /// Time between two updates by schedutil: one scheduler tick.
    tick: Nanos,
}

impl ClockDomains {
    /// Creates the clocks of a machine; `None` if none of its core types has operating points.
    pub fn new(topology: &Topology, governor: Governor) -> Option<Self> {
        if topology.core_types.iter().all(|t| t.frequency.is_none()) {
            return None;
        }
        let mut clocks: Vec<ClockDomain> = Vec::new();
        for cpu in &topology.cpus {
            let row = cpu.clock as usize;
            let core_type = cpu.core_type.index();
            let empty = || ClockDomain {
                cpus: Vec::new(),
                core_type,
                point: topology.core_types[core_type].nominal_point(),
                most: usize::MAX,
            };
            if clocks.len() <= row {
                clocks.resize_with(row + 1, empty);
            }
            if clocks[row].cpus.is_empty() {
                clocks[row] = empty();
            }
            clocks[row].cpus.push(cpu.id);
        }
        let points = topology.core_types.iter();
        Some(Self {
            governor,
            points: points.map(|t| (t.points(), t.nominal_point())).collect(),
            clocks,
            budget: topology.power_limit.map(|limit| PowerBudget {
                limit,
                average_w: 0.0,
                energy_j: 0.0,
                at: Nanos::ZERO,
            }),
            throttled: 0,
            next: Nanos::ZERO,
            tick: Nanos(1_000_000_000 / u64::from(topology.hz.max(1))),
        })
    }

    /// True if the governor applies utilisation clamps.
    pub(crate) fn applies_clamps(&self) -> bool {
        self.governor == Governor::Schedutil
    }

    /// Replaces the policy's limits. Returns the number of CPUs whose types have no operating points.
    pub fn limit(&mut self, topology: &Topology, limits: &[ClockLimit]) -> u32 {
        for clock in &mut self.clocks {
            clock.most = usize::MAX;
        }
        let mut unsupported = 0;
        for limit in limits {
            let clock = &mut self.clocks[topology.cpus[limit.cpu.index()].clock as usize];
            let (points, _) = &self.points[clock.core_type];
            let within = points.partition_point(|p| p.ghz * 1e3 < f64::from(limit.most_mhz) + 0.5);
            clock.most = clock.most.min(within.saturating_sub(1));
            unsupported += u32::from(topology.core_types[clock.core_type].frequency.is_none());
        }
        unsupported
    }

    /// Time of the next update if no thread is switched before; `NEVER` if none is due.
    pub fn next(&self) -> Nanos {
        self.next
    }

    /// True if the power limit must be checked now, which needs the package's energy.
    pub(crate) fn wants_energy(&self, now: Nanos) -> bool {
        self.budget.is_some_and(|b| now >= b.at + POWER_LOOK)
    }

    /// Compares the average power with the power limit, and changes the operating points of all core types. `energy_j` is the
    /// package's energy since time zero.
    pub fn account(&mut self, energy_j: f64, now: Nanos) {
        let Some(budget) = &mut self.budget else {
            return;
        };
        let most = self.points.iter().map(|(p, _)| p.len()).max().unwrap_or(1);
        match budget.look(energy_j, now) {
            1 => self.throttled = (self.throttled + 1).min(most - 1),
            -1 => self.throttled = self.throttled.saturating_sub(1),
            _ => {}
        }
    }

    /// Chooses operating points for the clocks whose CPUs run a thread. Appends to `changes` each CPU whose frequency changes,
    /// with the index of its point and its frequency as a fraction of `freq_ghz`.
    pub fn choose(
        &mut self,
        topology: &Topology,
        running: &[ClockRequest],
        now: Nanos,
        changes: &mut Vec<(CpuId, usize, f64)>,
    ) {
        let mut caps = Vec::with_capacity(self.points.len());
        for (row, of) in topology.core_types.iter().enumerate() {
            let mut active: Vec<u32> = running
                .iter()
                .map(|asked| &topology.cpus[asked.cpu.index()])
                .filter(|cpu| cpu.core_type.index() == row)
                .map(|cpu| cpu.core)
                .collect();
            active.sort_unstable();
            active.dedup();
            caps.push(
                of.fastest_point(active.len())
                    .saturating_sub(self.throttled),
            );
        }
        for row in 0..self.clocks.len() {
            let asked = running
                .iter()
                .filter(|a| topology.cpus[a.cpu.index()].clock as usize == row);
            let wanted = asked.map(|asked| self.wanted(topology, asked)).max();
            let clock = &mut self.clocks[row];
            // A clock without running threads keeps its frequency, which costs nothing while its cores are gated.
            let point = wanted.map_or(clock.point, |p| {
                p.min(caps[clock.core_type]).min(clock.most)
            });
            if point != clock.point {
                clock.point = point;
                let (points, nominal) = &self.points[clock.core_type];
                let part = points[point].ghz / points[*nominal].ghz;
                changes.extend(clock.cpus.iter().map(|cpu| (*cpu, point, part)));
            }
        }
        let tick = self.governor == Governor::Schedutil && !running.is_empty();
        let look = self.budget.map_or(Nanos::NEVER, |b| b.at + POWER_LOOK);
        self.next = look.min(if tick { now + self.tick } else { Nanos::NEVER });
    }

    /// Index of the slowest operating point that meets a CPU's request, before the turbo limit and the power limit are applied.
    fn wanted(&self, topology: &Topology, asked: &ClockRequest) -> usize {
        let core_type = topology.core_type_of(asked.cpu).index();
        let (points, nominal) = &self.points[core_type];
        let fastest = points.len() - 1;
        if self.governor == Governor::Performance {
            return fastest;
        }
        let capacity = f64::from(topology.cpus[asked.cpu.index()].capacity);
        let least = f64::from(asked.clamp.least);
        let most = f64::from(asked.clamp.most);
        let needed = (HEADROOM * asked.utilisation).min(most).max(least);
        if needed >= capacity {
            return fastest;
        }
        let ghz = points[*nominal].ghz * needed / capacity;
        points.partition_point(|p| p.ghz < ghz).min(fastest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_lasts_until_the_average_reaches_the_limit() {
        let limit = PowerLimit {
            watts: 100.0,
            seconds: 2.0,
        };
        let mut budget = PowerBudget {
            limit,
            average_w: 0.0,
            energy_j: 0.0,
            at: Nanos::ZERO,
        };
        let mut now = Nanos::ZERO;
        let mut energy = 0.0;
        // 160 W from idle: 160 (1 - exp(-t/2)) = 100.
        let expected = -2.0 * (1.0f64 - 100.0 / 160.0).ln();
        loop {
            now += POWER_LOOK;
            energy += 160.0 * POWER_LOOK.as_secs_f64();
            if budget.look(energy, now) == 1 {
                break;
            }
        }
        assert!(
            (now.as_secs_f64() - expected).abs() < 0.011,
            "{now} {expected}"
        );
        assert_eq!(budget.look(energy, now), 0, "no time, no news");
    }
}
