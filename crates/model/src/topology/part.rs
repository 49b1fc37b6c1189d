//! Part of a machine as a machine of its own, for policies that have some of the CPUs only.

use std::collections::BTreeMap;

use super::{Cpu, Topology};
use crate::cpuset::CpuSet;
use crate::units::{CacheId, CoreTypeId, CpuId};

impl Topology {
    /// Returns the topology of some CPUs: their cores, caches, core types and groups, numbered from 0 in the same order. A cache that
    /// other CPUs share, too, keeps its size.
    #[must_use]
    pub fn part(&self, cpus: &CpuSet) -> Self {
        let kept: Vec<&Cpu> = self.cpus.iter().filter(|c| cpus.contains(c.id)).collect();
        let here = |set: &CpuSet| -> CpuSet {
            let numbers = (0..kept.len()).filter(|nth| set.contains(kept[*nth].id));
            numbers.map(|nth| CpuId(nth as u32)).collect()
        };
        let cores = ranks(kept.iter().map(|c| c.core));
        let types = ranks(kept.iter().map(|c| c.core_type.0));
        let caches = ranks(kept.iter().flat_map(|c| c.caches.iter().map(|id| id.0)));
        let mut part = self.clone();
        part.cpus = kept
            .iter()
            .enumerate()
            .map(|(nth, cpu)| Cpu {
                id: CpuId(nth as u32),
                core: cores[&cpu.core],
                core_type: CoreTypeId(types[&cpu.core_type.0]),
                caches: cpu.caches.iter().map(|id| CacheId(caches[&id.0])).collect(),
                ..(*cpu).clone()
            })
            .collect();
        let has = |nth: usize| types.contains_key(&(nth as u32));
        let (mut nth_type, mut nth_model) = (0.., 0..);
        part.core_types.retain(|_| nth_type.next().is_some_and(has));
        part.models.retain(|_| nth_model.next().is_some_and(has));
        part.caches.retain(|c| caches.contains_key(&c.id.0));
        for cache in &mut part.caches {
            cache.id = CacheId(caches[&cache.id.0]);
            cache.cpus = here(&cache.cpus);
        }
        for memory in &mut part.memory {
            memory.cpus = here(&memory.cpus);
        }
        part.groups.clear();
        part.add_groups();
        part
    }
}

/// Rank of each of these numbers among them.
fn ranks(numbers: impl Iterator<Item = u32>) -> BTreeMap<u32, u32> {
    let distinct: std::collections::BTreeSet<u32> = numbers.collect();
    distinct.into_iter().zip(0..).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test helper that fails has failed its test
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::topology::GroupBy;

    const HYBRID: &str = include_str!("../../../../machines/i9-12900k-8p8e.toml");
    const SERVER: &str = include_str!("../../../../machines/server-12llc.toml");

    fn part(text: &str, cpus: &str) -> (Topology, Topology) {
        let all = Topology::new(&Machine::parse("m", text).unwrap());
        let part = all.part(&cpus.parse().unwrap());
        (all, part)
    }

    #[test]
    fn the_small_cores_are_a_machine_with_one_type() {
        let (all, part) = part(HYBRID, "8-15");
        assert_eq!(part.cpus.len(), 8);
        let names: Vec<&str> = part.core_types.iter().map(|t| &*t.name).collect();
        assert_eq!(names, ["gracemont"]);
        assert_eq!(part.models.len(), 1);
        assert!(part.cpus.iter().all(|c| c.core_type == CoreTypeId(0)));
        assert_eq!(part.groups_by(GroupBy::Core).len(), 8);
        assert_eq!(part.group(part.groups[0].id).cpus.to_string(), "0-7");
        let llc = |t: &Topology| t.caches[t.llc_of(CpuId(0)).index()].lines;
        assert_eq!(llc(&part), llc(&all), "a shared cache keeps its size");
    }

    #[test]
    fn one_of_twelve_caches_is_a_machine_with_one() {
        let (_, part) = part(SERVER, "8-15,104-111");
        assert_eq!((part.cpus.len(), part.caches.len()), (16, 1));
        assert_eq!(part.groups_by(GroupBy::Core).len(), 8);
        assert_eq!(part.groups_by(GroupBy::Llc)[0].name, "llc0");
        assert_eq!(part.memory[0].cpus.to_string(), "0-15");
    }
}
