//! Partitions: the cores of one class or, with `shared-cache=on`, of one class under one last-level cache.

use std::sync::Arc;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::placement::Target;
use countersteer_model::signature::CoreTraits;
use countersteer_model::topology::{Group, GroupBy, Topology};
use countersteer_model::units::GroupId;

/// Partition: cores of one class, among which the kernel balances load (HASS, section 4).
pub(super) struct CorePartition {
    pub target: Target,
    /// Core group that stands for the partition in reasons.
    pub group: GroupId,
    pub cpus: Arc<CpuSet>,
    /// Number of cores of the partition.
    pub cores: f64,
    /// Properties of the cores and caches, for signatures.
    pub traits: CoreTraits,
    /// Speed of a thread without a signature on this partition, the same for all programs.
    pub capacity: f64,
    /// Index of the last-level cache; partitions with the same index share it.
    pub cache: usize,
}

impl CorePartition {
    fn new(group: &Group, cpus: &Arc<CpuSet>, cache: usize, topology: &Topology) -> Option<Self> {
        let cpu = cpus.lowest()?;
        let row = &topology.cpus[cpu.index()];
        let mut cores: Vec<u32> = cpus.iter().map(|c| topology.cpus[c.index()].core).collect();
        cores.sort_unstable();
        cores.dedup();
        let clock = topology.core_types[row.core_type.index()].freq_ghz;
        Some(Self {
            target: if cpus.len() == group.cpus.len() {
                Target::Group(group.id)
            } else {
                Target::Cpus(Arc::clone(cpus))
            },
            group: group.id,
            cpus: Arc::clone(cpus),
            cores: cores.len() as f64,
            traits: CoreTraits::of(topology, cpu),
            capacity: f64::from(row.capacity.max(1)) * clock,
            cache,
        })
    }
}

/// Returns the partitions of a machine, fastest class first. With `shared`, there is one partition per class and
/// last-level cache; cores with a cache of their own form one partition per class.
pub(super) fn partitions(topology: &Topology, shared: bool) -> Vec<CorePartition> {
    let mut found = Vec::new();
    for class in topology.groups_by(GroupBy::CoreType) {
        if !shared {
            found.extend(CorePartition::new(
                class,
                &class.cpus,
                found.len(),
                topology,
            ));
            continue;
        }
        let mut alone = CpuSet::default();
        for (cache, llc) in topology.groups_by(GroupBy::Llc).iter().enumerate() {
            let cpus = class.cpus.intersection(&llc.cpus);
            if llc.cores == 1 {
                cpus.iter().for_each(|cpu| alone.insert(cpu));
                continue;
            }
            let whole = cpus.len() == llc.cpus.len() && cpus.len() < class.cpus.len();
            let group = if whole { llc } else { class };
            found.extend(CorePartition::new(group, &Arc::new(cpus), cache, topology));
        }
        let own = topology.groups_by(GroupBy::Llc).len() + found.len();
        found.extend(CorePartition::new(class, &Arc::new(alone), own, topology));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersteer_model::testing;

    #[test]
    fn a_class_is_one_partition_unless_its_caches_count() {
        let topology = testing::topology(testing::TWO_LLCS);
        assert_eq!(partitions(&topology, false).len(), 1);
        let apart = partitions(&topology, true);
        let cores: Vec<f64> = apart.iter().map(|p| p.cores).collect();
        assert_eq!(cores, [2.0, 2.0]);
        assert_ne!(apart[0].cache, apart[1].cache);
    }
}
