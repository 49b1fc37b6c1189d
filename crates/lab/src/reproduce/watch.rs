//! Recorded run of one program alone on one CPU.

use std::sync::Arc;

use countersteer_model::events::Event;

use super::programs::{Cast, lone, pinned};
use crate::experiment::{Experiment, Finished, LoadedMachine, Onlooker};
use countersteer_model::driver::Recorder;

/// Set-up of a recorded run.
pub(crate) struct RunWatch<'a> {
    pub machine: &'a Arc<LoadedMachine>,
    pub cast: &'a Cast,
    pub program: &'a str,
    /// Core group or CPU list; the program runs on its first CPU.
    pub place: &'a str,
    /// Time between samples, in ms.
    pub period_ms: f64,
    /// Relative standard deviation of the noise on counter values; `None` for the default.
    pub noise: Option<f64>,
    /// Events to count in addition to instructions and cycles.
    pub events: &'a [Event],
}

impl RunWatch<'_> {
    /// Runs the program once and returns the results.
    ///
    /// # Errors
    /// Fails with the errors of the simulator, and if a name does not exist.
    pub fn run(&self, recorder: &mut dyn Recorder) -> anyhow::Result<Finished> {
        let mut options = self.cast.options(1, self.period_ms);
        options.counter_noise = self.noise.unwrap_or(options.counter_noise);
        let experiment = Experiment {
            machine: Arc::clone(self.machine),
            workload: lone(self.cast, self.program, 1)?,
            policy: pinned(&self.machine.topology, self.place)?,
            seed: 1,
            options,
            detail: None,
        };
        experiment.run_watched(Onlooker {
            recorder: Some(recorder),
            events: self.events,
            once: true,
            spans: false,
        })
    }
}
