//! Real threads: the engine of this machine.
//!
//! Input: programs that are started or found running. Output: their threads as [`countersteer_model::engine::Engine`]s show
//! them, which are steered by a [`Placer`](crate::placer::Placer). Threads are known by the kernel's own numbers, CPUs by those of the [`Topology`](countersteer_model::topology::Topology),
//! which knows online CPUs only and has no holes.

mod carried;
mod crew;
mod engine;
mod fallback;
mod gauges;
mod pages;
mod programs;
mod requests;

pub use crew::{Crew, Find, Member, Start};
pub use engine::{LiveConfig, LiveEngine};
pub use gauges::Gauges;
pub use requests::{DecisionRequest, Stealing};
