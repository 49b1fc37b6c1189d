//! Forecasts on this machine: architectural signatures of programs. Speeds are measured, not predicted.

use countersteer_model::engine::{Forecast, ThreadForecast};
use countersteer_model::signature::Signature;
use countersteer_model::units::{CpuId, ThreadId};

use super::LiveEngine;

impl Forecast for LiveEngine {
    fn predicts(&self) -> bool {
        false
    }

    fn steady_state(&mut self, _: &[ThreadId], _: &[CpuId]) -> Vec<ThreadForecast> {
        Vec::new()
    }

    fn signature(&mut self, thread: ThreadId) -> Option<Signature> {
        let pid = self.placer.process_of(thread)?;
        self.signatures.of_process(pid)
    }

    fn phases(&mut self, thread: ThreadId) -> Vec<Signature> {
        let pid = self.placer.process_of(thread);
        pid.map_or(Vec::new(), |pid| self.signatures.phases_of_process(pid))
    }
}
