//! The simulated PMU: what counters would show of the progress model's truth.
//!
//! Input: cumulative counters at the ends of intervals. Output: [`Sample`]s with the noise that real readings have. Only what a
//! policy reads is counted, beside instructions and cycles, and it is multiplexed where a core type has too few counters: each
//! core type has event sets of its own. Energy, occupancy and what programs report take no counter and are always there.

use countersteer_core::counters::divide;
use countersteer_core::events::{EVENTS, Event};
use countersteer_core::machine::CoreType;
use countersteer_core::sample::{Counts, Sample};
use countersteer_core::topology::Topology;
use countersteer_core::units::{CoreTypeId, CpuId, LINE_BYTES, Nanos, ThreadId};
use rand::{RngExt, SeedableRng};

use crate::progress::{Counters, Detail, Evictions};

/// What each set counts besides, or the first of them at least.
const BASE: [Event; 2] = [Event::Instructions, Event::Cycles];
/// Those that may have counters of their own, in the order in which they get them.
const FIXED: [Event; 2] = [Event::Cycles, Event::Instructions];
/// Virtual counters that are read with every set.
const VIRTUAL: [Event; 2] = [Event::EnergyNj, Event::LlcOccupancyBytes];

/// Whether the model can tell an event of threads whose profiles say enough.
fn is_offered(event: Event) -> bool {
    let detail = Detail {
        instructions: 1.0,
        ..Detail::NONE
    };
    let counters = Counters {
        instructions: 1.0,
        detail,
        evictions: Some(Evictions::default()),
        ..Counters::default()
    };
    counters.event(event).is_some()
}

/// The event sets of a core type: as few as its counters allow.
fn sets_of(core_type: &CoreType, groups: &[Vec<Event>]) -> Vec<Vec<Event>> {
    let fixed = &FIXED[..(core_type.fixed_counters as usize).min(FIXED.len())];
    let fits = |set: &[Event]| {
        let programmable = set.iter().filter(|event| !fixed.contains(event)).count();
        programmable <= core_type.counters as usize && set.len() + VIRTUAL.len() + 2 <= Counts::MOST
    };
    let exists = |event: &&Event| core_type.counts(**event);
    let existing = |group: &Vec<Event>| group.iter().filter(exists).copied().collect();
    let groups: Vec<Vec<Event>> = groups.iter().map(existing).collect();
    divide(&BASE, &groups, fits).0
}

/// Counting state of all threads.
pub(super) struct Pmu {
    noise: f64,
    /// By event: the noise of one does not depend on which others are counted.
    rngs: Vec<rand_pcg::Pcg64>,
    threads: Vec<State>,
    samples: Vec<Sample>,
    /// By core type, its event sets.
    sets: Vec<Vec<Vec<Event>>>,
    /// Counted whatever is read.
    always: Vec<Event>,
    /// True efficiency factors are read.
    wants_ef: bool,
    period: usize,
}

/// What only a simulator knows of a thread's current phase.
pub(super) struct Truth {
    pub sf: f64,
    /// Where it is read.
    pub ef: Option<f64>,
}

#[derive(Clone, Copy, Default)]
struct State {
    last: Counters,
    /// Occupancy at switch-outs of this interval: sum and count (CMPSched$im samples capacity then, section 4.2).
    occupancy_sum: f64,
    occupancy_count: u32,
}

impl Pmu {
    pub fn new(seed: u64, noise: f64, topology: &Topology) -> Self {
        // Streams of their own: counter noise must not shift the kernel model's draws.
        let rng = |row: usize| {
            rand_pcg::Pcg64::seed_from_u64(seed ^ 0x005a_3b1e_5eed ^ (row as u64) << 40)
        };
        let mut pmu = Self {
            noise,
            rngs: (0..EVENTS.len()).map(rng).collect(),
            threads: Vec::new(),
            samples: Vec::new(),
            sets: Vec::new(),
            always: Vec::new(),
            wants_ef: false,
            period: 0,
        };
        pmu.count(topology, |_| Vec::new());
        pmu
    }

    /// Counts on each core type these groups of events, as far as the model can tell them and the core type can count them.
    pub fn count(&mut self, topology: &Topology, read: impl Fn(CoreTypeId) -> Vec<Vec<Event>>) {
        self.wants_ef = read(CoreTypeId(0))
            .iter()
            .flatten()
            .any(|e| *e == Event::EfTrue);
        let without_counter = |event: &Event| VIRTUAL.contains(event) || *event == Event::Work;
        let sets = |(row, core_type): (usize, &CoreType)| {
            let mut groups = read(CoreTypeId::from_index(row));
            groups.extend(self.always.iter().map(|event| vec![*event]));
            for group in &mut groups {
                group.retain(|event| {
                    is_offered(*event) && !without_counter(event) && !BASE.contains(event)
                });
            }
            sets_of(core_type, &groups)
        };
        self.sets = topology.core_types.iter().enumerate().map(sets).collect();
        self.period = 0;
    }

    /// Counts these events too, from now on.
    pub fn count_also(&mut self, events: &[Event], topology: &Topology) {
        self.always = events.to_vec();
        self.count(topology, |_| Vec::new());
    }

    /// Whether true efficiency factors are read; nobody else pays for them.
    pub const fn wants_ef(&self) -> bool {
        self.wants_ef
    }

    /// A period is over: the next set counts.
    pub fn turn(&mut self) {
        self.period += 1;
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
        truth: Truth,
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
        let occupancy = lines * LINE_BYTES as f64;
        let sets = &self.sets[core_type.index()];
        let set = self.period % sets.len();
        let mut counts = Counts::default();
        for event in sets[set].iter().chain(&VIRTUAL).copied() {
            let exact = if event == Event::LlcOccupancyBytes {
                Some(occupancy)
            } else {
                now.event(event)
                    .map(|sum| sum - last.event(event).unwrap_or(0.0))
            };
            let factor = if self.noise > 0.0 {
                1.0 + self.noise * deviate(&mut self.rngs[event as usize])
            } else {
                1.0
            };
            if let Some(exact) = exact {
                counts.set(event, (exact * factor).max(0.0));
            }
        }
        counts.set(Event::SfTrue, truth.sf);
        if let Some(ef) = truth.ef {
            counts.set(Event::EfTrue, ef);
        }
        counts.set(Event::Work, now.instructions - last.instructions);
        self.samples.push(Sample {
            thread,
            cpu,
            core_type,
            at,
            set: set as u32,
            sets: sets.len() as u32,
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
