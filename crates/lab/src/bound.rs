//! Upper bound on the system throughput that any policy sustains in a simulation.
//!
//! Input: an experiment, whose policy does not matter. Output: a value that the *sustained* STP of no run exceeds.
//!
//! Sustained STP. An experiment lasts T seconds; program i completes n whole runs and a fraction p of another one. [`PerformanceLimits`]
//! defines how a fraction counts. The program's sustained STP is the sum of A (n + p) / T, where A is the time of a run alone. It
//! equals the STP of tables if all runs of a program take equally long.
//!
//! The argument. Every run, under any policy, is a point of the following set, in averages per second of the experiment. The
//! greatest value of a linear program over the set is therefore a bound:
//!
//! - t >= 0 is CPU time by program, behaviour and way to run. A [`Way`] is a core state (type, clock, number of running
//!   siblings) with a number of last-level cache lines. In it a thread executes at most the speed in the simulator's own rate
//!   table for the most favourable co-runners. The work of a row is at most the sum of t times speed. Context switches, cold
//!   caches, misses and waiting reduce it. So the set contains only the shorter times t that make both equal.
//! - r = n / T and e are rates of whole and unfinished runs. Whole runs do each behaviour's work in proportion; the unfinished
//!   run does it at most once. So the work of a row is r + e runs' worth, 0 <= e <= 1 / T. Every program finishes R runs, so r >=
//!   R / T. T is at least the time of R undisturbed runs alone. 1 / T is a variable.
//! - A thread is on one CPU at a time and sleeps as its workload specifies. Three terms therefore add up to at most 1: the
//!   times t of a serial part, those of a parallel part by number of threads, and r times the time asleep.
//! - A core in a state with m threads holds m threads. The cores of a place are no more than exist. If k cores of a type run,
//!   none is faster than the clock for k running cores.
//! - SMT siblings use no more of each shared part of a core (dispatch, ports) than the core has. Programs hold no more lines
//!   than the caches have, and move no more than memory bandwidth allows. The engine follows these three in steps, not
//!   continuously, so `FOLLOWED` widens them.
//!
//! Omissions make the bound larger, never smaller: latency that grows with load, conflicts between particular programs, migration
//! costs, and Linux's own decisions within a group of CPUs.
//!
//! The bound does not apply to the STP of tables, which takes the geometric mean of finished runs. A policy can raise that
//! towards the number of programs by packing all of a program's waiting into one run, without doing more work. Nor does it apply
//! to traced simulations, which take speeds from another source, and to experiments that were cut short.
//!
//! Solving. The dual program finds a price for every scarce resource. Any prices give a bound (weak duality): the sum of the
//! prices of all resources, plus the worth of work above its cost. `Market::worth` computes that in closed form, so rounding
//! in the solver costs tightness, not correctness. Few ways to run are cheap enough to be used. The linear program therefore
//! starts with a few, and adds those that are too cheap at the last prices, until both objectives agree.

mod dual;

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::anyhow;
use countersteer_report::table::CompareRun;
use countersteer_sim::engine::{PerformanceLimits, ProgramLimits};
use countersteer_sim::progress::Way;
use microlp::Variable;
use rayon::prelude::*;

use crate::experiment::{Experiment, Fidelity, Finished, Onlooker};
use crate::{partition, plan};
use dual::Dual;

/// Factor by which the capacities of cores, caches and memory are enlarged, because the engine follows these limits in steps.
const FOLLOWED: f64 = 1.05;
/// Tolerance: relative distance from the smallest possible bound at which the search stops.
const CLOSE: f64 = 1e-3;
/// Limit on the number of times that the linear program is solved, each time with more ways to run.
const ROUNDS: usize = 40;
/// Relative margin added to the bound for rounding errors of sums.
const ROUNDING: f64 = 1e-6;

/// Returns the upper bound on the system throughput that any policy sustains on this machine with this workload. `None` if the
/// simulation is not analytic.
///
/// # Errors
/// Fails if the machine cannot run the workload, or if the solver fails.
pub fn sustained_stp(experiment: &Experiment) -> anyhow::Result<Option<f64>> {
    if experiment.options.fidelity != Fidelity::Analytic {
        return Ok(None);
    }
    let plan = plan::plan(&experiment.workload, &experiment.machine.topology)?;
    let simulation = experiment.simulation(&plan, &Onlooker::default())?;
    simulation.limits().map(|limits| of(&limits)).transpose()
}

/// Returns the upper bound on sustained STP within the limits of a simulation.
///
/// # Errors
/// Fails if the solver fails.
pub fn of(limits: &PerformanceLimits) -> anyhow::Result<f64> {
    Ok(Market::new(limits).least_worth()? * (1.0 + ROUNDING))
}

/// Bounds on the STP of a machine with a workload: for all policies, and for partitions of the last-level cache.
type StpBounds = (Option<f64>, Option<f64>);

/// Adds both bounds to the runs of experiments that were not cut short.
///
/// # Errors
/// Fails with the errors of [`sustained_stp`].
pub fn attach(
    experiments: &[Experiment],
    finished: &[Finished],
    runs: &mut [CompareRun],
) -> anyhow::Result<()> {
    type Key = (usize, usize);
    let key = |e: &Experiment| -> Key {
        let machine = Arc::as_ptr(&e.machine) as usize;
        (machine, Arc::as_ptr(&e.workload) as usize)
    };
    let distinct: BTreeMap<Key, &Experiment> = experiments.iter().map(|e| (key(e), e)).collect();
    let distinct: Vec<(Key, &Experiment)> = distinct.into_iter().collect();
    let bounds: BTreeMap<Key, StpBounds> = distinct
        .par_iter()
        .map(|(key, e)| {
            let all = sustained_stp(e)?;
            let divided = match all {
                Some(_) => partition::best_stp(&e.machine, &e.workload)?,
                None => None,
            };
            Ok((*key, (all, divided)))
        })
        .collect::<anyhow::Result<_>>()?;
    for ((e, f), run) in experiments.iter().zip(finished).zip(runs) {
        let rounds = e.options.rounds as usize;
        if f.score.programs.iter().all(|p| p.runs >= rounds) {
            let (all, divided) = bounds.get(&key(e)).copied().unwrap_or_default();
            (run.bound_stp, run.best_partition_stp) = (all, divided);
        }
    }
    Ok(())
}

/// Group of equal programs in the linear program. The worth of work is the time in seconds that it takes when its program runs
/// alone.
struct Seller<'a> {
    /// Number of programs in the group.
    count: f64,
    /// Limits of each of these programs.
    program: &'a ProgramLimits,
    /// Behaviours of the program.
    rows: Vec<BehaviourWork<'a>>,
}

/// Work of one behaviour of a program.
struct BehaviourWork<'a> {
    /// Fraction of a run's time alone that belongs to this behaviour.
    share: f64,
    /// Elapsed time per second of CPU time: 1 divided by the number of threads.
    wall: f64,
    /// Ways to run the behaviour.
    ways: &'a [Way],
    /// Time alone per instruction, in seconds.
    each_s: f64,
}

/// Linear program whose optimum is the bound.
struct Market<'a> {
    limits: &'a PerformanceLimits,
    sellers: Vec<Seller<'a>>,
    /// Upper limit on 1 / T, in experiments per second.
    most_often: f64,
}

/// Prices of scarce resources, all at least 0.
#[derive(Debug)]
struct Prices {
    /// Price of a second of one of the core's threads, by core state.
    seconds: Vec<f64>,
    /// Price of a second of each shared part of the core, by core state.
    parts: Vec<Vec<f64>>,
    /// Price of a second of a core at each clock frequency.
    clocks: Vec<f64>,
    /// Price of all lines of each group of caches.
    caches: Vec<f64>,
    /// Price of the whole memory bandwidth.
    memory: f64,
    /// Price of a second of a program's own time, by group of programs.
    time: Vec<f64>,
}

impl<'a> Market<'a> {
    fn new(limits: &'a PerformanceLimits) -> Self {
        let mut sellers: Vec<Seller> = Vec::new();
        for program in &limits.programs {
            match sellers.iter_mut().find(|s| s.program == program) {
                Some(alike) => alike.count += 1.0,
                None => sellers.push(Seller {
                    count: 1.0,
                    program,
                    rows: rows(limits, program),
                }),
            }
        }
        let least_s = |seller: &Seller| {
            let fastest = |row: &BehaviourWork| {
                let ips = row.ways.iter().map(|w| w.ips).fold(0.0, f64::max);
                row.wall * row.share * seller.program.alone_fast_s / row.each_s / ips
            };
            let run_s = seller.program.asleep_s + seller.rows.iter().map(fastest).sum::<f64>();
            seller.program.start_s + limits.rounds * run_s
        };
        let least_s = sellers.iter().map(least_s).fold(0.0, f64::max);
        Self {
            limits,
            most_often: 1.0 / least_s,
            sellers,
        }
    }

    /// Returns the price of a second in a way to run, without the price of the program's own time.
    fn cost(&self, prices: &Prices, way: &Way) -> f64 {
        let parts = prices.parts[way.state].iter().zip(&way.uses);
        let cache = self.limits.ceilings.places[self.limits.ceilings.states[way.state].place].cache;
        prices.seconds[way.state]
            + parts.map(|(price, used)| price * used).sum::<f64>()
            + cache.map_or(0.0, |k| prices.caches[k] * self.part_of_cache(k, way))
            + prices.memory * self.part_of_memory(way)
    }

    fn part_of_cache(&self, cache: usize, way: &Way) -> f64 {
        way.lines / (self.limits.ceilings.caches[cache] * FOLLOWED)
    }

    fn part_of_memory(&self, way: &Way) -> f64 {
        way.bus / (self.limits.ceilings.bandwidth * FOLLOWED)
    }

    /// Returns the objective of the dual program at these prices, which is an upper bound on sustained STP (weak duality). It
    /// is the sum of the prices of all resources, plus the worth of work above its cost.
    fn worth(&self, prices: &Prices) -> f64 {
        let ceilings = &self.limits.ceilings;
        let mut worth = prices.caches.iter().sum::<f64>() + prices.memory;
        // For each place, the core state with the highest price counts, less the price of its clock frequency.
        for (place, of) in ceilings.places.iter().enumerate() {
            let states = ceilings.states.iter().enumerate();
            let dearest = states
                .filter(|(_, s)| s.place == place)
                .map(|(row, s)| {
                    let parts: f64 = prices.parts[row].iter().sum();
                    s.threads * prices.seconds[row] + FOLLOWED * parts - prices.clocks[s.clock]
                })
                .fold(0.0, f64::max);
            worth += of.cores * dearest;
        }
        let mut by_type: BTreeMap<u32, f64> = BTreeMap::new();
        for (clock, price) in ceilings.clocks.iter().zip(&prices.clocks) {
            let dearest = by_type.entry(clock.core_type.0).or_default();
            *dearest = dearest.max(clock.cores * price);
        }
        worth += by_type.values().sum::<f64>();
        let mut above_cost = 0.0;
        for (row, seller) in self.sellers.iter().enumerate() {
            let costs = self.row_costs(prices, seller);
            let (time, costs) = seller.dearest_time(prices.time[row], &costs);
            worth += seller.count * time;
            let unfinished: f64 = seller
                .rows
                .iter()
                .zip(&costs)
                .map(|(row, cost)| row.share * (1.0 - cost).max(0.0))
                .sum();
            let loss = seller.run_cost(time, &costs) - 1.0;
            let each = seller.count * seller.program.alone_fast_s;
            above_cost += each * (unfinished - self.limits.rounds * loss);
        }
        worth + (above_cost * self.most_often).max(0.0)
    }

    /// Returns the cost of one second of time alone, by behaviour and way to run. Each cost is a pair: the price without the
    /// program's own time, and the amount of that time.
    fn row_costs(&self, prices: &Prices, seller: &Seller) -> Vec<Vec<(f64, f64)>> {
        let of_row = |row: &BehaviourWork| {
            let of_way = |way: &Way| {
                let speed = way.ips * row.each_s;
                (self.cost(prices, way) / speed, row.wall / speed)
            };
            row.ways.iter().map(of_way).collect()
        };
        seller.rows.iter().map(of_row).collect()
    }

    /// Returns the smallest objective of the dual program that the search finds.
    fn least_worth(&self) -> anyhow::Result<f64> {
        let mut known: Vec<Vec<Vec<usize>>> = (self.sellers.iter())
            .map(|seller| vec![Vec::new(); seller.rows.len()])
            .collect();
        let mut prices = self.free();
        let mut least = f64::INFINITY;
        for _ in 0..ROUNDS {
            let mut more = false;
            for ((seller, known), time) in self.sellers.iter().zip(&mut known).zip(&prices.time) {
                for (ways, known) in self.row_costs(&prices, seller).iter().zip(known) {
                    more |= add_cheapest(ways, *time, known);
                }
            }
            if !more {
                break;
            }
            let worth = self.solve(&known, &mut prices)?;
            least = least.min(self.worth(&prices));
            if least <= worth * (1.0 + CLOSE) {
                break;
            }
        }
        Ok(least)
    }

    /// Returns the initial prices, at which only the program's own time has a price.
    fn free(&self) -> Prices {
        let ceilings = &self.limits.ceilings;
        Prices {
            seconds: vec![0.0; ceilings.states.len()],
            parts: vec![Vec::new(); ceilings.states.len()],
            clocks: vec![0.0; ceilings.clocks.len()],
            caches: vec![0.0; ceilings.caches.len()],
            memory: 0.0,
            time: vec![1.0; self.sellers.len()],
        }
    }

    /// Solves the dual program with only the known ways to run, and stores its prices. Returns its objective.
    fn solve(&self, known: &[Vec<Vec<usize>>], prices: &mut Prices) -> anyhow::Result<f64> {
        let mut dual = Dual::new(self);
        let sellers = self.sellers.iter().zip(known);
        let time: Vec<Variable> = sellers
            .map(|(s, known)| dual.sell(self, s, known))
            .collect();
        let solution = dual
            .problem
            .solve()
            .map_err(|e| anyhow!("the bound's linear programme: {e}"))?
            .into_solution()
            .map_err(|_| anyhow!("the bound's linear programme was interrupted"))?;
        let values = |variables: &[Variable]| -> Vec<f64> {
            let value = |v: &Variable| solution.var_value(*v).max(0.0);
            variables.iter().map(value).collect()
        };
        *prices = Prices {
            seconds: values(&dual.seconds),
            parts: dual.parts.iter().map(|of| values(of)).collect(),
            clocks: values(&dual.clocks),
            caches: values(&dual.caches),
            memory: values(&[dual.memory])[0],
            time: values(&time),
        };
        Ok(solution.objective())
    }
}

/// Adds the cheapest way to run a behaviour to `known`. Returns true if it was not known before.
fn add_cheapest(ways: &[(f64, f64)], time: f64, known: &mut Vec<usize>) -> bool {
    let cost = |row: &usize| ways[*row].0 + time * ways[*row].1;
    let cheapest = (0..ways.len()).min_by(|a, b| cost(a).total_cmp(&cost(b)));
    let new = cheapest.filter(|row| !known.contains(row));
    known.extend(new);
    new.is_some()
}

impl Seller<'_> {
    /// Returns the cost of a run divided by its time alone.
    fn run_cost(&self, time: f64, costs: &[f64]) -> f64 {
        let asleep = self.program.asleep_s / self.program.alone_fast_s;
        let work = self.rows.iter().zip(costs).map(|(r, cost)| r.share * cost);
        asleep * time + work.sum::<f64>()
    }

    /// Returns the price of the program's own time, at least `about`, at which a whole run costs at least its time alone. Also
    /// returns the smallest cost of each behaviour at that price.
    fn dearest_time(&self, about: f64, ways: &[Vec<(f64, f64)>]) -> (f64, Vec<f64>) {
        let costs = |time: f64| -> Vec<f64> {
            let least = |ways: &Vec<(f64, f64)>| {
                let costs = ways.iter().map(|(cost, wall)| cost + time * wall);
                costs.fold(f64::INFINITY, f64::min)
            };
            ways.iter().map(least).collect()
        };
        let mut time = about;
        let mut step = 1e-9 * (1.0 + about);
        loop {
            let found = costs(time);
            if self.run_cost(time, &found) >= 1.0 || !time.is_finite() {
                return (time, found);
            }
            time += step;
            step *= 2.0;
        }
    }
}

fn rows<'a>(limits: &'a PerformanceLimits, program: &ProgramLimits) -> Vec<BehaviourWork<'a>> {
    let model = &limits.ceilings.models[program.model];
    let row = |row: &countersteer_sim::engine::WorkRow| BehaviourWork {
        share: row.worth,
        wall: 1.0 / row.threads,
        ways: &model.ways[row.behaviour],
        each_s: row.worth * program.alone_fast_s / row.instructions,
    };
    // Behaviours that take no time alone are omitted, because their work costs nothing.
    let worthy = program.rows.iter().filter(|r| r.worth > 0.0);
    worthy.map(row).collect()
}
