//! Training rows: counters of a run interval of a program on each core type, and its gain from the fastest.
//!
//! Input: profiles and a machine. Output: [`TrainingRow`]s. Each behaviour of a recorded program runs alone on each core type,
//! and so do windows of its timeline. The same instructions run on every type, which pairs them exactly (PMCTrack, section
//! 4.1.2).

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_model::events::Event;
use countersteer_model::profile::{Behaviour, Profile, Recorded, Segment, Tabulated};
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos, ThreadId};
use countersteer_sim::progress::{
    Analytic, ModelError, ProgressConfig, ProgressModel, TrueCounters,
};
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;

/// Instructions of a window.
pub const WINDOW: f64 = 200e6;
/// Limit on the windows of a program.
const MOST_WINDOWS: usize = 16;
/// Relative distance to their mean up to which speed-up factors of contiguous windows are one phase.
const SAME_PHASE: f64 = 0.10;

/// Events that models may read besides cycles and instructions.
pub const EVENTS: [Event; 11] = [
    Event::LlcReferences,
    Event::LlcMisses,
    Event::Branches,
    Event::BranchMisses,
    Event::L1dAccesses,
    Event::L1dMisses,
    Event::L2Misses,
    Event::Loads,
    Event::Stores,
    Event::FpOperations,
    Event::SimdOperations,
];
/// Events of every sample, as far as known; instructions first.
pub const ALWAYS: [Event; 3] = [Event::Instructions, Event::Cycles, Event::EnergyNj];

/// Counts of an interval on one core type. Uncounted events are absent.
#[derive(Clone, Debug, Default)]
pub struct CountedInterval {
    pub counts: BTreeMap<Event, f64>,
    pub run_ns: f64,
}

impl CountedInterval {
    /// Difference of cumulative counters.
    fn between(before: &TrueCounters, after: &TrueCounters) -> Self {
        let gained = |event: Event| {
            let value = after.event(event)? - before.event(event).unwrap_or(0.0);
            Some((event, value))
        };
        let events = ALWAYS.into_iter().chain(EVENTS);
        Self {
            counts: events.filter_map(gained).collect(),
            run_ns: after.run_ns - before.run_ns,
        }
    }

    /// Merges two intervals; keeps the events that both have.
    fn and(&self, other: &Self) -> Self {
        let both = |(event, value): (&Event, &f64)| Some((*event, value + other.get(*event)?));
        Self {
            counts: self.counts.iter().filter_map(both).collect(),
            run_ns: self.run_ns + other.run_ns,
        }
    }

    /// Count of an event; `None` if not counted.
    #[must_use]
    pub fn get(&self, event: Event) -> Option<f64> {
        self.counts.get(&event).copied()
    }

    /// Ratio of two events; `None` if one was not counted, or the second is zero.
    #[must_use]
    pub fn ratio(&self, above: Event, below: Event) -> Option<f64> {
        let below = self.get(below).filter(|n| *n > 0.0)?;
        Some(self.get(above)? / below)
    }

    /// Instructions per ns of CPU time.
    pub(crate) fn speed(&self) -> f64 {
        self.get(Event::Instructions).unwrap_or(f64::NAN) / self.run_ns
    }

    /// Energy in nJ per instruction.
    fn energy(&self) -> f64 {
        let ratio = self.ratio(Event::EnergyNj, Event::Instructions);
        ratio.unwrap_or(f64::NAN)
    }
}

/// Interval of a program.
#[derive(Clone, Debug)]
pub struct TrainingRow {
    pub program: String,
    /// Families; programs of one family are never on both sides of a validation. Crossed samples have two.
    pub families: Vec<String>,
    /// Counts by core type.
    pub counts: Vec<CountedInterval>,
}

impl TrainingRow {
    /// Speed on the fastest core type over that on the slowest; NaN if it did not run on one of them.
    #[must_use]
    pub fn speed_up(&self) -> f64 {
        speed_up(&self.counts)
    }

    /// Energy-delay product on the slowest core type over that on the fastest; NaN if energy is unknown on one of them.
    #[must_use]
    pub fn energy_factor(&self) -> f64 {
        match &*self.counts {
            [fast, .., slow] => self.speed_up() * slow.energy() / fast.energy(),
            _ => f64::NAN,
        }
    }

    /// Ratio of two events on a core type; `None` as for [`CountedInterval::ratio`].
    #[must_use]
    pub fn ratio(&self, core_type: usize, above: Event, below: Event) -> Option<f64> {
        self.counts[core_type].ratio(above, below)
    }
}

fn speed_up(counts: &[CountedInterval]) -> f64 {
    match counts {
        [fast, .., slow] => fast.speed() / slow.speed(),
        _ => f64::NAN,
    }
}

/// All samples of programs on a machine, in the order of the programs.
///
/// # Errors
/// Fails for a profile that the machine cannot run.
pub fn rows(
    topology: &Arc<Topology>,
    programs: &[(String, Arc<Profile>)],
) -> Result<Vec<TrainingRow>, ModelError> {
    let of = |(family, profile): &(String, Arc<Profile>)| -> Result<Vec<TrainingRow>, ModelError> {
        let intervals = match &**profile {
            Profile::Recorded(recorded) => recorded_intervals(topology, profile, recorded)?,
            Profile::Tabulated(table) => tabulated_interval(topology, profile, table)?
                .into_iter()
                .collect(),
        };
        let sample = |counts| TrainingRow {
            program: profile.name().into(),
            families: vec![family.clone()],
            counts,
        };
        Ok(intervals.into_iter().map(sample).collect())
    };
    let all: Vec<Vec<TrainingRow>> = programs.par_iter().map(of).collect::<Result<_, _>>()?;
    Ok(all.into_iter().flatten().collect())
}

fn recorded_intervals(
    topology: &Arc<Topology>,
    profile: &Arc<Profile>,
    recorded: &Recorded,
) -> Result<Vec<Vec<CountedInterval>>, ModelError> {
    let mut intervals = Vec::new();
    if recorded.behaviours.len() > 1 {
        for behaviour in 0..recorded.behaviours.len() {
            let alone = Arc::new(Profile::Recorded(alone(recorded, behaviour)));
            intervals.extend(measure(topology, &alone, 1)?);
        }
    }
    let windows = (recorded.instructions as f64 / WINDOW).ceil() as usize;
    let windows = measure(topology, profile, windows.clamp(1, MOST_WINDOWS))?;
    intervals.extend(phases(windows));
    Ok(intervals)
}

/// Single interval with the table's values, if the table has values for all core types of the machine.
fn tabulated_interval(
    topology: &Arc<Topology>,
    profile: &Arc<Profile>,
    table: &Tabulated,
) -> Result<Option<Vec<CountedInterval>>, ModelError> {
    let of_type = |name: &str| table.core.iter().find(|core| core.core_type == name);
    let cores: Option<Vec<_>> = topology
        .core_types
        .iter()
        .map(|t| of_type(&t.name))
        .collect();
    let Some(cores) = cores else {
        return Ok(None);
    };
    let mut interval = measure(topology, profile, 1)?.pop().unwrap_or_default();
    for (counted, core) in interval.iter_mut().zip(cores) {
        let says = |event: Event| match event {
            Event::Instructions | Event::Cycles => true,
            Event::BranchMisses => core.branch_mpki.is_some(),
            Event::LlcMisses => core.points.iter().all(|p| p.llc_mpki.is_some()),
            Event::EnergyNj => core.power_w.is_some(),
            _ => false,
        };
        counted.counts.retain(|event, _| says(*event));
    }
    Ok(Some(interval))
}

/// Crossed samples, which no real program has. Each combines the computation of a behaviour with the memory accesses of
/// `others` behaviours, drawn at random among those of other families. They teach a model the value of combinations, and are
/// for training only.
///
/// # Errors
/// Fails for a profile that the machine cannot run.
pub fn crossed(
    topology: &Arc<Topology>,
    programs: &[(String, Arc<Profile>)],
    others: usize,
    seed: u64,
) -> Result<Vec<TrainingRow>, ModelError> {
    let mut rng = rand_pcg::Pcg64::seed_from_u64(seed);
    let behaviours: Vec<(&String, &Recorded, usize)> = programs
        .iter()
        .filter_map(|(family, profile)| match &**profile {
            Profile::Recorded(recorded) => Some((family, recorded)),
            Profile::Tabulated(_) => None,
        })
        .flat_map(|(family, r)| (0..r.behaviours.len()).map(move |row| (family, r, row)))
        .collect();
    let mut drawn = Vec::new();
    for (family, recorded, row) in &behaviours {
        for _ in 0..others {
            let (other, memory, memory_row) = behaviours[rng.random_range(0..behaviours.len())];
            if other == *family {
                continue;
            }
            let mut program = alone(recorded, *row);
            give_memory(&mut program.behaviours[0], &memory.behaviours[memory_row]);
            let families = vec![(*family).clone(), other.clone()];
            drawn.push((families, Arc::new(Profile::Recorded(program))));
        }
    }
    let of = |(families, profile): &(Vec<String>, Arc<Profile>)| {
        let counts = measure(topology, profile, 1)?;
        let sample = |counts| TrainingRow {
            program: profile.name().into(),
            families: families.clone(),
            counts,
        };
        Ok(counts.into_iter().map(sample).next())
    };
    let all: Vec<Option<TrainingRow>> = drawn.par_iter().map(of).collect::<Result<_, _>>()?;
    Ok(all.into_iter().flatten().collect())
}

/// Replaces the memory accesses of a behaviour.
fn give_memory(behaviour: &mut Behaviour, other: &Behaviour) {
    behaviour.locality = other.locality.clone();
    behaviour.mlp = other.mlp.clone();
    if let (Some(into), Some(from)) = (&mut behaviour.pipeline, &other.pipeline) {
        into.streams = from.streams.clone();
        into.conflicts = from.conflicts.clone();
    }
}

/// Program with only one of its behaviours.
fn alone(recorded: &Recorded, behaviour: usize) -> Recorded {
    Recorded {
        behaviours: vec![recorded.behaviours[behaviour].clone()],
        timeline: vec![Segment {
            behaviour: 0,
            instructions: WINDOW as u64,
        }],
        instructions: WINDOW as u64,
        ..recorded.clone()
    }
}

/// Counts of each of `windows` windows, by core type. The program has run once before, so its caches are warm.
fn measure(
    topology: &Arc<Topology>,
    profile: &Arc<Profile>,
    windows: usize,
) -> Result<Vec<Vec<CountedInterval>>, ModelError> {
    let length = profile.instructions() as f64 / windows as f64;
    let mut by_window = vec![Vec::new(); windows];
    for core_type in 0..topology.core_types.len() {
        let config = ProgressConfig {
            costs: false,
            ..ProgressConfig::default()
        };
        let mut model = Analytic::new(Arc::clone(topology), config);
        let program = model.add_program(Arc::clone(profile))?;
        let thread = ThreadId(0);
        model.add_thread(thread, program);
        let cpu = topology
            .cpus
            .iter()
            .find(|c| c.core_type.index() == core_type)
            .map_or(CpuId(0), |c| c.id);
        let mut now = run(
            &mut model,
            thread,
            cpu,
            0.0,
            length * windows as f64,
            Nanos::ZERO,
        );
        let mut before = model.counters(thread, now);
        for (window, counts) in by_window.iter_mut().enumerate() {
            now = run(&mut model, thread, cpu, length * window as f64, length, now);
            let after = model.counters(thread, now);
            counts.push(CountedInterval::between(&before, &after));
            before = after;
        }
    }
    Ok(by_window)
}

/// Runs an interval of the timeline to its end.
fn run(
    model: &mut Analytic,
    thread: ThreadId,
    cpu: CpuId,
    offset: f64,
    instructions: f64,
    mut now: Nanos,
) -> Nanos {
    model.set_work(thread, offset, instructions, 1.0, now);
    model.set_running(cpu, Some(thread), now);
    let mut finished = Vec::new();
    while finished.is_empty() {
        now = model.next_event();
        model.advance(now);
        model.take_finished(&mut finished);
    }
    now
}

/// Contiguous windows of one phase as one interval each (PMCTrack, section 4.1.2).
pub(crate) fn phases(windows: Vec<Vec<CountedInterval>>) -> Vec<Vec<CountedInterval>> {
    let mut merged: Vec<(Vec<CountedInterval>, f64, f64)> = Vec::new();
    for window in windows {
        let factor = speed_up(&window);
        match merged.last_mut() {
            Some((sum, total, count)) if (factor / (*total / *count) - 1.0).abs() <= SAME_PHASE => {
                for (sum, part) in sum.iter_mut().zip(&window) {
                    *sum = sum.and(part);
                }
                (*total, *count) = (*total + factor, *count + 1.0);
            }
            _ => merged.push((window, factor, 1.0)),
        }
    }
    merged.into_iter().map(|(sum, ..)| sum).collect()
}
