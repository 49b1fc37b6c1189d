//! Model files from trained models.

use countersteer_model::models::{Judged, ModelFile, SCHEMA};
use countersteer_model::topology::Topology;

use crate::data::Data;
use crate::train::Trained;

/// File of a model for a core type.
#[must_use]
pub fn file(
    topology: &Topology,
    core_type: usize,
    data: &Data,
    trained: &Trained,
    trained_on: String,
    judged: Judged,
) -> ModelFile {
    let (fast, slow) = topology.extremes();
    let [fast, slow] = [fast, slow].map(|id| &topology.core_types[id.index()]);
    ModelFile {
        schema: SCHEMA.into(),
        target: data.target,
        core_type: topology.core_types[core_type].name.clone(),
        machine: topology.name.clone(),
        fast: fast.name.clone(),
        slow: slow.name.clone(),
        clock_ratio: fast.freq_ghz / slow.freq_ghz,
        trained_on,
        least_width: trained.least_width(),
        constant: trained.constant,
        judged,
        factor: trained.factor_steps(data),
        width: trained.width_steps(data),
    }
}
