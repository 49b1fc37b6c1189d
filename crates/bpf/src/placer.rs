//! The scheduler as a placer of the live engine.

use std::os::fd::{AsRawFd, OwnedFd};

use countersteer_live::placer::{CounterPlan, EngineError, Placer, PlacerStop, ProcessRoot};
use countersteer_live::undo::{Journal, sched_ext};
use countersteer_model::engine::{Applied, Observation, Watch};
use countersteer_model::placement::Placement;
use countersteer_model::units::{Nanos, ThreadId};
use libbpf_rs::libbpf_sys;

use crate::KernelEngineError;
use crate::engine::ScxEngine;

impl ScxEngine {
    fn failed(&self, why: KernelEngineError) -> EngineError {
        match why {
            KernelEngineError::Ejected { .. } => EngineError::Ended {
                why: Box::new(why),
                at: self.now(),
            },
            KernelEngineError::Journal(why) => EngineError::Journal(why),
            why => EngineError::Scheduler(Box::new(why)),
        }
    }
}

impl Placer for ScxEngine {
    fn name(&self) -> &'static str {
        "scx"
    }

    fn attach(&mut self, root: &ProcessRoot, journal: &mut Journal) -> Result<(), EngineError> {
        Self::attach(self, root, journal).map_err(|why| self.failed(why))
    }

    fn detach(&mut self, root: &ProcessRoot, journal: &mut Journal) -> Result<(), EngineError> {
        Self::detach(self, root, journal).map_err(|why| self.failed(why))
    }

    fn observe(
        &mut self,
        watch: &Watch<'_>,
        until: Nanos,
        journal: &mut Journal,
    ) -> Result<Observation, EngineError> {
        Self::observe(self, watch, until, journal).map_err(|why| self.failed(why))
    }

    fn apply(&mut self, placement: &Placement, _: &mut Journal) -> Result<Applied, EngineError> {
        Self::apply(self, placement).map_err(|why| self.failed(why))
    }

    fn wake_on(&mut self, file: OwnedFd) {
        self.wakers.push(file);
    }

    fn process_of(&self, thread: ThreadId) -> Option<u32> {
        self.tasks.threads.get(&thread.0).map(|k| k.pid)
    }

    fn recount(
        &mut self,
        counters: CounterPlan,
        period: Nanos,
        journal: &mut Journal,
    ) -> Result<(), EngineError> {
        Self::recount(self, counters, period, journal)
            .map_err(|why| EngineError::Uncounted(why.to_string()))
    }

    fn blindness(&self) -> Option<&str> {
        self.blind.as_deref()
    }

    fn reports_switches(&self) -> bool {
        true
    }

    fn steal_above(&mut self, queued: Option<u32>) -> Result<Option<u64>, EngineError> {
        let figures = self
            .kernel
            .steal_above(queued)
            .and_then(|()| self.figures());
        Ok(Some(figures.map_err(|why| self.failed(why))?.stolen))
    }

    fn lost(&mut self) -> Option<u64> {
        Some(self.figures().ok()?.lost)
    }

    fn stop(&self) -> Option<PlacerStop> {
        let scheduler = self.kernel.scheduler()?;
        Some(Box::new(move || {
            if let Some(scheduler) = scheduler.upgrade() {
                // SAFETY: a system call on an open descriptor. If it fails, the scheduler stays until the process ends.
                unsafe { libbpf_sys::bpf_link_detach(scheduler.as_raw_fd()) };
            }
        }))
    }

    fn leave(&mut self, journal: &mut Journal) {
        sched_ext::restore(journal, &|_| true);
    }

    fn complaint(&mut self) -> Option<String> {
        self.complaint.take().map(|why| why.to_string())
    }
}
