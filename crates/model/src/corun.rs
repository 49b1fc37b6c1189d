//! Laws of threads that run together: shares of a cache, loaded memory, SMT siblings.
//!
//! Input: rates and constants of the caller, in its own units of time and size. Output: the part of a cache that each thread
//! holds, and factors on memory latency and on time.
//!
//! A shared LRU cache holds what its threads touched within its eviction age, which is the same for all of them. At that age, their
//! footprints fill the cache (Xiang et al., HOTL, ASPLOS 2013). Parts and factors depend on speeds, and speeds on them, so a
//! caller iterates to a fixed point. The iteration is the caller's: one follows single changes of a large mapping, another
//! follows time.
//!
//! The simulator and the policies have these laws and their solver in common, and the constants are the caller's. The simulator's
//! come from the machine file. A policy's come from what it believes of the machine, which may be another file (`--belief FILE`).
//! `docs/benchmarks.md` shows the gains of policies when the two differ.
//!
//! SMT siblings have two laws: the simulator divides ports and scheduler entries, of which policies know nothing, and policies
//! have [`Siblings`], which needs only instructions per cycle.

mod eviction;
mod footprint;
mod memory;

pub use eviction::{EvictionAge, ran_within};
pub use footprint::Footprint;
pub use memory::{LoadedMemory, MemoryDemand};

/// Slowdown of a thread by the SMT siblings that run at the same time.
#[derive(Clone, Copy, Debug)]
pub struct Siblings {
    /// Additional time by each sibling, relative to that alone.
    pub each: f64,
    /// Additional time if siblings use the whole width of the core.
    pub width: f64,
}

impl Siblings {
    /// Returns the factor on a thread's time. `used` is the part of the width that siblings use.
    #[must_use]
    pub fn factor(&self, siblings: f64, used: f64) -> f64 {
        1.0 + self.each * siblings + self.width * used.min(1.0)
    }
}
