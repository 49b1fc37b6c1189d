//! Samples of threads as the affinity engine reports them: with the topology's CPUs and the engine's clock.
//!
//! Input: samples of a counting session. Output: the samples of steered threads. The CPU of each sample is stored in the
//! task table.
use countersteer_model::engine::ThreadEvent;
use countersteer_model::sample::Samples;
use countersteer_model::units::Nanos;

use super::leave::Ignored;
use super::task_table::TaskTable;
use super::{AffinityConfig, AffinityEngine};
use crate::placer::{EngineError, own_sample};

/// Receiver of a session's samples, which converts them for the engine.
struct Takes<'a> {
    config: &'a AffinityConfig,
    ignored: &'a Ignored,
    tasks: &'a mut TaskTable,
    events: &'a mut Vec<ThreadEvent>,
    samples: &'a mut Samples,
    /// Start of the counting session, by the session's clock.
    origin: Nanos,
    /// Limit on the time of a sample, by the engine's clock.
    until: Nanos,
}

impl AffinityEngine {
    /// Ends the period of the counting session and returns the samples up to `at`.
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

    /// Converts the last samples of a former session and keeps them for the next observation.
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
            // Samples of detached threads are ignored. Exits of threads are reported as events, so final samples are not needed.
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
