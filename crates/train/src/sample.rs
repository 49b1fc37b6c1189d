//! Samples: what counters show of a stretch of a program on each core type, and what that stretch gains from the fastest.
//!
//! Input: profiles and a machine. Output: [`Sample`]s. Each behaviour of a recorded program runs alone on each core type, and
//! so do windows of its timeline: the same instructions on every type, which pairs them exactly (PMCTrack, section 4.1.2).

use std::sync::Arc;

use countersteer_core::events::Event;
use countersteer_core::profile::{Behaviour, Profile, Recorded, Segment};
use countersteer_core::topology::Topology;
use countersteer_core::units::{CpuId, Nanos, ThreadId};
use countersteer_sim::progress::{Analytic, Counters, ModelError, ProgressConfig, ProgressModel};
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;

/// Instructions of a window.
const WINDOW: f64 = 200e6;
/// Windows of a program at most.
const MOST_WINDOWS: usize = 16;
/// Contiguous windows whose speed-up factors stay this close to their mean are one phase.
const SAME_PHASE: f64 = 0.10;

/// A stretch of a program.
#[derive(Clone, Debug)]
pub struct Sample {
    pub program: String,
    /// Programs of one family are never on both sides of a validation; crossed samples have two.
    pub families: Vec<String>,
    /// Counts by core type.
    pub counts: Vec<Counters>,
}

impl Sample {
    /// Speed on the fastest core type over that on the slowest.
    #[must_use]
    pub fn speed_up(&self) -> f64 {
        let ips = |c: &Counters| c.instructions / c.run_ns;
        self.counts.first().map_or(f64::NAN, ips) / self.counts.last().map_or(f64::NAN, ips)
    }

    /// Energy-delay product on the slowest core type over that on the fastest.
    #[must_use]
    pub fn energy_factor(&self) -> f64 {
        let energy = |c: &Counters| c.energy_nj / c.instructions;
        self.speed_up() * self.counts.last().map_or(f64::NAN, energy)
            / self.counts.first().map_or(f64::NAN, energy)
    }

    /// A ratio of two events on a core type.
    #[must_use]
    pub fn ratio(&self, core_type: usize, above: Event, below: Event) -> Option<f64> {
        let counts = &self.counts[core_type];
        let below = counts.event(below).filter(|b| *b > 0.0)?;
        Some(counts.event(above)? / below)
    }
}

/// All samples of programs on a machine, in the order of the programs.
///
/// # Errors
/// A profile that the machine cannot run.
pub fn samples(
    topology: &Arc<Topology>,
    programs: &[(String, Arc<Profile>)],
) -> Result<Vec<Sample>, ModelError> {
    let of = |(family, profile): &(String, Arc<Profile>)| -> Result<Vec<Sample>, ModelError> {
        let Profile::Recorded(recorded) = &**profile else {
            return Ok(Vec::new());
        };
        let mut stretches = Vec::new();
        if recorded.behaviours.len() > 1 {
            for behaviour in 0..recorded.behaviours.len() {
                let alone = Arc::new(Profile::Recorded(alone(recorded, behaviour)));
                stretches.extend(measure(topology, &alone, 1)?);
            }
        }
        let windows = (recorded.instructions as f64 / WINDOW).ceil() as usize;
        stretches.extend(phases(measure(
            topology,
            profile,
            windows.clamp(1, MOST_WINDOWS),
        )?));
        let sample = |counts| Sample {
            program: recorded.name.clone(),
            families: vec![family.clone()],
            counts,
        };
        Ok(stretches.into_iter().map(sample).collect())
    };
    let all: Vec<Vec<Sample>> = programs.par_iter().map(of).collect::<Result<_, _>>()?;
    Ok(all.into_iter().flatten().collect())
}

/// What no program here does: the computation of each behaviour with the memory accesses of so many others, drawn at random
/// among those of other families. They show a model what a combination is worth, and are for training only.
///
/// # Errors
/// A profile that the machine cannot run.
pub fn crossed(
    topology: &Arc<Topology>,
    programs: &[(String, Arc<Profile>)],
    others: usize,
    seed: u64,
) -> Result<Vec<Sample>, ModelError> {
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
        let sample = |counts| Sample {
            program: profile.name().into(),
            families: families.clone(),
            counts,
        };
        Ok(counts.into_iter().map(sample).next())
    };
    let all: Vec<Option<Sample>> = drawn.par_iter().map(of).collect::<Result<_, _>>()?;
    Ok(all.into_iter().flatten().collect())
}

/// Replaces what a behaviour does to caches.
fn give_memory(behaviour: &mut Behaviour, other: &Behaviour) {
    behaviour.locality = other.locality.clone();
    behaviour.mlp = other.mlp.clone();
    if let (Some(into), Some(from)) = (&mut behaviour.pipeline, &other.pipeline) {
        into.streams = from.streams.clone();
        into.conflicts = from.conflicts.clone();
    }
}

/// A program that does nothing but one of its behaviours.
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

/// Counts of each of so many windows, by core type. The program has run once before, so its caches are warm.
fn measure(
    topology: &Arc<Topology>,
    profile: &Arc<Profile>,
    windows: usize,
) -> Result<Vec<Vec<Counters>>, ModelError> {
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
            counts.push(difference(&after, &before));
            before = after;
        }
    }
    Ok(by_window)
}

/// Runs a stretch of the timeline to its end.
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

fn difference(after: &Counters, before: &Counters) -> Counters {
    let (a, b) = (after, before);
    let mut d = *after;
    d.instructions -= b.instructions;
    d.cycles -= b.cycles;
    d.l2_misses -= b.l2_misses;
    d.llc_references -= b.llc_references;
    d.llc_misses -= b.llc_misses;
    d.branch_instructions -= b.branch_instructions;
    d.branch_misses -= b.branch_misses;
    d.energy_nj -= b.energy_nj;
    d.run_ns -= b.run_ns;
    let (x, y) = (&a.detail, &b.detail);
    d.detail.instructions = x.instructions - y.instructions;
    d.detail.loads = x.loads - y.loads;
    d.detail.stores = x.stores - y.stores;
    d.detail.fp_operations = x.fp_operations - y.fp_operations;
    d.detail.simd_operations = x.simd_operations - y.simd_operations;
    d.detail.l1d_misses = x.l1d_misses - y.l1d_misses;
    d.detail.stall_memory = x.stall_memory - y.stall_memory;
    d.detail.stall_branches = x.stall_branches - y.stall_branches;
    d.detail.stall_other = x.stall_other - y.stall_other;
    d
}

/// Contiguous windows of one phase as one sample each: their sums.
fn phases(windows: Vec<Vec<Counters>>) -> Vec<Vec<Counters>> {
    let speed_up = |counts: &[Counters]| match counts {
        [first, .., last] => {
            (first.instructions / first.run_ns) / (last.instructions / last.run_ns)
        }
        _ => 1.0,
    };
    let mut merged: Vec<(Vec<Counters>, f64, f64)> = Vec::new();
    for window in windows {
        let factor = speed_up(&window);
        match merged.last_mut() {
            Some((sum, total, count)) if (factor / (*total / *count) - 1.0).abs() <= SAME_PHASE => {
                for (sum, part) in sum.iter_mut().zip(&window) {
                    *sum = difference(sum, &negative(part));
                }
                (*total, *count) = (*total + factor, *count + 1.0);
            }
            _ => merged.push((window, factor, 1.0)),
        }
    }
    merged.into_iter().map(|(sum, ..)| sum).collect()
}

fn negative(counts: &Counters) -> Counters {
    difference(&Counters::default(), counts)
}
