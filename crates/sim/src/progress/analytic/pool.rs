//! Pools: the CPUs behind one last-level cache, integrated together and independently of other pools.
//!
//! Input: the running threads. Output: the times at which the next thread finishes or changes phase, and of the next occupancy
//! step.

use super::class::{Cpu, NONE};

/// Step lengths and tolerances for occupancies and memory latency.
#[derive(Clone, Copy, Debug)]
pub struct Stepping {
    pub least: u64,
    /// Longest step while occupancies do not change, in nanoseconds.
    pub most: u64,
    /// Longest step after a thread arrives cold, in nanoseconds.
    pub cold: u64,
    /// Longest step after significant phase changes, and after others, in nanoseconds.
    pub phase: u64,
    pub minor: u64,
    /// Part of a cache by which targets move before phase changes count as significant.
    pub drift: f64,
    /// Targeted change of a thread's speed per step.
    pub change: f64,
    /// Change of a thread's speed below which its rates are kept.
    pub still: f64,
    /// Change of the memory latency factor below which it is not applied.
    pub factor: f64,
}

impl Default for Stepping {
    /// Returns a compromise between speed and accuracy; see the tests.
    ///
    /// Results are within 3 % of those with steps a hundred times as fine if phases change every 50 to 300 ms. They are within 15
    /// % if threads alternate in slices of 3 ms on a small shared cache. A loop that just fits the cache may hit or miss.
    fn default() -> Self {
        Self {
            least: 4_000_000,
            most: 100_000_000,
            cold: 1_000_000,
            phase: 8_000_000,
            minor: 25_000_000,
            drift: 0.2,
            change: 0.1,
            still: 2e-3,
            factor: 1e-2,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Pool {
    /// Thread on each CPU; [`NONE`] if it is idle.
    pub threads: Vec<u32>,
    /// Time at which each of them finishes or changes phase.
    pub events: Vec<u64>,
    pub caches: Vec<u32>,
    /// Time of the next occupancy step.
    pub step_at: u64,
    /// Length of the current step.
    pub step: u64,
    /// Part of a cache by which targets moved since the last step.
    pub drift: f64,
    pub running: u32,
    /// True if its times still have to be entered in the agenda.
    pub stale: bool,
}

impl Pool {
    pub fn new(slots: usize, caches: Vec<u32>) -> Self {
        Self {
            threads: vec![NONE; slots],
            events: vec![u64::MAX; slots],
            caches,
            step_at: u64::MAX,
            step: 1_000_000,
            drift: 0.0,
            running: 0,
            stale: false,
        }
    }

    pub fn next(&self) -> u64 {
        self.events.iter().fold(self.step_at, |a, b| a.min(*b))
    }

    /// Resumes steps because a thread runs.
    pub fn wake(&mut self, now: u64, stepping: &Stepping) {
        if self.step_at == u64::MAX {
            self.step = stepping.cold;
            self.step_within(now, stepping.cold);
        }
    }

    /// Requests a step within `within` ns.
    fn step_within(&mut self, now: u64, within: u64) {
        if !self.caches.is_empty() && now + within < self.step_at {
            self.step_at = now + within;
            self.step = self.step.min(within);
        }
    }

    /// Records that a phase change moved a target by the part `drift` of its cache.
    pub fn turned(&mut self, now: u64, drift: f64, stepping: &Stepping) {
        self.drift += drift;
        self.step_within(
            now,
            if self.drift > stepping.drift {
                stepping.phase
            } else {
                stepping.minor
            },
        );
    }

    pub fn plan(&mut self, now: u64) {
        self.drift = 0.0;
        self.step_at = if self.running > 0 {
            now + self.step
        } else {
            u64::MAX
        };
    }

    /// Adapts the step length to the change of a thread's speed in the last step.
    pub fn adapt(&mut self, change: f64, stepping: &Stepping) {
        let scale = (stepping.change / change.max(1e-9)).clamp(0.5, 2.0);
        self.step = ((self.step as f64 * scale) as u64).clamp(stepping.least, stepping.most);
    }
}

/// Creates the pools of a machine; `caches` is the number of rows of caches.
pub fn pools(cpus: &[Cpu], caches: usize) -> Vec<Pool> {
    let mut pools: Vec<Pool> = (0..caches).map(|_| Pool::new(0, Vec::new())).collect();
    for cpu in cpus {
        let pool = &mut pools[cpu.pool as usize];
        pool.threads.push(NONE);
        pool.events.push(u64::MAX);
        for cache in &cpu.chain[..cpu.levels] {
            if !pool.caches.contains(cache) {
                pool.caches.push(*cache);
            }
        }
    }
    for pool in &mut pools {
        pool.caches.sort_unstable();
    }
    pools
}
