//! How far does each running thread get?
//!
//! [`ProgressModel`] is what the engine asks of a model: it is given which thread runs where since when, and says when
//! threads finish their work, what their counters hold, what they occupy of the caches and what energy was spent. A model
//! knows nothing about schedulers. [`analytic`] derives rates from program profiles, [`traced`] takes programs' accesses through
//! simulated caches.

pub mod analytic;
mod ceiling;
mod counters;
pub mod traced;

use std::sync::Arc;

use countersteer_model::profile::Profile;
use countersteer_model::score::Sampled;
use countersteer_model::units::{CacheId, CoreTypeId, CpuId, Nanos, ThreadId};

pub use analytic::{Analytic, ProgressConfig, signature, synthetic};
pub use ceiling::{Ceilings, Clock, CoreState, ModelCeiling, Place, SHARED_PARTS, Way};
pub use counters::{Counters, Detail, Evictions, Unmeasured};
pub use traced::{Traced, Traces};

/// A program known to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelId(pub u32);

/// A program that this machine cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// A tabulated profile without a table for a core type.
    #[error(
        "profile `{profile}` has no figures for core type `{core_type}` of machine `{machine}`, only for {known}; add a \
         `[[core]]` table or use a recorded profile, which runs on any machine"
    )]
    CoreType {
        profile: String,
        /// The core type it lacks.
        core_type: String,
        machine: String,
        /// Core types that it has.
        known: String,
    },
    /// Traced simulation of a program that was not traced.
    #[error(
        "`{profile}` has neither a trace nor a command, of which traced simulation needs one: record a trace with `steer trace record` \
         and name its file as `profile`, or give the program as `command`"
    )]
    NoTrace { profile: String },
}

/// Forecast of one program of a static mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Instructions per second of wall-clock time, its share of the CPU included.
    pub ips: f64,
    /// Instructions per cycle while it runs.
    pub ipc: f64,
    /// Last-level misses per kilo-instruction.
    pub llc_mpki: f64,
    /// Lines that it holds of a last-level cache behind the cores.
    pub llc_lines: f64,
    /// Mean power attributed to it, its share of the CPU included.
    pub power_w: f64,
}

/// A model of how far running threads get.
///
/// Time never goes back: every `now` is at least that of the call before. A call with a later `now` first handles what is due
/// up to it, as [`Self::advance`] does. Two models that get the same calls give the same answers.
pub trait ProgressModel {
    /// Prepares a program; all its threads and copies share what is prepared.
    ///
    /// # Errors
    /// A profile that this machine cannot run.
    fn add_program(&mut self, profile: Arc<Profile>) -> Result<ModelId, ModelError>;

    /// The threads that are added next belong to another program, or another copy of one.
    fn begin_program(&mut self) {}

    /// Adds a thread without work. Thread numbers are dense from 0.
    fn add_thread(&mut self, thread: ThreadId, model: ModelId);

    /// Gives a thread `instructions` of work, from position `offset` of the profile's timeline, which repeats.
    ///
    /// The thread advances along the timeline `stride` times as fast as it retires: of N threads that share a program's
    /// work, each has an N-th of the instructions, stride N, and sees the whole timeline.
    fn set_work(
        &mut self,
        thread: ThreadId,
        offset: f64,
        instructions: f64,
        stride: f64,
        now: Nanos,
    );

    /// Switches a CPU to a thread, or to none. A thread that still runs elsewhere stops there.
    fn set_running(&mut self, cpu: CpuId, next: Option<ThreadId>, now: Nanos);

    /// The frequency of a CPU's core is that of a row of its type's operating points from now on. A model without
    /// frequencies runs at `freq_ghz`.
    fn set_point(&mut self, _cpu: CpuId, _point: usize, _now: Nanos) {}

    /// Gives threads parts of a cache behind the cores, as shares of its lines that do not overlap; no parts give it back to
    /// everybody. Says whether the model supports it.
    fn divide(&mut self, _cache: CacheId, _parts: &[(f64, Vec<ThreadId>)], _now: Nanos) -> bool {
        false
    }

    /// Makes a running thread lose `cost` of CPU time from `now` on.
    fn charge(&mut self, thread: ThreadId, cost: Nanos, now: Nanos);

    /// The earliest time at which a thread finishes or the model wants to step.
    fn next_event(&mut self) -> Nanos;

    /// Handles what is due up to `now`.
    fn advance(&mut self, now: Nanos);

    /// Appends the threads whose work ended since the last call, in the order of their ends.
    fn take_finished(&mut self, finished: &mut Vec<ThreadId>);

    /// What a thread counted since it was added.
    fn counters(&mut self, thread: ThreadId, now: Nanos) -> Counters;

    /// Lines that a thread holds in a cache behind the cores.
    fn occupancy_lines(&self, thread: ThreadId, cache: CacheId) -> f64;

    /// Lines of the last-level caches, by the program that lost them, then by the one that took their place, in the order of
    /// [`Self::begin_program`]; nothing where lines are not simulated.
    fn evicted(&self) -> Vec<Vec<u64>> {
        Vec::new()
    }

    /// How well the figures of a thread's program are known, where only samples of the run were simulated in detail.
    fn sampled(&self, _thread: ThreadId) -> Option<Sampled> {
        None
    }

    /// Energy of the whole machine since time zero, in joules.
    fn energy_j(&mut self, now: Nanos) -> f64;

    /// Speed alone on the fastest core type over speed alone on the slowest, in the thread's current phase.
    fn true_sf(&self, thread: ThreadId) -> f64;

    /// Energy-delay product alone on the slowest core type over that alone on the fastest, in the thread's current phase. Energy
    /// is that of the core while it runs the thread, and of its cache and memory accesses.
    fn true_ef(&self, thread: ThreadId) -> f64;

    /// How far along its profile's timeline a thread is, in instructions.
    fn position(&self, thread: ThreadId) -> f64;

    /// Instructions per second of a whole run alone on an otherwise idle machine.
    fn alone_ips(&self, model: ModelId, core_type: CoreTypeId) -> f64;

    /// Seconds alone of the part of the profile's timeline from one position to another.
    ///
    /// A model that does not tell phases apart goes by the whole run.
    fn alone_part_s(&self, model: ModelId, core_type: CoreTypeId, from: f64, to: f64) -> f64 {
        (to - from) / self.alone_ips(model, core_type)
    }

    /// Speeds that no thread exceeds; none of a model that does not know them.
    fn ceilings(&self) -> Option<Ceilings> {
        None
    }

    /// Long-run rates of a static mapping: (program, CPU, its share of the CPU).
    fn steady_state(&self, assignment: &[(ModelId, CpuId, f64)]) -> Vec<Rates>;
}
