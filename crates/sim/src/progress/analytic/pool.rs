//! Pools: the CPUs that share one last-level cache, integrated together and independently of other pools.
//!
//! Input: the running threads. Output: the times at which the next thread finishes or changes phase, and the time of the next
//! occupancy step.

use super::class::{ClassCpu, NONE};

/// Step lengths and tolerances for updates of occupancies and memory latency.
#[derive(Clone, Copy, Debug)]
pub struct Stepping {
    pub least: u64,
    /// Maximum step length while occupancies do not change, in nanoseconds.
    pub most: u64,
    /// Maximum length of the first step after a thread starts in an idle pool, in nanoseconds.
    pub cold: u64,
    /// Maximum step length after significant phase changes, in nanoseconds.
    pub phase: u64,
    /// Maximum step length after other phase changes, in nanoseconds.
    pub minor: u64,
    /// Threshold, as a fraction of the cache: phase changes are significant if they move target occupancies by more than this
    /// since the last step.
    pub drift: f64,
    /// Targeted relative change of a thread's speed per step.
    pub change: f64,
    /// Threshold: relative change of a thread's cycles per instruction below which its rates are kept.
    pub still: f64,
    /// Threshold: relative change of the memory latency factor below which the new factor is not applied.
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
pub(crate) struct Pool {
    /// Index of the thread on each CPU; [`NONE`] if the CPU is idle.
    pub threads: Vec<u32>,
    /// Time at which the thread on each CPU finishes, changes phase, or needs new rates.
    pub events: Vec<u64>,
    pub caches: Vec<u32>,
    /// Time of the next occupancy step.
    pub step_at: u64,
    /// Length of the current step in nanoseconds.
    pub step: u64,
    /// Sum of the changes of target occupancies since the last step, as fractions of their cache.
    pub drift: f64,
    pub running: u32,
    /// True if the pool's next event time still has to be entered in the agenda.
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

    /// Schedules occupancy steps again because a thread runs in the pool.
    pub fn wake(&mut self, now: u64, stepping: &Stepping) {
        if self.step_at == u64::MAX {
            self.step = stepping.cold;
            self.step_within(now, stepping.cold);
        }
    }

    /// Requests an occupancy step within the next `within` ns.
    fn step_within(&mut self, now: u64, within: u64) {
        if !self.caches.is_empty() && now + within < self.step_at {
            self.step_at = now + within;
            self.step = self.step.min(within);
        }
    }

    /// Records that a phase change moved a target occupancy by the fraction `drift` of its cache, and requests a step.
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

    /// Adapts the step length to the largest relative change of a thread's speed in the last step.
    pub(crate) fn adapt(&mut self, change: f64, stepping: &Stepping) {
        let scale = (stepping.change / change.max(1e-9)).clamp(0.5, 2.0);
        self.step = ((self.step as f64 * scale) as u64).clamp(stepping.least, stepping.most);
    }
}

/// Creates the pools of a machine, one per cache; `caches` is the number of caches in the topology.
pub fn pools(cpus: &[ClassCpu], caches: usize) -> Vec<Pool> {
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
