//! Choice of the next exchange between caches: of two threads, or of all threads of two core slots.
//!
//! Input: the place of each thread, its stake (the IPC that it can lose), and its pressure (the lines that it loads per
//! kilocycle). Output: the mapping after the exchange that saves most, by a simple model. A thread's loss is its stake times
//! the lines that the other threads under its cache load. Threads of its own core slot do not count, since they never run at
//! the same time.

use super::mapping::Caches;
use crate::neighbours::{moved, swap_of_places, swaps_between};
use crate::relabel::Spot;

/// Threshold: minimum fraction of the predicted loss that an exchange must save per moved thread.
const PROMISE: f64 = 0.05;
/// Limit on the number of threads considered for leaving their caches, and on the number considered for replacing them.
const FEW: usize = 16;

/// Stake and pressure of a thread in the model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Habits {
    /// Instructions per cycle that the thread can lose to its co-runners.
    pub stake: f64,
    /// Cache lines that the thread loads per kilocycle.
    pub pressure: f64,
}

/// Returns the mapping with the smallest predicted loss among those that are one exchange away and not in `refused`. `None` if
/// no exchange saves enough.
pub(super) fn best(
    habits: &[Habits],
    spots: &[Spot],
    caches: &Caches,
    refused: &[Vec<Spot>],
) -> Option<Vec<Spot>> {
    let board = Board::new(habits, spots, caches);
    let present: f64 = (0..caches.rows.len())
        .map(|row| board.loss(row, spots))
        .sum();
    let worth = |moves: Vec<(usize, Spot)>| {
        let mut rows: Vec<usize> = moves.iter().map(|(thread, _)| spots[*thread].0).collect();
        rows.sort_unstable();
        rows.dedup();
        let other = moved(spots, &moves);
        let saved = |row: &usize| board.loss(*row, spots) - board.loss(*row, &other);
        let cost = PROMISE * present * moves.len() as f64;
        (rows.iter().map(saved).sum::<f64>() - cost, other)
    };
    let promising = |(worth, other): &(f64, Vec<Spot>)| *worth > 0.0 && !refused.contains(other);
    let crosses = |moves: &Vec<(usize, Spot)>| {
        let stays = |(thread, to): &(usize, Spot)| spots[*thread].0 == to.0;
        !moves.iter().any(stays)
    };
    let changes = board.swaps().into_iter().chain(board.swaps_of_slots());
    let all = changes.filter(crosses).map(worth).filter(promising);
    all.reduce(|best, next| if next.0 > best.0 { next } else { best })
        .map(|(_, other)| other)
}

struct Board<'a> {
    habits: &'a [Habits],
    spots: &'a [Spot],
    caches: &'a Caches,
    /// Sums of stake and pressure over the threads of each cache.
    sums: Vec<Habits>,
}

impl<'a> Board<'a> {
    fn new(habits: &'a [Habits], spots: &'a [Spot], caches: &'a Caches) -> Self {
        let none = Habits {
            stake: 0.0,
            pressure: 0.0,
        };
        let mut sums = vec![none; caches.rows.len()];
        for (spot, own) in spots.iter().zip(habits) {
            sums[spot.0].stake += own.stake;
            sums[spot.0].pressure += own.pressure;
        }
        Self {
            habits,
            spots,
            caches,
            sums,
        }
    }

    /// Returns the predicted loss of the threads under a cache with this mapping.
    fn loss(&self, row: usize, spots: &[Spot]) -> f64 {
        let slots = self.caches.rows[row].slots.len();
        let mut of_slot = vec![(0.0, 0.0); slots];
        for ((at, slot), own) in spots.iter().zip(self.habits) {
            if *at == row {
                of_slot[*slot].0 += own.stake;
                of_slot[*slot].1 += own.pressure;
            }
        }
        // A thread loses its stake times the lines that threads of other core slots load. The sum over all threads is the product
        // of the sums, minus the products within each core slot.
        let stake: f64 = of_slot.iter().map(|s| s.0).sum();
        let pressure: f64 = of_slot.iter().map(|s| s.1).sum();
        let own: f64 = of_slot.iter().map(|s| s.0 * s.1).sum();
        (stake * pressure - own) / self.caches.rows[row].lines.max(1.0)
    }

    /// Returns swaps of the threads that lose or hurt most with those that lose and hurt least.
    fn swaps(&self) -> Vec<Vec<(usize, Spot)>> {
        let harm = |thread: &usize| {
            let row = self.spots[*thread].0;
            let own = self.habits[*thread];
            let lost = own.stake * (self.sums[row].pressure - own.pressure);
            let done = own.pressure * (self.sums[row].stake - own.stake);
            lost.max(done) / self.caches.rows[row].lines.max(1.0)
        };
        let mut order: Vec<usize> = (0..self.spots.len()).collect();
        order.sort_by(|a, b| harm(b).total_cmp(&harm(a)).then(a.cmp(b)));
        let most = &order[..order.len().min(FEW)];
        let least = &order[order.len().saturating_sub(2 * FEW)..];
        let swaps = swaps_between(most, least).into_iter();
        swaps.map(|swap| swap.moves(self.spots)).collect()
    }

    /// Returns swaps of core slots, if core slots hold several threads.
    fn swaps_of_slots(&self) -> Vec<Vec<(usize, Spot)>> {
        let mut slots = self.spots.to_vec();
        slots.sort_unstable();
        slots.dedup();
        if slots.len() == self.spots.len() || slots.len() > 2 * FEW {
            return Vec::new();
        }
        let later = |(at, a): (usize, &Spot)| {
            let swap = |b: &Spot| swap_of_places(self.spots, *a, *b);
            slots[at + 1..].iter().map(swap).collect::<Vec<_>>()
        };
        slots.iter().enumerate().flat_map(later).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersteer_model::testing;

    fn caches() -> Caches {
        Caches::new(&testing::topology(testing::TWO_LLCS))
    }

    fn habits(rows: &[(f64, f64)]) -> Vec<Habits> {
        let each = rows.iter().map(|(stake, pressure)| Habits {
            stake: *stake,
            pressure: *pressure,
        });
        each.collect()
    }

    #[test]
    fn the_hurt_leave_those_who_hurt() {
        // Thread 0 is hurt by thread 1; threads 2 and 3 neither hurt nor are hurt much.
        let rows = habits(&[(1.0, 0.1), (0.0, 1.0), (0.1, 0.05), (0.0, 0.1)]);
        let spots = [(0, 0), (0, 1), (1, 0), (1, 1)];
        let found = best(&rows, &spots, &caches(), &[]).unwrap();
        let beside = (1..4).find(|t| found[*t].0 == found[0].0);
        assert!(beside == Some(2) || beside == Some(3), "{found:?}");
        let next = best(&rows, &spots, &caches(), std::slice::from_ref(&found));
        assert_ne!(next, Some(found));
    }

    #[test]
    fn core_slots_change_caches_with_all_their_threads() {
        // Two vulnerable threads share a core slot next to two that hurt them; under the other cache are four that do neither.
        let rows = habits(&[(1.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.0, 1.0)]);
        let rows = [rows, habits(&[(0.0, 0.0); 4])].concat();
        let spots = [0, 0, 1, 1, 2, 2, 3, 3].map(|slot| (slot / 2, slot % 2));
        let found = best(&rows, &spots, &caches(), &[]).unwrap();
        assert_eq!(found[0], found[1]);
        assert_eq!(found[2], found[3]);
        assert_ne!(found[0].0, found[2].0);
        assert_eq!(
            best(&rows, &found, &caches(), &[]),
            None,
            "nothing is left to save"
        );
    }
}
