//! An upper bound of the system throughput that any policy sustains in a simulation.
//!
//! Input: an experiment, of which the policy does not matter. Output: a figure that the *sustained* STP of no run exceeds.
//!
//! Sustained STP. An experiment lasts T seconds; program i does n whole runs and a part p of another one ([`Limits`] says how a part
//! counts). Its sustained STP is the sum of A (n + p) / T, where A is the time of a run alone. Where all runs of a program take equally
//! long it is the STP of tables.
//!
//! The argument. Any run, whatever decides in it, is a point of the following set, in averages per second of the experiment, so the
//! greatest value of a linear programme over the set is a bound:
//!
//! - t >= 0, CPU time by program, behaviour, and way to run. In each state of a core (type, clock, number of siblings that run) and
//!   with so many lines of the last-level cache, a thread executes at most what the simulator's own rate table says for the most
//!   favourable rest of the world ([`Way`]). The work of a row is at most the sum of t times speed; time lost to switches, cold
//!   caches, misses and waiting makes it less, which is why only shorter times t that make it equal are looked at.
//! - r = n / T and e: whole runs do each behaviour's work in proportion, the unfinished one no more than once: the work of a row
//!   is r + e runs' worth, 0 <= e <= 1 / T. Every program finishes R runs, so r >= R / T. T is not less than what R runs take alone
//!   and undisturbed. 1 / T is a variable.
//! - A thread is on one CPU at a time and sleeps as its workload says: the times t of a serial part, of a parallel part by number
//!   of threads, and r times the time asleep are at most 1 together.
//! - A core in a state with m threads holds m; the cores of a place are as many as they are; if k cores of a type run, none is
//!   faster than the clock for k.
//! - Siblings: what they use of each shared part of a core (dispatch, ports) is no more than the core has. Lines held are no more
//!   than the caches have; lines moved no more than memory moves. The engine follows these three in steps, not at every moment,
//!   so they are widened by [`FOLLOWED`].
//!
//! What it leaves out makes it larger, never smaller: latency that grows with load, conflicts between particular programs, costs of
//! moving, that Linux decides within a group of CPUs.
//!
//! What it does not bound: the STP of tables, which takes the geometric mean of finished runs. A policy that packs all of a program's
//! waiting into one of its runs raises that towards the number of programs, while it does no more work. Nor traced
//! simulations, whose speeds come from elsewhere, and experiments that were cut short.
//!
//! Solving. The dual programme finds a price for everything that is scarce. Any prices give a bound (weak duality): work
//! sold at its worth cannot bring in more than the machine is worth at these prices, plus what it brings in above cost.
//! [`Market::worth`] computes that in closed form, so that rounding in the solver costs tightness, not truth. Few ways to run are ever
//! worth their price, so the programme starts with a few and gets those that the last prices left too cheap, until both
//! agree.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::anyhow;
use countersteer_report::table::CompareRun;
use countersteer_sim::engine::{Limits, ProgramLimits};
use countersteer_sim::progress::Way;
use microlp::{ComparisonOp, OptimizationDirection, Problem, Variable};
use rayon::prelude::*;

use crate::experiment::{Experiment, Fidelity, Finished, Onlooker};
use crate::plan;

/// What cores, caches and memory are taken to offer of what the engine follows in steps.
const FOLLOWED: f64 = 1.05;
/// Part of the bound by which it may be above the least one.
const CLOSE: f64 = 1e-3;
/// Solutions with more and more ways to run, at most.
const ROUNDS: usize = 40;
/// Rounding of sums.
const ROUNDING: f64 = 1e-6;

/// The system throughput that no policy sustains more of on this machine with this workload; none where nothing bounds it.
///
/// # Errors
/// A workload that this machine cannot run, and those of the solver.
pub fn sustained_stp(experiment: &Experiment) -> anyhow::Result<Option<f64>> {
    if experiment.options.fidelity != Fidelity::Analytic {
        return Ok(None);
    }
    let plan = plan::plan(&experiment.workload, &experiment.machine.topology)?;
    let simulation = experiment.simulation(&plan, &Onlooker::default())?;
    simulation.limits().map(|limits| of(&limits)).transpose()
}

/// The bound of a simulation's limits.
///
/// # Errors
/// Those of the solver.
pub fn of(limits: &Limits) -> anyhow::Result<f64> {
    Ok(Market::new(limits).least_worth()? * (1.0 + ROUNDING))
}

/// Adds the bound to the runs of experiments that were not cut short.
///
/// # Errors
/// As [`sustained_stp`].
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
    let bounds: BTreeMap<Key, Option<f64>> = distinct
        .par_iter()
        .map(|(key, e)| Ok((*key, sustained_stp(e)?)))
        .collect::<anyhow::Result<_>>()?;
    for ((e, f), run) in experiments.iter().zip(finished).zip(runs) {
        let rounds = e.options.rounds as usize;
        if f.score.programs.iter().all(|p| p.runs >= rounds) {
            run.bound_stp = bounds.get(&key(e)).copied().flatten();
        }
    }
    Ok(())
}

/// Programs that are alike, with their work in units of worth: seconds of their time alone.
struct Seller<'a> {
    /// How many they are.
    count: f64,
    program: &'a ProgramLimits,
    rows: Vec<Row<'a>>,
}

/// Work of one behaviour.
struct Row<'a> {
    /// Part of a run's worth.
    share: f64,
    /// Part of the time that it takes for each second of CPU time.
    wall: f64,
    ways: &'a [Way],
    /// Worth of an instruction, in seconds.
    each_s: f64,
}

/// The linear programme.
struct Market<'a> {
    limits: &'a Limits,
    sellers: Vec<Seller<'a>>,
    /// Longest 1 / T, in experiments per second.
    most_often: f64,
}

/// Prices of what is scarce, all at least 0.
#[derive(Debug)]
struct Prices {
    /// By state of cores: a second of one of the threads on a core, and a second of each shared part of the core.
    seconds: Vec<f64>,
    parts: Vec<Vec<f64>>,
    /// By clock: a second of a core.
    clocks: Vec<f64>,
    /// All lines of a group of caches, all of memory's bandwidth.
    caches: Vec<f64>,
    memory: f64,
    /// By seller: a second of the program's own time.
    time: Vec<f64>,
}

impl<'a> Market<'a> {
    fn new(limits: &'a Limits) -> Self {
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
            let fastest = |row: &Row| {
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

    /// Price of a second in a way to run, but for the program's own time.
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

    /// What the machine is worth at some prices, and what work brings in above its cost: an upper bound of all worth per second.
    fn worth(&self, prices: &Prices) -> f64 {
        let ceilings = &self.limits.ceilings;
        let mut worth = prices.caches.iter().sum::<f64>() + prices.memory;
        // A core second must not be worth more in any state than it costs by its place and clock.
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

    /// By row and way: cost of a worth of 1 but for the program's own time, and how much of that it takes.
    fn row_costs(&self, prices: &Prices, seller: &Seller) -> Vec<Vec<(f64, f64)>> {
        let of_row = |row: &Row| {
            let of_way = |way: &Way| {
                let speed = way.ips * row.each_s;
                (self.cost(prices, way) / speed, row.wall / speed)
            };
            row.ways.iter().map(of_way).collect()
        };
        seller.rows.iter().map(of_row).collect()
    }

    /// The least worth of the machine at any prices.
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

    /// Nothing costs anything.
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

    /// Finds the prices at which the machine is worth least if there are only the known ways to run, and that worth.
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

/// Adds the cheapest way of a row to those known; whether it was not among them.
fn add_cheapest(ways: &[(f64, f64)], time: f64, known: &mut Vec<usize>) -> bool {
    let cost = |row: &usize| ways[*row].0 + time * ways[*row].1;
    let cheapest = (0..ways.len()).min_by(|a, b| cost(a).total_cmp(&cost(b)));
    let new = cheapest.filter(|row| !known.contains(row));
    known.extend(new);
    new.is_some()
}

impl Seller<'_> {
    /// Cost of a run of worth 1.
    fn run_cost(&self, time: f64, costs: &[f64]) -> f64 {
        let asleep = self.program.asleep_s / self.program.alone_fast_s;
        let work = self.rows.iter().zip(costs).map(|(r, cost)| r.share * cost);
        asleep * time + work.sum::<f64>()
    }

    /// A price of the program's own time, about that given, at which whole runs bring in nothing above their cost; and the least
    /// costs of each row at that price.
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

fn rows<'a>(limits: &'a Limits, program: &ProgramLimits) -> Vec<Row<'a>> {
    let model = &limits.ceilings.models[program.model];
    let row = |row: &countersteer_sim::engine::WorkRow| Row {
        share: row.worth,
        wall: 1.0 / row.threads,
        ways: &model.ways[row.behaviour],
        each_s: row.worth * program.alone_fast_s / row.instructions,
    };
    // What is worth nothing is left out: to do it costs nothing.
    let worthy = program.rows.iter().filter(|r| r.worth > 0.0);
    worthy.map(row).collect()
}

/// The dual programme: the least worth of the machine at prices where no way to run brings in more than it costs.
struct Dual {
    problem: Problem,
    seconds: Vec<Variable>,
    parts: Vec<Vec<Variable>>,
    clocks: Vec<Variable>,
    caches: Vec<Variable>,
    memory: Variable,
    /// What an experiment of the shortest length brings in above cost, and what adds to it.
    above_cost: Variable,
}

const ANY: (f64, f64) = (0.0, f64::INFINITY);

impl Dual {
    fn new(market: &Market) -> Self {
        let ceilings = &market.limits.ceilings;
        let mut problem = Problem::new(OptimizationDirection::Minimize);
        let mut free = |cost: f64| problem.add_var(cost, ANY);
        let places: Vec<Variable> = ceilings.places.iter().map(|p| free(p.cores)).collect();
        let types = 1 + ceilings
            .clocks
            .iter()
            .map(|c| c.core_type.index())
            .max()
            .unwrap_or(0);
        let types: Vec<Variable> = (0..types).map(|_| free(1.0)).collect();
        let clocks: Vec<Variable> = ceilings.clocks.iter().map(|_| free(0.0)).collect();
        let seconds: Vec<Variable> = ceilings.states.iter().map(|_| free(0.0)).collect();
        let used = |state: usize, part: usize| {
            let mut ways = ceilings.models.iter().flat_map(|m| m.ways.iter().flatten());
            ways.any(|w| w.state == state && w.uses[part] > 0.0)
        };
        let parts: Vec<Vec<Variable>> = (0..ceilings.states.len())
            .map(|state| {
                let most = countersteer_sim::progress::SHARED_PARTS;
                let all = (0..most).take_while(|_| ceilings.states[state].threads > 1.0);
                let last = all.filter(|part| used(state, *part)).last();
                (0..last.map_or(0, |l| l + 1)).map(|_| free(0.0)).collect()
            })
            .collect();
        let caches: Vec<Variable> = ceilings.caches.iter().map(|_| free(1.0)).collect();
        let memory = free(1.0);
        let above_cost = free(1.0);
        for (row, state) in ceilings.states.iter().enumerate() {
            let mut terms = vec![
                (places[state.place], 1.0),
                (clocks[state.clock], 1.0),
                (seconds[row], -state.threads),
            ];
            terms.extend(parts[row].iter().map(|part| (*part, -FOLLOWED)));
            problem.add_constraint(terms, ComparisonOp::Ge, 0.0);
        }
        for (clock, price) in ceilings.clocks.iter().zip(&clocks) {
            let terms = [
                (types[clock.core_type.index()], 1.0),
                (*price, -clock.cores),
            ];
            problem.add_constraint(terms, ComparisonOp::Ge, 0.0);
        }
        Self {
            problem,
            seconds,
            parts,
            clocks,
            caches,
            memory,
            above_cost,
        }
    }

    /// Adds a program with the ways to run that are known for each row; returns the price of its own time.
    fn sell(&mut self, market: &Market, seller: &Seller, known: &[Vec<usize>]) -> Variable {
        let ceilings = &market.limits.ceilings;
        let time = self.problem.add_var(seller.count, ANY);
        let each = seller.count * seller.program.alone_fast_s * market.most_often;
        let loss = self.problem.add_var(0.0, ANY);
        let asleep = seller.program.asleep_s / seller.program.alone_fast_s;
        let mut run = vec![(time, asleep), (loss, -1.0)];
        let mut above = vec![(self.above_cost, 1.0), (loss, market.limits.rounds * each)];
        for (row, known) in seller.rows.iter().zip(known) {
            let cost = self.problem.add_var(0.0, ANY);
            let gain = self.problem.add_var(0.0, ANY);
            run.push((cost, row.share));
            above.push((gain, -row.share * each));
            self.problem
                .add_constraint([(cost, 1.0), (gain, 1.0)], ComparisonOp::Ge, 1.0);
            for way in known.iter().map(|row_of| &row.ways[*row_of]) {
                let speed = way.ips * row.each_s;
                let mut terms = vec![
                    (time, row.wall),
                    (self.seconds[way.state], 1.0),
                    (cost, -speed),
                ];
                let parts = self.parts[way.state].iter().zip(&way.uses);
                terms.extend(
                    parts
                        .filter(|(_, used)| **used > 0.0)
                        .map(|(p, u)| (*p, *u)),
                );
                let cache = ceilings.places[ceilings.states[way.state].place].cache;
                let cache = cache.map(|k| (self.caches[k], market.part_of_cache(k, way)));
                let memory = (self.memory, market.part_of_memory(way));
                terms.extend(cache.into_iter().chain([memory]).filter(|(_, p)| *p > 0.0));
                self.problem.add_constraint(terms, ComparisonOp::Ge, 0.0);
            }
        }
        self.problem.add_constraint(run, ComparisonOp::Eq, 1.0);
        self.problem.add_constraint(above, ComparisonOp::Ge, 0.0);
        time
    }
}
