//! Which exchange of two threads to try next.
//!
//! Input: who is where, what each thread stands to lose and what it does to its neighbours, and what earlier trials
//! brought. Output: the most promising exchanges, one per pair of caches, so that they can be tried at the same time and
//! told apart.
//!
//! What was tried counts by what it brought, and counts for more again as that gets old. What was not is judged by a
//! simple model: a thread loses its stake in proportion to the lines that the others of its cache bring in, those of its
//! own seat excepted, which never run at the same time.

use std::collections::BTreeMap;

use rand::RngExt;

use super::mapping::{Caches, Spot};
use countersteer_core::policy::PolicyRng;
use countersteer_core::units::ThreadId;

/// What an exchange that nobody tried may gain, as far as anybody knows.
const HOPE: f64 = 0.05;
/// By how much what was tried regains promise per interval.
const AGEING: f64 = 0.001;
/// Threads per cache of which exchanges are considered.
const PER_CACHE: usize = 16;
/// Exchanges remembered per thread.
const REMEMBERED: usize = 64;

/// What is known about the threads.
pub(super) struct Threads<'a> {
    pub ids: &'a [ThreadId],
    /// IPC that each stands to lose to its neighbours.
    pub stake: &'a [f64],
    /// Lines that each brings in.
    pub pressure: &'a [f64],
}

/// What earlier trials brought, by pair of threads.
#[derive(Default)]
pub(super) struct Memory {
    /// Gain and time of the trial.
    tried: BTreeMap<(ThreadId, ThreadId), (f64, f64)>,
}

impl Memory {
    /// Takes in what an exchange would bring from now on.
    pub fn learn(&mut self, a: ThreadId, b: ThreadId, gain: f64, at: f64) {
        self.tried.insert((a.min(b), a.max(b)), (gain, at));
    }

    /// Forgets what is oldest when there is too much.
    pub fn limit(&mut self, threads: usize) {
        if self.tried.len() > threads * REMEMBERED {
            let mut times: Vec<f64> = self.tried.values().map(|t| t.1).collect();
            let middle = times.len() / 2;
            let (_, median, _) = times.select_nth_unstable_by(middle, f64::total_cmp);
            let median = *median;
            self.tried.retain(|_, t| t.1 > median);
        }
    }

    fn promise(&self, a: ThreadId, b: ThreadId, model: impl FnOnce() -> f64, at: f64) -> f64 {
        let tried = self.tried.get(&(a.min(b), a.max(b)));
        tried.map_or_else(
            || HOPE * (1.0 + model().clamp(-1.0, 1.0)),
            |(gain, then)| gain + AGEING * (at - then),
        )
    }
}

/// The exchanges to try, at most one per pair of caches.
pub(super) fn pick(
    threads: &Threads<'_>,
    spots: &[Spot],
    caches: &Caches,
    crowded: bool,
    (memory, at): (&Memory, f64),
    rng: &mut PolicyRng,
) -> Vec<(usize, usize)> {
    let board = Board::new(threads, spots, caches);
    let mut order: Vec<usize> = (0..caches.rows.len()).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, rng.random_range(0..=i));
    }
    let mut picked = Vec::new();
    for pair in order.chunks(2) {
        let mut best: Option<(f64, usize, usize)> = None;
        let mut see = |a: usize, b: usize| {
            let promise = memory.promise(threads.ids[a], threads.ids[b], || board.gain(a, b), at);
            if promise > best.map_or(0.0, |b| b.0) {
                best = Some((promise, a, b));
            }
        };
        if let [x, y] = *pair {
            board.few[x]
                .iter()
                .for_each(|a| board.few[y].iter().for_each(|b| see(*a, *b)));
        }
        for cache in pair.iter().filter(|_| crowded) {
            let few = &board.few[*cache];
            for (i, a) in few.iter().enumerate() {
                few[i + 1..]
                    .iter()
                    .filter(|b| spots[**b].1 != spots[*a].1)
                    .for_each(|b| see(*a, *b));
            }
        }
        picked.extend(best.map(|(_, a, b)| (a, b)));
    }
    picked
}

/// The simple model's sums.
struct Board<'a> {
    threads: &'a Threads<'a>,
    spots: &'a [Spot],
    /// By cache, the threads with most and with least at stake.
    few: Vec<Vec<usize>>,
    /// By cache: stake and pressure of all.
    cache: Vec<[f64; 2]>,
    /// By cache and seat.
    seats: Vec<Vec<[f64; 2]>>,
    /// By cache.
    lines: Vec<f64>,
}

impl<'a> Board<'a> {
    fn new(threads: &'a Threads<'a>, spots: &'a [Spot], caches: &Caches) -> Self {
        let rows = caches.rows.len();
        let mut board = Self {
            threads,
            spots,
            few: vec![Vec::new(); rows],
            cache: vec![[0.0; 2]; rows],
            seats: caches
                .rows
                .iter()
                .map(|r| vec![[0.0; 2]; r.seats.len()])
                .collect(),
            lines: caches.rows.iter().map(|r| r.lines.max(1.0)).collect(),
        };
        let mut by_stake: Vec<usize> = (0..spots.len()).collect();
        by_stake.sort_by(|a, b| {
            threads.stake[*b]
                .total_cmp(&threads.stake[*a])
                .then(a.cmp(b))
        });
        for thread in by_stake {
            let (row, seat) = spots[thread];
            board.few[row].push(thread);
            for (k, value) in board.traits(thread).into_iter().enumerate() {
                board.cache[row][k] += value;
                board.seats[row][seat][k] += value;
            }
        }
        for few in board.few.iter_mut().filter(|f| f.len() > PER_CACHE) {
            few.drain(PER_CACHE / 2..few.len() - PER_CACHE / 2);
        }
        board
    }

    fn traits(&self, thread: usize) -> [f64; 2] {
        [self.threads.stake[thread], self.threads.pressure[thread]]
    }

    /// What is lost in the caches of two threads, with them exchanged or not.
    fn loss(&self, a: usize, b: usize, exchanged: bool) -> f64 {
        let from = self.spots[a];
        let to = self.spots[b];
        let ta = self.traits(a);
        let tb = self.traits(b);
        let moved = |sums: [f64; 2], has: (bool, bool)| -> [f64; 2] {
            let sign = |has: bool| if has && exchanged { 1.0 } else { 0.0 };
            [0, 1].map(|k| sums[k] + (tb[k] - ta[k]) * (sign(has.0) - sign(has.1)))
        };
        let mut loss = 0.0;
        for row in if from.0 == to.0 {
            vec![from.0]
        } else {
            vec![from.0, to.0]
        } {
            let [stake, pressure] = moved(self.cache[row], (row == from.0, row == to.0));
            let own = |(seat, sums): (usize, &[f64; 2])| {
                let here = (row, seat);
                let [stake, pressure] = moved(*sums, (here == from, here == to));
                stake * pressure
            };
            let met = stake * pressure - self.seats[row].iter().enumerate().map(own).sum::<f64>();
            loss += met / self.lines[row];
        }
        loss
    }

    /// Part of the loss that an exchange saves.
    fn gain(&self, a: usize, b: usize) -> f64 {
        let before = self.loss(a, b, false);
        if before > 0.0 {
            1.0 - self.loss(a, b, true) / before
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersteer_core::policy::PolicyRng;
    use countersteer_core::testing;
    use rand::SeedableRng;

    /// The exchange picked among four threads, two per cache, a seat each.
    fn picked(memory: &Memory, at: f64) -> Vec<(usize, usize)> {
        let caches = Caches::new(&testing::topology(testing::TWO_LLCS));
        let ids: Vec<ThreadId> = (0..4).map(ThreadId).collect();
        // 0 is hurt by 1; 2 and 3 neither hurt nor are hurt much.
        let threads = Threads {
            ids: &ids,
            stake: &[1.0, 0.0, 0.1, 0.0],
            pressure: &[0.1, 1.0, 0.05, 0.1],
        };
        let spots = [(0, 0), (0, 1), (1, 0), (1, 1)];
        let mut rng = PolicyRng::seed_from_u64(1);
        let sorted = |(a, b): (usize, usize)| (a.min(b), a.max(b));
        pick(&threads, &spots, &caches, false, (memory, at), &mut rng)
            .into_iter()
            .map(sorted)
            .collect()
    }

    #[test]
    fn at_first_the_hurt_leave_those_who_hurt() {
        // Either exchange leaves 0 with 2, who brings in least, and 1 with 3, who has nothing to lose.
        let first = picked(&Memory::default(), 0.0);
        assert!([[(0, 3)], [(1, 2)]].contains(&[first[0]]), "{first:?}");
    }

    #[test]
    fn what_was_tried_in_vain_waits_until_it_is_old() {
        let mut memory = Memory::default();
        memory.learn(ThreadId(0), ThreadId(3), -0.1, 0.0);
        assert_ne!(picked(&memory, 1.0), [(0, 3)]);
        for (a, b) in [(0, 2), (1, 2), (1, 3)] {
            memory.learn(ThreadId(a), ThreadId(b), -0.2, 0.0);
        }
        assert_eq!(picked(&memory, 1.0), []);
        assert_eq!(picked(&memory, 150.0), [(0, 3)]);
    }

    #[test]
    fn what_is_remembered_has_a_limit() {
        let mut memory = Memory::default();
        (1..200).for_each(|t| memory.learn(ThreadId(0), ThreadId(t), 0.0, f64::from(t)));
        memory.limit(2);
        assert!(memory.tried.len() <= 2 * REMEMBERED);
        assert!(
            memory.tried.contains_key(&(ThreadId(0), ThreadId(199))),
            "the newest stays"
        );
    }
}
