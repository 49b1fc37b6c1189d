//! Engines: what observes threads and applies placements.
//!
//! The simulator, affinity on a real host, and sched_ext implement the same two verbs.

use std::sync::Arc;

use crate::metric::MetricBank;
use crate::placement::Placement;
use crate::signature::Signature;
use crate::topology::Topology;
use crate::units::{CpuId, Nanos, ThreadId};

pub use crate::observation::{
    Observation, ProgramInfo, Span, ThreadEvent, ThreadEventKind, ThreadInfo,
};

/// Something that runs threads.
pub trait Engine {
    /// Why it could not go on.
    type Error: std::error::Error;

    /// The machine.
    fn topology(&self) -> &Arc<Topology>;

    /// Waits until `until` (in simulated or real time since the start) and returns what happened since the last call. Returns early
    /// when the workload has finished and, where the watch says so, after a thread event.
    ///
    /// The events that `watch.metrics` need are counted from this call on. Events that cannot be counted are `None` in samples.
    ///
    /// # Errors
    /// The engine lost its threads or its source of counters.
    fn observe(&mut self, watch: &Watch<'_>, until: Nanos) -> Result<Observation, Self::Error>;

    /// Puts threads where the placement says.
    ///
    /// # Errors
    /// The engine can no longer place any thread. A single thread that is gone or refused is counted in [`Applied`].
    fn apply(&mut self, placement: &Placement) -> Result<Applied, Self::Error>;

    /// Predicts what static assignments would be worth, where the engine can.
    fn forecast(&mut self) -> Option<&mut dyn Forecast> {
        None
    }
}

/// What an engine is to observe.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch<'a> {
    /// Names of the metrics that are read.
    pub metrics: &'a [&'static str],
    /// Time between observations that end at their time.
    pub period: Nanos,
    /// A thread event ends an observation.
    pub events: bool,
    /// The latest values of the metrics: what the admission table compares until the next decision.
    pub values: Option<&'a MetricBank>,
}

/// The last watch of an engine: an engine opens its counters again only when the watch changes.
#[derive(Clone, Debug, Default)]
pub struct Watched(Option<(Vec<&'static str>, Nanos)>);

impl Watched {
    /// Whether metrics or period differ from those of the last call. The first call returns true.
    pub fn changes(&mut self, watch: &Watch<'_>) -> bool {
        let same = |(metrics, period): &(Vec<&str>, Nanos)| {
            metrics == watch.metrics && *period == watch.period
        };
        if self.0.as_ref().is_some_and(same) {
            return false;
        }
        self.0 = Some((watch.metrics.to_vec(), watch.period));
        true
    }
}

/// What became of a placement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Threads whose confinement changed.
    pub changed: u32,
    /// Threads that were gone.
    pub gone: u32,
    /// Threads whose program does not allow any of the CPUs asked for.
    pub refused: u32,
    /// Frequency hints and cache partitions that are unsupported or were rejected.
    pub unsupported: u32,
    /// From what was seen until all that changed held, the decision included; zero where it is not measured, as in replays.
    pub took: Nanos,
}

/// Predicts the steady state of static assignments, and knows the signatures of programs.
pub trait Forecast {
    /// Whether it predicts; otherwise it knows signatures only.
    fn predicts(&self) -> bool {
        true
    }

    /// What each thread would reach if each stayed on its CPU; several on one CPU share its time. Empty where it does not predict.
    ///
    /// `assignment[i]` is the CPU of `threads[i]`.
    fn steady_state(&mut self, threads: &[ThreadId], assignment: &[CpuId]) -> Vec<ThreadForecast>;

    /// The signature that a thread's program carries, if it carries one.
    fn signature(&mut self, _thread: ThreadId) -> Option<Signature> {
        None
    }

    /// The signature of the part of its program that a thread is in; the whole program's where nobody marks parts.
    fn phase_signature(&mut self, thread: ThreadId) -> Option<Signature> {
        self.signature(thread)
    }
}

/// Predicted speed of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThreadForecast {
    /// Instructions per second of wall time.
    pub ips: f64,
    /// Instructions per cycle while it runs.
    pub ipc: f64,
    /// Instructions per second alone on the fastest core type.
    pub ips_alone_fast: f64,
    /// Instructions per second alone on the slowest core type.
    pub ips_alone_slow: f64,
    /// Power drawn on its behalf.
    pub power_w: f64,
}
