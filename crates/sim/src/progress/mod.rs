//! Progress models: the speed of each running thread.
//!
//! The engine reports to a [`ProgressModel`] which thread runs on which CPU, and since when. The model returns the times at which
//! threads finish their work, their counters, their occupancy of the caches, and the energy spent. A model knows nothing about
//! schedulers. [`analytic`] derives rates from program profiles; [`traced`] runs the accesses of programs through simulated
//! caches.

pub mod analytic;
mod ceiling;
mod counters;
pub mod traced;

use std::sync::Arc;

use countersteer_model::profile::Profile;
use countersteer_model::score::SampledAccuracy;
use countersteer_model::units::{CacheId, CoreTypeId, CpuId, Nanos, ThreadId};

pub use analytic::{Analytic, ProgressConfig, signature, synthetic};
pub use ceiling::{Ceilings, CoreGroup, CoreState, ModelCeiling, SHARED_PARTS, TurboBin, Way};
pub use counters::{CounterDetail, Evictions, TrueCounters, Unmeasured};
pub use traced::{Traced, Traces};

/// Identifier of a program within a progress model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelId(pub u32);

/// Reasons why a machine cannot run a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// A tabulated profile has no data for one of the machine's core types.
    #[error(
        "profile `{profile}` has no figures for core type `{core_type}` of machine `{machine}`, only for {known}; add a \
         `[[core]]` table or use a recorded profile, which runs on any machine"
    )]
    CoreType {
        profile: String,
        /// Name of the missing core type.
        core_type: String,
        machine: String,
        /// Names of the core types in the profile.
        known: String,
    },
    /// A program of a traced simulation has neither a trace nor a command.
    #[error(
        "`{profile}` has neither a trace nor a command, of which traced simulation needs one: record a trace with `steer trace record` \
         and name its file as `profile`, or give the program as `command`"
    )]
    NoTrace { profile: String },
}

/// Long-run rates of one program in a static mapping of programs to CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SteadyRates {
    /// Instructions per second of wall-clock time, that is, scaled by the program's share of the CPU.
    pub ips: f64,
    /// Instructions per cycle while the program runs.
    pub ipc: f64,
    /// Misses of the last-level cache per kilo-instruction.
    pub llc_mpki: f64,
    /// Number of lines that the program holds in the shared last-level cache.
    pub llc_lines: f64,
    /// Mean power attributed to the program in watts, scaled by its share of the CPU.
    pub power_w: f64,
}

/// Model of the progress of running threads.
///
/// Time never goes back: every `now` is at least that of the previous call. A call with a later `now` first handles all events
/// that are due, like [`Self::advance`]. Two models return equal results for equal sequences of calls.
pub trait ProgressModel {
    /// Prepares a program; all its threads and copies share the result.
    ///
    /// # Errors
    /// Fails if this machine cannot run the profile.
    fn add_program(&mut self, profile: Arc<Profile>) -> Result<ModelId, ModelError>;

    /// Starts a new program, or a new copy of a program; threads that are added afterwards belong to it.
    fn begin_program(&mut self) {}

    /// Adds a thread without work. Thread IDs are dense from 0.
    fn add_thread(&mut self, thread: ThreadId, model: ModelId);

    /// Gives a thread `instructions` of work, starting at position `offset` of the profile's timeline, which repeats.
    ///
    /// The thread advances along the timeline `stride` times as fast as it retires instructions. If N threads share a program's
    /// work, each has an N-th of the instructions and stride N, and passes the whole timeline.
    fn set_work(
        &mut self,
        thread: ThreadId,
        offset: f64,
        instructions: f64,
        stride: f64,
        now: Nanos,
    );

    /// Switches a CPU to a thread or to idle. A thread that still runs on another CPU stops there.
    fn set_running(&mut self, cpu: CpuId, next: Option<ThreadId>, now: Nanos);

    /// Sets the frequency of a CPU's core to operating point `point` of its core type. A model without frequencies runs at
    /// `freq_ghz`.
    fn set_point(&mut self, _cpu: CpuId, _point: usize, _now: Nanos) {}

    /// Moves a thread's pages to a memory node, a row of the topology's memory. A model without memory nodes takes all pages for local.
    fn set_home(&mut self, _thread: ThreadId, _node: u32, _now: Nanos) {}

    /// Partitions a shared cache. Each part is a fraction of the cache's lines and the threads that use it; parts do not overlap.
    ///
    /// Without parts, all threads share the cache again. Returns false if the model does not support partitions.
    fn divide(&mut self, _cache: CacheId, _parts: &[(f64, Vec<ThreadId>)], _now: Nanos) -> bool {
        false
    }

    /// Takes `cost` of CPU time from a running thread, starting at `now`.
    fn charge(&mut self, thread: ThreadId, cost: Nanos, now: Nanos);

    /// Returns the earliest time at which a thread finishes its work or the model must be advanced.
    fn next_event(&mut self) -> Nanos;

    /// Handles all events that are due at or before `now`.
    fn advance(&mut self, now: Nanos);

    /// Appends the threads whose work ended since the last call, in the order in which it ended.
    fn take_finished(&mut self, finished: &mut Vec<ThreadId>);

    /// Returns the counters of a thread, accumulated since the thread was added.
    fn counters(&mut self, thread: ThreadId, now: Nanos) -> TrueCounters;

    /// Number of lines that a thread holds in a cache of the topology.
    fn occupancy_lines(&self, thread: ThreadId, cache: CacheId) -> f64;

    /// Number of lines evicted from the last-level caches, by the program that lost them, then by the program that evicted them.
    ///
    /// Programs are in the order of [`Self::begin_program`]. Empty if the model does not simulate lines.
    fn evicted(&self) -> Vec<Vec<u64>> {
        Vec::new()
    }

    /// Accuracy of the results of a thread's program; `None` unless only samples of the run were simulated in detail.
    fn sampled(&self, _thread: ThreadId) -> Option<SampledAccuracy> {
        None
    }

    /// Energy that the whole machine used since time zero, in joules.
    fn energy_j(&mut self, now: Nanos) -> f64;

    /// Speed-up factor in the thread's current phase: speed alone on the fastest core type divided by speed alone on the slowest.
    fn true_sf(&self, thread: ThreadId) -> f64;

    /// Efficiency factor in the thread's current phase: energy-delay product alone on the slowest core type divided by that on
    /// the fastest.
    ///
    /// The energy is that of the core while it runs the thread, and of its cache and memory accesses.
    fn true_ef(&self, thread: ThreadId) -> f64;

    /// Position of a thread on its profile's timeline, in instructions.
    fn position(&self, thread: ThreadId) -> f64;

    /// Mean instructions per second of a whole run alone on an otherwise idle machine.
    fn alone_ips(&self, model: ModelId, core_type: CoreTypeId) -> f64;

    /// Seconds that one thread alone takes for the part of the profile's timeline between two positions.
    ///
    /// By default, the speed is the mean speed of the whole run.
    fn alone_part_s(&self, model: ModelId, core_type: CoreTypeId, from: f64, to: f64) -> f64 {
        (to - from) / self.alone_ips(model, core_type)
    }

    /// Returns speeds that no thread exceeds; `None` if the model does not know them.
    fn ceilings(&self) -> Option<Ceilings> {
        None
    }

    /// Returns the long-run rates of a static mapping. Each row is a program, its CPU, and its fraction of the CPU's time.
    fn steady_state(&self, assignment: &[(ModelId, CpuId, f64)]) -> Vec<SteadyRates>;
}
