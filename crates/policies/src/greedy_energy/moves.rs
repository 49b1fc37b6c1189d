//! Candidate moves of a slice, from which the one with the least cost is taken.

use std::cmp::Ordering;

use super::history::{LEVELS, SliceHistory};
use super::model::{Shift, ThreadPlaces};

/// Mean utilisation of the used cores below which a core is emptied even if energy is unknown.
const PARK_BELOW: f64 = 0.5;
/// Most accesses to modified lines per miss that count.
const MOST_SHARED: f64 = 4.0;
/// Largest part of a thread's misses that joining the threads of its program spares.
const MOST_SPARED: f64 = 0.9;
/// Rule of a move towards threads of the same program, whose lines it accesses.
const JOINS: &str = "joins threads whose lines it shares";
/// Rule of the move that consolidates load on fewer cores.
pub(super) const PARKS: &str = "empties a core so that it can be parked";

/// Candidate: the threads that move, and the reason.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Move {
    pub shifts: Vec<Shift>,
    pub rule: &'static str,
}

/// State of the slice from which candidate moves are derived.
pub(super) struct MoveSearch<'a> {
    pub places: &'a ThreadPlaces<'a>,
    pub history: &'a SliceHistory,
    pub tolerance: f64,
    pub fp_high: f64,
    pub park: bool,
    /// True if power follows measured energy, not fixed weights.
    pub knows_energy: bool,
}

impl MoveSearch<'_> {
    /// Returns all candidate moves of the slice.
    pub fn moves(&self) -> Vec<Move> {
        let mut all = self.balancing();
        all.extend(self.parting());
        all.extend(self.splitting());
        all.extend(self.joining());
        all.extend(self.parking());
        all
    }

    fn load(&self, cpu: usize) -> f64 {
        self.places.load(cpu)
    }

    fn cpus(&self) -> std::ops::Range<usize> {
        0..self.places.on.len()
    }

    /// Returns the CPU with the least load in `among`; of equal ones, that with the least load on its core. `None` if there
    /// is none.
    fn emptiest(&self, among: impl Fn(usize) -> bool) -> Option<usize> {
        let key = |cpu: &usize| {
            let core = &self.places.machine.cores[self.places.machine.core_of[*cpu]];
            let beside: f64 = core.iter().map(|c| self.load(*c)).sum();
            (self.load(*cpu), beside)
        };
        self.cpus().filter(|cpu| among(*cpu)).min_by(|a, b| {
            let (a, b) = (key(a), key(b));
            a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
        })
    }

    /// Returns the factor on a thread's misses when it moves from CPU `from` to CPU `to`: less than 1 if it leaves a
    /// contended cache, more than 1 if it enters one.
    fn misses(&self, from: usize, to: usize) -> f64 {
        let contended = |cpu: usize, other: usize| {
            let above = self.history.above(cpu).iter();
            let mut apart = above.filter(|row| !self.history.caches[**row].cpus[other]);
            apart.any(|row| self.history.is_contended(*row))
        };
        match (contended(from, to), contended(to, from)) {
            (true, false) => 1.0 - self.tolerance,
            (false, true) => 1.0 + self.tolerance,
            _ => 1.0,
        }
    }

    fn shift(&self, row: usize, to: usize) -> Shift {
        let misses = self.misses(self.places.members[row].cpu, to) * self.sharing(row, to);
        Shift { row, to, misses }
    }

    /// Returns a thread's accesses to lines that other cores modified, per miss of the last level; 0 if they were not measured.
    fn shared(&self, row: usize) -> f64 {
        let rates = &self.places.members[row].mean.rates;
        if rates.misses() > 0.0 {
            (rates.modified() / rates.misses()).min(MOST_SHARED)
        } else {
            0.0
        }
    }

    /// Returns the factor on a thread's misses because another CPU is behind the cache of more or fewer threads of its program.
    fn sharing(&self, row: usize, to: usize) -> f64 {
        let shared = self.shared(row);
        if shared == 0.0 {
            return 1.0;
        }
        let members = &self.places.members;
        let others = |cpu: usize| {
            let above = self.history.above(cpu).iter();
            let mut last = above.filter(|c| self.history.caches[**c].level == LEVELS - 1);
            let cpus = last.next().map(|c| &self.history.caches[*c].cpus);
            let near = |member: usize| {
                member != row
                    && members[member].program == members[row].program
                    && cpus.is_some_and(|cpus| cpus[members[member].cpu])
            };
            (0..members.len()).filter(|m| near(*m)).count()
        };
        match others(to).cmp(&others(members[row].cpu)) {
            Ordering::Greater => (1.0 - shared).max(1.0 - MOST_SPARED),
            Ordering::Less => 1.0 + shared,
            Ordering::Equal => 1.0,
        }
    }

    /// Returns moves of one thread each from the CPU with the most load to the CPU with the least (meta-scheduler, section
    /// III.A).
    fn balancing(&self) -> Vec<Move> {
        let fullest = self
            .cpus()
            .max_by(|a, b| self.load(*a).total_cmp(&self.load(*b)));
        let (Some(from), Some(to)) = (fullest, self.emptiest(|_| true)) else {
            return Vec::new();
        };
        if from == to {
            return Vec::new();
        }
        let one = |row: &usize| Move {
            shifts: vec![self.shift(*row, to)],
            rule: if self.sharing(*row, to) < 1.0 {
                JOINS
            } else {
                "balances load"
            },
        };
        self.places.on[from].iter().map(one).collect()
    }

    /// Returns moves away from contended caches (meta-scheduler, section III.B). The thread that misses most moves to the
    /// cache of the same level with the lowest miss rate. It swaps with the thread there that misses least, or moves to the
    /// CPU there with the least load.
    fn parting(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for (row, cache) in self.history.caches.iter().enumerate() {
            if !self.history.is_contended(row) {
                continue;
            }
            let others = self.history.caches.iter().enumerate();
            let quietest = others
                .filter(|(other, c)| c.level == cache.level && *other != row)
                .min_by(|(a, _), (b, _)| {
                    let rate = |nth: usize| self.history.miss_rate(nth);
                    rate(*a).total_cmp(&rate(*b))
                });
            let Some((_, quiet)) = quietest else { continue };
            let Some(most) = self.most_missing(&cache.cpus) else {
                continue;
            };
            let rule = "leaves a cache in which misses rise";
            if let Some(least) = self.least_missing(&quiet.cpus) {
                let (here, there) = (
                    self.places.members[most].cpu,
                    self.places.members[least].cpu,
                );
                moves.push(Move {
                    shifts: vec![self.shift(most, there), self.shift(least, here)],
                    rule,
                });
            }
            if let Some(to) = self.emptiest(|cpu| quiet.cpus[cpu]) {
                moves.push(Move {
                    shifts: vec![self.shift(most, to)],
                    rule,
                });
            }
        }
        moves
    }

    fn missing(&self, row: &usize) -> f64 {
        let mean = &self.places.members[*row].mean;
        mean.used * mean.rates.misses()
    }

    fn rows_on(&self, cpus: &[bool]) -> impl Iterator<Item = usize> {
        let inside = (0..cpus.len()).filter(|cpu| cpus[*cpu]);
        inside.flat_map(|cpu| self.places.on[cpu].iter().copied())
    }

    fn most_missing(&self, cpus: &[bool]) -> Option<usize> {
        let by = |a: &usize, b: &usize| self.missing(a).total_cmp(&self.missing(b));
        self.rows_on(cpus).max_by(by)
    }

    fn least_missing(&self, cpus: &[bool]) -> Option<usize> {
        let by = |a: &usize, b: &usize| self.missing(a).total_cmp(&self.missing(b));
        self.rows_on(cpus).min_by(by)
    }

    /// Returns moves that separate SMT siblings whose threads both use the floating-point unit heavily (meta-scheduler,
    /// section III.C). One thread moves to the core whose unit is used least. It swaps with the thread there that uses the
    /// unit least, or moves alone.
    fn splitting(&self) -> Vec<Move> {
        let heavy = |row: &usize| self.places.fp_share(*row) > self.fp_high;
        let cores = &self.places.machine.cores;
        let use_of = |core: &Vec<usize>| -> f64 {
            let rows = core.iter().flat_map(|cpu| &self.places.on[*cpu]);
            rows.map(|row| self.places.members[*row].mean.used * self.places.fp_share(*row))
                .sum()
        };
        let mut moves = Vec::new();
        for (nth, core) in cores.iter().enumerate() {
            let wanting = |cpu: &usize| self.places.on[*cpu].iter().copied().find(heavy);
            let in_conflict: Vec<usize> = core.iter().filter_map(wanting).collect();
            let [row, _, ..] = in_conflict.as_slice() else {
                continue;
            };
            let others = cores.iter().enumerate().filter(|(other, _)| *other != nth);
            let Some((_, to)) = others.min_by(|(_, a), (_, b)| use_of(a).total_cmp(&use_of(b)))
            else {
                continue;
            };
            let rule = "leaves a core whose floating-point unit its sibling wants too";
            if let Some(cpu) = self.emptiest(|cpu| to.contains(&cpu)) {
                moves.push(Move {
                    shifts: vec![self.shift(*row, cpu)],
                    rule,
                });
            }
            let rows = to.iter().flat_map(|cpu| &self.places.on[*cpu]).copied();
            let light = rows.min_by(|a, b| {
                let share = |row: usize| self.places.fp_share(row);
                share(*a).total_cmp(&share(*b))
            });
            if let Some(light) = light {
                let (here, there) = (
                    self.places.members[*row].cpu,
                    self.places.members[light].cpu,
                );
                moves.push(Move {
                    shifts: vec![self.shift(*row, there), self.shift(light, here)],
                    rule,
                });
            }
        }
        moves
    }

    /// Returns moves of a thread to the last-level cache with the most threads of its program, if the program's threads
    /// share data.
    fn joining(&self) -> Vec<Move> {
        let last: Vec<&Vec<bool>> = self
            .history
            .caches
            .iter()
            .filter(|c| c.level == LEVELS - 1)
            .map(|c| &c.cpus)
            .collect();
        let members = &self.places.members;
        let mut moves = Vec::new();
        for (row, member) in members.iter().enumerate() {
            let measured = self.shared(row) > self.tolerance;
            if last.len() < 2 || !(measured || self.history.shares_data(member.program)) {
                continue;
            }
            let of_program = |cpus: &&&Vec<bool>| {
                let here = members.iter().filter(|m| cpus[m.cpu]);
                here.filter(|m| m.program == member.program).count()
            };
            let Some(home) = last.iter().max_by_key(of_program) else {
                continue;
            };
            if home[member.cpu] || of_program(&home) == 0 {
                continue;
            }
            if let Some(to) = self.emptiest(|cpu| home[cpu]) {
                let (misses, rule) = if measured {
                    (self.shift(row, to).misses, JOINS)
                } else {
                    let rule = "joins threads of its program that miss less together";
                    (1.0 - self.tolerance, rule)
                };
                moves.push(Move {
                    shifts: vec![Shift { row, to, misses }],
                    rule,
                });
            }
        }
        moves
    }

    /// True if the mean utilisation of these cores is so low that the rest of them can take the load of one.
    fn is_idle(&self, open: &[usize]) -> bool {
        let cpus = open
            .iter()
            .flat_map(|core| &self.places.machine.cores[*core]);
        let (used, count) = cpus.fold((0.0, 0.0), |(used, count), cpu| {
            (used + self.load(*cpu).min(1.0), count + 1.0)
        });
        used < PARK_BELOW * count
    }

    /// Returns the move that empties the least used core: each of its threads goes to the CPU with the least load. `None` if
    /// there is only one, or if cores are busy and energy is unknown. Predicted power and speed then decide about the move.
    fn parking(&self) -> Option<Move> {
        let machine = self.places.machine;
        let load_of = |core: &Vec<usize>| -> f64 { core.iter().map(|cpu| self.load(*cpu)).sum() };
        let occupied = |core: &Vec<usize>| core.iter().any(|cpu| !self.places.on[*cpu].is_empty());
        let open: Vec<usize> = (0..machine.cores.len())
            .filter(|core| occupied(&machine.cores[*core]))
            .collect();
        if !self.park || open.len() < 2 || !(self.knows_energy || self.is_idle(&open)) {
            return None;
        }
        let least = open
            .iter()
            .min_by(|a, b| load_of(&machine.cores[**a]).total_cmp(&load_of(&machine.cores[**b])))?;
        let mut load: Vec<f64> = self.cpus().map(|cpu| self.load(cpu)).collect();
        let mut shifts = Vec::new();
        let mut rows: Vec<usize> = machine.cores[*least]
            .iter()
            .flat_map(|cpu| self.places.on[*cpu].iter().copied())
            .collect();
        let wants = |row: usize| self.places.members[row].mean.wanted;
        rows.sort_by(|a, b| wants(*b).total_cmp(&wants(*a)));
        for row in rows {
            let others = open.iter().filter(|core| *core != least);
            let to = others
                .flat_map(|core| machine.cores[*core].iter().copied())
                .min_by(|a, b| load[*a].total_cmp(&load[*b]))?;
            load[to] += wants(row);
            shifts.push(self.shift(row, to));
        }
        Some(Move {
            shifts,
            rule: PARKS,
        })
    }
}
