//! Programs of the analytic model: their rate tables and their timeline.
//!
//! Input: a profile and the classes of CPUs. Output: a [`ProgramModel`], which all threads and copies of a program share.

use std::sync::Arc;

use countersteer_model::profile::{Profile, Recorded, ThreadShape};
use countersteer_model::topology::Topology;

use super::class::{CpuClass, MAX_LEVELS};
use super::siblings::Beside;
use super::table::RateTable;
use super::{ModelError, interval, measured};

#[derive(Clone)]
pub(crate) struct ProgramModel {
    /// Index of the program's first rate table. Each behaviour has one table per class, and those of the program's average come
    /// last.
    first: u32,
    classes: u32,
    /// End of each segment of the timeline, in instructions.
    ends: Vec<f64>,
    behaviours: Vec<u32>,
    /// Instructions per second alone, by behaviour and core type; the mean of the whole run comes last.
    alone_ips: Vec<f64>,
    core_types: usize,
    average: u32,
    /// Mean number of other threads that were runnable beside a thread, when the program was recorded.
    companions: f64,
}

impl ProgramModel {
    /// Creates the rate tables of a program and appends them to `tables`.
    pub fn new(
        profile: &Arc<Profile>,
        topology: &Topology,
        classes: &[CpuClass],
        best: &[u32],
        tables: &mut Vec<RateTable>,
    ) -> Result<Self, ModelError> {
        let first = tables.len();
        let (ends, behaviours, weights) = match &**profile {
            Profile::Recorded(recorded) => {
                add_recorded(recorded, topology, classes, tables);
                timeline(recorded)
            }
            Profile::Tabulated(_) => {
                let made: Result<Vec<_>, _> = classes
                    .iter()
                    .map(|c| measured_table(profile, topology, c))
                    .collect();
                tables.extend(made?);
                (vec![profile.instructions() as f64], vec![0], vec![1.0])
            }
        };
        for class in 0..classes.len() {
            let rows: Vec<_> = weights
                .iter()
                .enumerate()
                .map(|(b, w)| (first + b * classes.len() + class, *w))
                .collect();
            let of_class: Vec<_> = rows.iter().map(|(row, w)| (&tables[*row], *w)).collect();
            let mean = RateTable::mean(&of_class);
            tables.push(mean);
        }
        let mut model = Self {
            first: first as u32,
            classes: classes.len() as u32,
            ends,
            behaviours,
            alone_ips: Vec::new(),
            core_types: topology.core_types.len(),
            average: weights.len() as u32,
            companions: match &**profile {
                Profile::Recorded(of) => companions(&of.shape),
                Profile::Tabulated(_) => 1.0,
            },
        };
        model.measure_alone(classes, best, &weights, tables);
        Ok(model)
    }

    fn measure_alone(
        &mut self,
        classes: &[CpuClass],
        best: &[u32],
        weights: &[f64],
        tables: &[RateTable],
    ) {
        for behaviour in 0..self.average {
            for class in best {
                let whole = std::array::from_fn(|k| {
                    classes[*class as usize]
                        .levels
                        .get(k)
                        .map_or(0.0, |l| l.lines)
                });
                let rate =
                    tables[self.table(behaviour, *class) as usize].rate(&whole, &Beside::default());
                let ips = classes[*class as usize].ghz * 1e9 / (rate.a + rate.b);
                self.alone_ips.push(ips);
            }
        }
        for core_type in 0..self.core_types {
            let seconds: f64 = weights
                .iter()
                .enumerate()
                .map(|(b, w)| w / self.alone_ips[b * self.core_types + core_type])
                .sum();
            self.alone_ips.push(1.0 / seconds);
        }
    }

    /// Index of a behaviour's rate table for a class.
    #[inline]
    pub fn table(&self, behaviour: u32, class: u32) -> u32 {
        self.first + behaviour * self.classes + class
    }

    /// Mean number of other threads that were runnable beside a thread, when the program was recorded; at least 1.
    pub(crate) fn companions(&self) -> f64 {
        self.companions
    }

    /// Index of the program's average behaviour.
    pub fn average(&self) -> u32 {
        self.average
    }

    /// Instructions per second alone on a core type, in one behaviour or on average.
    pub fn alone_ips(&self, behaviour: u32, core_type: usize) -> f64 {
        self.alone_ips[behaviour as usize * self.core_types + core_type]
    }

    /// Seconds that the timeline between two positions takes alone on a core type.
    pub(crate) fn alone_part_s(&self, core_type: usize, from: f64, to: f64) -> f64 {
        let starts = std::iter::once(0.0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .zip(&self.behaviours)
            .map(|((start, end), behaviour)| {
                let part = (end.min(to) - start.max(from)).max(0.0);
                part / self.alone_ips(*behaviour, core_type)
            })
            .sum()
    }

    /// Iterates over the segments of the timeline: end in instructions, and behaviour.
    pub fn segments(&self) -> impl Iterator<Item = (f64, usize)> + '_ {
        let behaviours = self.behaviours.iter().map(|b| *b as usize);
        self.ends.iter().copied().zip(behaviours)
    }

    pub fn total(&self) -> f64 {
        self.ends.last().copied().unwrap_or(1.0)
    }

    /// Returns the segment at a position on the timeline, which repeats, and the number of instructions to the segment's end.
    pub fn locate(&self, offset: f64) -> (u32, f64) {
        let total = self.total();
        let mut position = offset % total;
        // Offsets are sums of pieces of work: an offset that rounding left just below a segment's end counts as this end.
        let slack = 1e-12 * total.max(offset);
        let mut segment = self.ends.partition_point(|end| *end <= position + slack);
        if segment == self.ends.len() {
            segment = 0;
            position = 0.0;
        }
        (segment as u32, self.ends[segment] - position)
    }

    /// Returns the segment after `segment`, and its length in instructions.
    pub fn after(&self, segment: u32) -> (u32, f64) {
        let next = segment as usize + 1;
        if next < self.ends.len() {
            (next as u32, self.ends[next] - self.ends[next - 1])
        } else {
            (0, self.ends[0])
        }
    }

    #[inline]
    pub fn behaviour(&self, segment: u32) -> u32 {
        self.behaviours[segment as usize]
    }

    /// End of a segment of the timeline, in instructions.
    pub fn end(&self, segment: u32) -> f64 {
        self.ends[segment as usize]
    }
}

/// Returns the mean number of other runnable threads while there were any; at least 1.
fn companions(shape: &ThreadShape) -> f64 {
    let together = (1..).zip(shape.runnable.iter().skip(1));
    let (sum, share) = together.fold((0.0, 0.0), |(sum, share), (others, part)| {
        (sum + f64::from(others) * part, share + part)
    });
    if share > 0.0 {
        sum / share
    } else {
        f64::from(shape.threads.max(2) - 1)
    }
}

fn add_recorded(
    profile: &Recorded,
    topology: &Topology,
    classes: &[CpuClass],
    tables: &mut Vec<RateTable>,
) {
    let knows_sharing = profile.behaviours.iter().any(|b| b.sharing.is_some());
    for behaviour in &profile.behaviours {
        for class in classes {
            debug_assert!(class.levels.len() <= MAX_LEVELS);
            let core_type = &topology.core_types[class.core_type.index()];
            let mut table = interval::table(behaviour, core_type, class);
            table.unmeasured.sharing = f64::from(u8::from(!knows_sharing));
            tables.push(table);
        }
    }
}

fn measured_table(
    profile: &Profile,
    topology: &Topology,
    class: &CpuClass,
) -> Result<RateTable, ModelError> {
    let core_type = &topology.core_types[class.core_type.index()];
    let Profile::Tabulated(table) = profile else {
        return Ok(RateTable::default());
    };
    let measured = table
        .on(&core_type.name)
        .ok_or_else(|| ModelError::CoreType {
            profile: table.name.clone(),
            core_type: core_type.name.clone(),
            machine: topology.name.clone(),
            known: table
                .core
                .iter()
                .map(|c| c.core_type.as_str())
                .collect::<Vec<_>>()
                .join(", "),
        })?;
    Ok(measured::table(measured, core_type, class))
}

/// Returns the ends and behaviours of the segments, with equal neighbours merged, and each behaviour's fraction of the
/// instructions.
fn timeline(profile: &Recorded) -> (Vec<f64>, Vec<u32>, Vec<f64>) {
    let mut ends: Vec<f64> = Vec::new();
    let mut behaviours: Vec<u32> = Vec::new();
    let mut weights = vec![0.0; profile.behaviours.len()];
    let mut end = 0u64;
    for segment in &profile.timeline {
        end += segment.instructions;
        weights[segment.behaviour as usize] +=
            segment.instructions as f64 / profile.instructions.max(1) as f64;
        if behaviours.last() == Some(&segment.behaviour) {
            ends.pop();
        } else {
            behaviours.push(segment.behaviour);
        }
        ends.push(end as f64);
    }
    (ends, behaviours, weights)
}
