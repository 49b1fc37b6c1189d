//! Exact LRU stack distances and reuse times of lines.
//!
//! Input: touched lines in program order. Output: per touch, the number of distinct lines touched since the last touch of
//! the same line, and the number of touches. The eight most recent lines are kept in a move-to-front list, which serves
//! most touches; older ones have a bit in [`Stamps`], set in the order in which they left the list, which is the order of
//! their last touches.

use crate::lines::Lines;
use crate::stamps::Stamps;

/// Lines in the move-to-front list.
const FRONT: usize = 8;
/// Bits of a line's word for its position in [`Stamps`], plus one; the rest is the time of its last touch.
const STAMP_BITS: u32 = 28;
const STAMP_MASK: u64 = (1 << STAMP_BITS) - 1;
const TIME_MASK: u64 = u64::MAX >> STAMP_BITS;
/// A line number that no address has.
const NO_LINE: u64 = u64::MAX;

/// What a touch found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// The line was never touched before.
    Cold,
    /// The line was touched before.
    Again {
        /// Distinct other lines touched in between.
        distance: u64,
        /// Touches since, counting this one.
        reuse: u64,
    },
}

/// The LRU stack of one thread.
pub struct Recency {
    front: [u64; FRONT],
    times: [u64; FRONT],
    below: Stamps,
    lines: Lines,
}

impl Recency {
    /// Nothing touched yet.
    pub fn new() -> Self {
        Self { front: [NO_LINE; FRONT], times: [0; FRONT], below: Stamps::new(0), lines: Lines::new() }
    }

    /// The line touched last.
    #[inline]
    pub fn latest(&self) -> u64 {
        self.front[0]
    }

    /// Touches `line` at time `now`, which rises by one per touch.
    #[inline]
    pub fn touch(&mut self, line: u64, now: u64) -> Touch {
        // Repeats of the latest line leave no trace, so its last touch is whatever touch came before this one.
        let (mut moved, mut moved_time) = (self.front[0], now - 1);
        if moved == line {
            return Touch::Again { distance: 0, reuse: 1 };
        }
        for at in 1..FRONT {
            let (next, time) = (self.front[at], self.times[at]);
            self.front[at] = moved;
            self.times[at] = moved_time;
            if next == line {
                self.front[0] = line;
                self.times[0] = now;
                return Touch::Again { distance: at as u64, reuse: now - time };
            }
            (moved, moved_time) = (next, time);
        }
        self.front[0] = line;
        self.times[0] = now;
        self.touch_below(line, now, moved, moved_time)
    }

    fn touch_below(&mut self, line: u64, now: u64, evicted: u64, evicted_time: u64) -> Touch {
        let word = self.lines.word(line);
        let found = *word;
        *word = 0;
        let touch = if found == 0 {
            Touch::Cold
        } else {
            // The evicted line joins the others below, but was already on top of this one.
            let distance = self.below.remove((found & STAMP_MASK) as usize - 1) + FRONT as u64;
            Touch::Again { distance, reuse: now.wrapping_sub(found >> STAMP_BITS) & TIME_MASK }
        };
        if evicted != NO_LINE {
            if self.below.is_full() {
                self.compact();
            }
            let stamp = self.below.push() as u64 + 1;
            *self.lines.word(evicted) = (evicted_time << STAMP_BITS) | stamp;
        }
        touch
    }

    #[cold]
    fn compact(&mut self) {
        let ranks = self.below.ranks();
        self.lines.for_each(|word| {
            let rank = ranks.of((*word & STAMP_MASK) as usize - 1) as u64;
            *word = (*word & !STAMP_MASK) | (rank + 1);
        });
        self.below.compact();
    }

    /// Lines below the front, which the tests compare.
    #[cfg(test)]
    fn depth(&self) -> usize {
        self.below.live()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, by search.
    #[derive(Default)]
    struct Naive {
        stack: Vec<(u64, u64)>,
    }

    impl Naive {
        fn touch(&mut self, line: u64, now: u64) -> Touch {
            let found = self.stack.iter().rposition(|(l, _)| *l == line);
            let touch = found.map_or(Touch::Cold, |at| {
                let (_, then) = self.stack.remove(at);
                Touch::Again { distance: (self.stack.len() - at) as u64, reuse: now - then }
            });
            self.stack.push((line, now));
            touch
        }
    }

    fn compare(touches: usize, mut next: impl FnMut(u64) -> u64) {
        let (mut fast, mut naive) = (Recency::new(), Naive::default());
        let mut state = 99u64;
        for now in 1..=touches as u64 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let line = next(state >> 33);
            assert_eq!(fast.touch(line, now), naive.touch(line, now), "touch {now} of line {line}");
        }
        assert!(fast.depth() + FRONT >= naive.stack.len());
    }

    #[test]
    fn distances_equal_the_definition_on_random_traces() {
        compare(30_000, |r| r % 5);
        compare(30_000, |r| r % 100);
        compare(60_000, |r| (r % 1000).min(r / 1000 % 1000));
        compare(30_000, |r| if r % 3 == 0 { r % 3000 } else { r % 12 });
    }

    #[test]
    fn distances_survive_compaction() {
        compare(300_000, |r| r % 70);
    }

    #[test]
    fn a_cyclic_sweep_has_one_distance() {
        let mut recency = Recency::new();
        for now in 1..=5000u64 {
            let touch = recency.touch(now % 500, now);
            let expected = if now <= 500 { Touch::Cold } else { Touch::Again { distance: 499, reuse: 500 } };
            assert_eq!(touch, expected);
        }
    }
}
