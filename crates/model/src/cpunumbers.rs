//! The kernel's numbers of CPUs and the topology's, both ways.

use crate::cpuset::CpuSet;
use crate::units::CpuId;

/// CPUs by the kernel's numbers and by the topology's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuNumbers {
    /// The kernel's number by CPU of the topology.
    os: Vec<CpuId>,
    /// The topology's by the kernel's; none for one that is offline.
    own: Vec<Option<CpuId>>,
}

impl CpuNumbers {
    /// Of a machine whose CPUs have these numbers in the kernel, in the topology's order.
    #[must_use]
    pub fn new(os: Vec<CpuId>) -> Self {
        let most = os.iter().map(|c| c.index() + 1).max().unwrap_or(0);
        let mut own = vec![None; most];
        os.iter()
            .enumerate()
            .for_each(|(row, os)| own[os.index()] = Some(CpuId::from_index(row)));
        Self { os, own }
    }

    /// The topology's number of a CPU of the kernel.
    #[must_use]
    pub fn own(&self, os: CpuId) -> Option<CpuId> {
        self.own.get(os.index()).copied().flatten()
    }

    /// The kernel's number of a CPU of the topology.
    #[must_use]
    pub fn os(&self, own: CpuId) -> Option<CpuId> {
        self.os.get(own.index()).copied()
    }

    /// The same CPUs by the kernel's numbers.
    #[must_use]
    pub fn os_set(&self, own: &CpuSet) -> CpuSet {
        own.iter().filter_map(|cpu| self.os(cpu)).collect()
    }

    /// The same CPUs by the topology's numbers; those that it does not know are left out.
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
