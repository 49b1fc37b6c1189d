//! Profiles of whole native runs: behaviours from a recorded window, their order from hardware counters.
//!
//! Input: the profile of a program's first instructions, and counts of a native run by interval. Output: a profile of the whole run.
//! Each interval is a mixture of the two recorded behaviours that come nearest to its counts. Phases are found from counters as in
//! PMCTrack (section 4.1.2), and a window stands for a phase as in SimPoint (Sherwood et al., ASPLOS 2002). An interval that no
//! behaviour resembles is unlike, and the share of such intervals is reported.
//!
//! The first instructions of both runs are the same work. Their counts over the model's predictions calibrate the predictions on the
//! core type.

pub mod addresses;

use std::sync::Arc;

use countersteer_model::profile::{Profile, Recorded, Segment};
use countersteer_model::sample::Event;
use countersteer_model::topology::Topology;
use countersteer_model::units::{CoreTypeId, CpuId};
use countersteer_report::record::Record;
use countersteer_sim::progress::{Analytic, ProgressConfig, ProgressModel};

use crate::error::{FaultKind, failure};

/// Number of quantities that are compared: all cycles, those of last-level misses, those of mispredicted branches, and the shares of
/// branches, loads and stores.
const QUANTITIES: usize = 6;
/// Index of the first quantity that is a share of the instructions.
const FIRST_SHARE: usize = 3;
/// Relative difference of cycles to which a difference of shares of 1 corresponds: .05 counts like [`UNLIKE`].
const SHARE_WEIGHT: f64 = 4.0;
/// Distance from a mixture of behaviours, relative to the cycles per instruction, above which an interval is unlike all of them.
pub(crate) const UNLIKE: f64 = 0.2;
/// Share of the instructions in unlike intervals above which there is no profile.
const MOST_UNLIKE: f64 = 0.5;
/// Share of the instructions in unlike intervals above which the profile is marked as partial.
const SOME_UNLIKE: f64 = 0.1;
/// Limits on a calibration.
const CALIBRATION: (f64, f64) = (0.2, 5.0);
/// Cycles per instruction below which a quantity is not calibrated.
const SMALL: f64 = 0.005;

/// Counts of a program in one interval of a native run, on one core type.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NativeInterval {
    pub instructions: f64,
    pub cycles: f64,
    /// Misses of the last-level cache; `None` if they were not counted.
    pub llc_misses: Option<f64>,
    /// Mispredicted branches; `None` if they were not counted.
    pub branch_misses: Option<f64>,
    /// Branches, loads and stores; `None` if they were not counted.
    pub mix: [Option<f64>; 3],
}

/// Profile of a whole run.
#[derive(Clone, Debug)]
pub struct Extended {
    pub profile: Recorded,
    /// Share of the instructions in intervals that no mixture of behaviours resembles.
    pub unlike: f64,
    /// Distance of the intervals from their mixtures, relative to the cycles per instruction: the mean by instructions.
    pub distance: f64,
}

/// Quantities per instruction of a behaviour or an interval; unknown ones are `None`.
type CycleParts = [Option<f64>; QUANTITIES];

/// Reads the intervals of a program from a record in order of time, and the core type on which most instructions ran.
///
/// No name means all threads. Intervals on other core types have no cycles, so they are assigned like the interval before.
///
/// # Errors
/// The record has no such program, or no samples of it with instructions.
pub fn intervals(
    record: &Record,
    program: Option<&str>,
) -> anyhow::Result<(CoreTypeId, Vec<NativeInterval>)> {
    let threads = record.identities();
    let is = |name: &str| program.is_none_or(|program| name == program);
    let own = |id| threads.iter().any(|t| t.id == id && is(&t.name));
    let mut rows = Vec::new();
    for (thread, sample) in record.samples.samples.of_threads() {
        let count = |event| sample.counts.get(event);
        let instructions = count(Event::Instructions).unwrap_or(0.0);
        if !own(thread) || instructions <= 0.0 {
            continue;
        }
        let interval = NativeInterval {
            instructions,
            cycles: count(Event::Cycles).unwrap_or(0.0),
            llc_misses: count(Event::LlcMisses),
            branch_misses: count(Event::BranchMisses),
            mix: [Event::Branches, Event::Loads, Event::Stores].map(count),
        };
        rows.push((sample.end, sample.core_type, interval));
    }
    rows.sort_by_key(|(end, ..)| *end);
    let types = rows.iter().map(|(_, core_type, _)| *core_type);
    let on = |core_type: CoreTypeId| -> f64 {
        let rows = rows.iter().filter(|row| row.1 == core_type);
        rows.map(|(.., interval)| interval.instructions).sum()
    };
    let most = types.max_by(|a, b| on(*a).total_cmp(&on(*b)).then(b.cmp(a)));
    let most = most.ok_or_else(|| {
        let whose = program.map_or_else(String::new, |name| format!(" of `{name}`"));
        let remedy =
            "steer stat -e instructions,cycles,llc_misses,branch_misses -i 20ms -o DIR -- ...";
        let why = format!("no sample{whose} has instructions; count them: {remedy}");
        failure(FaultKind::BadInput, why)
    })?;
    let interval = |(_, core_type, mut interval): (_, CoreTypeId, NativeInterval)| {
        if core_type != most {
            interval.cycles = 0.0;
        }
        interval
    };
    Ok((most, rows.into_iter().map(interval).collect()))
}

/// Extends the profile of a program's first instructions to the whole native run on a core type.
///
/// The profile of a run that ended within the window is returned as it is.
///
/// # Errors
/// The profile cannot be simulated on the machine, no interval has cycles, or most of the run is unlike the window.
pub fn extend(
    window: &Recorded,
    topology: &Arc<Topology>,
    core_type: CoreTypeId,
    intervals: &[NativeInterval],
) -> anyhow::Result<Extended> {
    let total: f64 = intervals.iter().map(|i| i.instructions).sum();
    if window.partial.is_none() || total <= window.instructions as f64 {
        let profile = window.clone();
        return Ok(Extended {
            profile,
            unlike: 0.0,
            distance: 0.0,
        });
    }
    let scale = Scale::of(topology, core_type);
    let seen: Vec<(f64, CycleParts)> = intervals
        .iter()
        .map(|i| (i.instructions, scale.seen(i)))
        .collect();
    if seen.iter().all(|(_, cycles)| cycles[0].is_none()) {
        let why = "no interval of the native run has cycles: count instructions and cycles";
        return Err(failure(FaultKind::BadInput, why));
    }
    let predicted = scale.predicted(window, topology, core_type)?;
    let predicted = calibrated(window, predicted, &seen);
    let mut timeline = NativeTimeline::of(window);
    let (mut unlike, mut distance, mut beyond) = (0.0, 0.0, 0.0);
    let mut last = vec![(timeline.last(), 1.0)];
    for (instructions, cycles) in after(&seen, window.instructions as f64) {
        beyond += instructions;
        if let Some(mixture) = nearest(&predicted, &cycles) {
            distance += instructions * mixture.distance;
            unlike += if mixture.distance > UNLIKE {
                instructions
            } else {
                0.0
            };
            last = mixture.parts;
        }
        for (behaviour, share) in &last {
            timeline.add(*behaviour, share * instructions);
        }
    }
    let (unlike, distance) = (unlike / total, distance / beyond.max(1.0));
    if unlike > MOST_UNLIKE {
        let why = format!(
            "{:.0} % of the instructions are unlike all that the window recorded: record a longer window (--window), or the whole run \
             (without --native)",
            100.0 * unlike
        );
        return Err(failure(FaultKind::BadInput, why));
    }
    Ok(Extended {
        profile: whole(window, timeline, unlike),
        unlike,
        distance,
    })
}

/// Cuts a recording to a share of its instructions, as if its recording had been stopped then. Behaviours that come later are left out.
#[must_use]
pub fn cut(whole: &Recorded, share: f64) -> Recorded {
    let mut window = whole.clone();
    let mut left = (whole.instructions as f64 * share.clamp(0.0, 1.0)) as u64;
    window.instructions = left;
    window.timeline.clear();
    for segment in &whole.timeline {
        let instructions = segment.instructions.min(left);
        left -= instructions;
        if instructions > 0 {
            window.timeline.push(Segment {
                instructions,
                ..*segment
            });
        }
    }
    let mut kept: Vec<u32> = window.timeline.iter().map(|s| s.behaviour).collect();
    kept.sort_unstable();
    kept.dedup();
    let place = |behaviour| kept.partition_point(|b| *b < behaviour) as u32;
    for segment in &mut window.timeline {
        segment.behaviour = place(segment.behaviour);
    }
    let behaviours = kept.iter().map(|b| whole.behaviours[*b as usize].clone());
    window.behaviours = behaviours.collect();
    window.partial = Some("only its first instructions".into());
    window
}

/// Profile of the whole run, with the timeline.
fn whole(window: &Recorded, timeline: NativeTimeline, unlike: f64) -> Recorded {
    let mut profile = window.clone();
    profile.instructions = timeline.0.iter().map(|s| s.instructions).sum();
    profile.timeline = timeline.0;
    profile.source.method = format!(
        "{}; behaviours of the first {} instructions, the order of the rest by counters of a native run",
        profile.source.method, window.instructions
    );
    profile.partial = (unlike > SOME_UNLIKE).then(|| {
        format!(
            "{:.0} % of the instructions are unlike all that were recorded, by the counters of a native run",
            100.0 * unlike
        )
    });
    profile
}

/// Cycles that an event costs on a core type, roughly: they make distances of different events comparable.
struct Scale {
    miss_cycles: f64,
    branch_cycles: f64,
}

impl Scale {
    fn of(topology: &Topology, core_type: CoreTypeId) -> Self {
        let of = &topology.core_types[core_type.index()];
        let cpu = topology.cpus.iter().find(|cpu| cpu.core_type == core_type);
        let memory = cpu.and_then(|cpu| topology.memory.get(cpu.memory as usize));
        Self {
            miss_cycles: memory.map_or(0.0, |memory| memory.latency_ns) * of.freq_ghz,
            branch_cycles: of.branch_penalty_cycles,
        }
    }

    fn cycles(
        &self,
        cpi: f64,
        [llc_mpki, branch_mpki]: [Option<f64>; 2],
        [branches, loads, stores]: [Option<f64>; 3],
    ) -> CycleParts {
        let of = |mpki: Option<f64>, cycles: f64| mpki.map(|mpki| 1e-3 * mpki * cycles);
        [
            Some(cpi),
            of(llc_mpki, self.miss_cycles),
            of(branch_mpki, self.branch_cycles),
            branches,
            loads,
            stores,
        ]
    }

    fn seen(&self, interval: &NativeInterval) -> CycleParts {
        if interval.cycles <= 0.0 {
            return [None; QUANTITIES];
        }
        let pki = |count: Option<f64>| count.map(|count| 1e3 * count / interval.instructions);
        let cpi = interval.cycles / interval.instructions;
        let misses = [interval.llc_misses, interval.branch_misses].map(pki);
        let share = |count: Option<f64>| count.map(|count| count / interval.instructions);
        self.cycles(cpi, misses, interval.mix.map(share))
    }

    /// Prediction for each behaviour, alone on a core of the type.
    fn predicted(
        &self,
        window: &Recorded,
        topology: &Arc<Topology>,
        core_type: CoreTypeId,
    ) -> anyhow::Result<Vec<CycleParts>> {
        let cpu = topology.cpus.iter().find(|cpu| cpu.core_type == core_type);
        let cpu = cpu.map_or(CpuId(0), |cpu| cpu.id);
        let mut model = Analytic::new(Arc::clone(topology), ProgressConfig::default());
        let mut all = Vec::new();
        for behaviour in &window.behaviours {
            let mut alone = window.clone();
            alone.behaviours = vec![behaviour.clone()];
            alone.timeline = vec![Segment {
                behaviour: 0,
                instructions: alone.instructions,
            }];
            let id = model.add_program(Arc::new(Profile::Recorded(alone)))?;
            let rates = &model.steady_state(&[(id, cpu, 1.0)])[0];
            let misses = [rates.llc_mpki, behaviour.branch_mpki].map(Some);
            let mix = [
                &behaviour.mix.branches,
                &behaviour.mix.loads,
                &behaviour.mix.stores,
            ];
            all.push(self.cycles(1.0 / rates.ipc, misses, mix.map(|share| Some(*share))));
        }
        Ok(all)
    }
}

/// Scales the predictions so that those of the window have the sums of the native run's first instructions.
fn calibrated(
    window: &Recorded,
    mut predicted: Vec<CycleParts>,
    seen: &[(f64, CycleParts)],
) -> Vec<CycleParts> {
    let shares = window.shares();
    let length = window.instructions as f64;
    for quantity in 0..QUANTITIES {
        let mean = |of: &mut dyn Iterator<Item = (f64, Option<f64>)>| {
            let (mut sum, mut weight) = (0.0, 0.0);
            for (share, value) in of {
                if let Some(value) = value {
                    sum += share * value;
                    weight += share;
                }
            }
            (weight > 0.0).then(|| sum / weight)
        };
        let model = predicted.iter().map(|cycles| cycles[quantity]);
        let model = mean(&mut shares.iter().copied().zip(model));
        let first = before(seen, length).map(|(n, cycles)| (n, cycles[quantity]));
        let native = mean(&mut first.into_iter());
        let (Some(model), Some(native)) = (model, native) else {
            continue;
        };
        if model < SMALL || native < SMALL {
            continue;
        }
        let factor = (native / model).clamp(CALIBRATION.0, CALIBRATION.1);
        for cycles in &mut predicted {
            cycles[quantity] = cycles[quantity].map(|value| value * factor);
        }
    }
    predicted
}

/// Intervals up to a number of instructions; the last one is cut.
fn before(
    seen: &[(f64, CycleParts)],
    instructions: f64,
) -> impl Iterator<Item = (f64, CycleParts)> {
    let mut left = instructions;
    seen.iter().map_while(move |(own, cycles)| {
        let part = own.min(left);
        left -= part;
        (part > 0.0).then_some((part, *cycles))
    })
}

/// Intervals after a number of instructions; the first one is cut.
fn after(seen: &[(f64, CycleParts)], instructions: f64) -> impl Iterator<Item = (f64, CycleParts)> {
    let mut left = instructions;
    seen.iter().filter_map(move |(own, cycles)| {
        let skipped = own.min(left);
        left -= skipped;
        (*own > skipped).then(|| (own - skipped, *cycles))
    })
}

/// Mixture of behaviours, with its distance from an interval relative to the cycles per instruction.
struct Mixture {
    /// Behaviours and their shares, which sum to 1.
    parts: Vec<(u32, f64)>,
    distance: f64,
}

/// Finds the mixture of at most two behaviours nearest to an interval; `None` if the interval has no cycles. Among equals, the
/// behaviours that come first.
fn nearest(predicted: &[CycleParts], seen: &CycleParts) -> Option<Mixture> {
    let cpi = seen[0]?;
    let gap = |of: &[f64; QUANTITIES]| of.iter().map(|x| x * x).sum::<f64>().sqrt() / cpi;
    let from = |cycles: &CycleParts| -> [f64; QUANTITIES] {
        std::array::from_fn(|nth| {
            let both = seen[nth].zip(cycles[nth]);
            let weight = if nth < FIRST_SHARE {
                1.0
            } else {
                SHARE_WEIGHT * cpi
            };
            both.map_or(0.0, |(seen, model)| weight * (seen - model))
        })
    };
    let mut best = Mixture {
        parts: Vec::new(),
        distance: f64::INFINITY,
    };
    let mut offer = |parts: &[(u32, f64)], gaps: &[f64; QUANTITIES]| {
        let distance = gap(gaps);
        if distance < best.distance - 1e-9 {
            best = Mixture {
                parts: parts.to_vec(),
                distance,
            };
        }
    };
    for (a, one) in (0..).zip(predicted) {
        let one = from(one);
        offer(&[(a, 1.0)], &one);
        for (b, other) in (0..a).zip(predicted) {
            // The point of the line between both that is nearest: gaps of a mixture are the mixture of the gaps.
            let other = from(other);
            let step: [f64; QUANTITIES] = std::array::from_fn(|nth| other[nth] - one[nth]);
            let length: f64 = step.iter().map(|x| x * x).sum();
            let along: f64 = one.iter().zip(&step).map(|(x, s)| x * s).sum();
            if length <= 0.0 {
                continue;
            }
            let share = (-along / length).clamp(0.0, 1.0);
            let mixed = std::array::from_fn(|nth| one[nth] + share * step[nth]);
            if share > 0.0 && share < 1.0 {
                offer(&[(a, 1.0 - share), (b, share)], &mixed);
            }
        }
    }
    Some(best)
}

/// Timeline that is extended; equal neighbours are one segment.
struct NativeTimeline(Vec<Segment>);

impl NativeTimeline {
    fn of(window: &Recorded) -> Self {
        Self(window.timeline.clone())
    }

    fn last(&self) -> u32 {
        self.0.last().map_or(0, |segment| segment.behaviour)
    }

    fn add(&mut self, behaviour: u32, instructions: f64) {
        let instructions = instructions.round() as u64;
        match self.0.last_mut() {
            Some(last) if last.behaviour == behaviour => last.instructions += instructions,
            _ if instructions == 0 => {}
            _ => self.0.push(Segment {
                behaviour,
                instructions,
            }),
        }
    }
}

#[cfg(test)]
mod tests;
