//! Sets of CPUs by their members, so that no check compares each set with each other.
//!
//! Input: sets. Output: the sets that share CPUs with a given one.

use crate::cpuset::CpuSet;

/// Sets that contain each CPU, as indices.
#[derive(Default)]
pub(super) struct SetsByCpu(Vec<Vec<usize>>);

impl SetsByCpu {
    fn of(sets: &[CpuSet]) -> Self {
        let mut by_cpu = Self::default();
        (sets.iter().enumerate()).for_each(|(nth, set)| by_cpu.add(nth, set));
        by_cpu
    }

    pub(super) fn add(&mut self, nth: usize, set: &CpuSet) {
        for cpu in set.iter() {
            if self.0.len() <= cpu.index() {
                self.0.resize(cpu.index() + 1, Vec::new());
            }
            self.0[cpu.index()].push(nth);
        }
    }

    /// Returns the sets that share CPUs with `cpus`, in order.
    pub(super) fn touching(&self, cpus: &CpuSet) -> Vec<usize> {
        let of_cpu = cpus.iter().filter_map(|cpu| self.0.get(cpu.index()));
        let mut touching: Vec<usize> = of_cpu.flatten().copied().collect();
        touching.sort_unstable();
        touching.dedup();
        touching
    }
}

/// Cores, and the core of each CPU.
pub(super) struct CoresByCpu<'a> {
    cores: &'a [CpuSet],
    by_cpu: SetsByCpu,
}

impl<'a> CoresByCpu<'a> {
    pub(super) fn of(cores: &'a [CpuSet]) -> Self {
        let by_cpu = SetsByCpu::of(cores);
        Self { cores, by_cpu }
    }

    /// Returns the first core with CPUs both inside and outside `cpus`; `None` if there is none.
    pub(super) fn cut_by(&self, cpus: &CpuSet) -> Option<&'a CpuSet> {
        let touching = self.by_cpu.touching(cpus);
        let mut cores = touching.into_iter().map(|nth| &self.cores[nth]);
        cores.find(|core| !core.is_subset(cpus))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_found_by_their_members() {
        let set = |list: &str| list.parse::<CpuSet>().unwrap();
        let cores = ["0-1", "2-3", "4-5"].map(set);
        let by_cpu = SetsByCpu::of(&cores);
        assert_eq!(by_cpu.touching(&set("1,5-9")), [0, 2]);
        assert_eq!(by_cpu.touching(&set("6-9")), [0; 0]);
        let cores = CoresByCpu::of(&cores);
        assert_eq!(cores.cut_by(&set("0-1,4-7")), None);
        assert_eq!(cores.cut_by(&set("0-1,3-4")), Some(&set("2-3")));
    }
}
