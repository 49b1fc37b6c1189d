//! Models that are worth exporting.

use countersteer_model::models::StepModel;
use countersteer_model::models::{Judged, ModelFile, Target};
use countersteer_model::topology::Topology;

use crate::data::{Data, most_events};
use crate::export::file;
use crate::judge::judge;
use crate::rows::TrainingRow;
use crate::train::train;

/// Model of a core type, trained on all samples and cross-validated on families left out. A model that is no better there than
/// the constant is exported as the constant. `None` if there are too few samples.
#[must_use]
pub fn model(
    topology: &Topology,
    core_type: usize,
    samples: &[TrainingRow],
    target: Target,
    trained_on: String,
) -> Option<ModelFile> {
    let of = &topology.core_types[core_type];
    let data = Data::new(samples, core_type, of, target);
    let most = most_events(of);
    let trained = train(&data, &[], most)?;
    let verdict = judge(topology, core_type, samples, &data, most, false)?;
    let file = file(
        topology,
        core_type,
        &data,
        &trained,
        trained_on,
        verdict.judged,
    );
    if file.judged.beats_constant() {
        return Some(file);
    }
    Some(constant_only(file, verdict.constant_coverage))
}

/// Constant as a model file: its interval is as wide as the constant's for any counts, so it abstains. Its ratio still
/// distinguishes phases.
fn constant_only(mut file: ModelFile, coverage: f64) -> ModelFile {
    let flat = |base: f64| {
        let mut ratio = file.factor.features[0].clone();
        ratio.steps = vec![(0.0, 0.0)];
        StepModel {
            base,
            features: vec![ratio],
        }
    };
    (file.factor, file.width) = (flat(file.constant.factor), flat(file.constant.width));
    file.least_width = file.constant.width;
    file.judged = Judged {
        r: 0.0,
        mape: file.judged.constant_mape,
        coverage,
        abstains: 1.0,
        ..file.judged
    };
    file.trained_on += "; it erred no less than the constant, which takes its place";
    file
}
