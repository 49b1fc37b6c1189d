//! Ranking of threads (a rank is a core type), with hysteresis, and alternation of the threads of one application.

use std::cmp::Ordering;

use countersteer_model::policy::{HintClass, View};
use countersteer_model::topology::GroupBy;

use super::candidate::{ActivePrograms, HsfCandidate};
use super::{Hsf, Tlp};

/// Bid of a thread in the competition for core slots.
struct Bid {
    row: usize,
    key: f64,
    /// Key of the thread for its present rank or a slower one, raised by the hysteresis.
    held: f64,
    /// Rank that the thread holds, from which on `held` applies; larger than all ranks if the thread has no claim.
    holds_from: usize,
    here: usize,
}

impl Hsf {
    /// Updates the doubt of each thread: the number of consecutive decisions in which SFs alone would rank the thread lower.
    pub(super) fn doubt(&self, all: &mut [HsfCandidate<'_>], quota: &[usize]) {
        if quota.len() < 2 {
            return;
        }
        let mut rest: Vec<(f64, usize, usize)> = all
            .iter()
            .enumerate()
            .filter(|(_, c)| c.stuck.is_none())
            .map(|(row, c)| (c.key, c.assigned.map_or(0, |rank| rank + 1), row))
            .collect();
        let order = |a: &(f64, usize, usize), b: &(f64, usize, usize)| {
            b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2)))
        };
        for (rank, slots) in quota.iter().enumerate() {
            for (_, _, row) in first(&mut rest, *slots, order) {
                let c = &mut all[row];
                let below = c.assigned.is_some_and(|assigned| rank > assigned);
                c.memory.doubt = match (c.visits, below) {
                    (true, _) => u32::MAX,
                    (_, true) => c.memory.doubt.saturating_add(1),
                    _ => 0,
                };
            }
        }
    }

    /// Returns the rank of each thread. `quota` is the number of core slots for threads that are not stuck.
    pub(super) fn rank(&self, all: &[HsfCandidate<'_>], quota: &[usize]) -> Vec<usize> {
        let last = quota.len() - 1;
        let mut ranks: Vec<usize> = all.iter().map(|c| c.stuck.unwrap_or(last)).collect();
        let mut rest: Vec<Bid> = all
            .iter()
            .enumerate()
            .filter(|(_, c)| c.stuck.is_none())
            .map(|(row, c)| self.bid(row, c))
            .collect();
        // The slowest type takes the remaining threads, so no competition is needed for it.
        for (rank, slots) in quota.iter().enumerate().take(last) {
            let worth = |b: &Bid| if b.holds_from <= rank { b.held } else { b.key };
            let order = |a: &Bid, b: &Bid| {
                worth(b)
                    .total_cmp(&worth(a))
                    .then((a.here, a.row).cmp(&(b.here, b.row)))
            };
            for bid in first(&mut rest, *slots, order) {
                ranks[bid.row] = rank;
            }
        }
        ranks
    }

    fn bid(&self, row: usize, c: &HsfCandidate<'_>) -> Bid {
        let strength = c.memory.strength();
        let doubted = f64::from(c.memory.doubt) >= self.patience * strength;
        Bid {
            row,
            key: c.key,
            held: c.key * (1.0 + self.margin * strength),
            holds_from: c.assigned.filter(|_| !doubted).unwrap_or(usize::MAX),
            // A thread that wins no core slot by its key stays on its current type.
            here: c.assigned.unwrap_or_else(|| self.slots.rank_of(c.info.cpu)),
        }
    }

    /// Exchanges similar threads of an application on the big cores that it got; those with the least time on big cores come
    /// first. Returns true if a thread moves.
    pub(super) fn take_turns(
        &mut self,
        view: &View<'_>,
        all: &[HsfCandidate<'_>],
        programs: &ActivePrograms,
        ranks: &mut [usize],
    ) -> bool {
        let groups = view.topology.groups_by(GroupBy::CoreType);
        let Some(fast) = groups.first().and_then(|group| group.core_type) else {
            return false;
        };
        if self.tlp == Tlp::Thread || view.now.since(self.turned) < self.turn {
            return false;
        }
        self.turned = view.now;
        let mut of_program = programs.reader();
        let mut turns = |c: &HsfCandidate<'_>| {
            let program = of_program.get(c.info.program);
            let alike = program
                .filter(|p| p.threads > 1)
                .is_some_and(|p| c.sf.is_none_or(|sf| (sf / p.sf - 1.0).abs() <= self.margin));
            let own = c.info.hint.is_some_and(|hint| hint.priority != 0);
            alike
                && !own
                && !c.young
                && c.sent.is_none()
                && c.stuck.is_none()
                && c.class == HintClass::Full
        };
        let mut usage = view.metrics.usage().read_threads();
        let mut rows: Vec<(usize, f64)> = Vec::new();
        for (row, c) in all.iter().enumerate().filter(|(_, c)| turns(c)) {
            let big_s = usage.get(c.info.id).map_or(0.0, |u| u.cpu_s(fast));
            rows.push((row, big_s));
        }
        let program = |(row, _): &(usize, f64)| all[*row].info.program;
        rows.sort_by(|a, b| program(a).cmp(&program(b)).then(a.1.total_cmp(&b.1)));
        let mut moved = false;
        for team in rows.chunk_by(|a, b| program(a) == program(b)) {
            let mut given: Vec<usize> = team.iter().map(|(row, _)| ranks[*row]).collect();
            given.sort_unstable();
            for ((row, _), rank) in team.iter().zip(given) {
                moved |= ranks[*row] != rank;
                ranks[*row] = rank;
            }
        }
        moved
    }
}

/// Removes and returns the `count` first elements in the given order. Their order among themselves is arbitrary.
fn first<T>(
    rest: &mut Vec<T>,
    count: usize,
    mut order: impl FnMut(&T, &T) -> Ordering,
) -> std::vec::Drain<'_, T> {
    let count = count.min(rest.len());
    if count > 0 && count < rest.len() {
        rest.select_nth_unstable_by(count - 1, &mut order);
    }
    rest.drain(..count)
}
