//! Samples from moves: counts of a thread shortly before and shortly after it moved between the fastest and the slowest core type.
//!
//! Input: samples of threads in runs of a scheduler, with or without co-runners. Output: [`TrainingRow`]s, each labelled by whether
//! the move paid. A thread continues the same phase right after most moves, so that its speeds on both sides are of the same kind of
//! work. Moves at which the work changed are left out.

use countersteer_model::sample::{SampleRow, Samples};
use countersteer_model::topology::Topology;

use crate::records::{WindowCounts, is_drifted};
use crate::rows::{CountedInterval, TrainingRow};

/// Run time on each side of a move that counts, at most and at least, in nanoseconds.
const SIDE_MOST_NS: f64 = 40e6;
const SIDE_LEAST_NS: f64 = 5e6;
/// Run time after a move in which a thread refills its caches, in nanoseconds. It does not count.
const REFILL_NS: f64 = 2e6;
/// Relative gain of speed from which on a move paid.
const PAYS: f64 = 0.02;

/// Samples of one thread in a run, in order of time.
#[derive(Clone, Debug)]
pub struct ThreadSamples {
    pub program: String,
    /// Family; programs of one family are never on both sides of a validation.
    pub family: String,
    pub samples: Samples,
}

/// Labelled moves.
#[derive(Clone, Debug, Default)]
pub struct LabelledMoves {
    /// Counts on the fastest and on the slowest core type, one row per move.
    pub rows: Vec<TrainingRow>,
    /// Moves after which the thread was faster.
    pub paid: usize,
    /// Moves that are left out: the thread ran too shortly before or after, or it did other work after the move.
    pub short: usize,
    pub drifted: usize,
}

/// Run of one thread on one core type.
struct TypeStay {
    core_type: usize,
    samples: Vec<usize>,
}

/// Pairs the samples before and after each move between the extreme core types of a machine.
#[must_use]
pub fn moves(topology: &Topology, lives: &[ThreadSamples]) -> LabelledMoves {
    let mut found = LabelledMoves::default();
    let Some(slowest) = topology.core_types.len().checked_sub(1).filter(|n| *n > 0) else {
        return found;
    };
    for life in lives {
        let stays = stays(&life.samples);
        for pair in stays.windows(2) {
            let ends = [pair[0].core_type, pair[1].core_type];
            if ends != [0, slowest] && ends != [slowest, 0] {
                continue;
            }
            let rows = |stay: &TypeStay| -> Vec<SampleRow<'_>> {
                let rows = stay.samples.iter();
                rows.filter_map(|row| life.samples.row(*row)).collect()
            };
            let before = side(rows(&pair[0]).into_iter().rev());
            let after = side(settled(rows(&pair[1])).into_iter());
            let (Some(before), Some(after)) = (before, after) else {
                found.short += 1;
                continue;
            };
            if is_drifted(&[before.clone(), after.clone()]) {
                found.drifted += 1;
                continue;
            }
            found.paid += usize::from(after.speed() > before.speed() * (1.0 + PAYS));
            let mut counts = vec![CountedInterval::default(); slowest + 1];
            (counts[ends[0]], counts[ends[1]]) = (before, after);
            found.rows.push(TrainingRow {
                program: life.program.clone(),
                families: vec![life.family.clone()],
                counts,
            });
        }
    }
    found
}

fn stays(samples: &Samples) -> Vec<TypeStay> {
    let mut stays: Vec<TypeStay> = Vec::new();
    for (row, sample) in samples.iter().enumerate() {
        let core_type = sample.core_type.index();
        match stays.last_mut().filter(|s| s.core_type == core_type) {
            Some(stay) => stay.samples.push(row),
            None => stays.push(TypeStay {
                core_type,
                samples: vec![row],
            }),
        }
    }
    stays
}

/// Leaves out the samples after a move until the caches are full again.
fn settled(mut rows: Vec<SampleRow<'_>>) -> Vec<SampleRow<'_>> {
    let mut ran = 0.0;
    let cold = rows.iter().take_while(|row| {
        ran += row.running.0 as f64;
        ran <= REFILL_NS
    });
    let cold = cold.count();
    rows.drain(..cold);
    rows
}

/// Counts of the samples next to a move; `None` if they are of too short a time, or lack instructions or cycles.
fn side<'s>(rows: impl Iterator<Item = SampleRow<'s>>) -> Option<CountedInterval> {
    let mut sum = WindowCounts::default();
    let mut ran = 0.0;
    for row in rows {
        if ran >= SIDE_MOST_NS {
            break;
        }
        ran += row.running.0 as f64;
        sum.add(&row, 1.0);
    }
    (ran >= SIDE_LEAST_NS && sum.has_base()).then(|| sum.counted())
}
