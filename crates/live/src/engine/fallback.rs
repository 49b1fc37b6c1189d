//! Fallback from a sched_ext scheduler that the kernel has ended to CPU affinity.
//!
//! Input: the threads of the last observation, and their placements. Output: an affinity engine with these threads and
//! placements. Its clock is shifted so that the time of the run continues.
use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_model::engine::{Observation, ThreadInfo};
use countersteer_model::placement::{Placement, PlacementState};
use countersteer_model::units::Nanos;
use countersteer_sysfs::procfs::PROC;

use crate::affinity::{AffinityConfig, AffinityEngine};
use crate::placer::{EngineError, Placer, ProcessRoot};
use crate::undo::Journal;

/// State that an affinity engine needs to replace the scheduler.
pub(super) struct Fallback {
    pub(super) config: AffinityConfig,
    /// Names of the programs, by program id.
    names: BTreeMap<u32, Arc<str>>,
    /// Combined placements of the policy so far.
    placed: PlacementState,
}

impl Fallback {
    pub(super) fn new(config: AffinityConfig) -> Self {
        Self {
            config,
            names: BTreeMap::new(),
            placed: PlacementState::default(),
        }
    }

    pub(super) fn attached(&mut self, root: &ProcessRoot) {
        self.names.insert(root.program.0, Arc::clone(&root.name));
    }

    pub(super) fn placed(&mut self, placement: &Placement) {
        self.placed.add(placement);
    }

    /// Removes the placements of threads that are not among the observed ones.
    pub(super) fn observed(&mut self, threads: &[ThreadInfo]) {
        self.placed
            .retain(|id| threads.binary_search_by_key(&id, |t| t.id).is_ok());
    }

    /// Starts an affinity engine that steers these threads.
    pub(super) fn take_over(
        self,
        threads: &[ThreadInfo],
        journal: &mut Journal,
    ) -> Result<Box<dyn Placer>, EngineError> {
        let mut engine = AffinityEngine::open(self.config)?;
        let mut roots: BTreeMap<u32, ProcessRoot> = BTreeMap::new();
        for thread in threads {
            // The ended scheduler has no list of processes any more, so /proc is used.
            let Some(pid) = PROC.process_of(thread.id.0) else {
                continue;
            };
            let name = self.names.get(&thread.program.0).unwrap_or(&thread.name);
            let root = ProcessRoot {
                pid,
                program: thread.program,
                name: Arc::clone(name),
            };
            roots.insert(pid, root);
        }
        for root in roots.values() {
            // A process that has ended in the meantime cannot be attached and is skipped.
            let _ = engine.attach(root, journal);
        }
        engine.apply(&self.placed.placement(), journal)?;
        Ok(Box::new(engine))
    }
}

/// Converts a time of the run to the clock of a placer that started at `base`.
pub(super) fn inward(at: Nanos, base: Nanos) -> Nanos {
    if at == Nanos::NEVER {
        at
    } else {
        at.since(base)
    }
}

/// Converts an observation of a placer that started at `base` to the clock of the run.
pub(super) fn outward(mut seen: Observation, base: Nanos) -> Observation {
    if base > Nanos::ZERO {
        seen.at += base;
        for sample in seen.samples.rows_mut() {
            sample.start += base;
            sample.end += base;
        }
        seen.events.iter_mut().for_each(|e| e.at += base);
        for span in &mut seen.spans {
            span.start += base;
            span.end += base;
        }
    }
    seen
}
