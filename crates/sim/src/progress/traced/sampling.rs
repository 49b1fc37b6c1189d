//! Sampled simulation: choice of the steps whose accesses pass through the caches.
//!
//! Input: the situations of running threads, and the cost of detailed steps. Output: a decision for each step, and rates for
//! steps that are left out. Phases recur, so a thread's rates are stored by [`Situation`]. While all running threads are in known
//! situations, they continue at the measured rates. At intervals, and in new situations, the caches are warmed and a window is
//! measured. The more precisely programs' speeds are known, the longer is the time left out. All threads leave out equal times,
//! so that they still run together as without sampling (Carlson, Heirman and Eeckhout, ISPASS 2013). Confidence intervals are
//! those of ratio estimates, stratified by situation.

use std::collections::BTreeMap;

use countersteer_model::score::SampledAccuracy;

use super::machine::TracedMachine;
use crate::progress::TrueCounters;

/// Constant part of the time for which caches are warmed, in nanoseconds.
const WARM_NS: f64 = 500_000.0;
/// Time for which caches are warmed per line of the largest last-level cache, in nanoseconds.
const WARM_NS_PER_LINE: f64 = 20.0;
/// Threshold: relative growth of the number of lines in last-level caches above which warming continues.
const GROWS: f64 = 0.01;
/// Length of a measured window, in nanoseconds.
const WINDOW_NS: f64 = 1_000_000.0;
/// Minimum and maximum of the time left out, in units of warming time plus window.
const SKIPS: (f64, f64) = (4.0, 48.0);
/// Thresholds on the half widths of the 95 % intervals of programs' speeds. Below the first, the time left out doubles; above the
/// second, it halves.
const TIGHT: (f64, f64) = (0.01, 0.02);
/// Half width of a 95 % interval in standard deviations.
const HALF_WIDTH: f64 = 1.96;
/// Assumed relative standard deviation between windows if only one window was measured.
const UNKNOWN: f64 = 0.1;

/// Situation of a thread: the conditions on which its rates depend.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Situation {
    pub program: u32,
    /// Behaviour of the program in its present phase.
    pub behaviour: u32,
    /// Class of the thread's CPU for the number of threads on its core.
    pub class: u32,
    /// Programs that run under the same last-level cache, sorted; one entry per thread.
    pub beside: Vec<u32>,
}

/// Sums over windows from which a ratio and its variance are computed.
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

/// Measurements of a situation, summed over windows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SituationSums {
    /// Sums of counters over windows, without times and cycles.
    counters: TrueCounters,
    time: Moments,
    misses: Moments,
}

impl SituationSums {
    /// Mean nanoseconds per instruction in this situation.
    pub(crate) fn each_ns(&self) -> f64 {
        self.time.ratio()
    }

    /// Returns the expected counts of `instructions` instructions, without times and cycles.
    pub fn counters(&self, instructions: f64) -> TrueCounters {
        let part = instructions / self.counters.instructions;
        TrueCounters::default().plus(&self.counters, part)
    }

    fn add(&mut self, window: &SamplingWindow) {
        let n = window.counters.instructions;
        self.counters = self.counters.plus(&window.counters, 1.0);
        self.time.add(n, window.cost_ns);
        self.misses.add(n, window.counters.llc_misses);
    }
}

/// Measurements of a situation in the present window.
#[derive(Clone, Copy, Debug, Default)]
struct SamplingWindow {
    counters: TrueCounters,
    cost_ns: f64,
}

/// Work that a copy of a program executed so far.
#[derive(Clone, Debug, Default)]
struct Executed {
    counters: TrueCounters,
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

pub(crate) struct DetailSampling {
    stage: Stage,
    until_ns: f64,
    warm_ns: f64,
    /// Time to leave out next, in units of warming time plus window.
    skip: f64,
    /// Number of lines in last-level caches when they were last found to grow.
    held: f64,
    known: BTreeMap<Situation, SituationSums>,
    window: BTreeMap<Situation, SamplingWindow>,
    /// Work executed so far, by copy of a program.
    executed: BTreeMap<u16, Executed>,
    /// Detailed time and time left out since the last update of evictions, in nanoseconds.
    since: (f64, f64),
    /// Numbers of evictions in the caches at the last update of evictions, and expected numbers for all time left out before it.
    evicted: (Vec<Vec<u64>>, Vec<Vec<f64>>),
}

impl DetailSampling {
    /// Creates the state of sampling; the largest last-level cache has `lines` lines.
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

    /// Returns true if the step that begins now is left out. `running` are the situations of running threads; `programs` is the
    /// number of copies of programs.
    pub(crate) fn leaves_out(
        &mut self,
        now_ns: f64,
        running: &[Situation],
        machine: &TracedMachine,
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

    /// Adds the expected evictions of the time left out since the last update.
    fn expect(&mut self, now: Vec<Vec<u64>>) {
        let expected = self.expected(&now);
        self.since = (0.0, 0.0);
        self.evicted = (now, expected);
    }

    /// Returns the expected evictions in the time left out, by victim, then by the program that evicted its lines; `now` are the
    /// caches' counts. Time left out since the last update has the eviction rate of the detailed time since then.
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

    /// Returns the measurements of a situation; empty if the situation is unknown.
    pub fn known(&self, situation: &Situation) -> SituationSums {
        self.known.get(situation).copied().unwrap_or_default()
    }

    /// Records a step of a thread that was simulated in detail.
    pub fn detailed(
        &mut self,
        owner: u16,
        situation: Situation,
        counted: &TrueCounters,
        cost_ns: f64,
    ) {
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

    /// Records a step of a thread that was left out.
    pub fn left_out(
        &mut self,
        owner: u16,
        situation: Situation,
        counted: &TrueCounters,
        cost_ns: f64,
    ) {
        let executed = self.executed.entry(owner).or_default();
        executed.counters = executed.counters.plus(counted, 1.0);
        executed.cost_ns += cost_ns;
        *executed.left_out.entry(situation).or_default() += counted.instructions;
    }

    /// Adds the length of a step to the detailed time or to the time left out.
    pub fn pass(&mut self, ns: f64, in_detail: bool) {
        if in_detail {
            self.since.0 += ns;
        } else {
            self.since.1 += ns;
        }
    }

    /// Returns the accuracy of the results of a copy of a program; `None` if it has not run.
    pub fn sampled(&self, owner: u16) -> Option<SampledAccuracy> {
        let executed = self.executed.get(&owner)?;
        let mut time = 0.0;
        let mut misses = 0.0;
        for (situation, n) in &executed.left_out {
            let known = self.known(situation);
            time += n * n * known.time.variance();
            misses += n * n * known.misses.variance();
        }
        let instructions = executed.counters.instructions.max(1.0);
        Some(SampledAccuracy {
            ipc_half_width: HALF_WIDTH * time.sqrt() / executed.cost_ns.max(1.0),
            llc_mpki: executed.counters.llc_misses / instructions * 1000.0,
            llc_mpki_half_width: HALF_WIDTH * misses.sqrt() / instructions * 1000.0,
            detailed: executed.detailed / instructions,
        })
    }
}
