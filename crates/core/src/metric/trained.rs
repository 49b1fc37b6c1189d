//! Factors by trained models ([`crate::model`]), and what takes their place where there is none or it abstains.

use std::sync::Arc;

use super::sf::{Model as Untrained, Sampled};
use super::{MetricSource, Round};
use crate::model::Target;
use crate::topology::Topology;
use crate::units::ThreadId;

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
