//! What a simulated thread's counters hold.
//!
//! Output of the progress model, cumulative since the thread was added; the simulated PMU samples differences.

/// Cumulative raw events of one thread, exact (no sampling, no noise).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    pub instructions: f64,
    /// Unhalted core cycles at the frequency of the cores it ran on.
    pub cycles: f64,
    /// Accesses that missed every private cache.
    pub l2_misses: f64,
    /// Accesses to the last-level cache.
    pub llc_references: f64,
    /// Accesses that the last-level cache missed.
    pub llc_misses: f64,
    pub branch_instructions: f64,
    pub branch_misses: f64,
    /// Energy of the core while it ran this thread, and of its cache and memory accesses.
    pub energy_nj: f64,
    pub run_ns: f64,
}
