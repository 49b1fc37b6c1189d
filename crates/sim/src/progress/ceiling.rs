//! Ceilings: speeds that no thread exceeds, for upper bounds of placements.
//!
//! Input: a [`super::ProgressModel`] with its programs. Output: the kinds of CPUs and the possible states of their cores. For
//! each behaviour of each program it gives the highest speed in each state, and the least use of resources that cores share.

use countersteer_model::units::CoreTypeId;

/// Number of parts of a core that SMT siblings share.
pub use super::analytic::SHARED_PARTS;

/// Resources of a machine, and highest speeds of programs on it.
#[derive(Clone, Debug, Default)]
pub struct Ceilings {
    pub places: Vec<Place>,
    pub clocks: Vec<Clock>,
    pub states: Vec<CoreState>,
    /// Lines of each group of last-level caches that places share.
    pub caches: Vec<f64>,
    /// Maximum lines per second of all memory.
    pub bandwidth: f64,
    /// Indexed by [`super::ModelId`].
    pub models: Vec<ModelCeiling>,
}

/// Cores that are equivalent for every program.
#[derive(Clone, Debug)]
pub struct Place {
    pub cores: f64,
    /// Row of [`Ceilings::caches`]; `None` if no cache is shared, or if contention is disabled.
    pub cache: Option<usize>,
}

/// A maximum frequency of the cores of a type while some of them run.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    pub core_type: CoreTypeId,
    /// Number of cores of the type that may run at it.
    pub cores: f64,
}

/// State of a core of a place: its clock, and the number of running SMT siblings.
#[derive(Clone, Copy, Debug)]
pub struct CoreState {
    pub place: usize,
    pub clock: usize,
    /// Number of threads that run on the core at the same time.
    pub threads: f64,
}

/// Behaviours of a program.
#[derive(Clone, Debug, Default)]
pub struct ModelCeiling {
    /// End of each segment of the timeline in instructions, and its behaviour.
    pub timeline: Vec<(f64, usize)>,
    /// Indexed by behaviour.
    pub ways: Vec<Vec<Way>>,
}

/// A way to run a thread: a state of a core, with some lines of the last-level cache.
///
/// A thread that holds any number of lines is at most as fast as a mix of two ways with that many lines on average.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    pub state: usize,
    /// Instructions per second.
    pub ips: f64,
    /// Lines that it holds in the last-level caches of its place.
    pub lines: f64,
    /// Minimum lines per second from or to memory.
    pub bus: f64,
    /// Minimum part of the cycles of each shared part of the core, next to siblings.
    pub uses: [f64; SHARED_PARTS],
}
