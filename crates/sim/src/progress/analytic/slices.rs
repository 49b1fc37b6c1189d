//! Forecast of a mapping with several threads on a CPU: the time-stepped model simulates their time slices.
//!
//! Input: programs on CPUs, several of them on one CPU, and the fixed point of [`super::steady`] as a start. Output: mean rates.
//! A computation from mean CPU shares is not accurate. Two programs on one CPU never run at the same time, and two on different
//! CPUs do so half of the time. Their mutual slowdown during these times differs from the slowdown by each other's mean. For the
//! same reason, programs pass through their phases here: each passes its whole timeline, at a higher pace if necessary.
//!
//! All CPUs switch threads at the same time, as at ticks. Each CPU starts a round with another thread, so that threads of any two
//! CPUs of equal load run together equally often. A real machine reaches this mix during a run, because of disturbances
//! ([`crate::linux::DISTURBED_EVERY_NS`]).

use countersteer_model::topology::Topology;
use countersteer_model::units::{CacheId, CpuId, Nanos, ThreadId};

use super::class::{ClassCpu, MAX_LEVELS};
use super::shared::AnalyticCache;
use super::{Analytic, ModelId, ProgressModel};
use crate::progress::{SteadyRates, TrueCounters};

/// Time slice of EEVDF in nanoseconds before it is scaled by the number of CPUs; see
/// [`crate::linux::LinuxConfig::base_slice_ns`].
const SLICE_NS: u64 = 700_000;
/// Number of time slices of each thread per round.
const SLICES: usize = 3;
/// Limit on the number of rounds that combine the threads of any two CPUs. With more CPUs, some of them start every round at the
/// same queue position.
const MOST_ROUNDS: usize = 16;
/// Maximum number of repetitions of these rounds.
const REPEATS: usize = 8;
/// Limit on the number of context switches, over all CPUs, up to which rounds are repeated.
const SWITCHES: usize = 3072;
/// Factor by which threads pass their timeline faster than at their own pace, so that more combinations of phases occur.
const PACE: f64 = 2.0;
/// Offset between the starts of consecutive threads, as a fraction of the timeline: the golden section, which keeps copies of a
/// program apart.
const APART: f64 = 0.618_033_988_749_895;
/// Number of instructions of each thread's work, which no thread completes.
const ENDLESS: f64 = 1e18;

/// Occupancies and speed of a program while it runs, from which the simulation of time slices starts.
pub(super) struct SliceStart {
    pub table: u32,
    pub share: f64,
    pub speed: f64,
    pub lines: [f64; MAX_LEVELS],
}

/// Thread of a forecast, with its CPU and its samples.
struct Tenant {
    cpu: usize,
    before: TrueCounters,
    lines: f64,
    looks: f64,
}

/// True if at least two threads share a CPU, and all threads of each CPU have equal shares.
pub(super) fn are_shared(assignment: &[(ModelId, CpuId, f64)], cpus: usize) -> bool {
    let mut load = vec![0usize; cpus];
    assignment
        .iter()
        .for_each(|(_, cpu, _)| load[cpu.index()] += 1);
    let equal = |(_, cpu, share): &(ModelId, CpuId, f64)| {
        (share * load[cpu.index()] as f64 - 1.0).abs() < 1e-6
    };
    load.iter().any(|n| *n > 1) && assignment.iter().all(equal)
}

/// Length of a time slice up to the tick that ends it, in nanoseconds.
pub(super) fn length_ns(topology: &Topology) -> u64 {
    let cpus = topology.cpus.len().clamp(1, 8) as u32;
    let slice = SLICE_NS * u64::from(1 + cpus.ilog2());
    slice.next_multiple_of(1_000_000_000 / u64::from(topology.hz.max(1)))
}

/// Length of the simulation of time slices.
struct Length {
    /// Number of rounds that are counted.
    rounds: usize,
    /// Number of time slices per round on each CPU.
    slices: usize,
    slice: Nanos,
}

impl Length {
    fn of(queues: &[Vec<u32>], topology: &Topology) -> Self {
        let most = queues.iter().map(Vec::len).max().unwrap_or(1);
        let crowded = queues.iter().filter(|q| q.len() > 1).count();
        let slices = SLICES * most;
        let mut rounds = most;
        while rounds < crowded.min(MOST_ROUNDS) {
            rounds *= most;
        }
        let switches = rounds * slices * crowded;
        Self {
            rounds: rounds * (SWITCHES / switches.max(1)).clamp(1, REPEATS),
            slices,
            slice: Nanos(length_ns(topology)),
        }
    }

    fn counted_ns(&self) -> f64 {
        (self.slice.0 * (self.rounds * self.slices) as u64) as f64
    }
}

/// Simulates the time slices of the assignment and returns its mean rates; `start` contains each thread's initial occupancies.
pub(super) fn run(
    progress: &Analytic,
    cpus: Vec<ClassCpu>,
    assignment: &[(ModelId, CpuId, f64)],
    start: &[SliceStart],
) -> Vec<SteadyRates> {
    let mut stage = progress.empty(cpus);
    let mut queues: Vec<Vec<u32>> = vec![Vec::new(); stage.cpus.len()];
    for (row, (_, cpu, _)) in assignment.iter().enumerate() {
        queues[cpu.index()].push(row as u32);
    }
    let length = Length::of(&queues, &progress.topology);
    for (row, (model, cpu, _)) in assignment.iter().enumerate() {
        let model = progress.models[model.0 as usize].clone();
        let offset = (row as f64 * APART).fract() * model.total();
        let stride = stride(&start[row], model.total(), length.counted_ns());
        let thread = ThreadId(row as u32);
        stage.models.push(model);
        stage.add_thread(thread, ModelId(row as u32));
        stage.set_work(thread, offset, ENDLESS, stride, Nanos::ZERO);
        stage.settle_in(thread.0, cpu.0, &start[row]);
    }
    stage.caches.iter_mut().for_each(AnalyticCache::fit);
    let mut now = Nanos::ZERO;
    let mut tenants: Vec<Tenant> = Vec::new();
    // The first round is not counted, because memory and caches first reach equilibrium.
    for round in 0..=length.rounds {
        if round == 1 {
            let of = |(row, at): (usize, &(ModelId, CpuId, f64))| Tenant {
                cpu: at.1.index(),
                before: stage.counters(ThreadId(row as u32), now),
                lines: 0.0,
                looks: 0.0,
            };
            tenants = assignment.iter().enumerate().map(of).collect();
        }
        for nth in 0..length.slices {
            stage.switch_all(&queues, round, nth, now);
            now += length.slice;
            stage.advance(now);
            stage.look(&mut tenants);
        }
    }
    let rates = tenants.iter().enumerate();
    rates
        .map(|(row, tenant)| stage.report(row as u32, tenant, now, length.counted_ns()))
        .collect()
}

/// Number of timeline instructions per instruction such that the thread passes its whole timeline a whole number of times.
fn stride(start: &SliceStart, timeline: f64, ns: f64) -> f64 {
    let instructions = start.speed * start.share * ns;
    let laps = (PACE * instructions / timeline).round().max(1.0);
    laps * timeline / instructions
}

/// Returns the first position in a CPU's queue in a round: a sum of products of digits. Any two CPUs with queues of length `base`
/// then have each difference of positions in equally many of base^n rounds.
fn begins(mut cpu: usize, mut round: usize, base: usize) -> usize {
    let mut sum = 0;
    while cpu > 0 && round > 0 {
        sum += (cpu % base) * (round % base);
        (cpu, round) = (cpu / base, round / base);
    }
    sum % base
}

impl Analytic {
    /// Gives a thread that has not run yet the occupancies of the fixed point.
    fn settle_in(&mut self, thread: u32, cpu: u32, start: &SliceStart) {
        if !self.config.contention {
            return;
        }
        let place = &self.cpus[cpu as usize];
        for k in 0..place.levels {
            let cache = &mut self.caches[place.chain[k] as usize];
            let row = cache.enter(thread, 0);
            let resident = &mut cache.residents[row];
            (resident.table, resident.level) = (start.table, k as u8);
            (resident.lines, resident.speed) = (start.lines[k], start.speed);
            resident.duty = start.share;
        }
    }

    fn switch_all(&mut self, queues: &[Vec<u32>], round: usize, nth: usize, now: Nanos) {
        let mut crowded = 0;
        for (cpu, queue) in queues.iter().enumerate() {
            let first = match queue.len() {
                0 => continue,
                1 => 0,
                base => {
                    crowded += 1;
                    begins(crowded - 1, round, base)
                }
            };
            let next = queue[(first + nth) % queue.len()];
            self.set_running(CpuId(cpu as u32), Some(ThreadId(next)), now);
        }
    }

    /// Samples the lines that running threads hold in their last-level caches.
    fn look(&self, tenants: &mut [Tenant]) {
        for (row, tenant) in tenants.iter_mut().enumerate() {
            if self.on_cpu[tenant.cpu] == row as u32 {
                let llc = self.cpus[tenant.cpu].pool;
                tenant.lines += self.occupancy_lines(ThreadId(row as u32), CacheId(llc));
                tenant.looks += 1.0;
            }
        }
    }

    fn report(&mut self, thread: u32, tenant: &Tenant, now: Nanos, passed_ns: f64) -> SteadyRates {
        let after = self.counters(ThreadId(thread), now);
        let since = |of: fn(&TrueCounters) -> f64| of(&after) - of(&tenant.before);
        let instructions = since(|c| c.instructions).max(1e-9);
        SteadyRates {
            ips: instructions / passed_ns * 1e9,
            ipc: instructions / since(|c| c.cycles).max(1e-9),
            llc_mpki: since(|c| c.llc_misses) / instructions * 1000.0,
            llc_lines: tenant.lines / f64::max(tenant.looks, 1.0),
            power_w: since(|c| c.energy_nj) / passed_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::begins;

    #[test]
    fn any_two_cpus_are_apart_by_each_distance_equally_often() {
        for (base, rounds, cpus) in [(2, 16, 16), (3, 9, 9)] {
            for a in 0..cpus {
                for b in 0..a {
                    let mut seen = vec![0; base];
                    for round in 0..rounds {
                        let apart = begins(a, round, base) + base - begins(b, round, base);
                        seen[apart % base] += 1;
                    }
                    assert_eq!(seen, vec![rounds / base; base], "{a} and {b}");
                }
            }
        }
    }
}
