//! The analytic progress model (skeleton: everything runs at one instruction per cycle).

mod counters;

use std::sync::Arc;

use countersteer_core::profile::Profile;
use countersteer_core::topology::Topology;
use countersteer_core::units::{CacheId, CoreTypeId, CpuId, Nanos, ThreadId};

pub use counters::Counters;

/// What the model takes into account.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgressConfig {
    /// Shared-cache occupancy, memory bandwidth and SMT sharing.
    pub contention: bool,
    /// Cold private caches and the fixed costs below.
    pub costs: bool,
    /// Fixed cost of a context switch.
    pub context_switch_ns: f64,
    /// Fixed cost of running on another CPU than last time.
    pub migration_ns: f64,
}

impl Default for ProgressConfig {
    fn default() -> Self {
        Self { contention: true, costs: true, context_switch_ns: 1_500.0, migration_ns: 3_000.0 }
    }
}

/// A program known to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelId(pub u32);

/// A program that this machine cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// A tabulated profile without a table for a core type.
    #[error("profile `{profile}` has no figures for core type `{core_type}` of machine `{machine}`; it has {known}")]
    CoreType {
        /// The profile.
        profile: String,
        /// The core type it lacks.
        core_type: String,
        /// The machine.
        machine: String,
        /// Core types that it has.
        known: String,
    },
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
    /// Mean power attributed to it, its share of the CPU included.
    pub power_w: f64,
}

/// Progress of all threads.
pub struct Progress {
    topology: Arc<Topology>,
}

#[allow(missing_docs, clippy::needless_pass_by_value, unused_variables, clippy::unused_self)]
impl Progress {
    pub fn new(topology: Arc<Topology>, config: ProgressConfig) -> Self {
        Self { topology }
    }
    pub fn add_program(&mut self, profile: Arc<Profile>) -> Result<ModelId, ModelError> {
        Ok(ModelId(0))
    }
    pub fn add_thread(&mut self, thread: ThreadId, model: ModelId) {}
    pub fn remove_thread(&mut self, thread: ThreadId, now: Nanos) {}
    pub fn set_work(&mut self, thread: ThreadId, offset: f64, instructions: f64, stride: f64, now: Nanos) {}
    pub fn set_running(&mut self, cpu: CpuId, next: Option<ThreadId>, now: Nanos) {}
    /// Lets the running thread lose `cost` of CPU time from `now` on.
    pub fn charge(&mut self, thread: ThreadId, cost: Nanos, now: Nanos) {}
    pub fn next_event(&mut self) -> Nanos {
        Nanos::NEVER
    }
    pub fn advance(&mut self, now: Nanos) {}
    pub fn take_finished(&mut self) -> impl Iterator<Item = ThreadId> {
        std::iter::empty()
    }
    pub fn counters(&mut self, thread: ThreadId, now: Nanos) -> Counters {
        Counters::default()
    }
    pub fn occupancy_lines(&self, thread: ThreadId, cache: CacheId) -> f64 {
        0.0
    }
    /// Energy of the whole machine since time zero.
    pub fn energy_j(&mut self, now: Nanos) -> f64 {
        self.topology.static_power_w * now.as_secs_f64()
    }
    pub fn true_sf(&self, thread: ThreadId) -> f64 {
        1.0
    }
    pub fn alone_ips(&self, model: ModelId, core_type: CoreTypeId) -> f64 {
        1e9
    }
    pub fn alone_seconds(&self, model: ModelId, core_type: CoreTypeId) -> f64 {
        1.0
    }
    pub fn steady_state(&mut self, assignment: &[(ModelId, CpuId, f64)]) -> Vec<Rates> {
        vec![Rates::default(); assignment.len()]
    }
}
