//! Ranks by keys: the core type of each thread if threads are ordered by a number.
//!
//! Policies with one key per thread share this module. Each core type gets as many threads as [`CoreSlots::quota`] gives. A
//! freed core of a faster type goes to the best thread of a slower one. Otherwise threads move in pairs, and only if the
//! challenger's lead satisfies the policy's threshold. A thread that cannot be moved off a type counts there and does not
//! compete.

use countersteer_model::engine::ThreadInfo;
use countersteer_model::placement::{Placement, Reason, Target, ThreadPlacement};
use countersteer_model::policy::{CoreSlots, PresentRank};
use countersteer_model::units::CoreTypeId;

/// Thread that competes in a decision.
pub(crate) struct Contender<'a> {
    pub info: &'a ThreadInfo,
    /// Rank (core type) that the thread was last assigned; `None` if there was no assignment.
    pub held: Option<usize>,
    /// Rank of the thread's current core if the thread cannot be moved off it; otherwise `None`.
    pub stuck: Option<usize>,
    /// Key by which threads are ranked: threads with higher keys run on faster core types.
    pub key: f64,
}

/// Creates an entry with key zero for each thread; `threads` are in ascending order of ids.
pub(crate) fn entries<'a>(threads: &[&'a ThreadInfo], slots: &CoreSlots) -> Vec<Contender<'a>> {
    let entry = |(info, present): (&&'a ThreadInfo, PresentRank)| Contender {
        info,
        held: present.given.then_some(present.rank),
        stuck: present.stuck,
        key: 0.0,
    };
    let present = slots.present_of(threads);
    threads.iter().zip(present).map(entry).collect()
}

/// Returns the quota of each rank minus the core slots of threads that are stuck on it.
pub(crate) fn free(
    mut quota: Vec<usize>,
    stuck: impl Iterator<Item = Option<usize>>,
) -> Vec<usize> {
    for rank in stuck.flatten() {
        quota[rank] = quota[rank].saturating_sub(1);
    }
    quota
}

/// Returns the rank of each entry. `takes(holder, challenger)` receives two keys and is true if the challenger leads by enough
/// for a swap.
pub(crate) fn ranks(
    entries: &[Contender<'_>],
    quota: &[usize],
    takes: impl Fn(f64, f64) -> bool,
) -> Vec<usize> {
    ranks_where(entries, quota, |holder, challenger| {
        takes(entries[holder].key, entries[challenger].key)
    })
}

/// Returns the rank of each entry, like [`ranks`]; `takes` receives the indices of the holder and the challenger.
pub(crate) fn ranks_where(
    entries: &[Contender<'_>],
    quota: &[usize],
    takes: impl Fn(usize, usize) -> bool,
) -> Vec<usize> {
    let last = quota.len().saturating_sub(1);
    let quota = free(quota.to_vec(), entries.iter().map(|e| e.stuck));
    let present = |e: &Contender<'_>| e.stuck.or(e.held).unwrap_or(last).min(last);
    let mut ranks: Vec<usize> = entries.iter().map(present).collect();
    let rows = |ranks: &[usize], wanted: &dyn Fn(usize) -> bool| -> Vec<usize> {
        let free = (0..ranks.len()).filter(|row| entries[*row].stuck.is_none());
        free.filter(|row| wanted(ranks[*row])).collect()
    };
    let by_key = |rows: &mut Vec<usize>| {
        rows.sort_by(|a, b| {
            let (a, b) = (&entries[*a], &entries[*b]);
            b.key.total_cmp(&a.key).then(a.info.id.cmp(&b.info.id))
        });
    };
    for (rank, room) in quota.iter().enumerate().take(last) {
        let mut holders = rows(&ranks, &|r| r == rank);
        let mut others = rows(&ranks, &|r| r > rank);
        by_key(&mut holders);
        for row in holders.split_off((*room).min(holders.len())) {
            ranks[row] = rank + 1;
            others.push(row);
        }
        by_key(&mut others);
        let mut others = others.into_iter();
        while holders.len() < *room {
            let Some(row) = others.next() else { break };
            ranks[row] = rank;
            holders.push(row);
        }
        by_key(&mut holders);
        for challenger in others {
            let Some(holder) = holders.pop() else { break };
            if !takes(holder, challenger) {
                break;
            }
            ranks[holder] = ranks[challenger];
            ranks[challenger] = rank;
        }
    }
    ranks
}

/// Returns placements that give each entry a core of its rank. `reason` is called only for entries that move.
pub(crate) fn place(
    slots: &mut CoreSlots,
    entries: &[Contender<'_>],
    ranks: &[usize],
    reason: impl Fn(usize) -> Reason,
) -> Placement {
    let wanted: Vec<(&ThreadInfo, usize)> = entries
        .iter()
        .zip(ranks)
        .map(|(entry, rank)| (entry.info, *rank))
        .collect();
    let moved = slots.assign(&wanted, false);
    let threads = moved.into_iter().map(|(row, group)| {
        ThreadPlacement::new(entries[row].info.id, Target::Group(group), reason(row))
    });
    Placement {
        threads: threads.collect(),
        ..Placement::default()
    }
}

/// Core type and relative speed of each rank.
pub(crate) struct Types {
    pub types: Vec<CoreTypeId>,
    pub between: Vec<f64>,
    /// Nominal speed of each rank relative to the slowest, the same for all programs.
    pub rating: Vec<f64>,
}

impl Types {
    pub(crate) fn new(
        topology: &countersteer_model::topology::Topology,
        slots: &CoreSlots,
    ) -> Self {
        let group = |rank: &countersteer_model::policy::Rank| topology.group(rank.group).core_type;
        let types: Vec<CoreTypeId> = slots.ranks().iter().filter_map(group).collect();
        let clock = |t: &CoreTypeId| topology.core_types[t.index()].freq_ghz;
        let capacities: Vec<f64> = slots.ranks().iter().map(|r| r.capacity).collect();
        // A kernel that does not distinguish core types gives all of them one capacity. The clock frequency is then the best
        // available estimate of their speed.
        let distinguished = capacities.windows(2).any(|pair| pair[0] != pair[1]);
        let speeds: Vec<f64> = if distinguished {
            capacities
        } else {
            types.iter().map(clock).collect()
        };
        let slowest = speeds.last().copied().unwrap_or(1.0);
        let fastest = speeds.first().copied().unwrap_or(1.0);
        let span = (fastest - slowest).max(f64::MIN_POSITIVE);
        Self {
            types,
            between: speeds.iter().map(|s| (s - slowest) / span).collect(),
            rating: speeds.iter().map(|s| s / slowest).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersteer_model::units::{CpuId, ProgramId, ThreadId};
    use std::sync::Arc;

    fn info(id: u32) -> ThreadInfo {
        ThreadInfo {
            id: ThreadId(id),
            program: ProgramId(id),
            name: "p".into(),
            cpu: CpuId(0),
            runnable: true,
            nice: 0,
            allowed: Arc::default(),
            hint: None,
        }
    }

    fn ranked(held: &[Option<usize>], keys: &[f64], quota: &[usize], lead: f64) -> Vec<usize> {
        let infos: Vec<ThreadInfo> = (0..keys.len() as u32).map(info).collect();
        let entries: Vec<Contender<'_>> = infos
            .iter()
            .zip(held.iter().zip(keys))
            .map(|(info, (held, key))| Contender {
                info,
                held: *held,
                stuck: None,
                key: *key,
            })
            .collect();
        ranks(&entries, quota, |holder, challenger| {
            challenger > holder + lead
        })
    }

    #[test]
    fn new_threads_fill_the_fastest_type_by_key() {
        assert_eq!(
            ranked(&[None; 4], &[1.0, 4.0, 3.0, 2.0], &[2, 2], 0.0),
            [1, 0, 0, 1]
        );
    }

    #[test]
    fn a_challenger_needs_its_lead() {
        let held = [Some(0), Some(1)];
        assert_eq!(ranked(&held, &[1.0, 1.4], &[1, 1], 0.5), [0, 1]);
        assert_eq!(ranked(&held, &[1.0, 1.6], &[1, 1], 0.5), [1, 0]);
    }

    #[test]
    fn a_freed_core_is_filled_whatever_the_lead() {
        let held = [Some(1), Some(1), Some(1)];
        assert_eq!(ranked(&held, &[1.0, 3.0, 2.0], &[1, 2], 9.0), [1, 0, 1]);
    }

    #[test]
    fn fewer_cores_send_the_lowest_key_down() {
        let held = [Some(0), Some(0), Some(1)];
        assert_eq!(ranked(&held, &[2.0, 1.0, 0.0], &[1, 2], 0.0), [0, 1, 1]);
    }

    #[test]
    fn the_lowest_holder_swaps_with_the_highest_challenger_first() {
        let held = [Some(0), Some(0), Some(1), Some(1)];
        assert_eq!(
            ranked(&held, &[5.0, 1.0, 3.0, 4.0], &[2, 2], 1.0),
            [0, 1, 1, 0]
        );
    }
}
