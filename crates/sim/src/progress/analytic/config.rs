//! Effects that the analytic model takes into account.

/// Configuration of the effects that the model takes into account.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgressConfig {
    /// True if threads contend for shared caches, memory bandwidth and SMT cores. Otherwise every thread has the whole last-level
    /// cache, the whole memory bandwidth and a whole core for itself.
    pub contention: bool,
    /// True if context switches and migrations take time, and leave threads with cold private caches.
    pub costs: bool,
    /// Fixed cost of a context switch, in nanoseconds.
    pub context_switch_ns: f64,
    /// Fixed cost of a migration to another CPU, in nanoseconds.
    pub migration_ns: f64,
}

impl Default for ProgressConfig {
    /// Enables all effects; the fixed costs follow `perf bench sched pipe` and migration benchmarks on current hardware.
    fn default() -> Self {
        Self {
            contention: true,
            costs: true,
            context_switch_ns: 1_500.0,
            migration_ns: 3_000.0,
        }
    }
}
