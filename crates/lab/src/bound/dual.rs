//! Dual of the linear program of a market: prices of its scarce resources.

use microlp::{ComparisonOp, OptimizationDirection, Problem, Variable};

use super::{FOLLOWED, Market, Seller};

/// Dual linear program. It minimises the sum of all prices, subject to the condition that work in any way to run costs at least
/// its worth.
pub(super) struct Dual {
    pub problem: Problem,
    pub seconds: Vec<Variable>,
    pub parts: Vec<Vec<Variable>>,
    pub clocks: Vec<Variable>,
    pub caches: Vec<Variable>,
    pub memory: Variable,
    /// Variable for the worth of work above its cost, in an experiment of the shortest duration.
    above_cost: Variable,
}

const ANY: (f64, f64) = (0.0, f64::INFINITY);

impl Dual {
    /// Creates the program with the prices of all resources, and no seller.
    pub fn new(market: &Market) -> Self {
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

    /// Adds a group of programs with the known ways to run each behaviour. Returns the variable for the price of the program's
    /// own time.
    pub(crate) fn sell(
        &mut self,
        market: &Market,
        seller: &Seller,
        known: &[Vec<usize>],
    ) -> Variable {
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
