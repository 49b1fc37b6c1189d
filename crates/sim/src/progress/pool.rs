//! Pools: the CPUs behind one last-level cache, integrated together and independently of all others.
//!
//! Input: who runs. Output: when the next thread finishes or changes phase, and when occupancies want a step.

use super::class::{Cpu, NONE};

/// Steps while occupancies move, and while they rest (ns).
pub const STEP_MIN: u64 = 500_000;
/// See [`STEP_MIN`].
pub const STEP_MAX: u64 = 100_000_000;
/// First step after a thread arrives cold.
pub const STEP_COLD: u64 = 1_000_000;
/// Longest step after a phase change.
pub const STEP_PHASE: u64 = 5_000_000;
/// Change of a thread's speed per step that is aimed at.
const SPEED_CHANGE: f64 = 0.02;

/// A pool.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Thread on each CPU; [`NONE`] where none is.
    pub threads: Vec<u32>,
    /// When each of them finishes or changes phase.
    pub events: Vec<u64>,
    /// Shared caches, inner first.
    pub caches: Vec<u32>,
    /// When occupancies are looked at again.
    pub step_at: u64,
    /// Length of the step under way.
    pub step: u64,
    /// How many run.
    pub running: u32,
    /// Waits for its times to be put into the agenda.
    pub stale: bool,
}

impl Pool {
    /// An empty pool.
    pub fn new(slots: usize, caches: Vec<u32>) -> Self {
        Self {
            threads: vec![NONE; slots],
            events: vec![u64::MAX; slots],
            caches,
            step_at: u64::MAX,
            step: STEP_COLD,
            running: 0,
            stale: false,
        }
    }

    /// When something happens.
    pub fn next(&self) -> u64 {
        self.events.iter().fold(self.step_at, |a, b| a.min(*b))
    }

    /// Asks for a step within `within` ns.
    pub fn step_within(&mut self, now: u64, within: u64) {
        if !self.caches.is_empty() && now + within < self.step_at {
            self.step_at = now + within;
            self.step = self.step.min(within);
        }
    }

    /// Plans the next step after one that changed a thread's speed by up to `change`.
    pub fn plan(&mut self, now: u64, change: f64) {
        let scale = (SPEED_CHANGE / change.max(1e-9)).clamp(0.5, 2.0);
        self.step = ((self.step as f64 * scale) as u64).clamp(STEP_MIN, STEP_MAX);
        self.step_at = if self.running > 0 { now + self.step } else { u64::MAX };
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
