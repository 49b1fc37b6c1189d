//! Predictions of the speed of threads in a mapping of threads to cores.
//!
//! Input: [`PredictedThread`]s and a core for each. Output: instructions per ns of each. A shared cache holds the lines touched within
//! its eviction age, the same for all sharers. At that age the footprints fill the cache (Xiang et al., HOTL, ASPLOS 2013).
//! Memory latency grows with utilisation as loaded-latency measurements show. SMT siblings take issue slots from each other in
//! proportion to their use.
//!
//! Threads of a core with more of them than it runs at once never run together; with other threads they run a part of the time.
//! A thread's cache lines and memory's load are those halfway through its time slices.
//!
//! A change of few threads is predicted by solving the caches that it touches. Its effect on memory's load moves all others
//! along the slope of the last whole solution.

mod slices;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use countersteer_model::corun::{EvictionAge, Siblings};

use super::estimate::PredictedThread;
use super::places::MachinePlaces;

/// Lines moved per miss; some evicted lines are dirty.
pub(super) const TRAFFIC: f64 = 1.3;
/// Slowdown of the core part by siblings.
pub(super) const SIBLINGS: Siblings = Siblings {
    each: 0.1,
    width: 0.9,
};
/// Rounds of a whole solution, and of that of a change.
const ROUNDS: usize = 8;
const FEW: usize = 2;
/// Search for eviction ages in ns: halvings to a range of 1 %.
const AGE: EvictionAge = EvictionAge {
    range: (1e3, 1e12),
    steps: 12,
    near: 0.0,
    apart: 0.0,
};

/// Threads outside the search.
pub(super) struct Elsewhere {
    /// By core.
    pub load: Vec<usize>,
    /// Lines per ns, by memory domain.
    pub traffic: Vec<f64>,
}

/// Mapping with its predictions.
pub(super) struct Predictor<'a> {
    pub places: &'a MachinePlaces,
    pub subjects: &'a [PredictedThread],
    /// Core of each subject.
    pub mapping: Vec<usize>,
    elsewhere: Elsewhere,
    /// Last-level caches with threads outside the search.
    unknown: Vec<usize>,
    /// Subjects on each core.
    on: Vec<Vec<usize>>,
    /// Subjects behind each cache.
    behind: Vec<Vec<usize>>,
    /// Parts of divided caches: subjects and lines of each. A cache with other subjects counts as undivided.
    pub parts: BTreeMap<usize, Vec<(Vec<usize>, f64)>>,
    /// Instructions per ns, share of the CPU included.
    pub speeds: Vec<f64>,
    /// Lines per ns of each subject, to memory.
    traffic: Vec<f64>,
    /// Lines in each level of its chain.
    pub held: Vec<Vec<f64>>,
    /// By memory domain.
    pub factor: Vec<f64>,
    /// By memory domain: derivative of the sum of weighted speeds with respect to the factor, summed over subjects.
    slope: Vec<f64>,
    /// Rows solved so far: the cost of a search.
    pub effort: usize,
    /// Core of each subject at the start, and its measured speed there over the prediction.
    start: Vec<usize>,
    anchor: Vec<f64>,
}

/// Effect of a change.
pub(super) struct Outcome {
    /// Subjects that change their speed, with the new one.
    pub speeds: Vec<(usize, f64)>,
    /// Gain of other threads by memory's load, in weighted relative speed.
    pub others: f64,
}

impl<'a> Predictor<'a> {
    pub fn new(
        places: &'a MachinePlaces,
        subjects: &'a [PredictedThread],
        mapping: Vec<usize>,
        elsewhere: Elsewhere,
    ) -> Self {
        let busy = (0..places.spots.len()).filter(|spot| elsewhere.load[*spot] > 0);
        let mut unknown: Vec<usize> = busy.map(|spot| places.llc(spot)).collect();
        unknown.sort_unstable();
        unknown.dedup();
        let mut on = vec![Vec::new(); places.spots.len()];
        let mut behind = vec![Vec::new(); places.caches.len()];
        for (row, spot) in mapping.iter().enumerate() {
            on[*spot].push(row);
            places.spots[*spot]
                .chain
                .iter()
                .for_each(|c| behind[*c].push(row));
        }
        let mut predictor = Self {
            places,
            subjects,
            unknown,
            parts: BTreeMap::new(),
            elsewhere,
            on,
            behind,
            speeds: subjects.iter().map(|s| s.alone).collect(),
            traffic: vec![0.0; subjects.len()],
            held: mapping
                .iter()
                .map(|s| vec![0.0; places.spots[*s].chain.len()])
                .collect(),
            factor: vec![1.0; places.memory.len()],
            slope: vec![0.0; places.memory.len()],
            effort: 0,
            start: mapping.clone(),
            anchor: vec![1.0; subjects.len()],
            mapping,
        };
        predictor.settle();
        predictor
    }

    /// Predicts all threads in the first mapping, and compares that with the measured speeds.
    pub fn settle(&mut self) {
        self.solve();
        for (row, subject) in self.subjects.iter().enumerate() {
            let seen = subject.seen * self.share(row);
            self.anchor[row] = (seen / self.speeds[row]).clamp(0.2, 5.0);
        }
    }

    /// Prediction of a speed, corrected by the measured over the predicted speed on the subject's first core. On that core the
    /// correction applies in full. On other cores only the square root of a correction above 1 applies, since an error on one
    /// core need not hold on another.
    pub fn believed(&self, row: usize, spot: usize, speed: f64) -> f64 {
        let anchor = self.anchor[row];
        speed
            * if spot == self.start[row] {
                anchor
            } else {
                anchor.min(anchor.sqrt())
            }
    }

    /// Threads on a core.
    pub fn load(&self, spot: usize) -> usize {
        self.on[spot].len() + self.elsewhere.load[spot]
    }

    /// True if all threads behind a last-level cache are in the search.
    pub fn is_known(&self, llc: usize) -> bool {
        self.unknown.binary_search(&llc).is_err()
    }

    /// Lines per ns that a subject requests from the caches outside its core, where they evict those of others.
    pub fn pushed(&self, row: usize) -> f64 {
        let kind = &self.places.kinds[self.places.spots[self.mapping[row]].kind];
        self.speeds[row] * self.subjects[row].curve.at(kind.private_lines)
    }

    /// Siblings that run at the same time, and the instructions that they dispatch per ns.
    fn beside(&self, row: usize, spot: usize) -> (usize, f64) {
        let on = &self.on[spot];
        let siblings = on.len().min(self.places.spots[spot].ways).saturating_sub(1);
        if siblings == 0 {
            return (0, 0.0);
        }
        let others: f64 = on
            .iter()
            .filter(|r| **r != row)
            .map(|r| self.speeds[*r])
            .sum();
        (siblings, others)
    }

    /// Predicts all threads in the mapping.
    pub fn solve(&mut self) {
        let rows: Vec<usize> = (0..self.subjects.len()).collect();
        let caches: Vec<usize> = (0..self.places.caches.len()).collect();
        for _ in 0..ROUNDS {
            caches.iter().for_each(|c| self.compose(*c));
            rows.iter().for_each(|row| self.run(*row));
            self.load_memory();
        }
        // Reaction of all threads to memory's load.
        self.slope.fill(0.0);
        for row in rows {
            let domain = self.places.spots[self.mapping[row]].memory;
            let spot = &self.places.spots[self.mapping[row]];
            let waits = self.waits(row, spot.kind);
            let speed = self.speeds[row];
            let subject = &self.subjects[row];
            self.slope[domain] -= subject.weight / subject.alone * speed * speed * waits
                / self.share(row)
                * self.anchor[row];
        }
    }

    fn share(&self, row: usize) -> f64 {
        let spot = self.mapping[row];
        let load = self.load(spot).max(1) as f64;
        (self.places.spots[spot].ways as f64 / load).min(1.0)
    }

    /// Time per instruction that waits for memory at a factor of 1, in ns.
    fn waits(&self, row: usize, kind: usize) -> f64 {
        let kind = &self.places.kinds[kind];
        let last = kind.lines.len() - 1;
        let subject = &self.subjects[row];
        subject.exposed * subject.curve.at(self.held[row][last]) * kind.step(last + 1)
    }

    /// Computes the lines of each subject behind a cache.
    fn compose(&mut self, cache: usize) {
        let rows = &self.behind[cache];
        self.effort += rows.len();
        let capacity = self.places.caches[cache];
        if let [row] = rows.as_slice() {
            let level = self.level(*row, cache);
            self.held[*row][level] = capacity;
            return;
        }
        if rows.iter().any(|r| self.shares_core(*r)) {
            return self.compose_slices(cache);
        }
        let parts = self.parts.get(&cache).filter(|parts| {
            let mut members: Vec<usize> = parts.iter().flat_map(|part| part.0.clone()).collect();
            let mut all = rows.clone();
            members.sort_unstable();
            all.sort_unstable();
            members == all
        });
        match parts.cloned() {
            Some(parts) => parts
                .iter()
                .for_each(|(rows, lines)| self.share_lines(cache, rows, *lines)),
            None => self.share_lines(cache, &rows.clone(), capacity),
        }
    }

    /// Computes the lines of subjects that share `capacity` lines of a cache.
    fn share_lines(&mut self, cache: usize, rows: &[usize], capacity: f64) {
        let lines = |r: &usize, age: f64| {
            let curve = &self.subjects[*r].curve;
            curve.lines_after(age * self.speeds[*r])
        };
        let filled = |age: f64| (rows.iter().map(|r| lines(r, age)).sum::<f64>(), None);
        let age = AGE.of(capacity, AGE.range.1, filled);
        for row in rows {
            let level = self.level(*row, cache);
            self.held[*row][level] = lines(row, age).min(capacity);
        }
    }

    /// Subjects behind a cache.
    pub fn rows_behind(&self, cache: usize) -> &[usize] {
        &self.behind[cache]
    }

    fn level(&self, row: usize, cache: usize) -> usize {
        let chain = &self.places.spots[self.mapping[row]].chain;
        chain.iter().position(|c| *c == cache).unwrap_or(0)
    }

    /// Computes the speed of a subject with its lines.
    fn run(&mut self, row: usize) {
        let spot = self.mapping[row];
        let place = &self.places.spots[spot];
        let kind = &self.places.kinds[place.kind];
        let subject = &self.subjects[row];
        let (siblings, others) = self.beside(row, spot);
        let used = others / kind.ghz / kind.width;
        let mut time = subject.base[place.kind] * SIBLINGS.factor(siblings as f64, used);
        let last = kind.lines.len() - 1;
        let mut lines = kind.private_lines;
        for level in 0..=last {
            time += subject.exposed * subject.curve.at(lines) * kind.step(level);
            lines = lines.max(self.held[row][level]);
        }
        time += self.waits(row, place.kind) * self.met(row);
        let speed = self.share(row) / time;
        self.traffic[row] = TRAFFIC * speed * subject.curve.at(self.held[row][last]);
        // Halfway steps: speed and lines reinforce each other.
        self.speeds[row] = 0.5 * (self.speeds[row] + speed);
    }

    fn load_memory(&mut self) {
        for domain in 0..self.factor.len() {
            let demand = self.demand(domain);
            let wanted = self.places.memory[domain].factor(demand);
            self.factor[domain] += 0.5 * (wanted - self.factor[domain]);
        }
    }

    fn demand(&self, domain: usize) -> f64 {
        let here = |row: &usize| self.places.spots[self.mapping[*row]].memory == domain;
        let own: f64 = (0..self.subjects.len())
            .filter(here)
            .map(|row| self.traffic[row])
            .sum();
        own + self.elsewhere.traffic[domain].max(0.0)
    }

    /// Moves subjects; predictions are stale afterwards.
    fn shift(&mut self, changes: &[(usize, usize)]) {
        for (row, to) in changes {
            let from = self.mapping[*row];
            self.on[from].retain(|r| r != row);
            for cache in &self.places.spots[from].chain {
                self.behind[*cache].retain(|r| r != row);
            }
            self.mapping[*row] = *to;
            self.on[*to].push(*row);
            for cache in &self.places.spots[*to].chain {
                self.behind[*cache].push(*row);
            }
            self.held[*row].resize(self.places.spots[*to].chain.len(), 0.0);
        }
    }

    /// Predicts a change without making it.
    pub fn attempt(&mut self, changes: &[(usize, usize)]) -> Outcome {
        let back: Vec<(usize, usize)> = changes
            .iter()
            .map(|(row, _)| (*row, self.mapping[*row]))
            .collect();
        let spots = || changes.iter().chain(&back).map(|(_, spot)| *spot);
        let mut caches: Vec<usize> = spots()
            .flat_map(|s| self.places.spots[s].chain.iter().copied())
            .collect();
        caches.sort_unstable();
        caches.dedup();
        let mut llcs: Vec<usize> = spots().map(|s| self.places.llc(s)).collect();
        llcs.sort_unstable();
        llcs.dedup();
        let mut rows: Vec<usize> = llcs
            .iter()
            .flat_map(|c| self.behind[*c].iter().copied())
            .collect();
        rows.sort_unstable();
        rows.dedup();
        let before: Vec<(f64, f64, Vec<f64>)> = rows
            .iter()
            .map(|r| (self.speeds[*r], self.traffic[*r], self.held[*r].clone()))
            .collect();
        self.shift(changes);
        for _ in 0..FEW {
            caches.iter().for_each(|c| self.compose(*c));
            rows.iter().for_each(|row| self.run(*row));
        }
        let others = self.felt_elsewhere(&rows, &before);
        // Each round goes halfway; this extrapolates to all rounds.
        let speeds = rows
            .iter()
            .zip(&before)
            .map(|(row, old)| {
                (
                    *row,
                    old.0 + (self.speeds[*row] - old.0) / (1.0 - 0.5f64.powi(FEW as i32)),
                )
            })
            .collect();
        self.shift(&back);
        for (row, (speed, traffic, held)) in rows.into_iter().zip(before) {
            (self.speeds[row], self.traffic[row], self.held[row]) = (speed, traffic, held);
        }
        Outcome { speeds, others }
    }

    /// Effect of the traffic of these rows on all other threads, in weighted relative speed.
    fn felt_elsewhere(&self, rows: &[usize], before: &[(f64, f64, Vec<f64>)]) -> f64 {
        let mut felt = 0.0;
        for (domain, memory) in self.places.memory.iter().enumerate() {
            let mut more = 0.0;
            for (row, (_, traffic, _)) in rows.iter().zip(before) {
                if self.places.spots[self.mapping[*row]].memory == domain {
                    more += self.traffic[*row] - traffic;
                }
            }
            let now = self.demand(domain);
            let factor = |demand: f64| memory.factor(demand);
            // Threads that wait longer request less: the load moves about half as far.
            felt += 0.5 * self.slope[domain] * (factor(now) - factor(now - more));
        }
        felt
    }

    /// Adopts another mapping of all subjects.
    pub fn assume(&mut self, mapping: &[usize]) {
        let rows = self.mapping.iter().zip(mapping).enumerate();
        let changes: Vec<(usize, usize)> = rows
            .filter(|(_, (from, to))| from != to)
            .map(|(row, (_, to))| (row, *to))
            .collect();
        self.change(&changes);
    }

    /// Makes a change and predicts all threads again.
    pub fn change(&mut self, changes: &[(usize, usize)]) {
        self.shift(changes);
        self.solve();
    }
}
