//! Policy `greedy-energy`: measures a slice, predicts the cost of each move, and takes the one with the least
//! cost if it saves enough.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_model::engine::ThreadInfo;
use countersteer_model::placement::{Placement, Reason, Target, ThreadPlacement};
use countersteer_model::policy::{Needs, Params, Policy, PolicyError, PolicyRng, View};
use countersteer_model::topology::{GroupBy, Topology};
use countersteer_model::units::{GroupId, Nanos, ProgramId, ThreadId};

use crate::interval::DecisionInterval;

use super::clocks::ClockLimits;
use super::history::{METRICS, SHARED, SliceHistory};
use super::model::{ClockStep, MachineTables, MovableThread, Shift, SlicePrediction, ThreadPlaces};
use super::moves::{Move, MoveSearch, PARKS};
use super::power::{PowerWeights, USES};

/// Limit on consecutive placements of a thread on its CPU without effect. The thread then stays where it is.
const MOST_TRIES: u8 = 3;
/// Threshold: minimum fraction of a slice that a CPU's threads use together at which the CPU counts as full.
const FULL: f64 = 0.9;

/// CPU to which a thread was last placed, with the number of placements without effect.
#[derive(Clone, Copy)]
struct LastCpu {
    cpu: usize,
    tries: u8,
}

pub(super) struct Greedy {
    needs: Needs,
    slice: DecisionInterval,
    /// CPU time of each thread in the current slice, in seconds.
    ran_s: BTreeMap<ThreadId, f64>,
    k: usize,
    tolerance: f64,
    fp_high: f64,
    time_weight: f64,
    park: bool,
    /// True if limits on frequencies are among the moves.
    clocks: bool,
    limits: ClockLimits,
    /// Least predicted speed that consolidation and limits leave, as a share of that with all CPUs at their fastest.
    least_speed: f64,
    machine: MachineTables,
    history: SliceHistory,
    power: PowerWeights,
    held: BTreeMap<ThreadId, LastCpu>,
    last: Nanos,
    /// Number of slices since the last move.
    quiet: usize,
}

/// Thread with its CPU and its utilisation in the last slice.
struct UtilisedThread<'a> {
    info: &'a ThreadInfo,
    cpu: usize,
    used: f64,
}

impl Greedy {
    pub fn new(params: &Params, topology: &Arc<Topology>) -> Result<Self, PolicyError> {
        let slice = DecisionInterval::of(params, "slice_ms")?;
        let k = params.number("k", 1.0)? as usize;
        let j = params.number("j", 1.0)? as usize;
        let tolerance = params.number("tolerance", 0.0)?;
        let measured = params.choice("sharing", &[("lines", true), ("misses", false)])?;
        let mut metrics = METRICS.to_vec();
        metrics.extend(measured.then_some(SHARED));
        Ok(Self {
            needs: Needs {
                metrics: metrics.clone(),
                period: Some(slice.every),
                ..Needs::NOTHING
            },
            slice: slice.from(Nanos::ZERO),
            k,
            tolerance,
            fp_high: params.number("fp_high", 0.0)?,
            time_weight: params.number("time_weight", 0.0)?,
            park: params.choice("park", &[("on", true), ("off", false)])?,
            clocks: params.choice("clocks", &[("on", true), ("off", false)])?,
            limits: ClockLimits::default(),
            least_speed: params.number("least_speed", 0.0)?,
            machine: MachineTables::new(topology),
            history: SliceHistory::new(topology, k, j, tolerance),
            power: PowerWeights::new(topology),
            held: BTreeMap::new(),
            ran_s: BTreeMap::new(),
            last: Nanos::ZERO,
            quiet: 0,
        })
    }

    /// Records the last slice: utilisation and event rates of threads, miss rates of caches, and power.
    fn measure(&mut self, view: &View<'_>, seconds: f64) {
        let ran_s = std::mem::take(&mut self.ran_s);
        let metrics = self.needs.metrics.iter();
        let columns: Vec<_> = metrics.map(|name| view.metrics.column(name)).collect();
        let seen: Vec<UtilisedThread<'_>> = view
            .threads
            .iter()
            .filter(|t| t.cpu.index() < self.machine.core_of.len())
            .map(|info| UtilisedThread {
                info,
                cpu: info.cpu.index(),
                used: ran_s.get(&info.id).copied().unwrap_or(0.0) / seconds,
            })
            .collect();
        let mut busy = vec![0.0; self.machine.core_of.len()];
        seen.iter().for_each(|s| busy[s.cpu] += s.used);
        for s in &seen {
            let waits = s.info.runnable && busy[s.cpu] > FULL;
            let wanted = if waits { 1.0 } else { s.used.min(1.0) };
            self.history.push(view, s.info.id, &columns, s.used, wanted);
        }
        let alive = |id: ThreadId| view.lives(id);
        self.history.forget_ended(view);
        self.held.retain(|id, _| alive(*id));
        let ran = seen.iter().filter(|s| s.used > 0.0);
        let places: Vec<(ThreadId, ProgramId, usize)> =
            ran.map(|s| (s.info.id, s.info.program, s.cpu)).collect();
        self.history.push_caches(&places);
        self.learn(&seen);
    }

    /// Adds the CPU time of all threads since the last call.
    fn add_ran(&mut self, view: &View<'_>) {
        let id = countersteer_model::units::CoreTypeId::from_index;
        for info in view.threads {
            let types = 0..view.topology.core_types.len();
            if let Some(usage) = view.usage(info.id) {
                let ran_s: f64 = types.map(|t| usage.last_cpu_s(id(t))).sum();
                *self.ran_s.entry(info.id).or_default() += ran_s;
            }
        }
    }

    /// Adds the last slice to the fit of the power model, if energy was charged to all threads that ran.
    fn learn(&mut self, seen: &[UtilisedThread<'_>]) {
        let mut uses = vec![[0.0; USES]; self.machine.hz.len()];
        let utilisation = self.utilisation(seen);
        for (cpu, used) in utilisation.iter().enumerate() {
            let core_type = self.machine.core_type[cpu];
            uses[core_type][0] += used.0 * self.machine.power_at(core_type, used.1);
        }
        let mut power_w = 0.0;
        for s in seen.iter().filter(|s| s.used > 0.0) {
            let Some(slice) = self.history.latest(s.info.id) else {
                continue;
            };
            let Some(charged) = slice.rates.power_w else {
                return;
            };
            let row = &mut uses[self.machine.core_type[s.cpu]];
            row[1] += s.used * slice.rates.fp.unwrap_or(0.0) * 1e-9;
            row[2] += s.used * slice.rates.misses() * 1e-9;
            power_w += s.used * charged;
        }
        if power_w > 0.0 {
            self.power.learn(&uses, power_w);
        }
    }

    /// Returns the utilisation of each CPU: busy cycles divided by the cycles of the slice (meta-scheduler,
    /// section III.A), with its frequency in Hz, the highest of the CPU's threads.
    fn utilisation(&self, seen: &[UtilisedThread<'_>]) -> Vec<(f64, f64)> {
        let cpus = self.machine.core_of.len();
        let mut cycles = vec![0.0; cpus];
        let mut hz = vec![0.0f64; cpus];
        for s in seen.iter().filter(|s| s.used > 0.0) {
            let nominal = self.machine.hz[self.machine.core_type[s.cpu]];
            let latest = self.history.latest(s.info.id);
            let clock = latest.and_then(|l| l.rates.clock_hz).unwrap_or(nominal);
            cycles[s.cpu] += s.used * clock;
            hz[s.cpu] = hz[s.cpu].max(clock);
        }
        let share = |(cycles, hz): (f64, f64)| (if hz > 0.0 { cycles / hz } else { 0.0 }, hz);
        cycles.into_iter().zip(hz).map(share).collect()
    }

    /// Adds placements that keep each thread with at least k slices on its CPU, and that send threads on other
    /// CPUs back.
    fn pin(&mut self, view: &View<'_>, placement: &mut Placement) {
        for info in view.threads {
            let cpu = info.cpu.index();
            if cpu >= self.machine.core_of.len() || self.history.mean(info.id).is_none() {
                continue;
            }
            let new = !self.held.contains_key(&info.id);
            let held = self
                .held
                .entry(info.id)
                .or_insert(LastCpu { cpu, tries: 0 });
            let group = group_of(view.topology, held.cpu);
            if info.allowed.is_subset(&view.topology.group(group).cpus) {
                held.tries = 0;
                continue;
            }
            if held.tries >= MOST_TRIES {
                // The placements had no effect, because the program moves the thread to another CPU.
                held.cpu = cpu;
                continue;
            }
            held.tries += 1;
            let rule = if new {
                "old enough to count: it stays where the kernel put it"
            } else {
                "back to the CPU that it was sent to"
            };
            let target = Target::Group(group);
            let placed = ThreadPlacement::new(info.id, target, Reason::rule(rule));
            placement.threads.push(placed);
        }
    }

    fn members(&self, view: &View<'_>) -> Vec<MovableThread> {
        let member = |info: &ThreadInfo| {
            let held = self.held.get(&info.id)?;
            Some(MovableThread {
                id: info.id,
                program: info.program,
                cpu: held.cpu,
                mean: self.history.mean(info.id)?,
            })
        };
        view.threads.iter().filter_map(member).collect()
    }

    /// Returns the move with the least predicted cost, and the outlook after it. `None` if no move saves
    /// enough.
    fn best(
        &self,
        places: &ThreadPlaces<'_>,
        stay: SlicePrediction,
    ) -> Option<(Move, SlicePrediction)> {
        let search = MoveSearch {
            places,
            history: &self.history,
            tolerance: self.tolerance,
            fp_high: self.fp_high,
            park: self.park,
            knows_energy: self.power.is_fitted,
        };
        let cost = |outlook: &SlicePrediction| outlook.cost(self.time_weight);
        let moves = search.moves().into_iter();
        let cpus = self.machine.core_of.len();
        let wanted: f64 = places.members.iter().map(|m| m.mean.wanted).sum();
        let least_speed = self.least_speed * wanted.min(cpus as f64);
        let (chosen, after) = moves
            .map(|m| {
                let after = places.after(stay, &m.shifts);
                (m, after)
            })
            .filter(|(m, after)| m.rule != PARKS || after.speed >= least_speed)
            .min_by(|(_, a), (_, b)| cost(a).total_cmp(&cost(b)))?;
        let least = cost(&stay) * (1.0 - self.tolerance / 4.0);
        (cost(&after) < least).then_some((chosen, after))
    }

    /// Returns the limit on a clock with the least predicted cost, and the outlook after it. `None` if none saves enough, or if
    /// energy was never measured: without it, no frequency is known to be better.
    fn best_clock(
        &self,
        places: &ThreadPlaces<'_>,
        stay: SlicePrediction,
    ) -> Option<(ClockStep, SlicePrediction)> {
        if !self.clocks || !self.power.is_fitted {
            return None;
        }
        let used = |cpus: &[usize]| cpus.iter().any(|cpu| !places.on[*cpu].is_empty());
        let clocks = self.machine.clocks.iter().enumerate();
        let clocks = clocks
            .filter(|(clock, cpus)| used(cpus) && !self.limits.barred.contains_key(clock))
            .map(|(clock, _)| clock);
        let steps = clocks.flat_map(|clock| {
            let points = self.machine.points(clock);
            let step = move |point| ClockStep { clock, point };
            let fastest = points.last().map(|point| places.at(stay, step(*point)));
            let least = fastest.map_or(0.0, |fastest| self.least_speed * fastest.speed);
            let outlooks = points.iter().map(move |point| {
                let step = step(*point);
                (step, places.at(stay, step))
            });
            outlooks.filter(move |(_, after)| after.speed >= least)
        });
        let cost = |outlook: &SlicePrediction| outlook.cost(self.time_weight);
        let (step, after) = steps.min_by(|(_, a), (_, b)| cost(a).total_cmp(&cost(b)))?;
        let least = cost(&stay) * (1.0 - self.tolerance / 4.0);
        (cost(&after) < least).then_some((step, after))
    }

    /// Returns the cost of the current state, by measured instructions per second instead of predicted speed.
    fn measured_cost(&self, places: &ThreadPlaces<'_>, stay: SlicePrediction) -> f64 {
        let rates = places
            .members
            .iter()
            .map(|m| m.mean.used * m.mean.rates.ips());
        let measured = SlicePrediction {
            speed: rates.sum(),
            ..stay
        };
        measured.cost(self.time_weight)
    }

    /// Undoes the last change of a clock if it did not pay. Otherwise makes the change with the least predicted cost, if one saves
    /// enough.
    fn act(&mut self, view: &View<'_>, placement: &mut Placement) {
        let places = ThreadPlaces::new(&self.machine, &self.power, self.members(view));
        let stay = places.stay();
        let chosen = self.best(&places, stay);
        let clock = self.best_clock(&places, stay);
        let cost = self.measured_cost(&places, stay);
        let threads: Vec<ThreadId> = places.members.iter().map(|m| m.id).collect();
        if self.limits.undoes(cost, &threads, self.k) {
            self.quiet = 0;
            placement.clocks = Some(self.limits.of_cpus(&self.machine));
            return;
        }
        if self.limits.ends_unused(&places) {
            placement.clocks = Some(self.limits.of_cpus(&self.machine));
        }
        let of = |after: &SlicePrediction| after.cost(self.time_weight);
        let best = chosen.as_ref().map(|(_, after)| of(after));
        let clock = clock.filter(|(_, after)| best.is_none_or(|best| of(after) < best));
        if let Some((step, after)) = clock {
            let reason = self
                .reason("the clock's frequency with the least cost", stay, after)
                .saw("mhz_stay", Some(places.hz[step.clock] * 1e-6));
            let fastest = self.machine.points(step.clock).last();
            let slows = fastest.is_none_or(|fastest| step.point.ghz < fastest.ghz);
            let mhz = slows.then_some((step.point.ghz * 1e3).round() as u32);
            self.limits
                .set(step.clock, mhz.map(|mhz| (mhz, reason)), cost, threads);
            placement.clocks = Some(self.limits.of_cpus(&self.machine));
        } else if let Some((chosen, after)) = chosen {
            let sent = self.sent(&places, &chosen, [stay, after], view.topology);
            let moves = |t: &ThreadPlacement| sent.iter().any(|(_, s)| s.thread == t.thread);
            placement.threads.retain(|t| !moves(t));
            for (cpu, sent) in sent {
                self.held.insert(sent.thread, LastCpu { cpu, tries: 1 });
                placement.threads.push(sent);
            }
        } else {
            return;
        }
        self.quiet = 0;
    }

    /// Returns the placements of a move, each with its CPU, given the outlooks without and with it.
    fn sent(
        &self,
        places: &ThreadPlaces<'_>,
        chosen: &Move,
        [stay, after]: [SlicePrediction; 2],
        topology: &Topology,
    ) -> Vec<(usize, ThreadPlacement)> {
        let sent = |shift: &Shift| {
            let member = places.members[shift.row];
            let costs = [(member.cpu, stay), (shift.to, after)];
            let costs = costs.map(|(cpu, o)| (group_of(topology, cpu), o.cost(self.time_weight)));
            let costs = costs.into_iter().filter(|(_, cost)| cost.is_finite());
            let reason = self
                .reason(chosen.rule, stay, after)
                .against("power per speed", costs);
            let target = Target::Group(group_of(topology, shift.to));
            (shift.to, ThreadPlacement::new(member.id, target, reason))
        };
        chosen.shifts.iter().map(sent).collect()
    }

    fn reason(&self, rule: &'static str, stay: SlicePrediction, after: SlicePrediction) -> Reason {
        let mut rule = rule.to_owned();
        if after.cost(1.0) > stay.cost(1.0) {
            rule.push_str(": less power, but more energy for the same work");
        }
        if !self.power.is_fitted {
            rule.push_str("; energy is unknown so far: fixed weights");
        }
        Reason::rule(rule)
            .saw("power_stay_w", Some(stay.power_w))
            .saw("power_w", Some(after.power_w))
            .saw("speed_stay", Some(stay.speed))
            .saw("speed", Some(after.speed))
            .saw("energy_by_work_stay", Some(stay.cost(1.0)))
            .saw("energy_by_work", Some(after.cost(1.0)))
    }
}

fn group_of(topology: &Topology, cpu: usize) -> GroupId {
    topology.groups_by(GroupBy::Cpu)[cpu].id
}

impl Policy for Greedy {
    fn needs(&self) -> &Needs {
        &self.needs
    }

    fn decide(&mut self, view: &mut View<'_>, _: &mut PolicyRng) -> Placement {
        self.add_ran(view);
        let mut placement = Placement::default();
        if !self.slice.is_over(view.now) {
            return placement;
        }
        self.slice.begin(view.now);
        let seconds = view.now.since(self.last).as_secs_f64();
        self.last = view.now;
        self.measure(view, seconds);
        self.pin(view, &mut placement);
        self.quiet += 1;
        if self.quiet > self.k {
            self.act(view, &mut placement);
        }
        placement
    }
}
