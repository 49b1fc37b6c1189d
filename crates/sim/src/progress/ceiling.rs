//! Speeds that no thread exceeds, for upper bounds of placements.
//!
//! Input: a [`super::ProgressModel`] with its programs. Output: the kinds of CPUs and the possible states of their cores. The
//! output also contains, for each behaviour of each program, the highest speed in each state and the least use of resources that
//! cores share.

use countersteer_model::units::CoreTypeId;

/// Number of resources of a core that SMT siblings share.
pub use super::analytic::SHARED_PARTS;

/// Resources of a machine, and the highest speeds of programs on it.
#[derive(Clone, Debug, Default)]
pub struct Ceilings {
    pub places: Vec<CoreGroup>,
    pub clocks: Vec<TurboBin>,
    pub states: Vec<CoreState>,
    /// Number of lines of each group of last-level caches that places share.
    pub caches: Vec<f64>,
    /// Maximum number of lines per second that the machine's memory transfers.
    pub bandwidth: f64,
    /// Highest speeds of each program, indexed by [`super::ModelId`].
    pub models: Vec<ModelCeiling>,
}

/// Group of cores that are equivalent for every program.
#[derive(Clone, Debug)]
pub struct CoreGroup {
    pub cores: f64,
    /// Index of the place's last-level caches in [`Ceilings::caches`]; `None` if no cache is shared, or if contention is
    /// disabled.
    pub cache: Option<usize>,
}

/// Maximum frequency of the cores of one type when at most a given number of them run (turbo bin).
#[derive(Clone, Copy, Debug)]
pub struct TurboBin {
    pub core_type: CoreTypeId,
    /// Number of cores of the type that may run at this frequency.
    pub cores: f64,
}

/// State of a core: its place, its frequency limit, and the number of threads that run on it.
#[derive(Clone, Copy, Debug)]
pub struct CoreState {
    pub place: usize,
    pub clock: usize,
    /// Number of threads that run on the core at the same time.
    pub threads: f64,
}

/// Highest speeds of one program, by behaviour.
#[derive(Clone, Debug, Default)]
pub struct ModelCeiling {
    /// Segments of the timeline: end in instructions, and index of the behaviour.
    pub timeline: Vec<(f64, usize)>,
    /// Ways to run each behaviour, indexed by behaviour.
    pub ways: Vec<Vec<Way>>,
}

/// Way to run a thread: a state of its core and a number of lines of the last-level cache, with the highest speed then.
///
/// A thread with any number of lines is at most as fast as a mix of two ways with this number on average.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    pub state: usize,
    /// Maximum instructions per second of the thread.
    pub ips: f64,
    /// Number of lines that the thread holds in the last-level caches of its place.
    pub lines: f64,
    /// Minimum number of lines per second that the thread transfers from and to memory.
    pub bus: f64,
    /// Minimum fraction of cycles for which the thread uses each shared resource of the core, next to SMT siblings.
    pub uses: [f64; SHARED_PARTS],
}
