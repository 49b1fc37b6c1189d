//! Assignment of core slots: the number of threads on each core type, and the core of each thread.
//!
//! Policies that place threads by core type share this module. Input: the desired rank of each thread; a rank is a core type, 0
//! is the fastest. Output: the threads to be placed, each with its core group. While a type has no more threads than cores,
//! every thread gets its own core. The kernel then has nothing to balance, and shares are exact. With more threads, the target
//! is the group of all cores of the type, and the kernel balances load inside.

use std::sync::Arc;

use crate::cpuset::CpuSet;
use crate::engine::{ThreadEventKind, ThreadInfo};
use crate::policy::View;
use crate::topology::{GroupBy, Topology};
use crate::units::{CpuId, GroupId, ThreadId};

/// Limit on consecutive placements in one core group without effect. The thread's program is then assumed to refuse the group.
const MOST_TRIES: u8 = 3;

/// Core type that has CPUs, as a rank of the assignment.
pub struct Rank {
    /// Identifier of the core group with all CPUs of the type.
    pub group: GroupId,
    /// Capacity of one core, in the kernel's unit.
    pub capacity: f64,
    /// Number of logical CPUs of the type.
    pub cpus: usize,
    /// Indices of the type's cores, ordered so that adjacent ones have different last-level caches. A few threads are then
    /// spread over the caches.
    pub cores: Vec<u32>,
}

/// Last placement of a thread by these core slots.
struct LastSlots {
    thread: ThreadId,
    rank: usize,
    core: Option<u32>,
    target: GroupId,
    tries: u8,
    /// Affinity mask of the thread when its placement was given up; `None` if it was not given up.
    refused: Option<Arc<CpuSet>>,
}

/// Current rank of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresentRank {
    /// Rank that the thread was last assigned, or else the rank of its current CPU.
    pub rank: usize,
    /// True if the rank was assigned, false if it follows from the current CPU.
    pub given: bool,
    /// Rank of the thread's current CPU if the thread cannot be moved off it: several placements had no effect, and its affinity
    /// mask has not changed since.
    pub stuck: Option<usize>,
}

/// Core slots of a machine, with the threads assigned to them.
pub struct CoreSlots {
    topology: Arc<Topology>,
    ranks: Vec<Rank>,
    /// Rank (core type) of each core.
    rank_of_core: Vec<usize>,
    /// Last placements, sorted by thread.
    held: Vec<LastSlots>,
    taken: Vec<bool>,
}

impl CoreSlots {
    /// Creates core slots to which no thread is assigned.
    #[must_use]
    pub fn new(topology: &Arc<Topology>) -> Self {
        let groups = topology.groups_by(GroupBy::CoreType);
        let cores = topology.groups_by(GroupBy::Core).len();
        let mut rank_of_core = vec![0; cores];
        let mut ranks = Vec::with_capacity(groups.len());
        for (row, group) in groups.iter().enumerate() {
            for cpu in group.cpus.iter() {
                rank_of_core[topology.cpus[cpu.index()].core as usize] = row;
            }
            let capacity = group
                .cpus
                .lowest()
                .map_or(1, |c| topology.cpus[c.index()].capacity.max(1));
            ranks.push(Rank {
                group: group.id,
                capacity: f64::from(capacity),
                cpus: group.cpus.len(),
                cores: spread(topology, group.cpus.iter()),
            });
        }
        Self {
            topology: Arc::clone(topology),
            ranks,
            rank_of_core,
            held: Vec::new(),
            taken: vec![false; cores],
        }
    }

    /// Returns the core types that have CPUs, fastest first.
    #[must_use]
    pub fn ranks(&self) -> &[Rank] {
        &self.ranks
    }

    /// Returns how many of `threads` threads each type takes. Cores are filled first, fastest type first, then SMT siblings;
    /// further threads are distributed in proportion to capacity.
    #[must_use]
    pub fn quota(&self, threads: usize) -> Vec<usize> {
        let mut quota = vec![0; self.ranks.len()];
        let mut left = threads;
        for room in [|r: &Rank| r.cores.len(), |r: &Rank| r.cpus - r.cores.len()] {
            for (taken, rank) in quota.iter_mut().zip(&self.ranks) {
                let more = room(rank).min(left);
                *taken += more;
                left -= more;
            }
        }
        for _ in 0..left {
            let load = |row: usize| {
                (quota[row] + 1) as f64
                    / (self.ranks[row].cores.len() as f64 * self.ranks[row].capacity)
            };
            let next = (0..quota.len()).min_by(|a, b| load(*a).total_cmp(&load(*b)));
            if let Some(row) = next {
                quota[row] += 1;
            }
        }
        quota
    }

    /// Returns the rank (core type) of a CPU's core.
    #[must_use]
    pub fn rank_of(&self, cpu: CpuId) -> usize {
        self.topology
            .cpus
            .get(cpu.index())
            .map_or(0, |c| self.rank_of_core[c.core as usize])
    }

    /// Returns the current rank of each thread; `threads` are in ascending order of ids.
    #[must_use]
    pub fn present_of(&self, threads: &[&ThreadInfo]) -> Vec<PresentRank> {
        let mut held = self.held.iter().peekable();
        let present = |info: &&ThreadInfo| {
            while held.next_if(|h| h.thread < info.id).is_some() {}
            let given = held.peek().filter(|h| h.thread == info.id);
            PresentRank {
                rank: given.map_or_else(|| self.rank_of(info.cpu), |h| h.rank),
                given: given.is_some(),
                stuck: given.and_then(|h| self.stuck(h, info)),
            }
        };
        threads.iter().map(present).collect()
    }

    fn stuck(&self, held: &LastSlots, info: &ThreadInfo) -> Option<usize> {
        let here = self.rank_of(info.cpu);
        let stuck = match &held.refused {
            Some(allowed) => info.allowed == *allowed,
            None => {
                held.tries >= MOST_TRIES
                    && here != held.rank
                    && !self.is_inside(info, self.ranks[held.rank].group)
            }
        };
        stuck.then_some(here)
    }

    /// Assigns each thread, in ascending order of ids, a core slot of its desired rank. Returns the threads to be placed, as
    /// indices in `wanted`, with their core groups.
    ///
    /// A thread that stays on its rank keeps its core, and a thread that cannot be moved off its rank is left alone. With
    /// `lenient`, a thread whose affinity mask already lies within its rank's core group is left alone, too.
    pub fn assign(
        &mut self,
        wanted: &[(&ThreadInfo, usize)],
        lenient: bool,
    ) -> Vec<(usize, GroupId)> {
        if self.is_settled(wanted, lenient) {
            for (held, (info, _)) in self.held.iter_mut().zip(wanted) {
                held.tries = 0;
                held.refused.take_if(|allowed| *allowed != info.allowed);
            }
            return Vec::new();
        }
        let mut load = vec![0usize; self.ranks.len()];
        wanted.iter().for_each(|(_, rank)| load[*rank] += 1);
        // If all cores are equal, any assignment is equally good, and pinning threads would only restrict the kernel.
        let unequal = self.ranks.len() > 1;
        let pinned: Vec<bool> = load
            .iter()
            .zip(&self.ranks)
            .map(|(n, r)| unequal && *n <= r.cores.len())
            .collect();
        let cores = self.choose_cores(wanted, &pinned);
        let mut placed = Vec::new();
        let mut held = Vec::with_capacity(wanted.len());
        for (row, (&(info, rank), core)) in wanted.iter().zip(cores).enumerate() {
            if self.find(info.id).and_then(|h| self.stuck(h, info)) == Some(rank) {
                held.push(LastSlots {
                    thread: info.id,
                    rank,
                    core: None,
                    target: self.ranks[rank].group,
                    tries: 0,
                    refused: Some(Arc::clone(&info.allowed)),
                });
                continue;
            }
            let target = core.map_or(self.ranks[rank].group, |c| {
                self.topology.groups_by(GroupBy::Core)[c as usize].id
            });
            let before = self.find(info.id).filter(|h| h.target == target);
            let tries = before.map_or(0, |h| h.tries);
            let settled = before.is_some() && self.is_confined(info, target, rank, lenient);
            let place = !settled && tries < MOST_TRIES;
            if place {
                placed.push((row, target));
            }
            let tries = if settled { 0 } else { tries + u8::from(place) };
            held.push(LastSlots {
                thread: info.id,
                rank,
                core,
                target,
                tries,
                refused: None,
            });
        }
        self.held = held;
        placed
    }

    /// True if every thread has its desired rank and an affinity mask that matches its placement, which is the usual case.
    fn is_settled(&self, wanted: &[(&ThreadInfo, usize)], lenient: bool) -> bool {
        let settled = |(&(info, rank), held): (&(&ThreadInfo, usize), &LastSlots)| {
            held.thread == info.id
                && held.rank == rank
                && (self.is_confined(info, held.target, rank, lenient)
                    || held.refused.is_some() && self.stuck(held, info) == Some(rank))
        };
        wanted.len() == self.held.len() && wanted.iter().zip(&self.held).all(settled)
    }

    fn find(&self, thread: ThreadId) -> Option<&LastSlots> {
        self.held
            .binary_search_by_key(&thread, |h| h.thread)
            .ok()
            .map(|row| &self.held[row])
    }

    fn is_confined(&self, info: &ThreadInfo, target: GroupId, rank: usize, lenient: bool) -> bool {
        self.is_inside(info, target) || (lenient && self.is_inside(info, self.ranks[rank].group))
    }

    fn is_inside(&self, info: &ThreadInfo, group: GroupId) -> bool {
        let cpus = &self.topology.group(group).cpus;
        // Usually both refer to the same set, so that comparing addresses suffices.
        Arc::ptr_eq(&info.allowed, cpus) || info.allowed.is_subset(cpus)
    }

    /// Chooses a core for each thread whose rank has at least as many cores as threads.
    fn choose_cores(
        &mut self,
        wanted: &[(&ThreadInfo, usize)],
        pinned: &[bool],
    ) -> Vec<Option<u32>> {
        self.taken.fill(false);
        let mut cores: Vec<Option<u32>> = vec![None; wanted.len()];
        // Threads that hold a core are served first, then threads that already run on the core, then migrating threads.
        for held_only in [true, false] {
            for (core, &(info, rank)) in cores.iter_mut().zip(wanted) {
                if core.is_some() || !pinned[rank] {
                    continue;
                }
                let present = if held_only {
                    self.find(info.id)
                        .filter(|h| h.rank == rank)
                        .and_then(|h| h.core)
                } else {
                    self.topology.cpus.get(info.cpu.index()).map(|c| c.core)
                };
                *core = present
                    .filter(|c| self.rank_of_core[*c as usize] == rank && !self.taken[*c as usize]);
                if let Some(c) = *core {
                    self.taken[c as usize] = true;
                }
            }
        }
        let mut next = vec![0usize; self.ranks.len()];
        for (core, &(_, rank)) in cores.iter_mut().zip(wanted) {
            while core.is_none() && pinned[rank] && next[rank] < self.ranks[rank].cores.len() {
                let candidate = self.ranks[rank].cores[next[rank]];
                next[rank] += 1;
                *core = Some(candidate)
                    .filter(|c| !std::mem::replace(&mut self.taken[*c as usize], true));
            }
        }
        cores
    }
}

/// Returns the cores of these CPUs in an order that alternates between last-level caches: the first core of each cache, then the
/// second core of each, and so on.
fn spread(topology: &Topology, cpus: impl Iterator<Item = CpuId>) -> Vec<u32> {
    let mut seen = std::collections::BTreeSet::new();
    let mut on_llc = std::collections::BTreeMap::new();
    let mut cores = Vec::new();
    for cpu in cpus {
        let core = topology.cpus[cpu.index()].core;
        if seen.insert(core) {
            let llc = topology.llc_of(cpu);
            let nth = on_llc.entry(llc).or_insert(0u32);
            cores.push((*nth, llc, core));
            *nth += 1;
        }
    }
    cores.sort_unstable();
    cores.into_iter().map(|(_, _, core)| core).collect()
}

/// Returns the threads that demand CPU time, in ascending order of ids: runnable threads, and threads with events since the last
/// call. A thread that sleeps now but ran since then is included.
#[must_use]
pub fn active<'a>(view: &View<'a>) -> Vec<&'a ThreadInfo> {
    let mut stirred: Vec<ThreadId> = view
        .events
        .iter()
        .filter(|e| {
            !matches!(
                e.kind,
                ThreadEventKind::Exit | ThreadEventKind::Migrate { .. }
            )
        })
        .map(|e| e.thread)
        .collect();
    stirred.sort_unstable();
    view.threads
        .iter()
        .filter(|t| t.runnable || stirred.binary_search(&t.id).is_ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{SMT, topology};
    use crate::units::ProgramId;

    #[test]
    fn cores_are_filled_before_siblings_and_each_hardware_thread_counts_once() {
        // Two big cores of two hardware threads, two small ones of one.
        let slots = CoreSlots::new(&topology(SMT));
        let wanted = [(1, [1, 0]), (4, [2, 2]), (6, [4, 2]), (7, [4, 3])];
        for (threads, quota) in wanted {
            assert_eq!(slots.quota(threads), quota, "{threads} threads");
        }
    }

    #[test]
    fn a_thread_that_stays_elsewhere_is_placed_a_few_times_and_then_left_alone() {
        let topology = topology(SMT);
        let mut slots = CoreSlots::new(&topology);
        let info = ThreadInfo {
            id: ThreadId(1),
            program: ProgramId(0),
            name: "p".into(),
            cpu: CpuId(4),
            runnable: true,
            nice: 0,
            allowed: Arc::clone(&topology.groups[0].cpus),
            hint: None,
        };
        let mut place = |info| slots.assign(&[(info, 0)], true).len();
        let placed: usize = (0..20).map(|_| place(&info)).sum();
        assert_eq!(placed, usize::from(MOST_TRIES));
        // Once it accepts a placement, it may be placed again.
        let obeying = ThreadInfo {
            cpu: CpuId(0),
            allowed: Arc::clone(&topology.groups_by(GroupBy::CoreType)[0].cpus),
            ..info.clone()
        };
        assert_eq!(place(&obeying), 0);
        assert_eq!(place(&info), 1);
    }

    #[test]
    fn a_thread_that_refuses_another_type_is_stuck_until_it_is_allowed_other_cpus() {
        let topology = topology(SMT);
        let [big, small] = [0, 1].map(|t| &topology.groups_by(GroupBy::CoreType)[t].cpus);
        let mut slots = CoreSlots::new(&topology);
        let confined = ThreadInfo {
            id: ThreadId(1),
            program: ProgramId(0),
            name: "p".into(),
            cpu: CpuId(4),
            runnable: true,
            nice: 0,
            allowed: Arc::clone(small),
            hint: None,
        };
        let stuck = |slots: &CoreSlots, info: &ThreadInfo| slots.present_of(&[info])[0].stuck;
        for _ in 0..MOST_TRIES {
            assert_eq!(stuck(&slots, &confined), None);
            assert_eq!(slots.assign(&[(&confined, 0)], true).len(), 1);
        }
        for _ in 0..9 {
            assert_eq!(stuck(&slots, &confined), Some(1));
            assert_eq!(slots.assign(&[(&confined, 1)], true), []);
        }
        for allowed in [big, &topology.groups[0].cpus] {
            let free = ThreadInfo {
                allowed: Arc::clone(allowed),
                ..confined.clone()
            };
            assert_eq!(stuck(&slots, &free), None);
        }
    }
}
