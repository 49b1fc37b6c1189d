//! Speed-up factors measured on big cores, stored by phase, for use on small cores.
//!
//! Source: PMCSched, section 4: HSF/B (`sf_history`: the trained model of the big core) and HSF/TD (`sf_td_history`: Thread
//! Director); the idea follows Garcia-Garcia et al. (2018). Each thread has a table of phases. The signature of a phase is
//! branches, loads, floating-point and vector operations, and misses of the last-level cache (as `log2(1 + x)`), all per 1,000
//! instructions. These hardly depend on the core type.
//!
//! On the big core, the estimate is entered into the table. On a small core, the factor is that of the nearest phase. If no
//! phase is near enough, this is a *miss*, and the factor stays unchanged. `sf_history_misses` counts consecutive misses, so
//! that a policy can send the thread to a big core for an estimate.
//!
//! Decided here, because the papers give no numbers: a table has 16 phases. Two phases are equal up to a mean relative
//! difference of .15. A new estimate replaces the entry with weight .65, and the least recently used entry is evicted. Tables
//! are per thread, not per program. The model's estimate is always used, while the paper's models do not abstain. A core type
//! without a trained model uses the untrained one.
//!
//! Assumption: a phase has one SF. Weaknesses: programs with more phases than table entries, and phases with equal signatures.

use std::sync::Arc;

use super::director::Director;
use super::sf::UntrainedModel as Untrained;
use super::{MetricDef, MetricSource, ReadBy, Round};
use crate::by_id::ByThread;
use crate::sample::Event;
use crate::topology::Topology;
use crate::units::{CoreTypeId, ThreadId};

const SIGNATURE: &[Event] = &[
    Event::Branches,
    Event::Loads,
    Event::FpOperations,
    Event::SimdOperations,
    Event::LlcMisses,
];

pub(super) const SF_HISTORY: MetricDef = MetricDef {
    name: "sf_history",
    unit: "ratio",
    prose: "speed-up factor by the big core's model, on small cores that of the same phase by a history table",
    needs: &[Event::Instructions, Event::Cycles],
    helps: SIGNATURE,
    read_by: ReadBy::Source(|topology| PhaseHistory::boxed(topology, BigCoreEstimate::model)),
};

pub(super) const SF_HISTORY_MISSES: MetricDef = MetricDef {
    name: "sf_history_misses",
    unit: "",
    prose: "samples in a row on small cores whose phase is not in the history table of sf_history",
    read_by: ReadBy::Beside(SF_HISTORY.name),
    ..SF_HISTORY
};

pub(super) const SF_TD_HISTORY: MetricDef = MetricDef {
    name: "sf_td_history",
    unit: "ratio",
    prose: "speed-up factor by Thread Director on big cores, on small ones that of the same phase by a history table; only in the simulator",
    needs: &[Event::Instructions, Event::TdClass],
    helps: SIGNATURE,
    read_by: ReadBy::Source(|topology| PhaseHistory::boxed(topology, BigCoreEstimate::director)),
};

pub(super) const SF_TD_HISTORY_MISSES: MetricDef = MetricDef {
    name: "sf_td_history_misses",
    unit: "",
    prose: "samples in a row on small cores whose phase is not in the history table of sf_td_history",
    read_by: ReadBy::Beside(SF_TD_HISTORY.name),
    ..SF_TD_HISTORY
};

/// True if a metric needs the events of the SF model on the fastest core type.
pub(super) fn by_model(metric: &str) -> bool {
    [SF_HISTORY.name, SF_HISTORY_MISSES.name].contains(&metric)
}

/// Number of phases stored per thread.
const MOST_PHASES: usize = 16;
/// Threshold: maximum mean relative difference of ratios at which two phases count as equal.
const SAME: f64 = 0.15;
/// Weight of the stored factor when a new estimate of its phase arrives; the estimate has the rest.
const KEPT: f64 = 0.35;

/// Ratios per 1,000 instructions that identify a phase; `None` for ratios that were not counted.
type PhaseSignature = [Option<f64>; 4];

/// Returns the phase signature of a round of samples; `None` if the round is incomplete or has none of the signature's events.
fn signature(round: &Round<'_>) -> Option<PhaseSignature> {
    if !round.is_whole() {
        return None;
    }
    let ratio = |event| Some(1e3 * round.ratio(event, Event::Instructions)?);
    let [fp, simd] = [Event::FpOperations, Event::SimdOperations].map(ratio);
    let signature = [
        ratio(Event::Branches),
        ratio(Event::Loads),
        fp.zip(simd).map(|(fp, simd)| fp + simd),
        ratio(Event::LlcMisses).map(|misses| (1.0 + misses).log2()),
    ];
    signature.iter().any(Option::is_some).then_some(signature)
}

/// Returns the mean relative difference of the ratios that both signatures have; infinite if there are none. Ratios below 1 are
/// taken as 1, because they are negligible.
fn distance(a: &PhaseSignature, b: &PhaseSignature) -> f64 {
    let both = a.iter().zip(b).filter_map(|(a, b)| (*a).zip(*b));
    let (sum, count) = both.fold((0.0, 0u32), |(sum, count), (a, b)| {
        (sum + (a - b).abs() / a.max(b).max(1.0), count + 1)
    });
    if count > 0 {
        sum / f64::from(count)
    } else {
        f64::INFINITY
    }
}

/// Source of speed-up factors on the big core.
enum BigCoreEstimate {
    Model {
        topology: Arc<Topology>,
        untrained: Untrained,
    },
    Director(Director),
}

impl BigCoreEstimate {
    fn model(topology: &Arc<Topology>) -> Self {
        Self::Model {
            topology: Arc::clone(topology),
            untrained: Untrained::new(topology),
        }
    }

    fn director(topology: &Arc<Topology>) -> Self {
        Self::Director(Director::new(topology))
    }

    /// Returns an estimate of the speed-up factor; `None` if the thread does not run on the fastest core type.
    fn read(&mut self, round: &Round<'_>, fast: bool) -> Option<f64> {
        match self {
            Self::Director(director) => director.factor(round),
            Self::Model { .. } if !fast => None,
            Self::Model {
                topology,
                untrained,
            } => {
                let models = topology.models.get(round.sample.core_type.index());
                match models.and_then(|models| models.sf.as_ref()) {
                    Some(model) => Some(model.predict(round)?.factor),
                    None => untrained.read(round),
                }
            }
        }
    }
}

/// Stored phases of a thread, with its last factor.
#[derive(Default)]
struct ThreadPhases {
    /// Signature and speed-up factor of each stored phase, most recently used first.
    phases: Vec<(PhaseSignature, f64)>,
    factor: Option<f64>,
    misses: u32,
}

impl ThreadPhases {
    /// Returns the factor of the nearest stored phase and moves the phase to the front. `None` if no phase is near enough.
    fn recall(&mut self, signature: &PhaseSignature) -> Option<&mut f64> {
        let distances = self
            .phases
            .iter()
            .map(|(known, _)| distance(known, signature));
        let nearest = distances
            .enumerate()
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .filter(|(_, distance)| *distance <= SAME)?;
        self.phases[..=nearest.0].rotate_right(1);
        self.phases.first_mut().map(|(_, factor)| factor)
    }

    fn estimated(&mut self, signature: &PhaseSignature, estimate: f64) {
        let factor = match self.recall(signature) {
            Some(factor) => {
                *factor = KEPT * *factor + (1.0 - KEPT) * estimate;
                *factor
            }
            None => {
                self.phases.truncate(MOST_PHASES - 1);
                self.phases.insert(0, (*signature, estimate));
                estimate
            }
        };
        self.factor = Some(factor);
    }
}

struct PhaseHistory {
    fast: CoreTypeId,
    estimate: BigCoreEstimate,
    threads: ByThread<ThreadPhases>,
    /// Number of consecutive misses of the thread that was read last.
    misses: u32,
}

impl PhaseHistory {
    fn boxed(
        topology: &Arc<Topology>,
        estimate: fn(&Arc<Topology>) -> BigCoreEstimate,
    ) -> Box<dyn MetricSource> {
        Box::new(Self {
            fast: topology.extremes().0,
            estimate: estimate(topology),
            threads: ByThread::default(),
            misses: 0,
        })
    }
}

impl MetricSource for PhaseHistory {
    fn read(&mut self, round: &Round<'_>) -> Option<f64> {
        let fast = round.sample.core_type == self.fast;
        let estimate = self.estimate.read(round, fast);
        let signature = signature(round);
        let known = self.threads.entry(round.thread, ThreadPhases::default);
        if fast {
            known.misses = 0;
            if let Some((signature, estimate)) = signature.zip(estimate) {
                known.estimated(&signature, estimate);
            }
        } else if let Some(signature) = signature {
            match known.recall(&signature) {
                Some(factor) => {
                    known.factor = Some(*factor);
                    known.misses = 0;
                }
                None => known.misses += 1,
            }
        }
        self.misses = known.misses;
        known.factor
    }

    fn beside(&self) -> Option<f64> {
        Some(f64::from(self.misses))
    }

    fn forget(&mut self, thread: ThreadId) {
        self.threads.remove(thread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Sample, Samples};
    use crate::testing;
    use crate::units::{CpuId, Nanos};

    /// Returns a sample with branches and misses per 1,000 instructions.
    fn sample(core_type: u32, branches: f64, misses: f64, class: Option<f64>) -> Samples {
        let mut counts = vec![
            (Event::Instructions, 1e6),
            (Event::Branches, branches * 1e3),
            (Event::LlcMisses, misses * 1e3),
        ];
        counts.extend(class.map(|class| (Event::TdClass, class)));
        let ran = Nanos::from_millis(100);
        Samples::of(
            Sample::of_thread(ThreadId(1), CpuId(0), CoreTypeId(core_type), ran, ran),
            1,
            &counts,
        )
    }

    /// Returns factors and misses after each sample.
    fn shown(samples: &[Samples]) -> Vec<(Option<f64>, Option<f64>)> {
        let topology = testing::topology(testing::SMT);
        let mut source = PhaseHistory::boxed(&topology, BigCoreEstimate::director);
        let mut read = |sample| (source.read(&Round::of(sample).unwrap()), source.beside());
        samples.iter().map(&mut read).collect()
    }

    #[test]
    fn small_cores_recall_what_the_big_core_said_of_the_same_phase() {
        let big = |branches, class| sample(0, branches, 1.0, Some(class));
        let small = |branches| sample(1, branches, 1.0, None);
        // Two phases on a big core; then the second phase, the first, an unseen one, and the first again.
        let mut samples = vec![big(200.0, 2.0), big(50.0, 3.0)];
        samples.extend([
            small(52.0),
            small(190.0),
            small(110.0),
            small(110.0),
            small(205.0),
        ]);
        let seen = shown(&samples);
        let expected = [
            (Some(1.56), Some(0.0)),
            (Some(2.14), Some(0.0)),
            (Some(2.14), Some(1.0)),
            (Some(2.14), Some(2.0)),
            (Some(2.14), Some(0.0)),
        ];
        assert_eq!(seen[2..], expected);
    }

    #[test]
    fn the_least_recently_used_phase_is_dropped() {
        let mut known = ThreadPhases::default();
        let of = |step: usize| [Some(1.5f64.powi(step as i32 + 1)), None, None, None];
        for step in 0..MOST_PHASES {
            known.estimated(&of(step), step as f64);
        }
        assert!(known.recall(&of(0)).is_some());
        known.estimated(&of(MOST_PHASES), 0.0);
        assert_eq!(known.phases.len(), MOST_PHASES);
        assert!(known.recall(&of(0)).is_some(), "it was just used");
        assert!(known.recall(&of(1)).is_none(), "it was not");
    }

    #[test]
    fn estimates_of_a_phase_are_averaged() {
        let mut known = ThreadPhases::default();
        let phase = [Some(100.0), None, None, Some(2.0)];
        known.estimated(&phase, 2.0);
        known.estimated(&phase, 1.0);
        assert_eq!(known.factor, Some(0.35 * 2.0 + 0.65));
    }

    #[test]
    fn the_big_cores_model_is_read_there_and_its_events_are_counted_there_only() {
        let text = include_str!("../../../../machines/i9-12900k-8p8e.toml");
        let machine = crate::machine::Machine::parse("i9", text).unwrap();
        let topology = Arc::new(Topology::new(&machine));
        let events = |core_type| {
            super::super::events_on(&topology, CoreTypeId(core_type), &[SF_HISTORY.name])
        };
        let model = topology.models[0].sf.as_ref().unwrap();
        assert!(model.events().iter().all(|e| events(0).contains(e)));
        assert!(SIGNATURE.iter().all(|e| events(1).contains(e)));
        assert!(events(1).len() < events(0).len());
        let mut source = PhaseHistory::boxed(&topology, BigCoreEstimate::model);
        let mut busy = sample(0, 100.0, 1.0, None);
        busy.set(0, Event::Cycles, 4e5);
        let factor = source.read(&Round::of(&busy).unwrap()).unwrap();
        assert!((1.0..4.0).contains(&factor), "{factor}");
        busy.rows_mut()[0].core_type = CoreTypeId(1);
        assert_eq!(source.read(&Round::of(&busy).unwrap()), Some(factor));
    }
}
