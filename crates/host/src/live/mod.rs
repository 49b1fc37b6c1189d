//! Real threads: the engine of this machine.
//!
//! Input: programs that are started or found running. Output: their threads as [`countersteer_core::engine::Engine`]s show
//! them, which are steered by a [`Placer`]. Threads are known by the kernel's own numbers, CPUs by those of the [`Topology`](countersteer_core::topology::Topology),
//! which knows online CPUs only and has no holes.

mod carried;
mod crew;
mod engine;
mod fallback;
mod gauges;
mod pages;
mod placer;
mod programs;
mod requests;

use std::sync::Arc;

use countersteer_core::units::{Nanos, ProgramId};

pub use crew::{Crew, Find, Member, Start};
pub use engine::{LiveConfig, LiveEngine};
pub use gauges::Gauges;
pub use placer::{Counters, EngineError, Placer};
pub use requests::{DecisionRequest, Stealing};

/// A process that an engine steers, with all its threads and whatever it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    pub pid: u32,
    /// The program of the workload that it belongs to; so does what it starts.
    pub program: ProgramId,
    /// That program's name, unique in the workload.
    pub name: Arc<str>,
}

/// Chooses counters while an engine runs.
pub trait Recount {
    /// Events for these metrics, read so often; `None` where they are those that are counted already, or nothing can be counted.
    fn counters(&mut self, metrics: &[&'static str], period: Nanos) -> Option<Counters>;

    /// They could not be opened; those before are counted on.
    fn failed(&mut self, why: &str);
}
