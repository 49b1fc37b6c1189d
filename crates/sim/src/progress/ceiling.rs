//! Ceilings: speeds that no thread exceeds, for upper bounds of what placements reach.
//!
//! Input: a [`super::ProgressModel`] with its programs. Output: the kinds of CPUs, the states that their cores can be in, and for
//! each behaviour of each program the fastest that it can be there, with the least that it takes of what cores share.

use countersteer_model::units::CoreTypeId;

/// Parts of a core that SMT siblings share.
pub use super::analytic::SHARED_PARTS;

/// What a machine offers, and how fast programs can be on it at most.
#[derive(Clone, Debug, Default)]
pub struct Ceilings {
    pub places: Vec<Place>,
    pub clocks: Vec<Clock>,
    pub states: Vec<CoreState>,
    /// Lines of each group of last-level caches that places share.
    pub caches: Vec<f64>,
    /// Lines per second that all memory moves at most.
    pub bandwidth: f64,
    /// By [`super::ModelId`].
    pub models: Vec<ModelCeiling>,
}

/// Cores that are alike to every program.
#[derive(Clone, Debug)]
pub struct Place {
    pub cores: f64,
    /// Row of [`Ceilings::caches`]; none where no cache is shared, or contention is left out.
    pub cache: Option<usize>,
}

/// A frequency that the cores of a type have at most while some of them run.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    pub core_type: CoreTypeId,
    /// Cores of the type that may run at it.
    pub cores: f64,
}

/// A core of a place at a clock with some of its SMT siblings running.
#[derive(Clone, Copy, Debug)]
pub struct CoreState {
    pub place: usize,
    pub clock: usize,
    /// Threads that run on the core at the same time.
    pub threads: f64,
}

/// A program's behaviours.
#[derive(Clone, Debug, Default)]
pub struct ModelCeiling {
    /// Where each segment of the timeline ends, in instructions, and its behaviour.
    pub timeline: Vec<(f64, usize)>,
    /// By behaviour.
    pub ways: Vec<Vec<Way>>,
}

/// A way for a thread to run: in a state of a core, with some lines of the last-level cache.
///
/// A thread that holds any number of lines is no faster than a mix of two ways of that many lines on average.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    pub state: usize,
    /// Instructions per second.
    pub ips: f64,
    /// Lines that it holds of the last-level caches of its place.
    pub lines: f64,
    /// Lines per second from or to memory, at least.
    pub bus: f64,
    /// Parts of the core's cycles that it takes beside siblings, at least.
    pub uses: [f64; SHARED_PARTS],
}
