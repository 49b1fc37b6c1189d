//! Weave phase: shared caches serve the misses of private caches in the order of time.

use countersteer_cache::LineKey;
use countersteer_cache::private::CoreRequest;
use countersteer_cache::shared::Depth;

use super::machine::{Logged, TracedMachine};

impl TracedMachine {
    /// Serves the logged requests of a step in the order of time; `sharing` returns true if a program has several threads.
    pub(crate) fn weave(&mut self, sharing: impl Fn(u16) -> bool) {
        let mut log = std::mem::take(&mut self.log);
        // The sort is stable: requests of a core at one time keep their order.
        log.sort_by_key(|logged| (logged.at_ps, logged.cpu));
        for logged in &log {
            self.serve(logged, &sharing);
        }
        log.clear();
        self.log = log;
    }

    fn serve(&mut self, logged: &Logged, sharing: &impl Fn(u16) -> bool) {
        let row = logged.cpu as usize;
        match logged.request {
            CoreRequest::Upgrade(key) | CoreRequest::Demand { key, write: true }
                if sharing(key.owner() as u16) =>
            {
                self.take_from_others(row, key);
            }
            CoreRequest::Demand { key, write: false } if sharing(key.owner() as u16) => {
                self.clean_others(row, key);
            }
            _ => {}
        }
        if matches!(logged.request, CoreRequest::Upgrade(_)) {
            return;
        }
        let first = self.chains[row].first().copied();
        let written = self.shared.written();
        let depth = self.shared.serve(first, logged.request);
        let served = &mut self.served[row];
        served.memory_lines += (self.shared.written() - written) as f64;
        if matches!(logged.request, CoreRequest::Victim { .. }) {
            return;
        }
        served.memory_lines += f64::from(u8::from(depth == Depth::Memory));
        if logged.data && matches!(logged.request, CoreRequest::Demand { .. }) {
            self.count_levels(row, depth);
        }
    }

    /// Counts a reference at each shared level down to the level that served the request, and misses at the levels before.
    fn count_levels(&mut self, row: usize, depth: Depth) {
        let served = &mut self.served[row];
        for (level, node) in self.chains[row].iter().enumerate() {
            served.references[level] += 1.0;
            if depth == Depth::Cache(*node) {
                break;
            }
            served.misses[level] += 1.0;
        }
    }

    /// Invalidates a line in all caches that CPU `row` does not use, because of a store.
    fn take_from_others(&mut self, row: usize, key: LineKey) {
        let own = self.core_of[row];
        let others = (0..self.shared.len()).filter(|node| !self.chains[row].contains(node));
        for node in others.collect::<Vec<_>>() {
            let removed = self.shared.cache_mut(node).remove(key);
            if removed.is_some_and(|victim| victim.dirty) {
                self.shared.take_victim(None, key, true);
            }
        }
        for core in (0..self.cores.len()).filter(|core| *core != own) {
            if self.cores[core].invalidate(key) == Some(true) {
                let first = self.chains[row].first().copied();
                self.shared.take_victim(first, key, true);
                self.served[row].shared_modified += 1.0;
            }
        }
    }

    /// Cleans a line that another core wrote, because of a load. The other core's copy is written back and stays; its next store
    /// invalidates the line in the loading core.
    fn clean_others(&mut self, row: usize, key: LineKey) {
        let own = self.core_of[row];
        for core in (0..self.cores.len()).filter(|core| *core != own) {
            if self.cores[core].clean(key) {
                let writer = self.core_of.iter().position(|of| *of == core);
                let chain = writer.map(|writer| &self.chains[writer]);
                let first = chain.and_then(|chain| chain.first().copied());
                self.shared.take_victim(first, key, true);
                self.served[row].shared_modified += 1.0;
            }
        }
    }

    /// Returns the number of lines evicted from the last-level caches, by the program that lost them, then by the program that
    /// evicted them.
    pub fn evicted(&self, programs: u16) -> Vec<Vec<u64>> {
        let by = |victim| {
            (1..=programs)
                .map(move |by| self.lost(victim, by))
                .collect()
        };
        (1..=programs).map(by).collect()
    }

    /// Returns the number of lines that a program lost to other programs, and that other programs lost to it.
    pub fn evictions(&self, of: u16, programs: u16) -> (u64, u64) {
        let others = (1..=programs).filter(|other| *other != of);
        others.fold((0, 0), |(suffered, caused), other| {
            let (lost, taken) = (self.lost(of, other), self.lost(other, of));
            (suffered + lost, caused + taken)
        })
    }

    fn lost(&self, victim: u16, by: u16) -> u64 {
        let caches = self.last.iter().map(|node| self.shared.cache(*node));
        caches
            .map(|cache| cache.evictions(usize::from(victim), usize::from(by)))
            .sum()
    }
}
