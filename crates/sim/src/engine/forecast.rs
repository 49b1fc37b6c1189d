//! Forecasts of static assignments, from the progress model's steady state.

use countersteer_model::engine::ThreadForecast;
use countersteer_model::topology::Topology;
use countersteer_model::units::CpuId;

use crate::progress::{ModelId, ProgressModel};

pub(super) struct SteadyState<'a> {
    pub topology: &'a Topology,
    pub progress: &'a dyn ProgressModel,
}

impl SteadyState<'_> {
    /// Predicts each thread's speed if all threads stay on the CPUs of `assignment`; threads on one CPU share the CPU equally.
    pub fn forecast(&self, models: &[ModelId], assignment: &[CpuId]) -> Vec<ThreadForecast> {
        let mut load = vec![0u32; self.topology.cpus.len()];
        for cpu in assignment {
            load[cpu.index()] += 1;
        }
        let share = |cpu: CpuId| 1.0 / f64::from(load[cpu.index()].max(1));
        let rows: Vec<_> = models
            .iter()
            .zip(assignment)
            .map(|(m, c)| (*m, *c, share(*c)))
            .collect();
        let (fast, slow) = self.topology.extremes();
        let rates = self.progress.steady_state(&rows);
        rates
            .into_iter()
            .zip(models)
            .map(|(rate, model)| ThreadForecast {
                ips: rate.ips,
                ipc: rate.ipc,
                ips_alone_fast: self.progress.alone_ips(*model, fast),
                ips_alone_slow: self.progress.alone_ips(*model, slow),
                power_w: rate.power_w,
            })
            .collect()
    }
}
