//! Partitions of shared caches: ways that are reserved for some threads.
//!
//! Input: fractions of a cache that do not overlap, and the threads that use each fraction. Output: one simulated cache per part,
//! which these threads use instead of the whole cache. Threads without a part share the rest, or the largest part if there is no
//! rest.

use super::class::MAX_LEVELS;
use super::class::{ClassCpu, NONE};
use super::shared::AnalyticCache;
use super::{Analytic, AnalyticThread};

/// Division of a shared cache into parts.
#[derive(Clone, Debug, Default)]
pub(crate) struct CacheDivision {
    /// Indices of the simulated caches that represent parts, in use or spare.
    rows: Vec<u32>,
    /// Index of the simulated cache that each thread uses; threads beyond the end use `rest`.
    of_thread: Vec<u32>,
    /// Index of the simulated cache that all other threads use.
    rest: u32,
}

impl CacheDivision {
    /// Index of the simulated cache that a thread uses.
    pub fn row(&self, thread: u32) -> u32 {
        let own = self.of_thread.get(thread as usize).copied();
        own.filter(|row| *row != NONE).unwrap_or(self.rest)
    }
}

impl Analytic {
    /// Returns the indices of the shared caches that a thread uses on a CPU. A divided cache is replaced by the thread's part.
    pub(super) fn chain(&self, cpu: &ClassCpu, thread: u32) -> [u32; MAX_LEVELS] {
        if self.divisions.is_empty() {
            return cpu.chain;
        }
        cpu.chain.map(|cache| {
            let division = self.divisions.get(&cache);
            division.map_or(cache, |d| d.row(thread))
        })
    }

    /// Divides a cache into parts: each is a fraction of the cache's lines and the threads that use it. Without parts, all
    /// threads share the cache again.
    pub(super) fn divide_cache(&mut self, cache: u32, parts: &[(f64, Vec<u32>)]) {
        let whole = self.topology.caches[cache as usize].lines;
        let mut division = self.divisions.remove(&cache).unwrap_or_default();
        let users = self.running_on(cache);
        users.iter().for_each(|thread| self.leave_parts(*thread));
        let before: Vec<u32> = division.rows.iter().copied().chain([cache]).collect();
        while division.rows.len() < parts.len() {
            division.rows.push(self.caches.len() as u32);
            self.caches.push(AnalyticCache::new(whole));
        }
        let left = 1.0 - parts.iter().map(|(share, _)| share).sum::<f64>();
        let largest = (0..parts.len()).max_by(|a, b| parts[*a].0.total_cmp(&parts[*b].0));
        let left = if left > 1e-9 { left } else { 0.0 };
        division.rest = match largest {
            Some(part) if left == 0.0 => division.rows[part],
            _ => cache,
        };
        division.of_thread.clear();
        self.caches[cache as usize].lines = if left == 0.0 { whole } else { left * whole };
        for (part, (share, threads)) in parts.iter().enumerate() {
            self.caches[division.rows[part] as usize].lines = share * whole;
            for thread in threads {
                let row = *thread as usize;
                if division.of_thread.len() <= row {
                    division.of_thread.resize(row + 1, NONE);
                }
                division.of_thread[row] = division.rows[part];
            }
        }
        self.move_lines(&before, &division);
        self.list_parts(cache, &division);
        if !parts.is_empty() {
            self.divisions.insert(cache, division);
        }
        users.iter().for_each(|thread| self.enter_parts(*thread));
    }

    /// Returns the threads that run on a cache's CPUs.
    fn running_on(&self, cache: u32) -> Vec<u32> {
        let cpus = self.cpus.iter().zip(&self.on_cpu);
        let on = cpus.filter(|(cpu, thread)| **thread != NONE && cpu.chain.contains(&cache));
        on.map(|(_, thread)| *thread).collect()
    }

    fn leave_parts(&mut self, thread: u32) {
        self.close(thread);
        let now = self.clock as f64;
        let t: &AnalyticThread = &self.threads[thread as usize];
        let levels = self.cpus[t.cpu as usize].levels;
        for k in 0..levels {
            self.caches[t.chain[k] as usize].residents[t.rows[k] as usize].insert(now);
        }
    }

    fn enter_parts(&mut self, thread: u32) {
        let row = self.threads[thread as usize].cpu;
        let cpu = &self.cpus[row as usize];
        let chain = self.chain(cpu, thread);
        let t = &mut self.threads[thread as usize];
        t.chain = chain;
        for (row, cache) in t.rows.iter_mut().zip(chain).take(cpu.levels) {
            *row = self.caches[cache as usize].enter(thread, *row) as u32;
        }
        let pool = &mut self.pools[cpu.pool as usize];
        pool.turned(self.clock, 1.0, &self.stepping);
        self.rerate(thread);
        self.turn(thread);
    }

    /// Moves the lines of threads into their new parts of the cache; lines that do not fit are lost.
    fn move_lines(&mut self, before: &[u32], division: &CacheDivision) {
        let mut moved = Vec::new();
        for row in before {
            moved.append(&mut self.caches[*row as usize].residents);
        }
        for resident in moved.into_iter().filter(|r| r.thread != NONE) {
            let row = division.row(resident.thread);
            self.caches[row as usize].residents.push(resident);
        }
        for row in before.iter().chain(&division.rows) {
            self.caches[*row as usize].fit();
        }
    }

    /// Adds the simulated caches of a cache's parts to the pool that updates their occupancies.
    fn list_parts(&mut self, cache: u32, division: &CacheDivision) {
        let Some(cpu) = self.cpus.iter().find(|cpu| cpu.chain.contains(&cache)) else {
            return;
        };
        let caches = &mut self.pools[cpu.pool as usize].caches;
        if caches.is_empty() {
            return;
        }
        caches.retain(|row| !division.rows.contains(row));
        caches.extend(&division.rows);
    }
}
