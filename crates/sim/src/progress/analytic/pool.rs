//! Pools: the CPUs behind one last-level cache, integrated together and independently of all others.
//!
//! Input: the running threads. Output: when the next thread finishes or changes phase, and when occupancies want a step.

use super::class::{Cpu, NONE};

/// How finely occupancies and memory latency are followed.
#[derive(Clone, Copy, Debug)]
pub struct Stepping {
    pub least: u64,
    /// Longest step (ns), while occupancies rest.
    pub most: u64,
    /// Longest step after a thread arrives cold (ns).
    pub cold: u64,
    /// Longest step after phase changes that matter (ns), and after others.
    pub phase: u64,
    pub minor: u64,
    /// Part of a cache by which targets move before phase changes matter.
    pub drift: f64,
    /// Change of a thread's speed per step that is aimed at.
    pub change: f64,
    /// Change of a thread's speed that is too small to take new rates.
    pub still: f64,
    /// Change of the memory latency factor that is too small to pass on.
    pub factor: f64,
}

impl Default for Stepping {
    /// Within 3 % of steps a hundred times as fine where phases change every 50 to 300 ms, and within 15 % where threads
    /// take turns of 3 ms on a small shared cache; see the tests. A loop that just fits may go either way.
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
    /// Thread on each CPU; [`NONE`] where none is.
    pub threads: Vec<u32>,
    /// When each of them finishes or changes phase.
    pub events: Vec<u64>,
    pub caches: Vec<u32>,
    /// When occupancies are looked at again.
    pub step_at: u64,
    /// Length of the step under way.
    pub step: u64,
    /// Part of a cache by which targets moved since the last step.
    pub drift: f64,
    pub running: u32,
    /// Waits for its times to be put into the agenda.
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

    /// A thread runs: steps are wanted again.
    pub fn wake(&mut self, now: u64, stepping: &Stepping) {
        if self.step_at == u64::MAX {
            self.step = stepping.cold;
            self.step_within(now, stepping.cold);
        }
    }

    /// Asks for a step within `within` ns.
    fn step_within(&mut self, now: u64, within: u64) {
        if !self.caches.is_empty() && now + within < self.step_at {
            self.step_at = now + within;
            self.step = self.step.min(within);
        }
    }

    /// A phase change moved a target by the part `drift` of its cache.
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

    /// Adapts the step's length to how much it changed a thread's speed.
    pub fn adapt(&mut self, change: f64, stepping: &Stepping) {
        let scale = (stepping.change / change.max(1e-9)).clamp(0.5, 2.0);
        self.step = ((self.step as f64 * scale) as u64).clamp(stepping.least, stepping.most);
    }
}

/// The pools of a machine; `caches` is how many rows of caches there are.
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
