//! Speed-up factors that are computed in the kernel, where threads are counted (`bpf/judge.h`).
//!
//! Input: models by core type, the table that the scheduler reads. Output: those models by class of CPUs, with the places of
//! the counts.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use countersteer_counters::{BpfRequest, Resolved};
use countersteer_model::models::{FixedFeature, FixedModel};
use countersteer_model::sample::Event;
use libbpf_rs::MapHandle;

use super::InKernel;
use super::classes::CpuClasses;
use crate::generated::follow::{shared, types};

/// Speed-up factors to compute for threads in the kernel.
pub struct Judging {
    /// By core type.
    models: Vec<FixedModel>,
    /// Table of factors by thread.
    metrics: MapHandle,
    judges: AtomicBool,
}

impl Judging {
    /// Judging by these models of core types, into the table that a scheduler reads.
    pub(crate) fn new(models: Vec<FixedModel>, metrics: MapHandle) -> Self {
        Self {
            models,
            metrics,
            judges: AtomicBool::new(false),
        }
    }

    /// True if the programs that were loaded last compute them.
    #[must_use]
    pub fn judges(&self) -> bool {
        self.judges.load(Ordering::Relaxed)
    }

    pub(super) fn set_judges(&self, judges: bool) {
        self.judges.store(judges, Ordering::Relaxed);
    }

    pub(super) fn metrics(&self) -> BorrowedFd<'_> {
        self.metrics.as_fd()
    }

    /// True if a set counts the events of a model's first feature and models of this many classes of CPUs and sets have room.
    /// Otherwise context switches need not be slowed down.
    pub(super) fn suits(&self, request: &BpfRequest<'_>, classes: &CpuClasses) -> bool {
        let has = |set: &[Resolved], event| set.iter().any(|e| e.planned.event == Some(event));
        let known = |model: &FixedModel| {
            let first = model.features.first();
            let counts =
                |f: &FixedFeature, set: &[Resolved]| has(set, f.above) && has(set, f.below);
            first.is_some_and(|f| request.sets.iter().any(|set| counts(f, set)))
        };
        self.models.iter().any(known)
            && classes.first.len() <= shared::MAX_JUDGED as usize
            && request.sets.len() <= shared::MAX_SETS as usize
    }
}

impl InKernel {
    /// Writes the models to the programs; returns true if any class of CPUs has one.
    pub(super) fn model(&mut self, request: &BpfRequest<'_>, judging: &Judging) -> bool {
        let counted = self.layout.counted(request.sets);
        let interval_ns = request.interval.map_or(0, |interval| interval.0);
        self.control(|control| control.period_ns = interval_ns);
        let sets = counted.len();
        let mut models = vec![types::model::default(); self.classes.first.len()];
        for ((class, cpu), into) in self.classes.first.iter().enumerate().zip(&mut models) {
            let core_type = request.core_types[cpu.index()] as usize;
            let place = |set: usize, event: Event| {
                let is = |resolved: &Resolved| resolved.planned.event == Some(event);
                let nth = counted[set].iter().position(is)? as u32;
                self.layout.counters[class * sets + set].place_of(nth)
            };
            if let Some(model) = judging.models.get(core_type) {
                fill(into, model, sets, place);
            }
        }
        let judges = models.iter().any(|model| model.nr_features > 0);
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            bss.models[..models.len()].copy_from_slice(&models);
        }
        judges
    }
}

/// Writes a model, with the place of each event in each set. Features that no set counts are left out.
fn fill(
    into: &mut types::model,
    model: &FixedModel,
    sets: usize,
    place: impl Fn(usize, Event) -> Option<usize>,
) {
    let places = |f: &FixedFeature, set: usize| Some((place(set, f.above)?, place(set, f.below)?));
    let known = |f: &&FixedFeature| (0..sets).any(|set| places(f, set).is_some());
    // The first feature's denominator measures the work of a thread: without it there is no model.
    if model.features.first().is_none_or(|f| !known(&f)) {
        return;
    }
    into.base_q16 = model.base_q16;
    let features = model.features.iter().filter(known);
    for (feature, into_feature) in features.zip(&mut into.features) {
        for set in 0..sets {
            let Some((above, below)) = places(feature, set) else {
                continue;
            };
            into_feature.above[set] = above as u8;
            into_feature.below[set] = below as u8;
            into_feature.sets |= 1 << set;
        }
        into_feature.nr_steps = feature.steps.len().min(into_feature.steps.len()) as u32;
        for ((least, add), step) in feature.steps.iter().zip(&mut into_feature.steps) {
            step.least_q20 = *least;
            step.add_q16 = *add;
        }
        into.nr_features += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_has_the_features_that_its_sets_can_tell() {
        let feature = |above, below| FixedFeature {
            above,
            below,
            steps: vec![(1 << 20, 7)],
        };
        let model = FixedModel {
            base_q16: 3,
            features: vec![
                feature(Event::Cycles, Event::Instructions),
                feature(Event::LlcMisses, Event::Instructions),
                feature(Event::BranchMisses, Event::Instructions),
            ],
        };
        let sets = [
            vec![Event::Instructions, Event::Cycles],
            vec![Event::Cycles, Event::BranchMisses, Event::Instructions],
        ];
        let place = |set: usize, event| sets[set].iter().position(|e| *e == event);
        let mut into = types::model::default();
        fill(&mut into, &model, 2, place);
        assert_eq!((into.base_q16, into.nr_features), (3, 2));
        let [first, second, ..] = &into.features;
        assert_eq!(
            (first.sets, &first.above[..2], &first.below[..2]),
            (3, &[1, 0][..], &[0, 2][..])
        );
        assert_eq!((second.sets, second.above[1], second.below[1]), (2, 1, 2));
        assert_eq!((second.nr_steps, second.steps[0].add_q16), (1, 7));
        let mut none = types::model::default();
        fill(&mut none, &model, 2, |set, event| {
            place(set, event).filter(|_| event != Event::Instructions)
        });
        assert_eq!(none.nr_features, 0);
    }
}
