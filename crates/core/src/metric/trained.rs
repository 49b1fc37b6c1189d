//! Factors by trained models ([`crate::model`]), and what takes their place where there is none or it abstains.

use std::sync::Arc;

use super::sf::{Model as Untrained, Sampled};
use super::{MetricDef, MetricSource, ReadBy, Round};
use crate::machine::FACTOR_BITS;
use crate::model::{Model, Prediction, Target, UNKNOWN_WIDTH};
use crate::sample::Event;
use crate::topology::Topology;
use crate::units::ThreadId;

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
    prose: "width of the trained model's interval over that of the constant; above 1 the model abstains and sf is measured",
    needs: &[Event::Instructions, Event::Cycles],
    helps: &[],
    read_by: ReadBy::Source(|topology| Box::new(Doubt(Arc::clone(topology)))),
};

pub(super) const EF_MODEL: MetricDef = MetricDef {
    name: "ef",
    unit: "ratio",
    prose: "efficiency factor (energy-delay product on the slowest core type over that on the fastest) by the trained model",
    needs: &[Event::Instructions, Event::Cycles],
    helps: &[],
    read_by: ReadBy::Source(|topology| Box::new(Factor::new(topology, Target::Ef))),
};

/// A factor: of the core type's trained model; where that abstains, the thread's own speeds, once it ran on both types; for core
/// types without a trained model, the untrained one.
pub(super) struct Factor {
    topology: Arc<Topology>,
    target: Target,
    untrained: Untrained,
    sampled: Sampled,
}

impl Factor {
    pub fn new(topology: &Arc<Topology>, target: Target) -> Self {
        Self {
            topology: Arc::clone(topology),
            target,
            untrained: Untrained::new(topology),
            sampled: Sampled::new(topology),
        }
    }
}

impl Model {
    /// What a round tells; none of one that is not whole or of a thread that did nothing. Where a ratio cannot be told, the
    /// doubt is beyond all bounds.
    #[must_use]
    pub fn predict(&self, round: &Round<'_>) -> Option<Prediction> {
        if !round.is_whole() {
            return None;
        }
        let from = |q16: u64| q16 as f64 / f64::from(1u32 << FACTOR_BITS);
        let (least, most) = self.target.bounds();
        let factor = from(self.factor.factor_q16(round)?).clamp(least, most);
        let mut tables = self.factor.features.iter().chain(&self.width.features);
        let complete = tables.all(|f| f.read_q20(round).is_some());
        let width = match self.width.factor_q16(round) {
            Some(width) if complete => from(width).max(self.least_width),
            _ => UNKNOWN_WIDTH,
        };
        let doubt = width / self.constant.width.max(1e-6);
        Some(Prediction {
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
        if self.target == Target::Ef {
            return predicted?.confident();
        }
        let measured = self.sampled.read(round);
        match (model, predicted) {
            (None, _) => self.untrained.read(round),
            (Some(_), None) => None,
            (Some(_), Some(predicted)) => predicted.confident().or(measured),
        }
    }

    fn forget(&mut self, thread: ThreadId) {
        self.sampled.forget(thread);
    }
}

/// How much wider the interval is than that of the constant.
pub(super) struct Doubt(pub Arc<Topology>);

impl MetricSource for Doubt {
    fn read(&mut self, round: &Round<'_>) -> Option<f64> {
        let models = self.0.models.get(round.sample.core_type.index())?;
        Some(models.sf.as_ref()?.predict(round)?.doubt)
    }
}
