//! Rounds of samples: the samples of a thread by multiplexed event sets since its current phase began.
//!
//! If a PMU cannot count all events of a metric at once, event sets are multiplexed. Counts of different sets are from different
//! intervals, so they are never summed or scaled. A ratio is taken from the newest sample that has both its numerator and its
//! denominator. A metric combines only ratios of samples of one round.
//!
//! The samples of a *round* are of one core type, one of each set, and all of one phase. The test for a phase change uses the
//! first ratio of the step table ([`super::steps`]; cycles per instruction unless the machine's file says otherwise). A sample
//! whose ratio differs by more than a quarter from the phase's running mean begins another round. Earlier samples are then
//! dropped (PMCTrack, section 4.1.2). The newest sample has a quarter of the mean's weight; the paper gives neither number. The
//! engine in the kernel uses the same rule.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::steps::{is_away, running_mean, step_models};
use crate::by_id::ByThread;
use crate::models::FixedModel;
use crate::sample::{Event, SampleRow, Samples};
use crate::topology::Topology;
use crate::units::{CoreTypeId, ThreadId};

/// Newest sample of a thread, together with the samples of other event sets in the same round.
#[derive(Clone, Copy)]
pub struct Round<'a> {
    pub thread: ThreadId,
    pub sample: SampleRow<'a>,
    /// Samples of the round, oldest first, including the newest sample; `None` if there is only one event set.
    parts: Option<&'a Samples>,
}

impl<'a> Round<'a> {
    /// Returns the round of the last sample in `samples`; `None` if there is none or it is not of a thread. The sample's event
    /// set must not be multiplexed.
    #[must_use]
    pub fn of(samples: &'a Samples) -> Option<Self> {
        let sample = samples.iter().next_back()?;
        Some(Self::alone(sample.thread()?, sample))
    }

    const fn alone(thread: ThreadId, sample: SampleRow<'a>) -> Self {
        let parts = None;
        Self {
            thread,
            sample,
            parts,
        }
    }

    /// True if the round has a sample of each event set.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let sets = self.sample.sets();
        self.parts.map_or(0, Samples::len) >= sets as usize || sets <= 1
    }

    /// Returns the newest sample of the round in which all of these events were counted; `None` if there is none.
    #[must_use]
    pub fn with(&self, events: &[Event]) -> Option<SampleRow<'a>> {
        let has = |sample: &SampleRow<'_>| {
            events
                .iter()
                .all(|event| sample.counts.get(*event).is_some())
        };
        Some(self.sample)
            .filter(has)
            .or_else(|| self.parts?.iter().rev().find(has))
    }

    /// Returns `numerator / denominator` from the newest sample that has both; `None` if there is none or the denominator is
    /// zero.
    #[must_use]
    pub fn ratio(&self, numerator: Event, denominator: Event) -> Option<f64> {
        self.with(&[numerator, denominator])?
            .counts
            .ratio(numerator, denominator)
    }
}

/// State of a thread's current round.
#[derive(Default)]
struct RoundState {
    /// Running mean of the ratios of the phase's samples, in Q20 fixed point, to which later ratios are compared.
    mean_q20: Option<u64>,
    parts: Samples,
}

/// Current rounds of all threads.
pub(super) struct Rounds {
    topology: Arc<Topology>,
    /// Step models by core type, whose first ratio detects phases; empty until event sets are multiplexed.
    models: Vec<FixedModel>,
    /// True if phase changes are ignored, so that a round may contain samples of several phases.
    blind: bool,
    threads: ByThread<BTreeMap<CoreTypeId, RoundState>>,
}

impl Rounds {
    pub(super) fn new(topology: Arc<Topology>) -> Self {
        Self {
            topology,
            models: Vec::new(),
            blind: false,
            threads: ByThread::default(),
        }
    }

    /// Disables the detection of phase changes.
    pub(super) fn blind(self) -> Self {
        Self {
            blind: true,
            ..self
        }
    }

    pub(super) fn forget(&mut self, thread: ThreadId) {
        self.threads.remove(thread);
    }

    /// Adds a sample of a thread and returns the thread's current round.
    pub(super) fn add<'a>(&'a mut self, thread: ThreadId, sample: SampleRow<'a>) -> Round<'a> {
        if sample.sets() <= 1 {
            self.threads.remove(thread);
            return Round::alone(thread, sample);
        }
        if self.models.is_empty() {
            self.models = step_models(&self.topology);
        }
        let feature = self
            .models
            .get(sample.core_type.index())
            .and_then(|model| model.features.first());
        // A sample in which the denominator is zero belongs to no round. A set that does not count the ratio's events belongs to
        // any.
        let counted = feature.filter(|f| {
            sample.counts.get(f.above).is_some() && sample.counts.get(f.below).is_some()
        });
        let ratio = counted.and_then(|f| f.ratio_q20(&sample.counts));
        if counted.is_some() && ratio.is_none() {
            return Round::alone(thread, sample);
        }
        let of_thread = self.threads.entry(thread, BTreeMap::new);
        let known = of_thread.entry(sample.core_type).or_default();
        let other_sets = (known.parts.row(0)).is_some_and(|part| part.sets() != sample.sets());
        let broken = !self.blind
            && ratio
                .zip(known.mean_q20)
                .is_some_and(|(ratio, mean)| is_away(ratio, mean));
        if other_sets || broken {
            *known = RoundState::default();
        }
        known.mean_q20 = match (known.mean_q20, ratio) {
            (Some(mean), Some(ratio)) => Some(running_mean(mean, ratio)),
            (mean, ratio) => mean.or(ratio),
        };
        known.parts.retain(|part| part.set != sample.set);
        known.parts.push_row(sample);
        Round {
            thread,
            sample,
            parts: Some(&known.parts),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;
    use crate::testing::{SMT, topology};
    use crate::units::{CpuId, Nanos};

    /// Returns a sample of one of two sets: both count instructions and cycles, one misses and the other mispredictions.
    fn sample(set: u32, core_type: u32, cycles: f64, rare: f64) -> Samples {
        of_sets(2, set, core_type, cycles, rare)
    }

    fn of_sets(sets: u32, set: u32, core_type: u32, cycles: f64, rare: f64) -> Samples {
        let other = [Event::LlcMisses, Event::BranchMisses][usize::from(set != 0)];
        let counts = [
            (Event::Instructions, 1e6),
            (Event::Cycles, cycles * 1e6),
            (other, rare),
        ];
        counted(sets, set, core_type, &counts)
    }

    fn counted(sets: u32, set: u32, core_type: u32, counts: &[(Event, f64)]) -> Samples {
        let time = Nanos::from_millis(100);
        let head = Sample::of_thread(ThreadId(7), CpuId(0), CoreTypeId(core_type), time, time);
        Samples::of(Sample { set, ..head }, sets, counts)
    }

    /// Returns, after each sample, true if its round is whole, and its misses and mispredictions.
    fn seen(samples: &[Samples]) -> Vec<(bool, Option<f64>, Option<f64>)> {
        seen_by(Rounds::new(topology(SMT)), samples)
    }

    fn seen_by(mut rounds: Rounds, samples: &[Samples]) -> Vec<(bool, Option<f64>, Option<f64>)> {
        let mut tell = |sample: &Samples| {
            let round = rounds.add(ThreadId(7), sample.row(0).unwrap());
            let per_mega = |event| {
                round
                    .ratio(event, Event::Instructions)
                    .map(|r| (r * 1e6).round())
            };
            (
                round.is_whole(),
                per_mega(Event::LlcMisses),
                per_mega(Event::BranchMisses),
            )
        };
        samples.iter().map(&mut tell).collect()
    }

    #[test]
    fn a_round_is_whole_once_each_set_was_seen() {
        let samples = [
            sample(0, 0, 1.0, 5.0),
            sample(1, 0, 1.1, 3.0),
            sample(0, 0, 0.9, 6.0),
        ];
        let wanted = [
            (false, Some(5.0), None),
            (true, Some(5.0), Some(3.0)),
            (true, Some(6.0), Some(3.0)),
        ];
        assert_eq!(seen(&samples), wanted);
    }

    #[test]
    fn a_set_seen_twice_does_not_stand_for_another() {
        let twice = [
            sample(0, 0, 1.0, 5.0),
            sample(0, 0, 1.0, 6.0),
            sample(0, 0, 1.0, 7.0),
        ];
        let seen = seen(&twice);
        assert!(seen.iter().all(|(whole, ..)| !whole), "{seen:?}");
        assert_eq!(seen[2].1, Some(7.0), "the newest counts");
    }

    #[test]
    fn another_phase_drops_what_was_seen_before() {
        let samples = [
            sample(0, 0, 1.0, 5.0),
            sample(1, 0, 2.0, 3.0),
            sample(0, 0, 2.1, 6.0),
            sample(1, 0, 2.0, 4.0),
        ];
        let whole: Vec<bool> = seen(&samples).iter().map(|t| t.0).collect();
        assert_eq!(whole, [false, false, true, true]);
        assert_eq!(seen(&samples)[1], (false, None, Some(3.0)));
    }

    #[test]
    fn a_slow_drift_is_one_phase() {
        // Each ratio is within a quarter of the mean, although the last is far from the first.
        let drift = [1.0, 1.08, 1.16, 1.24, 1.32, 1.4];
        let samples: Vec<Samples> = drift
            .iter()
            .zip(0..)
            .map(|(cycles, nth)| sample(nth % 2, 0, *cycles, 5.0))
            .collect();
        let whole: Vec<bool> = seen(&samples).iter().map(|t| t.0).collect();
        assert_eq!(whole, [false, true, true, true, true, true]);
    }

    #[test]
    fn without_the_check_phases_are_mixed() {
        let samples = [sample(0, 0, 1.0, 5.0), sample(1, 0, 2.0, 3.0)];
        let mixed = seen_by(Rounds::new(topology(SMT)).blind(), &samples);
        assert_eq!(mixed[1], (true, Some(5.0), Some(3.0)));
    }

    #[test]
    fn each_core_type_has_rounds_of_its_own() {
        let samples = [
            sample(0, 0, 1.0, 5.0),
            sample(1, 1, 1.0, 3.0),
            sample(1, 0, 1.0, 4.0),
            sample(0, 1, 1.0, 2.0),
        ];
        let wanted = [
            (false, Some(5.0), None),
            (false, None, Some(3.0)),
            (true, Some(5.0), Some(4.0)),
            (true, Some(2.0), Some(3.0)),
        ];
        assert_eq!(seen(&samples), wanted);
    }

    #[test]
    fn who_did_nothing_neither_breaks_a_round_nor_belongs_to_it() {
        let mut idle = sample(1, 0, 0.0, 0.0);
        idle.set(0, Event::Instructions, 0.0);
        let wholes = seen(&[sample(0, 0, 1.0, 5.0), idle, sample(1, 0, 1.0, 3.0)])
            .iter()
            .map(|t| t.0)
            .collect::<Vec<_>>();
        assert_eq!(wholes, [false, false, true]);
    }

    #[test]
    fn sets_that_cannot_tell_phases_belong_to_any() {
        let counts = [(Event::Instructions, 1e6), (Event::BranchMisses, 9.0)];
        let blind = || counted(2, 1, 0, &counts);
        let seen = seen(&[
            sample(0, 0, 1.0, 5.0),
            blind(),
            sample(0, 0, 3.0, 6.0),
            blind(),
        ]);
        assert_eq!(seen[1], (true, Some(5.0), Some(9.0)));
        assert_eq!((seen[2].0, seen[3].0), (false, true));
    }

    #[test]
    fn other_sets_begin_anew() {
        let alone = of_sets(1, 0, 0, 1.0, 5.0);
        let three = of_sets(3, 1, 0, 1.0, 5.0);
        let seen = seen(&[
            sample(0, 0, 1.0, 4.0),
            three,
            sample(1, 0, 1.0, 3.0),
            sample(0, 0, 1.0, 2.0),
            alone,
            sample(0, 0, 1.0, 1.0),
        ]);
        let wholes: Vec<bool> = seen.iter().map(|t| t.0).collect();
        assert_eq!(wholes, [false, false, false, true, true, false]);
    }
}
