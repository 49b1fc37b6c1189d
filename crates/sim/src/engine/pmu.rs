//! The simulated PMU: what counters would show of the progress model's truth.
//!
//! Input: cumulative counters at the ends of intervals. Output: [`Sample`]s with the noise that real readings have. Events that
//! a policy reads take turns where the machine cannot count all of them at once; what nobody reads is there all the same, for
//! records to tell.

use countersteer_core::counters::divide;
use countersteer_core::events::Event;
use countersteer_core::metric::events_of;
use countersteer_core::sample::{Counts, Sample};
use countersteer_core::topology::Topology;
use countersteer_core::units::{CoreTypeId, CpuId, LINE_BYTES, Nanos, ThreadId};
use rand::{RngExt, SeedableRng};

use crate::progress::Counters;

/// What each set counts besides, or the first of them at least.
const BASE: [Event; 2] = [Event::Instructions, Event::Cycles];
/// Those that may have counters of their own, in the order in which they get them.
const FIXED: [Event; 2] = [Event::Cycles, Event::Instructions];

/// Counting state of all threads.
pub(super) struct Pmu {
    noise: f64,
    rng: rand_pcg::Pcg64,
    threads: Vec<State>,
    samples: Vec<Sample>,
    /// By set that takes turns, the events that others of them count; none where one counts all the time.
    uncounted: Vec<Vec<Event>>,
    set: usize,
}

#[derive(Clone, Copy, Default)]
struct State {
    last: Counters,
    /// Occupancy at switch-outs of this interval: sum and count (CMPSched$im samples capacity then, section 4.2).
    occupancy_sum: f64,
    occupancy_count: u32,
}

impl Pmu {
    pub fn new(seed: u64, noise: f64) -> Self {
        // A stream of its own: counter noise must not shift the kernel model's draws.
        let rng = rand_pcg::Pcg64::seed_from_u64(seed ^ 0x005a_3b1e_5eed);
        Self {
            noise,
            rng,
            threads: Vec::new(),
            samples: Vec::new(),
            uncounted: Vec::new(),
            set: 0,
        }
    }

    /// Counts what these metrics are made of: at once, if every core type can.
    pub fn count(&mut self, metrics: &[&str], topology: &Topology) {
        let mut read = events_of(metrics);
        read.retain(|event| event.def().takes_counter() && !BASE.contains(event));
        let fits = |set: &[Event]| {
            topology.core_types.iter().all(|t| {
                let fixed = &FIXED[..(t.fixed_counters as usize).min(FIXED.len())];
                set.iter().filter(|event| !fixed.contains(event)).count() <= t.counters as usize
            })
        };
        let (sets, left_out) = divide(&BASE, &read, fits);
        let all = || BASE.iter().chain(&read);
        let not_in = |set: &Vec<Event>| {
            all()
                .filter(|event| !set.contains(event))
                .copied()
                .collect()
        };
        self.uncounted = sets.iter().map(not_in).collect();
        if self.uncounted.len() == 1 && left_out.is_empty() {
            self.uncounted.clear();
        }
        self.set = 0;
    }

    /// A period is over: the next set's turn.
    pub fn turn(&mut self) {
        self.set = (self.set + 1) % self.uncounted.len().max(1);
    }

    pub fn add_thread(&mut self) {
        self.threads.push(State::default());
    }

    pub fn switched_out(&mut self, id: ThreadId, occupancy_lines: f64) {
        let state = &mut self.threads[id.index()];
        state.occupancy_sum += occupancy_lines;
        state.occupancy_count += 1;
    }

    /// Closes a thread's interval; nothing is sampled of a thread that did not run.
    #[allow(
        clippy::too_many_arguments,
        reason = "one reading of everything at one instant"
    )]
    pub fn sample(
        &mut self,
        thread: ThreadId,
        cpu: CpuId,
        core_type: CoreTypeId,
        at: Nanos,
        now: &Counters,
        occupancy_lines: f64,
        sf_true: f64,
    ) {
        let state = &mut self.threads[thread.index()];
        let last = std::mem::replace(&mut state.last, *now);
        let ran = Nanos((now.run_ns - last.run_ns).round().max(0.0) as u64);
        if ran == Nanos::ZERO {
            return;
        }
        let sum = std::mem::take(&mut state.occupancy_sum);
        let count = std::mem::take(&mut state.occupancy_count);
        let lines = if count > 0 {
            sum / f64::from(count)
        } else {
            occupancy_lines
        };
        let mut counts = Counts::default();
        let uncounted = self.uncounted.get(self.set).map_or(&[][..], Vec::as_slice);
        for (event, value) in [
            (Event::Instructions, now.instructions - last.instructions),
            (Event::Cycles, now.cycles - last.cycles),
            (Event::L2Misses, now.l2_misses - last.l2_misses),
            (
                Event::LlcReferences,
                now.llc_references - last.llc_references,
            ),
            (Event::LlcMisses, now.llc_misses - last.llc_misses),
            (
                Event::Branches,
                now.branch_instructions - last.branch_instructions,
            ),
            (Event::BranchMisses, now.branch_misses - last.branch_misses),
            (Event::EnergyNj, now.energy_nj - last.energy_nj),
            (Event::LlcOccupancyBytes, lines * LINE_BYTES as f64),
        ] {
            let factor = if self.noise > 0.0 {
                1.0 + self.noise * deviate(&mut self.rng)
            } else {
                1.0
            };
            if !uncounted.contains(&event) {
                counts.set(event, (value * factor).max(0.0));
            }
        }
        counts.set(Event::SfTrue, sf_true);
        counts.set(Event::Work, now.instructions - last.instructions);
        let set = self.set as u32;
        let sets = self.uncounted.len().max(1) as u32;
        self.samples.push(Sample {
            thread,
            cpu,
            core_type,
            at,
            set,
            sets,
            enabled: ran,
            running: ran,
            counts,
        });
    }

    /// The samples since the last call, by thread, then time.
    pub fn take_samples(&mut self) -> Vec<Sample> {
        let mut samples = std::mem::take(&mut self.samples);
        samples.sort_by_key(|s| (s.thread, s.at));
        samples
    }
}

/// A deviate of mean 0 and standard deviation 1, bell-shaped as far as noise needs it.
fn deviate(rng: &mut rand_pcg::Pcg64) -> f64 {
    // The sum of three uniforms (Irwin-Hall) has variance 1/4.
    let sum: f64 = (0..3).map(|_| rng.random::<f64>()).sum();
    (sum - 1.5) * 2.0
}
