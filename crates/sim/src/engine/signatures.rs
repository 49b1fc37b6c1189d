//! Information that policies may request: forecasts of static mappings, and signatures of programs and of parts of their runs.

use countersteer_model::engine::{Forecast, ThreadForecast};
use countersteer_model::signature::Signature;
use countersteer_model::units::{CpuId, ThreadId};

use super::Simulation;
use super::forecast::SteadyState;
use crate::progress::ModelId;

/// Number of equal parts of a run that have a signature each.
const PHASES: usize = 8;

/// Model of a program, part of its run (`None` for the whole run), and signature (`None` if the profile has none).
pub(super) type ModelSignature = (ModelId, Option<usize>, Option<Signature>);

impl Forecast for Simulation {
    fn steady_state(&mut self, threads: &[ThreadId], assignment: &[CpuId]) -> Vec<ThreadForecast> {
        let models: Vec<_> = threads
            .iter()
            .map(|t| self.programs[self.threads[t.index()].program].model)
            .collect();
        SteadyState {
            topology: &self.topology,
            progress: &*self.progress,
        }
        .forecast(&models, assignment)
    }

    fn signature(&mut self, thread: ThreadId) -> Option<Signature> {
        self.signature_of(thread, None)
    }

    fn marks_phases(&self) -> bool {
        true
    }

    fn phases(&mut self, thread: ThreadId) -> Vec<Signature> {
        let parts = 0..PHASES;
        parts
            .filter_map(|part| self.signature_of(thread, Some(part)))
            .collect()
    }

    fn phase_signature(&mut self, thread: ThreadId) -> Option<Signature> {
        let model = self.programs[self.threads[thread.index()].program].model;
        let (profile, _) = self.models.iter().find(|(_, known)| *known == model)?;
        let share = self.progress.position(thread) / profile.instructions() as f64;
        let part = (share.rem_euclid(1.0) * PHASES as f64) as usize;
        self.signature_of(thread, Some(part.min(PHASES - 1)))
    }
}

impl Simulation {
    /// Returns the signature of a thread's program, or of one of [`PHASES`] equal parts of its run; `None` if the profile has
    /// none.
    fn signature_of(&mut self, thread: ThreadId, part: Option<usize>) -> Option<Signature> {
        let model = self.programs[self.threads[thread.index()].program].model;
        let known = |k: &&ModelSignature| (k.0, k.1) == (model, part);
        if let Some((_, _, known)) = self.signatures.iter().find(known) {
            return known.clone();
        }
        let (profile, _) = self.models.iter().find(|(_, known)| *known == model)?;
        let total = profile.instructions() as f64;
        let bounds = part.map_or(0.0..total, |part| {
            let each = total / PHASES as f64;
            part as f64 * each..(part + 1) as f64 * each
        });
        let made = crate::progress::signature(profile, bounds);
        self.signatures.push((model, part, made.clone()));
        made
    }
}
