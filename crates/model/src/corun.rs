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
mod memory;

pub use eviction::EvictionAge;
pub use memory::{LoadedMemory, MemoryDemand};

/// Footprint of a thread: the lines (or bytes) that it touches within a time. Time may be counted in instructions.
///
/// ```
/// use countersteer_model::corun::Footprint;
///
/// // The first 100 lines at 1 line per ns, the next 100 at half of that, then none.
/// let footprint = Footprint::new([100.0, 200.0], [1.0, 0.5], 0.0);
/// assert_eq!([50.0, 200.0, 1e6].map(|ns| footprint.after(ns)), [50.0, 150.0, 200.0]);
/// ```
#[derive(Clone, Debug)]
pub struct Footprint<const N: usize> {
    sizes: [f64; N],
    /// Time at which each size is reached.
    reached: [f64; N],
    beyond: f64,
}

impl<const N: usize> Footprint<N> {
    /// Creates the footprint of a thread that grows to each of the ascending sizes at its rate, and `beyond` the last one at that
    /// rate. A size with rate 0 is never reached.
    #[must_use]
    pub fn new(sizes: [f64; N], rates: [f64; N], beyond: f64) -> Self {
        let mut reached = rates;
        let (mut at, mut from) = (0.0, 0.0);
        for (reached, size) in reached.iter_mut().zip(sizes) {
            at += (size - from) / *reached;
            (*reached, from) = (at, size);
        }
        Self {
            sizes,
            reached,
            beyond,
        }
    }

    /// Returns the size after a time.
    #[must_use]
    pub fn after(&self, time: f64) -> f64 {
        let above = self.reached.partition_point(|reached| *reached <= time);
        let below = above.checked_sub(1);
        let (start, from) = below.map_or((0.0, 0.0), |row| (self.reached[row], self.sizes[row]));
        match self.reached.get(above).filter(|end| end.is_finite()) {
            Some(end) => from + (time - start) / (end - start) * (self.sizes[above] - from),
            None => from + self.beyond * (time - start),
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn footprints_end_where_nothing_misses() {
        let footprint = Footprint::new([10.0, 20.0, 30.0], [1.0, 0.0, 0.0], 0.0);
        assert_eq!(
            [5.0, 10.0, 1e9].map(|time| footprint.after(time)),
            [5.0, 10.0, 10.0]
        );
        let stream = Footprint::new([10.0, 20.0], [1.0, 1.0], 0.5);
        assert_eq!(stream.after(40.0), 30.0);
    }
}
