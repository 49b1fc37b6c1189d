//! Threads that share a core in time slices: their cache lines, and memory latency, while they run.
//!
//! Input: a mapping with the speeds found so far. Output: lines and latency halfway through a thread's time slice.

use countersteer_model::corun::ran_within;

use super::{AGE, Predictor};

/// Time slices of threads that share a core, in ns: 2.1 to 2.8 ms that end at ticks, mostly of 4 ms.
const SLICE_NS: f64 = 4e6;

/// Division of a core among its threads: each runs for `share` of the time. The methods give its part of the last `age` ns.
#[derive(Clone, Copy)]
struct CoreSlices {
    share: f64,
}

impl CoreSlices {
    /// Time of the running thread, halfway through its time slice.
    fn running(self, age: f64) -> f64 {
        ran_within(age, 0.5 * SLICE_NS, self.share).0
    }

    /// Time of a waiting thread, whose time slices came before the present one.
    fn waiting(self, age: f64) -> f64 {
        let before = (age - 0.5 * SLICE_NS).max(0.0);
        let others = 1.0 / self.share - 1.0;
        let first = before.min(SLICE_NS * others);
        first / others.max(1e-9) + self.share * (before - first)
    }
}

impl Predictor<'_> {
    /// True if a subject's core has more threads than it runs at once.
    pub(in crate::joint) fn shares_core(&self, row: usize) -> bool {
        self.share(row) < 1.0 - 1e-9
    }

    /// Computes the lines of each subject behind a cache while it runs, if some share cores.
    pub(super) fn compose_slices(&mut self, cache: usize) {
        let capacity = self.places.caches[cache];
        for nth in 0..self.behind[cache].len() {
            let row = self.behind[cache][nth];
            let filled = |age: f64| {
                let rows = self.behind[cache].iter();
                let lines = rows.map(|other| self.lines_beside(row, *other, age));
                (lines.sum::<f64>(), None)
            };
            let age = AGE.of(capacity, AGE.range.1, filled);
            let level = self.level(row, cache);
            self.held[row][level] = self.lines_beside(row, row, age).min(capacity);
        }
        self.effort += self.behind[cache].len().pow(2);
    }

    /// Mean lines of a subject that are younger than an age while another one (or itself) runs.
    fn lines_beside(&self, runs: usize, row: usize, age: f64) -> f64 {
        let share = self.share(row);
        let slices = CoreSlices { share };
        let speed = self.speeds[row] / share;
        let lines = |ran: f64| self.subjects[row].curve.lines_after(ran * speed);
        if row == runs || share >= 1.0 {
            return lines(slices.running(age));
        }
        let waiting = lines(slices.waiting(age));
        if self.mapping[row] == self.mapping[runs] {
            return waiting;
        }
        share * lines(slices.running(age)) + (1.0 - share) * waiting
    }

    /// Factor on memory latency while a subject runs.
    pub(super) fn met(&self, row: usize) -> f64 {
        let spot = self.mapping[row];
        let domain = self.places.spots[spot].memory;
        if !self.shares_core(row) {
            return self.factor[domain];
        }
        // While it runs, the others of its core do not, and it runs all of the time.
        let core: f64 = self.on[spot].iter().map(|r| self.traffic[*r]).sum();
        let more = self.traffic[row] / self.share(row) - core;
        let memory = &self.places.memory[domain];
        memory.factor(memory.traffic_at(self.factor[domain]) + more)
    }
}
