//! Which parts of a run go through the caches, where not all do.
//!
//! Input: what runs beside what since when, and what steps in detail cost. Output: whether the next step is in detail, and rates for
//! those that are not. Phases recur: a thread's rates are kept by [`Situation`], and while all running threads are in known ones,
//! they go on at the rates that were measured there. Now and then, and where a situation is new, the caches are warmed for a
//! while and a window is measured. The tighter programs' speeds are known, the longer is left out. All threads leave out the same time,
//! so that they meet again where they would have met (Carlson, Heirman and Eeckhout, ISPASS 2013); intervals are those of ratio
//! estimates, stratified by situation.

use std::collections::BTreeMap;

use countersteer_model::score::Sampled;

use super::machine::Machine;
use crate::progress::Counters;

/// Warming, whatever the caches.
const WARM_NS: f64 = 500_000.0;
/// The same for each line of the largest last-level cache.
const WARM_NS_PER_LINE: f64 = 20.0;
/// Last-level caches that hold more than so much more after warming are warmed on.
const GROWS: f64 = 0.01;
/// A measured window.
const WINDOW_NS: f64 = 1_000_000.0;
/// What is left out at least and at most, in times of warming and window.
const SKIPS: (f64, f64) = (4.0, 48.0);
/// Half widths of 95 % intervals of programs' speeds below which twice as much is left out, and above which half as much.
const TIGHT: (f64, f64) = (0.01, 0.02);
/// Standard deviations to either side of a 95 % interval.
const HALF_WIDTH: f64 = 1.96;
/// Relative standard deviation between windows where there was one window only.
const UNKNOWN: f64 = 0.1;

/// What a thread's rates depend on, as far as it is distinguished.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Situation {
    pub program: u32,
    /// Its phase.
    pub behaviour: u32,
    /// Of its core, by how many run on it.
    pub class: u32,
    /// Programs that share its last-level cache, in order.
    pub beside: Vec<u32>,
}

/// Sums of squares that say how much windows differ.
#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    windows: f64,
    n: f64,
    value: f64,
    n_n: f64,
    n_value: f64,
    value_value: f64,
}

impl Moments {
    fn add(&mut self, n: f64, value: f64) {
        self.windows += 1.0;
        self.n += n;
        self.value += value;
        self.n_n += n * n;
        self.n_value += n * value;
        self.value_value += value * value;
    }

    fn ratio(&self) -> f64 {
        self.value / self.n
    }

    /// Variance of the ratio of sums.
    fn variance(&self) -> f64 {
        let ratio = self.ratio();
        if self.windows < 2.0 {
            return (UNKNOWN * ratio).powi(2);
        }
        let squares = self.value_value - 2.0 * ratio * self.n_value + ratio * ratio * self.n_n;
        let mean = self.n / self.windows;
        squares.max(0.0) / ((self.windows - 1.0) * self.windows * mean * mean)
    }
}

/// What was measured of a situation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    /// Sums, times and cycles apart.
    counters: Counters,
    time: Moments,
    misses: Moments,
}

impl Known {
    /// Nanoseconds per instruction.
    pub fn each_ns(&self) -> f64 {
        self.time.ratio()
    }

    /// What so many instructions count, times and cycles apart.
    pub fn counters(&self, instructions: f64) -> Counters {
        let part = instructions / self.counters.instructions;
        Counters::default().plus(&self.counters, part)
    }

    fn add(&mut self, window: &Window) {
        let n = window.counters.instructions;
        self.counters = self.counters.plus(&window.counters, 1.0);
        self.time.add(n, window.cost_ns);
        self.misses.add(n, window.counters.llc_misses);
    }
}

/// What a window measured of a situation so far.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    counters: Counters,
    cost_ns: f64,
}

/// What a copy of a program executed.
#[derive(Clone, Debug, Default)]
struct Executed {
    counters: Counters,
    cost_ns: f64,
    detailed: f64,
    left_out: BTreeMap<Situation, f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Warm,
    Window,
    Skip,
}

pub struct Sampling {
    stage: Stage,
    until_ns: f64,
    warm_ns: f64,
    /// What is left out next, in times of warming and window.
    skip: f64,
    /// Lines in last-level caches when they were last warmed.
    held: f64,
    known: BTreeMap<Situation, Known>,
    window: BTreeMap<Situation, Window>,
    /// By copy of a program.
    executed: BTreeMap<u16, Executed>,
    /// Time in detail and time left out since evictions were taken over.
    since: (f64, f64),
    /// Evictions of the caches when that was, and what was to be expected of the time left out.
    evicted: (Vec<Vec<u64>>, Vec<Vec<f64>>),
}

impl Sampling {
    /// For last-level caches of so many lines.
    pub fn new(lines: f64) -> Self {
        let warm_ns = WARM_NS + lines * WARM_NS_PER_LINE;
        Self {
            stage: Stage::Warm,
            until_ns: warm_ns,
            warm_ns,
            skip: SKIPS.0,
            held: 0.0,
            known: BTreeMap::new(),
            window: BTreeMap::new(),
            executed: BTreeMap::new(),
            since: (0.0, 0.0),
            evicted: (Vec::new(), Vec::new()),
        }
    }

    /// Whether the step that begins now is left out, where these run, of so many copies of programs.
    pub fn leaves_out(
        &mut self,
        now_ns: f64,
        running: &[Situation],
        machine: &Machine,
        programs: u16,
    ) -> bool {
        if now_ns >= self.until_ns {
            match self.stage {
                Stage::Warm => {
                    let held = machine.last_level_lines(programs);
                    if held > self.held * (1.0 + GROWS) {
                        self.held = held;
                        self.until_ns = now_ns + self.warm_ns;
                    } else {
                        self.enter(Stage::Window, now_ns + WINDOW_NS);
                    }
                }
                Stage::Window => {
                    self.close();
                    self.adapt();
                    let length = self.skip * (self.warm_ns + WINDOW_NS);
                    self.enter(Stage::Skip, now_ns + length);
                }
                Stage::Skip => self.enter(Stage::Warm, now_ns + self.warm_ns),
            }
        }
        let known = |situation| self.known.contains_key(situation);
        if self.stage == Stage::Skip && !running.iter().all(known) {
            self.enter(Stage::Warm, now_ns + self.warm_ns);
        }
        if self.stage == Stage::Warm && self.since.1 > 0.0 {
            self.expect(machine.evicted(programs));
        }
        self.stage == Stage::Skip
    }

    fn enter(&mut self, stage: Stage, until_ns: f64) {
        (self.stage, self.until_ns) = (stage, until_ns);
    }

    /// Takes over what is to be expected of the time left out so far.
    fn expect(&mut self, now: Vec<Vec<u64>>) {
        let expected = self.expected(&now);
        self.since = (0.0, 0.0);
        self.evicted = (now, expected);
    }

    /// Evictions to be expected of the time left out, by victim, then by who took the place, where the caches count so many now.
    /// Those of time that was not taken over yet are as in the time in detail before it.
    pub fn expected(&self, now: &[Vec<u64>]) -> Vec<Vec<f64>> {
        let (detailed, left_out) = self.since;
        let (before, expected) = &self.evicted;
        let expected = |victim: usize, by: usize, count: u64| {
            let before = before.get(victim).and_then(|row| row.get(by)).unwrap_or(&0);
            let row = expected.get(victim);
            let taken_over = row.and_then(|row| row.get(by)).unwrap_or(&0.0);
            taken_over + (count - before) as f64 * left_out / detailed.max(1.0)
        };
        let rows = now.iter().enumerate().map(|(victim, row)| {
            let counts = row.iter().enumerate();
            counts
                .map(|(by, count)| expected(victim, by, *count))
                .collect()
        });
        rows.collect()
    }

    fn close(&mut self) {
        for (situation, window) in std::mem::take(&mut self.window) {
            self.known.entry(situation).or_default().add(&window);
        }
    }

    fn adapt(&mut self) {
        let programs = self.executed.keys();
        let widths = programs.filter_map(|owner| Some(self.sampled(*owner)?.ipc_half_width));
        let widest = widths.fold(0.0, f64::max);
        let factor = match widest {
            w if w < TIGHT.0 => 2.0,
            w if w > TIGHT.1 => 0.5,
            _ => 1.0,
        };
        self.skip = (self.skip * factor).clamp(SKIPS.0, SKIPS.1);
    }

    /// A running thread's rates.
    pub fn known(&self, situation: &Situation) -> Known {
        self.known.get(situation).copied().unwrap_or_default()
    }

    /// A step of a thread was in detail.
    pub fn detailed(&mut self, owner: u16, situation: Situation, counted: &Counters, cost_ns: f64) {
        let executed = self.executed.entry(owner).or_default();
        executed.counters = executed.counters.plus(counted, 1.0);
        executed.cost_ns += cost_ns;
        executed.detailed += counted.instructions;
        if self.stage == Stage::Window && counted.instructions > 0.0 {
            let window = self.window.entry(situation).or_default();
            window.counters = window.counters.plus(counted, 1.0);
            window.cost_ns += cost_ns;
        }
    }

    /// A step of a thread was left out.
    pub fn left_out(&mut self, owner: u16, situation: Situation, counted: &Counters, cost_ns: f64) {
        let executed = self.executed.entry(owner).or_default();
        executed.counters = executed.counters.plus(counted, 1.0);
        executed.cost_ns += cost_ns;
        *executed.left_out.entry(situation).or_default() += counted.instructions;
    }

    /// Time passed.
    pub fn pass(&mut self, ns: f64, in_detail: bool) {
        if in_detail {
            self.since.0 += ns;
        } else {
            self.since.1 += ns;
        }
    }

    /// How well the figures of a copy of a program are known.
    pub fn sampled(&self, owner: u16) -> Option<Sampled> {
        let executed = self.executed.get(&owner)?;
        let mut time = 0.0;
        let mut misses = 0.0;
        for (situation, n) in &executed.left_out {
            let known = self.known(situation);
            time += n * n * known.time.variance();
            misses += n * n * known.misses.variance();
        }
        let instructions = executed.counters.instructions.max(1.0);
        Some(Sampled {
            ipc_half_width: HALF_WIDTH * time.sqrt() / executed.cost_ns.max(1.0),
            llc_mpki: executed.counters.llc_misses / instructions * 1000.0,
            llc_mpki_half_width: HALF_WIDTH * misses.sqrt() / instructions * 1000.0,
            detailed: executed.detailed / instructions,
        })
    }
}
