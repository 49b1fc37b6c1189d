//! Simulated PMU: derives the values of counters from the exact state of the progress model.
//!
//! Input: cumulative counters at the ends of intervals. Output: [`Samples`] with noise like that of real counters. Besides
//! instructions and cycles, the PMU counts only the events that a policy reads. Events are multiplexed on a core type with too
//! few counters: each core type has its own event sets. Energy, occupancy and values that programs report need no counter and are
//! always present. The class of Thread Director needs no counter either. If a policy reads it, it exists on the fastest core
//! type, and is drawn for each phase of each program.

use std::sync::Arc;

use countersteer_model::counters::divide;
use countersteer_model::events::Event;
use countersteer_model::machine::CoreType;
use countersteer_model::metric;
use countersteer_model::sample::{EventSet, Sample, Samples};
use countersteer_model::topology::Topology;
use countersteer_model::units::{CoreTypeId, CpuId, LINE_BYTES, Nanos, ThreadId};
use rand::{RngExt, SeedableRng};

use crate::progress::{CounterDetail, Evictions, TrueCounters};

/// Events that every event set counts. With too few counters, a set counts at least the first of them.
const BASE: [Event; 2] = [Event::Instructions, Event::Cycles];
/// Events that may use fixed counters, in the order in which the counters are assigned.
const FIXED: [Event; 2] = [Event::Cycles, Event::Instructions];
/// Virtual counters that are read together with every event set.
const VIRTUAL: [Event; 2] = [Event::EnergyNj, Event::LlcOccupancyBytes];
/// Events whose values are known without a counter and without noise.
const KNOWN: [Event; 4] = [Event::SfTrue, Event::EfTrue, Event::TdClass, Event::Work];

/// Returns the events of real machines that `metrics` need and that the model never provides.
#[must_use]
pub fn not_offered(metrics: &[&str]) -> Vec<Event> {
    let metrics = metrics.iter().filter_map(|name| metric::resolve(name));
    let mut missing: Vec<Event> = metrics
        .flat_map(|metric| metric.needs.iter().copied())
        .filter(|event| event.def().is_counted() && !is_offered(*event))
        .collect();
    missing.sort_unstable();
    missing.dedup();
    missing
}

/// True if the model provides an event for threads with sufficiently detailed profiles.
fn is_offered(event: Event) -> bool {
    let detail = CounterDetail {
        instructions: 1.0,
        ..CounterDetail::NONE
    };
    let counters = TrueCounters {
        instructions: 1.0,
        detail,
        evictions: Some(Evictions::default()),
        ..TrueCounters::default()
    };
    counters.event(event).is_some()
}

/// Returns the event sets of a core type, as few as its number of counters allows.
fn sets_of(core_type: &CoreType, groups: &[Vec<Event>]) -> Vec<Vec<Event>> {
    let fixed = &FIXED[..(core_type.fixed_counters as usize).min(FIXED.len())];
    let fits = |set: &[Event]| {
        let programmable = set.iter().filter(|event| !fixed.contains(event)).count();
        programmable <= core_type.counters as usize
    };
    let exists = |event: &&Event| core_type.counts(**event);
    let existing = |group: &Vec<Event>| group.iter().filter(exists).copied().collect();
    let groups: Vec<Vec<Event>> = groups.iter().map(existing).collect();
    divide(&BASE, &groups, fits).0
}

/// State of counting for all threads.
pub(super) struct CountingState {
    noise: f64,
    /// Random number generators of the noise, indexed by event: the noise of one event does not depend on the other counted
    /// events.
    rngs: Vec<rand_pcg::Pcg64>,
    threads: Vec<ThreadCounting>,
    samples: Samples,
    /// Event sets, indexed by core type.
    sets: Vec<Vec<CountedSet>>,
    /// Events that are counted in addition to those that the policy's metrics need.
    always: Vec<Event>,
    /// True if a policy reads true efficiency factors.
    wants_ef: bool,
    /// Buffer for the values of the sample in progress.
    values: Vec<Option<f64>>,
    period: usize,
    /// Core type whose threads have Thread Director classes; `None` if no metric reads them.
    classes_on: Option<CoreTypeId>,
    /// Seed from which the classes of phases are drawn.
    seed: u64,
}

/// Event set: the events that it counts, and all columns of its samples.
struct CountedSet {
    counted: Vec<Event>,
    all: Arc<EventSet>,
}

/// True values of a thread's current phase, which only a simulator knows.
pub(super) struct Truth {
    pub sf: f64,
    /// Efficiency factor: energy-delay product on the slowest core type divided by that on the fastest; `None` if no policy reads
    /// it.
    pub ef: Option<f64>,
}

#[derive(Clone, Copy, Default)]
struct ThreadCounting {
    last: TrueCounters,
    /// Time of the thread's last sample.
    read_at: Nanos,
    /// Sum of the thread's occupancies, in lines, at its switch-outs in this interval (CMPSched$im, section 4.2, samples them
    /// then).
    occupancy_sum: f64,
    /// Number of the thread's switch-outs in this interval.
    occupancy_count: u32,
}

impl CountingState {
    pub fn new(seed: u64, noise: f64, topology: &Topology) -> Self {
        // Counter noise has random number generators of its own, so that it does not change the random draws of the kernel model.
        let rng = |row: usize| {
            rand_pcg::Pcg64::seed_from_u64(seed ^ 0x005a_3b1e_5eed ^ (row as u64) << 40)
        };
        let mut pmu = Self {
            noise,
            rngs: (0..Event::ALL.len()).map(rng).collect(),
            threads: Vec::new(),
            samples: Samples::default(),
            sets: Vec::new(),
            always: Vec::new(),
            wants_ef: false,
            values: Vec::new(),
            period: 0,
            classes_on: None,
            seed,
        };
        pmu.count(topology, |_| Vec::new());
        pmu
    }

    /// Counts the groups of events that `read` returns for each core type, as far as the model provides them and the core type
    /// counts them.
    pub fn count(&mut self, topology: &Topology, read: impl Fn(CoreTypeId) -> Vec<Vec<Event>>) {
        self.wants_ef = read(CoreTypeId(0))
            .iter()
            .flatten()
            .any(|e| *e == Event::EfTrue);
        const WITHOUT_COUNTER: [Event; 2] = [Event::Work, Event::TdClass];
        let without_counter =
            |event: &Event| VIRTUAL.contains(event) || WITHOUT_COUNTER.contains(event);
        let fast = topology.extremes().0;
        let mut classes_read = read(fast)
            .into_iter()
            .flatten()
            .chain(self.always.iter().copied());
        self.classes_on = classes_read.any(|e| e == Event::TdClass).then_some(fast);
        let sets = |(row, core_type): (usize, &CoreType)| {
            let mut groups = read(CoreTypeId::from_index(row));
            groups.extend(self.always.iter().map(|event| vec![*event]));
            for group in &mut groups {
                group.retain(|event| {
                    is_offered(*event) && !without_counter(event) && !BASE.contains(event)
                });
            }
            let sets = sets_of(core_type, &groups);
            let of = sets.len() as u32;
            let compile = |counted: Vec<Event>| {
                let all = counted.iter().chain(&VIRTUAL).chain(&KNOWN);
                let all = Arc::new(EventSet::new(all.copied().map(Some), of));
                CountedSet { counted, all }
            };
            sets.into_iter().map(compile).collect()
        };
        self.sets = topology.core_types.iter().enumerate().map(sets).collect();
        self.period = 0;
    }

    /// Counts `events` from now on, in addition to those that the policy's metrics need.
    pub(crate) fn count_also(&mut self, events: &[Event], topology: &Topology) {
        self.always = events.to_vec();
        self.count(topology, |_| Vec::new());
    }

    /// True if a policy reads true efficiency factors, which are computed only then.
    pub(crate) const fn wants_ef(&self) -> bool {
        self.wants_ef
    }

    /// Switches to the next event set at the end of a sampling interval.
    pub fn turn(&mut self) {
        self.period += 1;
    }

    pub fn add_thread(&mut self) {
        self.threads.push(ThreadCounting::default());
    }

    pub(crate) fn switched_out(&mut self, id: ThreadId, occupancy_lines: f64) {
        let state = &mut self.threads[id.index()];
        state.occupancy_sum += occupancy_lines;
        state.occupancy_count += 1;
    }

    /// Ends a thread's sampling interval and appends its sample; a thread that did not run gets no sample.
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
        now: &TrueCounters,
        occupancy_lines: f64,
        truth: Truth,
    ) {
        let state = &mut self.threads[thread.index()];
        let last = std::mem::replace(&mut state.last, *now);
        let start = std::mem::replace(&mut state.read_at, at);
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
        self.values.clear();
        for event in sets[set].counted.iter().chain(&VIRTUAL).copied() {
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
            self.values.push(exact.map(|e| (e * factor).max(0.0)));
        }
        let class = || f64::from(class_of(self.seed, truth.sf));
        let known = [
            Some(truth.sf),
            truth.ef,
            (self.classes_on == Some(core_type)).then(class),
            Some(now.instructions - last.instructions),
        ];
        self.values.extend(known);
        let sample = Sample {
            set: set as u32,
            start,
            present: EventSet::present(self.values.iter().copied()),
            ..Sample::of_thread(thread, cpu, core_type, at, ran)
        };
        let values = self.values.iter().map(|value| value.unwrap_or(0.0));
        self.samples.push_by(sample, &sets[set].all, values);
    }

    /// Returns the samples since the last call, sorted by thread, then by time.
    pub fn take_samples(&mut self) -> Samples {
        self.samples.sort();
        self.samples.take()
    }
}

/// Returns Thread Director's class of a phase, derived from the exact bits of the phase's speed-up factor and the seed.
///
/// All classes are equally likely for any factor, and each phase of a program keeps its class for a whole run.
fn class_of(seed: u64, sf_true: f64) -> u32 {
    let bytes = sf_true
        .to_bits()
        .to_le_bytes()
        .into_iter()
        .chain(seed.to_le_bytes());
    // FNV-1a; its upper half is mixed in because the lowest bits are the weakest.
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    ((hash ^ hash >> 32) % 4) as u32
}

/// Draws a random number of mean 0 and standard deviation 1 whose distribution is close to normal.
fn deviate(rng: &mut rand_pcg::Pcg64) -> f64 {
    // The sum of three uniforms (Irwin-Hall) has variance 1/4.
    let sum: f64 = (0..3).map(|_| rng.random::<f64>()).sum();
    (sum - 1.5) * 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_only_real_machines_count_are_named() {
        let metrics = [
            "ipc",
            "sf_td",
            "r01c2 / instructions",
            "dtlb_load_misses / cycles",
        ];
        let missing: Vec<&str> = not_offered(&metrics).iter().map(|e| e.def().name).collect();
        assert_eq!(missing, ["dtlb_load_misses", "r01c2"]);
    }

    #[test]
    fn classes_of_phases_have_nothing_to_do_with_their_factors() {
        let phases = (0..4000u32).map(|i| {
            let sf = 1.0 + f64::from(i) / 2000.0;
            (f64::from(class_of(1, sf)), sf)
        });
        let phases: Vec<(f64, f64)> = phases.collect();
        let n = phases.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| phases.iter().map(of).sum::<f64>() / n;
        let (class, sf) = (mean(|p| p.0), mean(|p| p.1));
        let sum = |of: &dyn Fn(&(f64, f64)) -> f64| phases.iter().map(of).sum::<f64>();
        let both = sum(&|p| (p.0 - class) * (p.1 - sf));
        let r = both / (sum(&|p| (p.0 - class).powi(2)) * sum(&|p| (p.1 - sf).powi(2))).sqrt();
        assert!(r.abs() < 0.05, "{r}");
        for wanted in 0..4 {
            let share = sum(&|p| f64::from(u8::from(p.0 == f64::from(wanted)))) / n;
            assert!((share - 0.25).abs() < 0.03, "class {wanted}: {share}");
        }
    }
}
