//! Engine for real threads of this machine.
//!
//! Input: programs that are started, or running processes. Output: their threads as [`countersteer_model::engine::Engine`]s
//! show them, steered by a [`Placer`](crate::placer::Placer). Threads are identified by TID, CPUs by their index in the
//! [`Topology`](countersteer_model::topology::Topology), which contains only online CPUs, without gaps.

pub mod affinity;
pub mod cleanup_process;
mod engine;
pub mod hint_page;
pub mod online;
pub mod placer;
mod resources;
pub mod undo;
mod workload;

pub use engine::{DecisionRequest, LastResort, LiveConfig, LiveEngine, Stealing, VirtualCounters};
pub use workload::{Find, LiveProgram, LiveWorkload, StartingProgram};
