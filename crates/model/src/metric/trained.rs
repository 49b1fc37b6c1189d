//! Speed-up and energy factors from trained models ([`crate::models`]), corrected by measurements of the thread. A fallback is
//! used if there is no model or it abstains.
//!
//! A model's error depends on the thread more than on the phase: properties of a program that it cannot observe persist in all
//! phases. If a thread runs on the fastest and the slowest core type within a short time, its speeds give a measured factor. The
//! error of each type's model is then subtracted from later predictions on that type. The models of two types then agree about
//! the thread, and still follow its phases. Moves that happen anyway suffice; policies send only threads on which the model
//! abstains.
//!
//! Both have errors: the model's is given by its own interval, a measurement's comes from phases and co-runners ([`NOISE`]).
//! They are weighted by these variances (a Kalman filter of one state, the logarithm of the bias). A model that is more accurate
//! than a measurement is hardly corrected by the first one. Decided here; the papers use either source alone. It is wrong for a
//! thread whose bias differs by phase, until it moves again.

use std::sync::Arc;

use super::sf::{SampledFactor, UntrainedModel as Untrained};
use super::{MetricDef, MetricSource, ReadBy, Round};
use crate::by_id::ByThread;

use crate::models::{
    FACTOR_BITS, FactorPrediction, FixedPointModel, MAX_FEATURES, Target, UNKNOWN_WIDTH,
};
use crate::sample::Event;
use crate::topology::Topology;
use crate::units::{Nanos, ThreadId};

/// Limit on the time between the speeds on two core types that form a measured factor. Within it, both are most likely of one
/// phase.
const SHORTLY: Nanos = Nanos::from_millis(500);
/// Relative standard deviation of a factor that was measured from the speeds on two core types.
const NOISE: f64 = 0.1;
/// Relative standard deviation of the change of a thread's bias from one measured factor to the next.
const DRIFT: f64 = 0.03;
/// Relative standard deviation of the factors of an untrained model.
const UNTRAINED: f64 = 0.3;
/// Ratio of the half-width of a 90 % interval to the standard deviation of a normal distribution.
const WIDTH: f64 = 1.645;

pub(super) const SF_MODEL: MetricDef = MetricDef {
    name: "sf",
    unit: "ratio",
    prose: "speed-up factor predicted from counters of the core type the thread runs on; measured where the model abstains",
    needs: &[Event::Instructions, Event::Cycles],
    helps: &[Event::LlcReferences, Event::LlcMisses, Event::BranchMisses],
    read_by: ReadBy::Source(|topology| Box::new(Factor::new(topology, Target::Sf))),
};

pub(super) const SF_DOUBT: MetricDef = MetricDef {
    name: "sf_doubt",
    unit: "ratio",
    prose: "width of the trained model's interval over that of the constant; from 1 on the model abstains and sf is measured",
    needs: &[Event::Instructions, Event::Cycles],
    helps: &[],
    read_by: ReadBy::Beside(SF_MODEL.name),
};

pub(super) const EF_MODEL: MetricDef = MetricDef {
    name: "ef",
    unit: "ratio",
    prose: "efficiency factor (energy-delay product on the slowest core type over that on the fastest) by the trained model",
    needs: &[Event::Instructions, Event::Cycles],
    helps: &[],
    read_by: ReadBy::Source(|topology| Box::new(Factor::new(topology, Target::Ef))),
};

pub(super) const SF_ERROR: MetricDef = MetricDef {
    name: "sf_error",
    unit: "ratio",
    prose: "half-width of the interval around sf that has nine of ten true factors, over sf; by the trained model",
    needs: &[Event::Instructions, Event::Cycles],
    helps: &[],
    read_by: ReadBy::Source(|topology| Box::new(Width::new(topology, Target::Sf))),
};

pub(super) const EF_ERROR: MetricDef = MetricDef {
    name: "ef_error",
    unit: "ratio",
    prose: "half-width of the interval around ef that has nine of ten true factors, over ef; by the trained model",
    needs: &[Event::Instructions, Event::Cycles],
    helps: &[],
    read_by: ReadBy::Source(|topology| Box::new(Width::new(topology, Target::Ef))),
};

/// Source of the relative half-width of a trained model's intervals; unavailable where the model abstains.
struct Width {
    topology: Arc<Topology>,
    target: Target,
}

impl Width {
    fn new(topology: &Arc<Topology>, target: Target) -> Self {
        let topology = Arc::clone(topology);
        Self { topology, target }
    }
}

impl MetricSource for Width {
    fn read(&mut self, round: &Round<'_>) -> Option<f64> {
        let models = self.topology.models.get(round.sample.core_type.index())?;
        let predicted = models.of(self.target)?.predict(round)?;
        predicted.confident().map(|_| predicted.width)
    }
}

/// Source of the factor from the trained model of the core type. If the model abstains, the thread's own speeds are used as soon
/// as both types have one. Core types without a trained model use the untrained one. If the fastest and the slowest type differ in
/// more than their frequency, it is no better than a constant (`steer model eval --unseen-machine`). It is then a guess with doubt
/// 1, until the speeds are measured.
pub(super) struct Factor {
    topology: Arc<Topology>,
    target: Target,
    untrained: Untrained,
    sampled: SampledFactor,
    own: ByThread<LatestOnTypes>,
    /// Width of the last prediction's interval relative to that of the constant model; `None` without a prediction.
    doubt: Option<f64>,
}

impl Factor {
    pub fn new(topology: &Arc<Topology>, target: Target) -> Self {
        Self {
            topology: Arc::clone(topology),
            target,
            untrained: Untrained::new(topology),
            sampled: SampledFactor::new(topology),
            own: ByThread::default(),
            doubt: None,
        }
    }

    /// Records a prediction for a sample and returns the prediction corrected by the thread's bias on this core type. `None` if
    /// the bias is unknown.
    fn corrected(&mut self, round: &Round<'_>, predicted: f64, deviation: f64) -> Option<f64> {
        let sample = round.sample;
        let (fast, slow) = self.topology.extremes();
        let end = [fast, slow].iter().position(|t| *t == sample.core_type)?;
        let seconds = sample.running.as_secs_f64();
        let instructions = sample.counts.get(Event::Instructions);
        let ips = instructions.filter(|i| *i > 0.0 && seconds > 0.0)? / seconds;
        let seen = TrainedState {
            ips,
            predicted,
            deviation,
            at: sample.end,
        };
        let own = self.own.entry(round.thread, LatestOnTypes::default);
        own.see(end, seen, self.target.bounds());
        let (least, most) = self.target.bounds();
        Some((predicted * own.bias[end]?.log.exp()).clamp(least, most))
    }
}

impl FixedPointModel {
    /// Returns the factor of a round with its uncertainty; `None` if the round is incomplete or the thread executed no
    /// instructions. If a ratio is unavailable, the doubt is infinite.
    #[must_use]
    pub fn predict(&self, round: &Round<'_>) -> Option<FactorPrediction> {
        if !round.is_whole() {
            return None;
        }
        let from = |q16: u64| q16 as f64 / f64::from(1u32 << FACTOR_BITS);
        let (least, most) = self.target.bounds();
        // Each ratio is computed only once, although both tables may contain it.
        let mut read = [None; MAX_FEATURES];
        for (value, feature) in read.iter_mut().zip(&self.factor.features) {
            *value = feature.read_q20(round);
        }
        let (factor, complete) = self.factor.evaluate(|row| *read.get(row)?)?;
        let factor = from(factor).clamp(least, most);
        let of_width = |row: usize| match self.shared[row] {
            Some(shared) => *read.get(shared)?,
            None => self.width.features[row].read_q20(round),
        };
        let width = match self.width.evaluate(of_width) {
            Some((width, true)) if complete => from(width).max(self.least_width),
            _ => UNKNOWN_WIDTH,
        };
        let doubt = width / self.constant.width.max(1e-6);
        Some(FactorPrediction {
            factor,
            width,
            doubt,
        })
    }
}

impl MetricSource for Factor {
    fn read(&mut self, round: &Round<'_>) -> Option<f64> {
        let models = self.topology.models.get(round.sample.core_type.index());
        let model = models.and_then(|models| models.of(self.target));
        let predicted = model.and_then(|model| model.predict(round));
        self.doubt = predicted.map(|p| p.doubt);
        if self.target == Target::Ef {
            return predicted?.confident();
        }
        let measured = self.sampled.read(round);
        let (said, deviation, confident) = match (model, predicted) {
            (None, _) => {
                let said = self.untrained.read(round)?;
                let grounded = self.untrained.scales_clock_only();
                self.doubt = (!grounded).then_some(1.0);
                // A guess without ground stands only until the thread's own speeds are known.
                (
                    said,
                    UNTRAINED,
                    measured.filter(|_| !grounded).or(Some(said)),
                )
            }
            (Some(_), None) => return None,
            (Some(_), Some(p)) => (p.factor, p.width / WIDTH, p.confident()),
        };
        self.corrected(round, said, deviation)
            .or(confident)
            .or(measured)
    }

    fn beside(&self) -> Option<f64> {
        self.doubt
    }

    fn forget(&mut self, thread: ThreadId) {
        self.sampled.forget(thread);
        self.own.remove(thread);
    }
}

/// Latest measurements of a thread on the fastest and on the slowest core type.
#[derive(Default)]
struct LatestOnTypes {
    last: [Option<TrainedState>; 2],
    /// Index of the last core type (0 is the fastest), and the number of consecutive samples on it.
    visit: Option<(usize, u32)>,
    bias: [Option<Bias>; 2],
}

#[derive(Clone, Copy)]
struct TrainedState {
    /// Measured speed in instructions per second.
    ips: f64,
    predicted: f64,
    deviation: f64,
    at: Nanos,
}

/// Estimate of a model's bias for a thread: the ratio of the measured factor to the predicted one, as a logarithm.
#[derive(Clone, Copy)]
struct Bias {
    log: f64,
    variance: f64,
}

impl LatestOnTypes {
    fn see(&mut self, end: usize, mut seen: TrainedState, (least, most): (f64, f64)) {
        let before = self.visit.filter(|(there, _)| *there == end);
        let nth = before.map_or(1, |(_, nth)| nth.saturating_add(1));
        self.visit = Some((end, nth));
        if let Some(last) = self.last[end].filter(|_| nth > 1) {
            seen.ips = (seen.ips * last.ips).sqrt();
        }
        self.last[end] = Some(seen);
        // A factor is measured once per visit to a type, not with the first sample, in which the caches may still be cold.
        let [Some(fast), Some(slow)] = self.last else {
            return;
        };
        let apart = fast.at.since(slow.at).max(slow.at.since(fast.at));
        if nth != 2 || apart > SHORTLY {
            return;
        }
        let factor = (fast.ips / slow.ips).clamp(least, most);
        for (bias, seen) in self.bias.iter_mut().zip([fast, slow]) {
            let Bias { log, variance } = bias.unwrap_or(Bias {
                log: 0.0,
                variance: seen.deviation.powi(2),
            });
            let gain = variance / (variance + NOISE.powi(2));
            *bias = Some(Bias {
                log: log + gain * ((factor / seen.predicted).ln() - log),
                variance: variance * (1.0 - gain) + DRIFT.powi(2),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: (f64, f64) = (1.0, 7.0);

    fn seen(ips: f64, predicted: f64, deviation: f64, at_ms: u64) -> TrainedState {
        let at = Nanos::from_millis(at_ms);
        TrainedState {
            ips,
            predicted,
            deviation,
            at,
        }
    }

    /// Returns a thread that ran on the slow type, then on the fast one, at three times the speed.
    fn moved(deviation: f64) -> LatestOnTypes {
        let mut own = LatestOnTypes::default();
        for at_ms in [100, 200] {
            own.see(1, seen(1e9, 2.0, deviation, at_ms), BOUNDS);
        }
        own.see(0, seen(3e9, 1.5, deviation, 300), BOUNDS);
        assert!(own.bias.iter().all(Option::is_none), "caches may be cold");
        own.see(0, seen(3e9, 1.5, deviation, 400), BOUNDS);
        own
    }

    fn factors(own: &LatestOnTypes) -> [f64; 2] {
        own.bias.map(|bias| bias.unwrap().log.exp())
    }

    #[test]
    fn speeds_shortly_one_after_the_other_say_how_far_each_model_is_off() {
        // A model without knowledge is corrected at once.
        let mut own = moved(10.0);
        let [fast, slow] = factors(&own);
        assert!((fast - 2.0).abs() < 1e-3 && (slow - 1.5).abs() < 1e-3);
        // Much later, the speed on the slow type may be of another phase.
        own.see(1, seen(0.1e9, 2.0, 10.0, 5000), BOUNDS);
        own.see(1, seen(0.1e9, 2.0, 10.0, 5100), BOUNDS);
        assert_eq!(factors(&own), [fast, slow]);
    }

    #[test]
    fn a_sharp_model_is_corrected_little_at_first() {
        // As accurate as a measurement: half of the correction, on the logarithmic scale.
        let [fast, slow] = factors(&moved(NOISE));
        assert!((fast - 2.0f64.sqrt()).abs() < 1e-9, "{fast}");
        assert!((slow - 1.5f64.sqrt()).abs() < 1e-9, "{slow}");
        let [fast, _] = factors(&moved(NOISE / 10.0));
        assert!((1.0..1.01).contains(&fast), "{fast}");
    }
}
