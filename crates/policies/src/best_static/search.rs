//! Search for the mapping of threads to CPUs with the best predicted value.
//!
//! Input: threads and a [`Forecast`]. Output: the best mapping found, with the other values found. Up to [`EXACT`] threads,
//! every balanced mapping is predicted, once per class of equivalent ones, as long as the budget allows. Otherwise the search
//! is hill climbing by moves and swaps, which starts from a mapping by speed-up factor and from several random ones.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use rand::RngExt;

use super::MappingObjective;
use super::tree::{DomainFill, DomainTree};
use countersteer_model::cpuset::CpuSet;
use countersteer_model::engine::Forecast;
use countersteer_model::policy::PolicyRng;
use countersteer_model::topology::{Group, GroupBy, Topology};
use countersteer_model::units::{CpuId, ProgramId, ThreadId};

use crate::neighbours::{Change, Neighbourhood, moved};

/// Limit on the number of threads for which all balanced mappings are predicted.
pub(super) const EXACT: usize = 10;
/// Number of starting points of the hill climbing.
const STARTS: usize = 5;
/// Number of random balanced mappings whose mean value represents Linux's choice.
const SAMPLES: usize = 8;
/// Limit on the number of threads for which all swaps are tried before a climb counts as finished. With more threads, a
/// random subset of swaps is tried.
const ALL_SWAPS: usize = 64;

/// Thread whose CPU is searched for.
pub(super) struct SearchedThread {
    pub thread: ThreadId,
    pub program: ProgramId,
    /// CPUs that the thread's affinity mask allows.
    pub allowed: Arc<CpuSet>,
    /// True if the mask excludes some CPUs of the machine.
    pub restricted: bool,
}

/// Best mapping that a search has found, with the values of the others.
pub(super) struct BestMapping {
    pub mapping: Vec<CpuId>,
    pub best: f64,
    pub worst: f64,
    /// Predicted value of leaving the threads to Linux.
    pub left: f64,
    /// Number of mappings that were predicted.
    pub predictions: usize,
    /// True if all balanced mappings were predicted.
    pub exact: bool,
    /// Best value of a mapping in which a thread runs in a group, by thread, then by index of the group in [`kinds`].
    pub by_group: Vec<Vec<f64>>,
}

/// Returns the groups by which alternatives are reported: core types and last-level caches, each if there are at least two.
pub(super) fn kinds(topology: &Topology) -> impl Iterator<Item = &Group> {
    let several = |by| {
        Some(topology.groups_by(by))
            .filter(|g| g.len() > 1)
            .unwrap_or_default()
    };
    several(GroupBy::CoreType)
        .iter()
        .chain(several(GroupBy::Llc))
}

/// Room of a move: the CPU is chosen when the move is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AnyCpu;

pub(super) struct MappingSearch<'a> {
    topology: &'a Topology,
    tree: DomainTree,
    subjects: &'a [SearchedThread],
    ids: Vec<ThreadId>,
    programs: Vec<ProgramId>,
    /// True if every thread may run on all CPUs, so that only even mappings need to be searched.
    even: bool,
    objective: MappingObjective,
    budget: usize,
    forecast: &'a mut dyn Forecast,
    memo: BTreeMap<Vec<CpuId>, f64>,
    /// Indices in [`kinds`] of the groups that contain each CPU.
    groups_of: Vec<Vec<usize>>,
    found: BestMapping,
}

impl<'a> MappingSearch<'a> {
    pub fn new(
        topology: &'a Topology,
        subjects: &'a [SearchedThread],
        objective: MappingObjective,
        budget: usize,
        forecast: &'a mut dyn Forecast,
    ) -> Self {
        let special: Vec<&CpuSet> = subjects
            .iter()
            .filter(|s| s.restricted)
            .map(|s| &*s.allowed)
            .collect();
        let groups: Vec<&Group> = kinds(topology).collect();
        let rows_of = |cpu: CpuId| {
            (0..groups.len())
                .filter(|row| groups[*row].cpus.contains(cpu))
                .collect()
        };
        Self {
            topology,
            tree: DomainTree::new(topology, &special),
            subjects,
            ids: subjects.iter().map(|s| s.thread).collect(),
            programs: subjects.iter().map(|s| s.program).collect(),
            even: special.is_empty(),
            objective,
            budget,
            forecast,
            memo: BTreeMap::new(),
            groups_of: topology.cpus.iter().map(|c| rows_of(c.id)).collect(),
            found: BestMapping {
                mapping: Vec::new(),
                best: f64::NEG_INFINITY,
                worst: f64::INFINITY,
                left: f64::NEG_INFINITY,
                predictions: 0,
                exact: false,
                by_group: vec![vec![f64::NEG_INFINITY; groups.len()]; subjects.len()],
            },
        }
    }

    /// Runs the search and returns its result. `present` holds the current CPU of each thread: of all equivalent mappings,
    /// the one that moves the fewest threads is returned. `chosen_by_linux` holds the same CPUs if Linux chose them.
    pub fn run(
        mut self,
        present: &[CpuId],
        chosen_by_linux: Option<&[CpuId]>,
        rng: &mut PolicyRng,
    ) -> BestMapping {
        match self.exact_bounds() {
            Some((least, most)) => {
                self.found.exact = true;
                let mut fill = DomainFill::new(&self.tree, least, most);
                let mut mapping = Vec::with_capacity(self.subjects.len());
                let _ = self.enumerate(&mut fill, &mut mapping, &mut Self::predict_new);
            }
            None => self.climb_from_several(rng),
        }
        self.found.left = self.left_to_linux(chosen_by_linux, rng);
        self.found.mapping = self.tree.nearest(&self.found.mapping, present);
        self.found
    }

    /// Returns the predicted value of leaving the threads to Linux. It is the better of two values: that of the CPUs that
    /// Linux chose, if their load is balanced, and the mean of random balanced mappings.
    fn left_to_linux(&mut self, chosen: Option<&[CpuId]>, rng: &mut PolicyRng) -> f64 {
        let mut order: Vec<usize> = (0..self.subjects.len()).collect();
        let mut mean = 0.0;
        for _ in 0..SAMPLES {
            shuffle(&mut order, rng);
            let mapping = self.assign(&order);
            mean += self.value(&mapping) / SAMPLES as f64;
        }
        let most = self.subjects.len().div_ceil(self.topology.cpus.len());
        let even = |mapping: &&[CpuId]| {
            let on = |cpu: &CpuId| mapping.iter().filter(|c| *c == cpu).count();
            mapping.iter().all(|cpu| on(cpu) <= most)
        };
        match chosen.filter(even) {
            Some(chosen) => mean.max(self.value(chosen)),
            None => mean,
        }
    }

    /// Returns the smallest and the largest number of threads per CPU in the balanced mappings to predict. `None` if there
    /// are too many mappings to predict each.
    fn exact_bounds(&mut self) -> Option<(u32, u32)> {
        let threads = self.subjects.len();
        let cpus = self.topology.cpus.len();
        if threads > EXACT || threads == 0 {
            return None;
        }
        // Threads with restricted affinity may leave CPUs empty that no other thread fills. The bounds are widened until at
        // least one mapping satisfies them.
        let least = if self.even { threads / cpus } else { 0 } as u32;
        let first = threads.div_ceil(cpus) as u32;
        (first..=threads as u32).find_map(|most| {
            let mut count = 0;
            let budget = self.budget;
            let mut fill = DomainFill::new(&self.tree, least, most);
            let _ = self.enumerate(&mut fill, &mut Vec::new(), &mut |_, _| {
                count += 1;
                if count > budget {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            });
            match count {
                0 => None,
                n if n > budget => Some(None),
                _ => Some(Some((least, most))),
            }
        })?
    }

    /// Calls `visit` for every balanced mapping, once per class of equivalent mappings.
    fn enumerate(
        &mut self,
        fill: &mut DomainFill,
        mapping: &mut Vec<CpuId>,
        visit: &mut dyn FnMut(&mut Self, &[CpuId]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let Some(subject) = self.subjects.get(mapping.len()) else {
            return visit(self, mapping);
        };
        let left = (self.subjects.len() - mapping.len() - 1) as u32;
        for cpu in self.tree.candidates(fill) {
            if !subject.allowed.contains(cpu) {
                continue;
            }
            fill.add(&self.tree, cpu);
            mapping.push(cpu);
            let hopeless = self.even && fill.needed() > left;
            let flow = if hopeless {
                ControlFlow::Continue(())
            } else {
                self.enumerate(fill, mapping, visit)
            };
            mapping.pop();
            fill.remove(&self.tree, cpu);
            flow?;
        }
        ControlFlow::Continue(())
    }

    fn predict_new(&mut self, mapping: &[CpuId]) -> ControlFlow<()> {
        self.predict(mapping);
        ControlFlow::Continue(())
    }

    fn value(&mut self, mapping: &[CpuId]) -> f64 {
        let predicted = self.forecast.steady_state(&self.ids, mapping);
        self.objective
            .value(&predicted, &self.programs, mapping, self.topology)
    }

    /// Predicts the value of a mapping and records it in the result.
    fn predict(&mut self, mapping: &[CpuId]) -> f64 {
        let value = self.value(mapping);
        let found = &mut self.found;
        found.predictions += 1;
        if value > found.best || found.mapping.is_empty() {
            found.best = value;
            found.mapping = mapping.to_vec();
        }
        found.worst = found.worst.min(value);
        for (best, cpu) in found.by_group.iter_mut().zip(mapping) {
            for row in &self.groups_of[cpu.index()] {
                best[*row] = best[*row].max(value);
            }
        }
        value
    }

    /// Returns the value of a mapping, or of an equivalent one that was predicted before. `None` if the budget of predictions
    /// is used up.
    fn recall(&mut self, mapping: &[CpuId]) -> Option<f64> {
        let key = self.tree.canonical(mapping);
        if let Some(value) = self.memo.get(&key) {
            return Some(*value);
        }
        (self.found.predictions < self.budget).then_some(())?;
        let value = self.predict(&key);
        self.memo.insert(key, value);
        Some(value)
    }

    fn climb_from_several(&mut self, rng: &mut PolicyRng) {
        let any: Vec<usize> = (0..self.subjects.len()).collect();
        let first = self.assign(&any);
        let predicted = self.forecast.steady_state(&self.ids, &first);
        let sf = |t: usize| {
            predicted
                .get(t)
                .map_or(1.0, |p| p.ips_alone_fast / p.ips_alone_slow.max(1.0))
        };
        let mut order = any;
        order.sort_by(|a, b| sf(*b).total_cmp(&sf(*a)).then(a.cmp(b)));
        for _ in 0..STARTS {
            let start = self.assign(&order);
            if self.climb(start, rng).is_none() {
                return;
            }
            shuffle(&mut order, rng);
        }
    }

    /// Returns a mapping that assigns threads in this order evenly to CPUs, fastest CPUs first and SMT siblings last.
    fn assign(&self, order: &[usize]) -> Vec<CpuId> {
        let mut cpus: Vec<CpuId> = self.topology.cpus.iter().map(|c| c.id).collect();
        cpus.sort_by_key(|c| {
            let cpu = &self.topology.cpus[c.index()];
            (cpu.thread, cpu.core_type, *c)
        });
        let mut load = vec![0u32; cpus.len()];
        let mut mapping = vec![CpuId(0); self.subjects.len()];
        let mut next = cpus.iter().cycle();
        for &t in order {
            let subject = &self.subjects[t];
            let free = if subject.restricted {
                cpus.iter()
                    .filter(|c| subject.allowed.contains(**c))
                    .min_by_key(|c| load[c.index()])
            } else {
                next.next()
            };
            mapping[t] = free.copied().unwrap_or_default();
            load[mapping[t].index()] += 1;
        }
        mapping
    }

    /// Climbs from a mapping: takes moves and swaps that improve the value until there are none. `None` if the budget of
    /// predictions is used up.
    fn climb(&mut self, mut mapping: Vec<CpuId>, rng: &mut PolicyRng) -> Option<()> {
        let mut value = self.recall(&mapping)?;
        loop {
            let before = value;
            for change in self.changes(rng) {
                value = match change {
                    Change::Move(thread, AnyCpu) => self.try_moves(thread, &mut mapping, value)?,
                    Change::Swap(a, b) => self.try_swap((a, b), &mut mapping, value)?,
                };
            }
            if value <= before {
                return Some(());
            }
        }
    }

    /// Swaps two threads if that improves the value, and returns the value. `None` if the budget is used up.
    fn try_swap(
        &mut self,
        (a, b): (usize, usize),
        mapping: &mut Vec<CpuId>,
        value: f64,
    ) -> Option<f64> {
        if mapping[a] == mapping[b] || !self.allows(a, mapping[b]) || !self.allows(b, mapping[a]) {
            return Some(value);
        }
        let other = moved(mapping, &Change::Swap(a, b).moves(mapping));
        let swapped = self.recall(&other)?;
        if swapped <= value {
            return Some(value);
        }
        *mapping = other;
        Some(swapped)
    }

    fn allows(&self, thread: usize, cpu: CpuId) -> bool {
        self.subjects[thread].allowed.contains(cpu)
    }

    /// Moves one thread to the CPU with the best value and returns that value. Candidates are CPUs that hold no more threads
    /// than the thread's own CPU does without it. `None` if the budget is used up.
    fn try_moves(&mut self, thread: usize, mapping: &mut Vec<CpuId>, value: f64) -> Option<f64> {
        let mut fill = DomainFill::new(&self.tree, 0, u32::MAX);
        for (_, cpu) in mapping.iter().enumerate().filter(|(t, _)| *t != thread) {
            fill.add(&self.tree, *cpu);
        }
        fill.most = fill.load(&self.tree, mapping[thread]) + 1;
        let mut best = value;
        for cpu in self.tree.candidates(&fill) {
            if cpu != mapping[thread] && self.allows(thread, cpu) {
                let other = moved(mapping, &[(thread, cpu)]);
                let value = self.recall(&other)?;
                if value > best {
                    (*mapping, best) = (other, value);
                }
            }
        }
        Some(best)
    }

    /// Returns the changes to try, in random order.
    fn changes(&self, rng: &mut PolicyRng) -> Vec<Change<AnyCpu>> {
        let around = Neighbourhood {
            threads: self.subjects.len(),
            rooms: &[AnyCpu],
        };
        if around.threads > ALL_SWAPS {
            let mut any = || rng.random_range(0..around.threads);
            let draw = |_| match (any(), any()) {
                (a, b) if a == b => Change::Move(a, AnyCpu),
                (a, b) => Change::Swap(a, b),
            };
            return (0..around.threads * 4).map(draw).collect();
        }
        let of = |thread: usize| around.moves_of(thread).chain(around.swaps_of(thread));
        let mut all: Vec<_> = (0..around.threads).flat_map(of).collect();
        shuffle(&mut all, rng);
        all
    }
}

fn shuffle<T>(items: &mut [T], rng: &mut PolicyRng) {
    for last in (1..items.len()).rev() {
        items.swap(last, rng.random_range(0..=last));
    }
}
