//! Real threads: what the engines of this machine have in common.
//!
//! Input: programs that are started or found running. Output: their threads as [`countersteer_core::engine::Engine`]s show
//! them. Threads are known by the kernel's own numbers, CPUs by those of the [`Topology`](countersteer_core::topology::Topology),
//! which knows online CPUs only and has no holes.

mod attended;
mod carried;
mod crew;
mod gauges;
mod pages;
mod programs;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use countersteer_core::engine::Engine;
use countersteer_core::units::{ProgramId, ThreadId};

pub use attended::{Attended, Bell};
pub use crew::{Crew, Find, Member, Start};
pub use gauges::Gauges;

/// A process that an engine steers, with all its threads and whatever it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    pub pid: u32,
    /// The program of the workload that it belongs to; so does what it starts.
    pub program: ProgramId,
    /// That program's name, unique in the workload.
    pub name: Arc<str>,
}

/// An engine of this machine.
pub trait LiveEngine: Engine {
    /// Steers a process from now on, and what it starts.
    ///
    /// # Errors
    /// It is gone or may not be steered.
    fn admit(&mut self, root: &Root) -> Result<(), Self::Error>;

    /// Lets a process go, and what it has started for its program: they have what they had, and are not steered any more. To
    /// whoever observes, their threads have ended.
    ///
    /// # Errors
    /// The engine lost its threads.
    fn dismiss(&mut self, root: &Root) -> Result<(), Self::Error>;

    /// Makes [`Engine::observe`] return early, once, when something can be read here.
    fn wake_on(&mut self, file: OwnedFd);

    /// The process of a thread that was observed.
    fn process_of(&self, thread: ThreadId) -> Option<u32> {
        crate::counters::process_of(thread.0).ok()
    }

    /// Nothing is changed: programs are not told anything either.
    fn is_dry(&self) -> bool {
        false
    }
}
