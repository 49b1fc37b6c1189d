//! Samples of threads as the affinity engine reports them: by the topology's CPUs, on the engine's clock.
//!
//! Input: samples of a counting session. Output: those of steered threads, and in the task table the CPU that each ran on.
use countersteer_model::engine::ThreadEvent;
use countersteer_model::sample::Samples;
use countersteer_model::units::Nanos;

use super::leave::Ignored;
use super::task_table::TaskTable;
use super::{AffinityConfig, AffinityEngine};
use crate::placer::{EngineError, own_sample};

/// Receiver of a session's samples.
struct Takes<'a> {
    config: &'a AffinityConfig,
    ignored: &'a Ignored,
    tasks: &'a mut TaskTable,
    events: &'a mut Vec<ThreadEvent>,
    samples: &'a mut Samples,
    /// Start of the session.
    origin: Nanos,
    /// Latest time of a sample, by the engine's clock.
    until: Nanos,
}

impl AffinityEngine {
    /// Samples of the period until `at`; ends the period of the session.
    pub(super) fn read(&mut self, at: Nanos) -> Result<Samples, EngineError> {
        let mut samples = std::mem::take(&mut self.read_before);
        let mut takes = Takes {
            config: &self.config,
            ignored: &self.ignored,
            tasks: &mut self.tasks,
            events: &mut self.events,
            samples: &mut samples,
            origin: self.session.origin(),
            until: at,
        };
        self.session.turn(|counted| takes.take(counted))?;
        samples.sort();
        Ok(samples)
    }

    /// Keeps the last samples of a former session for the next observation.
    pub(super) fn keep(&mut self, counted: &Samples, origin: Nanos, until: Nanos) {
        let mut takes = Takes {
            config: &self.config,
            ignored: &self.ignored,
            tasks: &mut self.tasks,
            events: &mut self.events,
            samples: &mut self.read_before,
            origin,
            until,
        };
        takes.take(counted);
    }
}

impl Takes<'_> {
    fn take(&mut self, counted: &Samples) {
        let (origin, until) = (self.origin, self.until);
        for (thread, row) in counted.of_threads() {
            // Exits are reported as events.
            if self.ignored.has(thread.0) {
                continue;
            }
            let since = |time: Nanos| time.since(origin).min(until);
            let sample = own_sample(&row, &self.config.topology, &self.config.numbers, since);
            let Some((sample, cpu)) = sample.and_then(|sample| Some((sample, sample.cpu?))) else {
                continue;
            };
            self.tasks
                .ran(thread.0, cpu, sample.ran(), sample.end, self.events);
            self.samples.push_with(sample, row.counts);
        }
    }
}
