//! Requests of policies besides placement: utilisation clamps and limits for frequencies, and way masks for cache partitions.

use std::collections::BTreeMap;

use countersteer_model::placement::{Clamp, ClockLimit, Members, WayClass};
use countersteer_model::units::{CacheId, CpuId, ThreadId};

use super::Simulation;
use super::frequency::{ClockDomains, ClockRequest};

/// Classes of threads in one cache: way mask and members of each class.
type CacheParts = Vec<(u64, Vec<ThreadId>)>;

impl Simulation {
    /// Chooses the frequencies of all CPUs if threads were switched (`changed`) or an update is due.
    pub(super) fn govern(&mut self, changed: bool) {
        let Some(mut clocks) = self.clocks.take() else {
            return;
        };
        if changed || self.now >= clocks.next() {
            if clocks.wants_energy(self.now) {
                clocks.account(self.progress.energy_j(self.now), self.now);
            }
            let mut changes = Vec::new();
            let running = self.asked();
            clocks.choose(&self.topology, &running, self.now, &mut changes);
            for (cpu, point, part) in changes {
                self.progress.set_point(cpu, point, self.now);
                self.linux.set_clock(cpu, part, self.now);
            }
        }
        self.clocks = Some(clocks);
    }

    /// Returns utilisation and clamps of each CPU that runs a thread.
    fn asked(&self) -> Vec<ClockRequest> {
        let cpus = (0..self.topology.cpus.len()).map(|row| CpuId(row as u32));
        let running = cpus.filter(|cpu| self.linux.running(*cpu).is_some());
        let mut asked: Vec<ClockRequest> = running
            .map(|cpu| ClockRequest {
                cpu,
                utilisation: self.linux.cpu_utilisation(cpu),
                clamp: Clamp::FREE,
            })
            .collect();
        if self.clamps.is_empty() {
            return asked;
        }
        // The kernel aggregates clamps over the runnable threads of a CPU: the maximum of each bound applies.
        let mut clamps: Vec<Option<Clamp>> = vec![None; self.topology.cpus.len()];
        for (row, clamp) in self.clamps.iter().enumerate() {
            let id = ThreadId::from_index(row);
            if self.threads[row].alive && self.linux.is_runnable(id) {
                let of = clamps[self.linux.cpu_of(id).index()].get_or_insert(*clamp);
                of.least = of.least.max(clamp.least);
                of.most = of.most.max(clamp.most);
            }
        }
        for entry in &mut asked {
            entry.clamp = clamps[entry.cpu.index()].unwrap_or(Clamp::FREE);
        }
        asked
    }

    /// Sets the utilisation clamp of a thread. Returns false if the governor does not support clamps and the clamp is not the
    /// default.
    pub(super) fn clamp(&mut self, id: ThreadId, clamp: Clamp) -> bool {
        self.linux.set_clamp(id, clamp, self.now);
        if !self
            .clocks
            .as_ref()
            .is_some_and(ClockDomains::applies_clamps)
        {
            return clamp == Clamp::FREE;
        }
        self.clamps.resize(self.threads.len(), Clamp::FREE);
        if let Some(of) = self.clamps.get_mut(id.index()) {
            *of = clamp;
        }
        true
    }

    /// Replaces the limits on frequencies. Returns the number of CPUs whose types have no operating points.
    pub(super) fn limit(&mut self, limits: &[ClockLimit]) -> u32 {
        match &mut self.clocks {
            Some(clocks) => clocks.limit(&self.topology, limits),
            None => limits.len() as u32,
        }
    }

    /// Partitions caches among classes of threads, and returns the number of unsupported classes.
    ///
    /// Classes with overlapping ways share the union of their ways. Bandwidth partitions are unsupported.
    pub(super) fn divide(&mut self, classes: &[WayClass]) -> u32 {
        let mut by_cache: BTreeMap<CacheId, CacheParts> = BTreeMap::new();
        let mut unsupported = 0;
        for class in classes {
            let members = self.members(&class.members);
            let mut supported = true;
            for share in &class.shares {
                supported &= share.bandwidth.is_none();
                let Some(ways) = share.ways else { continue };
                let cpu = self
                    .topology
                    .group(share.llc)
                    .cpus
                    .lowest()
                    .unwrap_or_default();
                let parts = by_cache.entry(self.topology.llc_of(cpu)).or_default();
                let taken = parts.iter().fold(0, |all, (mask, _)| all | mask);
                let first = ways.first.unwrap_or(64 - u64::leading_zeros(taken));
                let mask = (u64::MAX >> 64u32.saturating_sub(ways.count).min(63)) << first.min(63);
                join(parts, mask, &members);
            }
            unsupported += u32::from(!supported);
        }
        let given_back = self
            .divided
            .iter()
            .filter(|cache| !by_cache.contains_key(cache));
        for cache in given_back {
            self.progress.divide(*cache, &[], self.now);
        }
        for (cache, parts) in &by_cache {
            let ways = f64::from(self.topology.caches[cache.index()].ways.max(1));
            let share = |mask: &u64| (f64::from(mask.count_ones()) / ways).min(1.0);
            let parts: Vec<_> = parts
                .iter()
                .map(|(mask, who)| (share(mask), who.clone()))
                .collect();
            let enough = parts.iter().map(|(share, _)| share).sum::<f64>() <= 1.0 + 1e-9;
            if !enough || !self.progress.divide(*cache, &parts, self.now) {
                unsupported += parts.len() as u32;
            }
        }
        self.divided = by_cache.into_keys().collect();
        unsupported
    }

    fn members(&self, members: &Members) -> Vec<ThreadId> {
        match members {
            Members::Threads(threads) => threads.clone(),
            Members::Programs(programs) => {
                let known = programs.iter().filter_map(|p| self.programs.get(p.index()));
                known.flat_map(|program| program.threads()).collect()
            }
        }
    }
}

/// Adds a class to the classes of a cache; classes with overlapping ways are merged.
fn join(parts: &mut CacheParts, mask: u64, members: &[ThreadId]) {
    let mut whole = (mask, members.to_vec());
    parts.retain(|(other, who)| {
        let apart = other & whole.0 == 0;
        if !apart {
            whole.0 |= other;
            whole.1.extend(who);
        }
        apart
    });
    parts.push(whole);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_with_common_ways_have_their_union_together() {
        let mut parts = CacheParts::new();
        join(&mut parts, 0b0011, &[ThreadId(0)]);
        join(&mut parts, 0b1100, &[ThreadId(1)]);
        join(&mut parts, 0b0110, &[ThreadId(2)]);
        assert_eq!(parts.len(), 1);
        assert_eq!((parts[0].0, parts[0].1.len()), (0b1111, 3));
    }
}
