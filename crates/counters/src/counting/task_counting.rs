//! The interface of counting tasks inside the kernel: what is asked, and what is told.
//!
//! Input: an [`Errand`]. Output: a [`Follow`], which tells what happened to threads as [`Heard`]. BPF programs implement it
//! outside of this crate.

use std::fmt;
use std::io;
use std::sync::Arc;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::{CpuId, Nanos};

use crate::perf::catalog::TASK_CLOCK;
use crate::perf::resolve::Resolved;
use crate::perf::sys::abi;

/// What is to be counted inside the kernel, and of whom.
#[derive(Clone, Copy, Debug)]
pub struct Errand<'a> {
    pub sets: &'a [Vec<Resolved>],
    pub cpus: &'a CpuSet,
    /// Core types by CPU, which are to be told apart.
    pub core_types: &'a [u32],
    /// A program that is held in front of its `exec`, and is followed from there on.
    pub program: Option<u32>,
    /// How many threads are there first.
    pub threads: usize,
    /// The sampling period, if there is one.
    pub interval: Option<Nanos>,
    /// Whoever has had a CPU for less than that when readings are taken is read next time: it would be interrupted for that.
    pub sparing: Nanos,
}

/// What counts of one set on one class of CPUs are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    pub cpu: CpuId,
    pub set: u32,
    /// A bit per event of the set that is counted there.
    pub present: u64,
}

/// What whoever switches threads knows of them without a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfScheduler {
    Clock,
    /// How often they left a CPU.
    Switches,
    /// How often they came from another one.
    Migrations,
}

impl OfScheduler {
    /// What an event is, if it is one of those.
    #[must_use]
    pub fn of(event: &Resolved) -> Option<Self> {
        let [encoding] = event.encodings.as_slice() else {
            return None;
        };
        let whole = event.space.user && event.space.kernel && encoding.software;
        match encoding.config[0] {
            _ if !whole => None,
            TASK_CLOCK => Some(Self::Clock),
            SWITCHES => Some(Self::Switches),
            MIGRATIONS => Some(Self::Migrations),
            _ => None,
        }
    }
}

/// What was heard of a thread.
#[derive(Clone, Copy, Debug)]
pub enum Heard<'a> {
    /// It was born, to this thread.
    Born { pid: u32, parent: u32 },
    /// It has the number of its process now, having started a program.
    Renumbered { pid: u32, before: u32 },
    /// It has this name now, which ends with the first zero.
    Named([u8; 16]),
    /// It started a program of this name, and has the number of its process from now on.
    Starts([u8; 16]),
    /// It has counted so much since it was first heard of.
    Counted {
        pid: u32,
        /// Of which kind these counts are.
        kind: usize,
        cpu: CpuId,
        /// Time that it ran there while the set had its turn.
        enabled: Nanos,
        /// Time that the set really counted.
        running: Nanos,
        /// By event of the set.
        values: &'a [u64],
        /// Nothing else is new of it: it was told of before, and goes on.
        alone: bool,
    },
    /// It ended; all that it has counted was told.
    Ended,
}

/// Takes what is heard of a thread: when, who, what.
pub type Hear<'a> = &'a mut dyn FnMut(Nanos, u32, Heard<'_>);

/// What follows threads inside the kernel, and counts for each what CPUs count while it runs.
pub trait Follow: Send {
    /// Counts of which kinds come.
    fn kinds(&self) -> Vec<Kind>;

    /// Follows these threads, by process and number, and what they give birth to; those that have ended are passed over.
    ///
    /// # Errors
    /// There is no room for them, or the kernel refuses.
    fn adopt(&mut self, threads: &[(u32, u32)]) -> io::Result<()>;

    /// Switches a set on or off.
    ///
    /// # Errors
    /// The kernel refuses.
    fn switch(&mut self, set: u32, on: bool) -> io::Result<()>;

    /// Tells what has changed since the last call, of who runs at this moment too; births before ends.
    fn collect(&mut self, hear: Hear<'_>);

    /// Process and number of each thread that has run and has not left its last CPU.
    fn living(&mut self) -> Vec<(u32, u32)>;

    /// By kind, what was counted of threads for which there was no room to be told apart: enabled and running time, values.
    fn rest(&mut self) -> Vec<(usize, Vec<u64>)>;

    /// Threads that were born and are not told apart.
    fn lost(&self) -> u64;

    /// [`Follow::collect`] had better be called soon, or there will be no room for those to be born.
    fn is_crowded(&self) -> bool;
}

/// Loads what follows threads, or says why not.
pub type Load = dyn Fn(&Errand<'_>) -> Result<Box<dyn Follow>, String> + Send + Sync;

/// How threads may be followed inside the kernel.
#[derive(Clone)]
pub struct Inside {
    /// Loads what follows them; says why not.
    pub load: Arc<Load>,
    /// It is an error if that cannot be done.
    pub must: bool,
}

impl fmt::Debug for Inside {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Inside")
            .field("must", &self.must)
            .finish_non_exhaustive()
    }
}

/// Codes of the kernel's own events.
const SWITCHES: u64 = abi::PERF_COUNT_SW_CONTEXT_SWITCHES as u64;
const MIGRATIONS: u64 = abi::PERF_COUNT_SW_CPU_MIGRATIONS as u64;
