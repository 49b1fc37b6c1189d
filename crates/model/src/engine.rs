//! Engines, which observe threads and apply placements.
//!
//! The simulator, affinity on a real host, and sched_ext implement the same two methods.

use std::sync::Arc;

use crate::metric::MetricBank;
use crate::placement::Placement;
use crate::signature::Signature;
use crate::topology::Topology;
use crate::units::{CpuId, Nanos, ThreadId};

pub use crate::observation::{
    Observation, ProgramInfo, Span, ThreadEvent, ThreadEventKind, ThreadInfo,
};

/// Engine that runs threads.
pub trait Engine {
    /// Error that stops the engine.
    type Error: std::error::Error;

    /// Returns the machine's topology.
    fn topology(&self) -> &Arc<Topology>;

    /// Waits until `until` (simulated or real time since the start) and returns the events since the last call. Returns early
    /// when the workload has finished and, if the watch requests it, after a thread event.
    ///
    /// The events that `watch.metrics` need are counted from this call on. Events that cannot be counted are `None` in samples.
    ///
    /// # Errors
    /// Fails if the engine lost its threads or its source of counters.
    fn observe(&mut self, watch: &Watch<'_>, until: Nanos) -> Result<Observation, Self::Error>;

    /// Applies a placement to threads.
    ///
    /// # Errors
    /// Fails if the engine can no longer place any thread. A single thread that is gone or refused is counted in [`Applied`].
    fn apply(&mut self, placement: &Placement) -> Result<Applied, Self::Error>;

    /// Returns the forecaster of static assignments; `None` if the engine has none.
    fn forecast(&mut self) -> Option<&mut dyn Forecast> {
        None
    }
}

/// Observation request of an engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch<'a> {
    /// Names of the metrics to read.
    pub metrics: &'a [&'static str],
    /// Time between periodic observations.
    pub period: Nanos,
    /// True if a thread event ends an observation.
    pub events: bool,
    /// Latest values of the metrics, which the admission table compares until the next decision.
    pub values: Option<&'a MetricBank>,
}

/// Last watch of an engine: an engine reopens its counters only when the watch changes.
#[derive(Clone, Debug, Default)]
pub struct Watched(Option<(Vec<&'static str>, Nanos)>);

impl Watched {
    /// True if the metrics or the period differ from the last call. The first call returns true.
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

/// Result of applying a placement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Number of threads whose allowed CPUs changed.
    pub changed: u32,
    /// Number of threads that were gone.
    pub gone: u32,
    /// Number of threads whose program allows none of the requested CPUs.
    pub refused: u32,
    /// Number of threads whose mask another program has changed since the last decision.
    pub overruled: u32,
    /// Number of frequency hints and cache partitions that are unsupported or were rejected.
    pub unsupported: u32,
    /// Time from the observation until all changes took effect, including the decision; zero if not measured, as in replays.
    pub took: Nanos,
}

/// Forecasts of the steady state of static assignments, and signatures of programs.
pub trait Forecast {
    /// True if it predicts; otherwise it only knows signatures.
    fn predicts(&self) -> bool {
        true
    }

    /// Predicts the speed of each thread if each stays on its CPU; several threads on one CPU share its time. Empty without
    /// predictions.
    ///
    /// `assignment[i]` is the CPU of `threads[i]`.
    fn steady_state(&mut self, threads: &[ThreadId], assignment: &[CpuId]) -> Vec<ThreadForecast>;

    /// Returns the signature of a thread's program, if it has one.
    fn signature(&mut self, _thread: ThreadId) -> Option<Signature> {
        None
    }

    /// Returns the signature of a thread's current phase; the whole program's if phases are not marked.
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
    /// Power drawn by the thread, in watts.
    pub power_w: f64,
}
