//! Mappings of threads to last-level caches and, if threads share CPUs, to CPUs.
//!
//! Input: threads in order of their demand. Output: the threads of each core slot of each cache. A core slot is a CPU, whose
//! threads never run at the same time. Threads that hurt each other most are therefore put into one core slot ("local
//! optimisation"). Core slots are assigned to caches so that demands are balanced or poison is kept apart ("global
//! optimisation").

use countersteer_model::topology::{GroupBy, Topology};
use countersteer_model::units::{CpuId, GroupId};

use crate::open_mapping::OpenMapping;
use crate::relabel::{self, Mapping, Spot, Ties};

/// Last-level caches of the machine, with their core slots.
pub(super) struct Caches {
    pub rows: Vec<CacheRow>,
    /// Index of each CPU's last-level cache in `rows`.
    of_cpu: Vec<usize>,
    /// Index of each CPU's core slot within its cache.
    slot_of_cpu: Vec<usize>,
    /// Total number of core slots.
    slots: usize,
}

/// Last-level cache with its core slots.
pub(super) struct CacheRow {
    pub group: GroupId,
    pub lines: f64,
    /// Core group of each core slot: the core, or the CPU if cores run several threads at once.
    pub slots: Vec<GroupId>,
}

impl Caches {
    pub fn new(topology: &Topology) -> Self {
        let groups = topology.groups_by(GroupBy::Llc);
        let mut caches = Self {
            rows: Vec::with_capacity(groups.len()),
            of_cpu: vec![0; topology.cpus.len()],
            slot_of_cpu: vec![0; topology.cpus.len()],
            slots: topology.cpus.len().max(1),
        };
        for (row, group) in groups.iter().enumerate() {
            let by = if group.cores as usize == group.cpus.len() {
                GroupBy::Core
            } else {
                GroupBy::Cpu
            };
            let mut slots = Vec::with_capacity(group.cpus.len());
            for cpu in group.cpus.iter() {
                caches.of_cpu[cpu.index()] = row;
                caches.slot_of_cpu[cpu.index()] = slots.len();
                slots.extend(topology.group_of(cpu, by).map(|g| g.id));
            }
            let cache = group.cpus.lowest().map(|c| topology.llc_of(c));
            let lines = cache
                .and_then(|id| topology.caches.get(id.index()))
                .map_or(0.0, |c| c.lines);
            caches.rows.push(CacheRow {
                group: group.id,
                lines,
                slots,
            });
        }
        caches
    }

    /// True if there are more threads than core slots, so that threads share CPUs.
    pub fn crowded(&self, threads: usize) -> bool {
        threads > self.slots
    }

    /// Returns the place (cache and core slot) of a CPU.
    pub fn spot(&self, cpu: CpuId) -> Spot {
        let at = |table: &[usize]| table.get(cpu.index()).copied().unwrap_or(0);
        (at(&self.of_cpu), at(&self.slot_of_cpu))
    }

    /// Returns the number of threads that each core slot of each cache takes, so that all CPUs take equally many.
    fn rooms(&self, threads: usize) -> Vec<Vec<usize>> {
        let share = |row: &CacheRow| threads * row.slots.len() / self.slots;
        let mut quota: Vec<usize> = self.rows.iter().map(share).collect();
        let mut by_rest: Vec<usize> = (0..quota.len()).collect();
        by_rest.sort_by_key(|row| {
            (
                std::cmp::Reverse(threads * self.rows[*row].slots.len() % self.slots),
                *row,
            )
        });
        let left = threads - quota.iter().sum::<usize>();
        by_rest
            .iter()
            .cycle()
            .take(left)
            .for_each(|row| quota[*row] += 1);
        let spread = |(row, n): (&CacheRow, usize)| {
            let slots = row.slots.len().max(1);
            (0..slots)
                .map(|slot| n / slots + usize::from(slot < n % slots))
                .collect()
        };
        self.rows.iter().zip(quota).map(spread).collect()
    }

    /// Returns a mapping with balanced demands. Threads are taken in the given order, highest demand first; each group for a
    /// core slot goes to the cache with the least demand so far.
    pub fn even(&self, order: &[usize], demand: &[f64]) -> Mapping {
        let mut table = OpenMapping::new(self.rooms(order.len()));
        let all: Vec<usize> = (0..self.rows.len()).collect();
        table.deal(order, demand, &all);
        table.mapping
    }

    /// Returns a mapping that keeps poison in as few caches as possible, smallest caches first. Vulnerable threads get the
    /// other caches, together with the threads with the least occupancy.
    pub fn apart(
        &self,
        poison: &[usize],
        vulnerable: &[usize],
        rest: &[usize],
        stake: &[f64],
    ) -> Mapping {
        let mut table = OpenMapping::new(self.rooms(poison.len() + vulnerable.len() + rest.len()));
        let mut caches: Vec<usize> = (0..self.rows.len()).collect();
        caches.sort_by(|a, b| {
            self.rows[*a]
                .lines
                .total_cmp(&self.rows[*b].lines)
                .then(a.cmp(b))
        });
        let mut dirty = 0;
        let mut covered = 0;
        while covered < poison.len() && dirty < caches.len() {
            covered += table.room(caches[dirty]);
            dirty += 1;
        }
        let (dirty, clean) = caches.split_at(dirty);
        table.fill(poison, dirty);
        let left_over = table.deal(vulnerable, stake, clean);
        // The other threads share the caches of poison, because they lose less to poison than vulnerable threads would.
        let room: usize = clean.iter().map(|row| table.room(*row)).sum();
        let lightest_first: Vec<usize> = rest.iter().rev().copied().collect();
        let (with_vulnerable, with_poison) = lightest_first.split_at(room.min(rest.len()));
        let mut by_stake = clean.to_vec();
        by_stake.sort_by(|a, b| table.demand[*b].total_cmp(&table.demand[*a]).then(a.cmp(b)));
        table.fill(with_vulnerable, &by_stake);
        table.fill(&left_over, dirty);
        table.fill(with_poison, dirty);
        table.mapping
    }

    /// Returns the place of each thread under a mapping. Equal caches, and the core slots of a cache, are renamed so that most
    /// threads stay.
    pub fn nearest(&self, mapping: &[Vec<Vec<usize>>], present: &[Spot]) -> Vec<Spot> {
        let shape = |row: usize| {
            let cache = &self.rows[row];
            let threads = mapping[row].iter().map(Vec::len).sum::<usize>();
            (cache.lines, cache.slots.len(), threads)
        };
        let present: Vec<Option<Spot>> = present.iter().copied().map(Some).collect();
        relabel::nearest(mapping, &present, |a, b| shape(a) == shape(b), Ties::Own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersteer_model::testing;

    fn caches() -> Caches {
        Caches::new(&testing::topology(testing::TWO_LLCS))
    }

    #[test]
    fn the_two_highest_share_a_core_and_the_next_two_the_other_cache() {
        // CMPSched$im, figure 10.
        let demand = [8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0];
        let mapping = caches().even(&[0, 1, 2, 3, 4, 5, 6, 7], &demand);
        assert_eq!(
            mapping,
            [[vec![0, 1], vec![6, 7]], [vec![2, 3], vec![4, 5]]]
        );
    }

    #[test]
    fn poison_goes_with_the_mild_and_the_vulnerable_with_the_neutral() {
        // CMPSched$im, figure 7b: 0 and 1 are poison, 2 and 3 vulnerable, 4 and 5 less so, 6 and 7 neutral.
        let mapping = caches().apart(&[0, 1], &[2, 3], &[4, 5, 6, 7], &[0.0; 8]);
        assert_eq!(
            mapping,
            [[vec![0, 1], vec![5, 4]], [vec![2, 3], vec![7, 6]]]
        );
    }

    #[test]
    fn every_thread_finds_a_core_slot_whatever_the_numbers() {
        let caches = caches();
        for n in 0..20 {
            for poison in 0..=n {
                for vulnerable in 0..=n - poison {
                    let all: Vec<usize> = (0..n).collect();
                    let (p, others) = all.split_at(poison);
                    let (v, rest) = others.split_at(vulnerable);
                    let mapping = caches.apart(p, v, rest, &vec![1.0; n]);
                    let mut placed: Vec<usize> =
                        mapping.iter().flatten().flatten().copied().collect();
                    placed.sort_unstable();
                    assert_eq!(
                        placed, all,
                        "{poison} poison, {vulnerable} vulnerable of {n}"
                    );
                }
            }
        }
    }

    #[test]
    fn equal_caches_and_core_slots_are_exchanged_rather_than_threads_moved() {
        let present = [(1, 1), (1, 0), (0, 1), (0, 0)];
        let mapping = vec![vec![vec![0], vec![1]], vec![vec![2], vec![3]]];
        assert_eq!(caches().nearest(&mapping, &present), present);
    }
}
