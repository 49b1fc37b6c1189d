//! Predicted cost of the next slice: power and speed of threads on CPUs, and the effect of moves on both.

use countersteer_model::corun::Siblings;
use countersteer_model::machine::{CorePipeline, CoreType, Point};
use countersteer_model::topology::{GroupBy, Topology};
use countersteer_model::units::{ProgramId, ThreadId};

use super::history::ThreadSlice;
use super::power::{PowerWeights, USES};

/// Slowdown of a thread by busy SMT siblings: each of two threads runs at 1 / 1.6 of its speed, together at 1.25.
const SIBLINGS: Siblings = Siblings {
    each: 0.6,
    width: 0.0,
};
/// Limit on the fraction of a thread's time that is assumed to wait for memory.
const MOST_STALLS: f64 = 0.9;
/// Indices in [`countersteer_model::machine::WorkUnit::ALL`] of the floating-point adders and multipliers.
const FP_UNITS: [usize; 2] = [4, 5];

/// Properties of the machine that predictions need, as tables.
pub(super) struct MachineTables {
    /// CPUs of each core.
    pub cores: Vec<Vec<usize>>,
    /// Core of each CPU.
    pub core_of: Vec<usize>,
    /// Core type of each CPU.
    pub core_type: Vec<usize>,
    /// Capacity of each CPU.
    capacity: Vec<f64>,
    /// Latency of memory of each CPU, in seconds.
    latency_s: Vec<f64>,
    /// Peak floating-point instructions per cycle by core type.
    pub fp_peak: Vec<f64>,
    /// Power in W of a parked core by core type.
    parked_w: Vec<f64>,
    /// Power in W of a core that idles between threads, by core type.
    idle_w: Vec<f64>,
    /// Nominal frequency in Hz by core type.
    pub hz: Vec<f64>,
    /// Power in W of the package apart from its cores.
    static_w: f64,
    /// Clock of each CPU.
    clock_of: Vec<usize>,
    /// CPUs of each clock.
    pub clocks: Vec<Vec<usize>>,
    /// Operating points by core type; empty if the machine file has none.
    points: Vec<Vec<Point>>,
}

impl MachineTables {
    pub fn new(topology: &Topology) -> Self {
        let mut cores = vec![Vec::new(); topology.groups_by(GroupBy::Core).len()];
        for cpu in &topology.cpus {
            cores[cpu.core as usize].push(cpu.id.index());
        }
        let cpus = &topology.cpus;
        let latency = |memory: u32| topology.memory.get(memory as usize).map(|m| m.latency_ns);
        let types = &topology.core_types;
        Self {
            cores,
            core_of: cpus.iter().map(|c| c.core as usize).collect(),
            core_type: cpus.iter().map(|c| c.core_type.index()).collect(),
            capacity: cpus.iter().map(|c| f64::from(c.capacity.max(1))).collect(),
            latency_s: cpus
                .iter()
                .map(|c| latency(c.memory).unwrap_or(0.0) * 1e-9)
                .collect(),
            fp_peak: types.iter().map(fp_peak).collect(),
            parked_w: types.iter().map(|t| t.power.idle_w).collect(),
            idle_w: types
                .iter()
                .map(|t| t.idle.as_ref().map_or(t.power.idle_w, |i| i.clock_gated_w))
                .collect(),
            hz: types.iter().map(|t| t.freq_ghz * 1e9).collect(),
            static_w: topology.static_power_w,
            clock_of: cpus.iter().map(|c| c.clock as usize).collect(),
            clocks: clocks(topology),
            points: types
                .iter()
                .map(|t| t.frequency.as_ref().map_or_else(Vec::new, |_| t.points()))
                .collect(),
        }
    }

    /// Operating points of a clock; empty if the machine file has none.
    pub fn points(&self, clock: usize) -> &[Point] {
        let cpu = self.clocks[clock].first();
        cpu.map_or(&[], |cpu| &self.points[self.core_type[*cpu]])
    }

    /// Returns the power of a busy CPU at a frequency, relative to that at the nominal frequency; 1 without operating points.
    pub fn power_at(&self, core_type: usize, hz: f64) -> f64 {
        let points = &self.points[core_type];
        let ghz = hz * 1e-9;
        let above = points.partition_point(|p| p.ghz < ghz);
        match (points.get(above.wrapping_sub(1)), points.get(above)) {
            (Some(a), Some(b)) => a.power + (b.power - a.power) * (ghz - a.ghz) / (b.ghz - a.ghz),
            (Some(end), None) | (None, Some(end)) => end.power,
            (None, None) => 1.0,
        }
    }
}

fn clocks(topology: &Topology) -> Vec<Vec<usize>> {
    let mut clocks = Vec::new();
    for cpu in &topology.cpus {
        let row = cpu.clock as usize;
        if clocks.len() <= row {
            clocks.resize(row + 1, Vec::new());
        }
        clocks[row].push(cpu.id.index());
    }
    clocks
}

/// Returns the number of ports with a floating-point adder or multiplier, or half the dispatch width if the pipeline is
/// unknown.
fn fp_peak(core_type: &CoreType) -> f64 {
    let pipeline = core_type.pipeline.as_deref().and_then(CorePipeline::named);
    let ports = pipeline.map_or(0, |p| {
        let has = |port: &&countersteer_model::machine::UnitSet| {
            FP_UNITS.iter().any(|unit| port.contains(*unit))
        };
        p.ports.iter().filter(has).count()
    });
    if ports > 0 {
        ports as f64
    } else {
        (core_type.dispatch_width / 2.0).max(1.0)
    }
}

/// Thread with at least k slices, which may be moved.
#[derive(Clone, Copy, Debug)]
pub(super) struct MovableThread {
    pub id: ThreadId,
    pub program: ProgramId,
    /// Index of the thread's current CPU.
    pub cpu: usize,
    /// Mean of the thread's last k slices.
    pub mean: ThreadSlice,
}

/// Move of a thread to another CPU, with the factor by which its misses change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shift {
    pub row: usize,
    pub to: usize,
    pub misses: f64,
}

/// Change of a clock to an operating point.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockStep {
    pub clock: usize,
    pub point: Point,
}

/// Predicted power and speed of the next slice.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct SlicePrediction {
    pub power_w: f64,
    /// Work per second, in units of one CPU at a thread's current speed.
    pub speed: f64,
}

impl SlicePrediction {
    /// Returns the cost to minimise: `power / speed^time_weight`. Infinite if no thread runs.
    pub fn cost(&self, time_weight: f64) -> f64 {
        self.power_w / self.speed.powf(time_weight)
    }
}

/// Threads on their CPUs, with each core's predicted power and speed.
pub(super) struct ThreadPlaces<'a> {
    pub machine: &'a MachineTables,
    pub power: &'a PowerWeights,
    pub members: Vec<MovableThread>,
    /// Indices of the members on each CPU.
    pub on: Vec<Vec<usize>>,
    /// Frequency of each clock in Hz: the highest measured of its threads, or the nominal one.
    pub hz: Vec<f64>,
    /// Predicted power and speed of each core if no thread moves.
    cores: Vec<SlicePrediction>,
}

impl<'a> ThreadPlaces<'a> {
    pub fn new(
        machine: &'a MachineTables,
        power: &'a PowerWeights,
        members: Vec<MovableThread>,
    ) -> Self {
        let mut on = vec![Vec::new(); machine.core_of.len()];
        for (row, member) in members.iter().enumerate() {
            on[member.cpu].push(row);
        }
        let nominal = |cpus: &Vec<usize>| {
            let first = cpus.first();
            first.map_or(0.0, |cpu| machine.hz[machine.core_type[*cpu]])
        };
        let measured = |cpus: &Vec<usize>| {
            let rows = cpus.iter().flat_map(|cpu| &on[*cpu]);
            rows.filter_map(|row| members[*row].mean.rates.clock_hz)
                .reduce(f64::max)
        };
        let hz = machine.clocks.iter();
        let hz = hz.map(|cpus| measured(cpus).unwrap_or_else(|| nominal(cpus)));
        let hz = hz.collect();
        let mut places = Self {
            machine,
            power,
            members,
            on,
            hz,
            cores: Vec::new(),
        };
        places.cores = (0..machine.cores.len())
            .map(|core| places.core(core, &[], None))
            .collect();
        places
    }

    /// Returns the predicted power and speed of the next slice if no thread moves.
    pub fn stay(&self) -> SlicePrediction {
        let mut sum = SlicePrediction {
            power_w: self.machine.static_w,
            speed: 0.0,
        };
        for core in &self.cores {
            sum.power_w += core.power_w;
            sum.speed += core.speed;
        }
        sum
    }

    /// Returns the predicted power and speed of the next slice after these moves; `stay` is the prediction without moves.
    pub fn after(&self, stay: SlicePrediction, shifts: &[Shift]) -> SlicePrediction {
        let mut changed: Vec<usize> = shifts
            .iter()
            .flat_map(|s| [self.members[s.row].cpu, s.to])
            .map(|cpu| self.machine.core_of[cpu])
            .collect();
        changed.sort_unstable();
        changed.dedup();
        self.changed(stay, changed, |core| self.core(core, shifts, None))
    }

    /// Returns the predicted power and speed of the next slice after a change of a clock.
    pub fn at(&self, stay: SlicePrediction, step: ClockStep) -> SlicePrediction {
        let cpus = self.machine.clocks[step.clock].iter();
        let mut cores: Vec<usize> = cpus.map(|cpu| self.machine.core_of[*cpu]).collect();
        cores.dedup();
        self.changed(stay, cores, |core| self.core(core, &[], Some(step)))
    }

    fn changed(
        &self,
        stay: SlicePrediction,
        cores: Vec<usize>,
        after: impl Fn(usize) -> SlicePrediction,
    ) -> SlicePrediction {
        let mut sum = stay;
        for core in cores {
            let (before, after) = (self.cores[core], after(core));
            sum.power_w += after.power_w - before.power_w;
            sum.speed += after.speed - before.speed;
        }
        sum
    }

    /// Returns the CPU time that the threads on a CPU demand, in CPUs; above 1, threads must wait.
    pub fn load(&self, cpu: usize) -> f64 {
        self.on[cpu]
            .iter()
            .map(|row| self.members[*row].mean.wanted)
            .sum()
    }

    /// Returns a thread's floating-point instructions per cycle while it runs, as a fraction of its core's peak.
    pub fn fp_share(&self, row: usize) -> f64 {
        let member = &self.members[row];
        let core_type = self.machine.core_type[member.cpu];
        let hz = member
            .mean
            .rates
            .clock_hz
            .unwrap_or(self.machine.hz[core_type]);
        member.mean.rates.fp.unwrap_or(0.0) / (hz * self.machine.fp_peak[core_type])
    }

    fn core(&self, core: usize, shifts: &[Shift], step: Option<ClockStep>) -> SlicePrediction {
        let cpus = &self.machine.cores[core];
        let Some(first) = cpus.first() else {
            return SlicePrediction::default();
        };
        let clock = self.machine.clock_of[*first];
        let hz = match step {
            Some(step) if step.clock == clock => step.point.ghz * 1e9,
            _ => self.hz[clock],
        };
        let pace = if self.hz[clock] > 0.0 {
            hz / self.hz[clock]
        } else {
            1.0
        };
        let running: Vec<Vec<(usize, f64, f64)>> = (cpus.iter())
            .map(|cpu| self.running(*cpu, shifts, pace))
            .collect();
        let busy: Vec<f64> = running
            .iter()
            .map(|on| on.iter().map(|t| t.1).sum())
            .collect();
        let fp = |on: &[(usize, f64, f64)]| on.iter().map(|t| t.1 * self.fp_share(t.0)).sum();
        let fp: Vec<f64> = running.iter().map(|on| fp(on)).collect();
        let core_type = self.machine.core_type[*first];
        let mut sum = SlicePrediction::default();
        let mut uses = [0.0; USES];
        let mut idle = 1.0;
        for (nth, on) in running.iter().enumerate() {
            let others = busy.iter().sum::<f64>() - busy[nth];
            let others_fp = (fp.iter().sum::<f64>() - fp[nth]).max(0.0);
            for (row, share, misses) in on {
                let colliding = (1.0 - self.fp_share(*row) * others_fp).max(0.1);
                let speed =
                    self.speed(*row, cpus[nth], *misses) * self.paced(*row, pace) * colliding
                        / SIBLINGS.factor(others.max(0.0), 0.0);
                let rates = self.members[*row].mean.rates;
                uses[1] += share * speed * rates.fp.unwrap_or(0.0) * 1e-9;
                uses[2] += share * speed * misses * rates.misses() * 1e-9;
                sum.speed += share * speed;
            }
            uses[0] += busy[nth] * self.machine.power_at(core_type, hz);
            idle *= 1.0 - busy[nth].min(1.0);
        }
        let is_parked = running.iter().all(Vec::is_empty);
        let idle_w = if is_parked {
            self.machine.parked_w[core_type]
        } else {
            self.machine.idle_w[core_type] * idle
        };
        sum.power_w = idle_w + self.power.of(core_type, uses);
        sum
    }

    /// Returns the speed of a thread alone on a CPU relative to its current speed, from the capacities and the change of its
    /// misses.
    fn speed(&self, row: usize, cpu: usize, misses: f64) -> f64 {
        let member = &self.members[row];
        let kind = self.machine.capacity[cpu] / self.machine.capacity[member.cpu];
        kind * (1.0 - self.stalls(row) * (misses - 1.0)).max(0.1)
    }

    /// Returns the fraction of a thread's time that it waits for memory.
    fn stalls(&self, row: usize) -> f64 {
        let member = &self.members[row];
        let stalls = member.mean.rates.misses() * self.machine.latency_s[member.cpu];
        stalls.min(MOST_STALLS)
    }

    /// Returns the speed of a thread relative to its current speed if its clock is `pace` times as fast: memory is not.
    fn paced(&self, row: usize, pace: f64) -> f64 {
        let stalls = self.stalls(row);
        1.0 / ((1.0 - stalls) / pace + stalls)
    }

    /// Returns the threads on a CPU after these moves: index, fraction of the CPU's time, and factor on the misses.
    fn running(&self, cpu: usize, shifts: &[Shift], pace: f64) -> Vec<(usize, f64, f64)> {
        let stays = |row: &&usize| !shifts.iter().any(|s| s.row == **row && s.to != cpu);
        let here = self.on[cpu].iter().filter(stays).map(|row| (*row, 1.0));
        let comes = shifts
            .iter()
            .filter(|s| s.to == cpu && self.members[s.row].cpu != cpu);
        let rows: Vec<(usize, f64)> = here.chain(comes.map(|s| (s.row, s.misses))).collect();
        let wanted: Vec<f64> = rows
            .iter()
            .map(|(row, _)| (self.members[*row].mean.wanted / self.paced(*row, pace)).min(1.0))
            .collect();
        let shares = shares(&wanted);
        let all = rows.into_iter().zip(shares);
        all.map(|((row, misses), share)| (row, share, misses))
            .collect()
    }
}

/// Returns each thread's fraction of a CPU: its demand, or an equal fraction of the time that threads with smaller demands
/// leave.
pub(super) fn shares(wanted: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    let mut shares = vec![0.0; wanted.len()];
    let mut left = 1.0;
    for (nth, row) in order.iter().enumerate() {
        shares[*row] = wanted[*row].min(left / (wanted.len() - nth) as f64);
        left -= shares[*row];
    }
    shares
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test helper that fails has failed its test
mod tests {
    use super::super::history::EventRates;
    use super::*;

    pub fn machine(text: &str) -> Topology {
        Topology::new(&countersteer_model::machine::Machine::parse("m", text).unwrap())
    }

    fn member(id: u32, cpu: usize, wanted: f64) -> MovableThread {
        MovableThread {
            id: ThreadId(id),
            program: ProgramId(id),
            cpu,
            mean: ThreadSlice {
                used: wanted,
                wanted,
                rates: EventRates::default(),
            },
        }
    }

    #[test]
    fn threads_share_a_cpu_evenly_but_take_no_more_than_they_want() {
        assert_eq!(shares(&[0.2, 1.0, 1.0]), [0.2, 0.4, 0.4]);
        assert_eq!(shares(&[0.25, 0.5]), [0.25, 0.5]);
        assert!(shares(&[]).is_empty());
    }

    #[test]
    fn two_quiet_threads_on_one_core_leave_the_other_idle() {
        let topology = machine(include_str!("../../tests/toy/two-caches.toml"));
        let (tables, power) = (MachineTables::new(&topology), PowerWeights::new(&topology));
        let places = ThreadPlaces::new(&tables, &power, vec![member(0, 0, 0.2), member(1, 1, 0.3)]);
        let idle = topology.core_types[0].power.idle_w;
        let stay = places.stay();
        // Half a CPU in use at 1 W; idle shares of .8, .7 and twice 1.
        let expected = topology.static_power_w + 0.5 + idle * 3.5;
        assert!((stay.power_w - expected).abs() < 1e-12);
        assert!((stay.speed - 0.5).abs() < 1e-12);
        let shift = Shift {
            row: 1,
            to: 0,
            misses: 1.0,
        };
        let after = places.after(stay, &[shift]);
        // Power is linear in use, so it stays the same; there is room, so speed does too.
        assert!((after.power_w - stay.power_w).abs() < 1e-12);
        assert!((after.speed - stay.speed).abs() < 1e-12);
    }

    #[test]
    fn a_core_that_is_emptied_saves_what_its_clock_draws() {
        let text = include_str!("../../tests/toy/two-caches.toml");
        let gated = text.replace(
            "power = { idle_w = 0.1",
            "idle = { clock_gated_w = 0.4, power_gated_after_us = 200 }\npower = { idle_w = 0.1",
        );
        let topology = machine(&gated);
        let (tables, power) = (MachineTables::new(&topology), PowerWeights::new(&topology));
        let places = ThreadPlaces::new(&tables, &power, vec![member(0, 0, 0.2), member(1, 1, 0.3)]);
        let stay = places.stay();
        let shift = Shift {
            row: 1,
            to: 0,
            misses: 1.0,
        };
        let after = places.after(stay, &[shift]);
        // Idle shares of .8 and .7 at .4 W become one of .5, and a parked core of .1 W.
        assert!((stay.power_w - after.power_w - (0.6 - 0.3)).abs() < 1e-12);
        assert!((after.speed - stay.speed).abs() < 1e-12);
    }

    #[test]
    fn a_slower_clock_costs_speed_only_outside_of_memory() {
        let text = include_str!("../../tests/toy/two-caches.toml");
        let topology = machine(text);
        let (mut tables, power) = (MachineTables::new(&topology), PowerWeights::new(&topology));
        let nominal = tables.hz[0] * 1e-9;
        tables.points[0] = [(0.5, 0.25), (1.0, 1.0)]
            .map(|(part, power)| Point {
                ghz: nominal * part,
                power,
            })
            .to_vec();
        let mut waiting = member(0, 0, 1.0);
        // Misses whose latencies are half of the time.
        waiting.mean.rates = EventRates::missing(0.5 / tables.latency_s[0]);
        let step = |clock: usize| ClockStep {
            clock,
            point: tables.points[0][0],
        };
        let places = ThreadPlaces::new(
            &tables,
            &power,
            vec![waiting, member(1, 1, 1.0), member(2, 2, 0.4)],
        );
        let stay = places.stay();
        let speed = |clock| places.at(stay, step(clock)).speed - stay.speed;
        let of = |cpu: usize| tables.clock_of[cpu];
        assert!((speed(of(0)) - (1.0 / 1.5 - 1.0)).abs() < 1e-12);
        assert!((speed(of(1)) + 0.5).abs() < 1e-12);
        // What sleeps has time left to do the same work.
        assert!(speed(of(2)).abs() < 1e-12);
        let saved = stay.power_w - places.at(stay, step(of(1))).power_w;
        assert!(
            (saved - 0.75).abs() < 1e-12,
            "a quarter of the watt of a busy CPU"
        );
    }

    #[test]
    fn busy_threads_on_one_core_take_turns() {
        let topology = machine(include_str!("../../tests/toy/two-caches.toml"));
        let (tables, power) = (MachineTables::new(&topology), PowerWeights::new(&topology));
        let places = ThreadPlaces::new(&tables, &power, vec![member(0, 0, 1.0), member(1, 1, 1.0)]);
        let stay = places.stay();
        let shift = Shift {
            row: 1,
            to: 0,
            misses: 1.0,
        };
        let after = places.after(stay, &[shift]);
        assert_eq!((stay.speed, after.speed), (2.0, 1.0));
        let idle = topology.core_types[0].power.idle_w;
        assert!((stay.power_w - after.power_w - (1.0 - idle)).abs() < 1e-12);
        assert!(after.cost(1.0) > stay.cost(1.0), "idle power stays");
    }
}
