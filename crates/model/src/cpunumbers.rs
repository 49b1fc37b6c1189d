//! Mapping between the kernel's CPU numbers and the topology's.

use crate::cpuset::CpuSet;
use crate::units::CpuId;

/// Mapping of CPU numbers between the kernel and the topology.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuNumbers {
    /// Kernel's number of each CPU, indexed by the topology's number.
    os: Vec<CpuId>,
    /// Topology's number of each CPU, indexed by the kernel's number; `None` for an offline CPU.
    own: Vec<Option<CpuId>>,
}

impl CpuNumbers {
    /// Creates the mapping from the kernel's numbers of the CPUs, in the topology's order.
    #[must_use]
    pub fn new(os: Vec<CpuId>) -> Self {
        let most = os.iter().map(|c| c.index() + 1).max().unwrap_or(0);
        let mut own = vec![None; most];
        os.iter()
            .enumerate()
            .for_each(|(row, os)| own[os.index()] = Some(CpuId::from_index(row)));
        Self { os, own }
    }

    /// Returns the topology's number of a CPU, given the kernel's; `None` for an unknown CPU.
    #[must_use]
    pub fn own(&self, os: CpuId) -> Option<CpuId> {
        self.own.get(os.index()).copied().flatten()
    }

    /// Returns the kernel's number of a CPU, given the topology's; `None` for an unknown CPU.
    #[must_use]
    pub fn os(&self, own: CpuId) -> Option<CpuId> {
        self.os.get(own.index()).copied()
    }

    /// Converts a set of CPUs from the topology's numbers to the kernel's.
    #[must_use]
    pub fn os_set(&self, own: &CpuSet) -> CpuSet {
        own.iter().filter_map(|cpu| self.os(cpu)).collect()
    }

    /// Converts a set of CPUs from the kernel's numbers to the topology's. Unknown CPUs are left out.
    #[must_use]
    pub fn own_set(&self, os: &CpuSet) -> CpuSet {
        os.iter().filter_map(|cpu| self.own(cpu)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offline_cpu_leaves_no_hole() {
        let numbers = CpuNumbers::new([0, 1, 4, 5].map(CpuId).to_vec());
        assert_eq!(numbers.own(CpuId(4)), Some(CpuId(2)));
        assert_eq!((numbers.own(CpuId(2)), numbers.own(CpuId(9))), (None, None));
        assert_eq!(numbers.os_set(&"1-2".parse().unwrap()).to_string(), "1,4");
        assert_eq!(
            numbers.own_set(&"0-3,5".parse().unwrap()).to_string(),
            "0-1,3"
        );
    }
}
