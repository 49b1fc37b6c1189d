//! Engines, which observe threads and apply placements to them.
//!
//! The simulator, affinity on a real host, and sched_ext implement the same two methods: `observe` and `apply`.

use std::sync::Arc;

use crate::metric::MetricBank;
use crate::placement::Placement;
use crate::signature::Signature;
use crate::topology::Topology;
use crate::units::{CpuId, Nanos, ThreadId};

pub use crate::observation::{
    Observation, ProgramInfo, Span, ThreadEvent, ThreadEventKind, ThreadInfo,
};

/// Execution environment that observes threads and applies placements.
///
/// ```
/// use std::convert::Infallible;
/// use std::sync::Arc;
///
/// use countersteer_model::engine::{Applied, Engine, Observation, Watch};
/// use countersteer_model::machine::Machine;
/// use countersteer_model::placement::Placement;
/// use countersteer_model::topology::Topology;
/// use countersteer_model::units::Nanos;
///
/// /// Engine whose workload ends after a second, without threads.
/// struct Empty(Arc<Topology>);
///
/// impl Engine for Empty {
///     type Error = Infallible;
///
///     fn topology(&self) -> &Arc<Topology> {
///         &self.0
///     }
///
///     fn observe(&mut self, _: &Watch<'_>, until: Nanos) -> Result<Observation, Infallible> {
///         let finished = until >= Nanos::from_millis(1000);
///         Ok(Observation { at: until, finished, ..Observation::default() })
///     }
///
///     fn apply(&mut self, _: &Placement) -> Result<Applied, Infallible> {
///         Ok(Applied::default())
///     }
/// }
///
/// # let text = include_str!("../../../machines/quickia-2b-2s.toml");
/// let machine = Machine::parse("quickia-2b-2s.toml", text)?;
/// let mut engine = Empty(Arc::new(Topology::new(&machine)));
/// let seen = engine.observe(&Watch::default(), Nanos::from_millis(100)).unwrap();
/// assert!(seen.threads.is_empty() && !seen.finished);
/// # Ok::<(), countersteer_model::textfile::TextError>(())
/// ```
pub trait Engine {
    /// Error after which the engine cannot go on.
    type Error: std::error::Error;

    /// Returns the machine's topology.
    fn topology(&self) -> &Arc<Topology>;

    /// Waits until the time `until`, simulated or real, since the start. Returns the events and samples since the last call.
    /// Returns early when the workload has finished and, if the watch requests it, after a thread event.
    ///
    /// The events that `watch.metrics` need are counted from this call on. Events that cannot be counted are `None` in samples.
    ///
    /// # Errors
    /// Fails if the engine lost its threads or its source of counters.
    fn observe(&mut self, watch: &Watch<'_>, until: Nanos) -> Result<Observation, Self::Error>;

    /// Applies a placement to the threads that it contains.
    ///
    /// # Errors
    /// Fails if the engine can no longer place any thread. A single thread that exited or was refused is counted in
    /// [`Applied`].
    fn apply(&mut self, placement: &Placement) -> Result<Applied, Self::Error>;

    /// Returns the forecaster for static assignments; `None` if the engine has none.
    fn forecast(&mut self) -> Option<&mut dyn Forecast> {
        None
    }
}

/// Observation request for an engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch<'a> {
    /// Names of the metrics whose events the engine must count.
    pub metrics: &'a [&'static str],
    /// Time between periodic observations.
    pub period: Nanos,
    /// True if an observation also ends after a thread event.
    pub events: bool,
    /// True if the observation must list the run intervals of threads (`Observation::spans`), if the engine can report them.
    pub switches: bool,
    /// Latest values of the metrics. The admission table compares them until the next decision.
    pub values: Option<&'a MetricBank>,
}

/// Last observation request of an engine, which reopens its counters only if the request changes.
#[derive(Clone, Debug, Default)]
pub struct Watched(Option<(Vec<&'static str>, Nanos)>);

impl Watched {
    /// True if the metrics or the period differ from those of the last call. The first call returns true.
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
    /// Number of threads of the placement that had exited.
    pub gone: u32,
    /// Number of threads whose own affinity mask contains none of the requested CPUs.
    pub refused: u32,
    /// Number of threads whose mask another program has changed since the last decision.
    pub overruled: u32,
    /// Number of frequency hints and cache partitions that were rejected or are unsupported.
    pub unsupported: u32,
    /// Time from the observation until all changes took effect, including the policy's decision; zero if not measured, as in
    /// replays.
    pub took: Nanos,
}

/// Forecaster of the steady state of static assignments, with the signatures of programs.
///
/// ```
/// use countersteer_model::engine::{Forecast, ThreadForecast};
/// use countersteer_model::units::{CpuId, ThreadId};
///
/// /// CPU 0 is twice as fast as the others, for every thread.
/// struct TwiceAsFast;
///
/// impl Forecast for TwiceAsFast {
///     fn steady_state(&mut self, threads: &[ThreadId], assignment: &[CpuId]) -> Vec<ThreadForecast> {
///         let speed = |cpu: &CpuId| if *cpu == CpuId(0) { 2e9 } else { 1e9 };
///         let share = |cpu: &CpuId| 1.0 / assignment.iter().filter(|other| *other == cpu).count() as f64;
///         let of = |cpu| ThreadForecast { ips: speed(cpu) * share(cpu), ..ThreadForecast::default() };
///         assert_eq!(threads.len(), assignment.len());
///         assignment.iter().map(of).collect()
///     }
/// }
///
/// let threads = [ThreadId(7), ThreadId(8)];
/// let ips = |assignment: &[CpuId]| -> f64 {
///     TwiceAsFast.steady_state(&threads, assignment).iter().map(|forecast| forecast.ips).sum()
/// };
/// assert_eq!(ips(&[CpuId(0), CpuId(1)]), 3e9);
/// assert_eq!(ips(&[CpuId(0), CpuId(0)]), 2e9);
/// ```
pub trait Forecast {
    /// True if steady states are predicted; false if only signatures are available.
    fn predicts(&self) -> bool {
        true
    }

    /// Predicts the speed of each thread if it stays on its assigned CPU. Threads on one CPU share its time. Empty if steady
    /// states are not predicted.
    ///
    /// `assignment[i]` is the CPU of `threads[i]`.
    fn steady_state(&mut self, threads: &[ThreadId], assignment: &[CpuId]) -> Vec<ThreadForecast>;

    /// Returns the signature of a thread's program; `None` if the program has none.
    fn signature(&mut self, _thread: ThreadId) -> Option<Signature> {
        None
    }

    /// True if the engine knows the current phase of a thread, as a simulator does. Otherwise a policy can recognize it by
    /// counters, among [`Forecast::phases`].
    fn marks_phases(&self) -> bool {
        false
    }

    /// Returns the signatures of the phases of a thread's program; empty if none are known.
    fn phases(&mut self, _thread: ThreadId) -> Vec<Signature> {
        Vec::new()
    }

    /// Returns the signature of a thread's current phase, or that of the whole program if phases are not marked. `None` without
    /// a signature.
    fn phase_signature(&mut self, thread: ThreadId) -> Option<Signature> {
        self.signature(thread)
    }
}

/// Predicted speed of a thread under a static assignment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThreadForecast {
    /// Instructions per second of wall time.
    pub ips: f64,
    /// Instructions per cycle while the thread runs.
    pub ipc: f64,
    /// Instructions per second of the thread alone on the fastest core type.
    pub ips_alone_fast: f64,
    /// Instructions per second of the thread alone on the slowest core type.
    pub ips_alone_slow: f64,
    /// Power drawn by the thread, in watts.
    pub power_w: f64,
}
