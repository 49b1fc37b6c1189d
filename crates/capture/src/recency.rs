//! Exact LRU stack distances and reuse times of lines.
//!
//! Input: touched lines in program order. Output: for each touch, the number of distinct lines touched since the last touch of
//! the same line, and the time since. Each line's word holds its position in [`Stamps`] and the time of its last touch.

use crate::lines::SparseLines;
use crate::stamps::Stamps;

/// Bits of a line's word for its position in [`Stamps`], plus one; the rest is the time of its last touch.
const STAMP_BITS: u32 = 28;
const STAMP_MASK: u64 = (1 << STAMP_BITS) - 1;
const TIME_MASK: u64 = u64::MAX >> STAMP_BITS;

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

/// LRU stack of one thread.
pub struct Recency {
    stamps: Stamps,
    lines: SparseLines,
}

impl Recency {
    pub fn new() -> Self {
        Self {
            stamps: Stamps::new(0),
            lines: SparseLines::new(),
        }
    }

    /// Touches `line` at time `now`. Also returns a handle of the line for [`Self::set_time`].
    #[inline(always)]
    pub fn touch(&mut self, line: u64, now: u64) -> (Touch, usize) {
        if self.stamps.is_full() {
            self.compact();
        }
        let place = self.lines.place(line);
        let word = self.lines.word(place);
        let found = *word;
        *word = now << STAMP_BITS | (self.stamps.top() as u64 + 1);
        let touch = if found == 0 {
            Touch::Cold
        } else {
            let distance = self.stamps.remove((found & STAMP_MASK) as usize - 1);
            Touch::Again {
                distance,
                reuse: now.wrapping_sub(found >> STAMP_BITS) & TIME_MASK,
            }
        };
        self.stamps.push();
        (touch, place)
    }

    /// Touches a line outside of the sample: it stays out of the stack, which only dates it. Returns the time since its last
    /// touch, the date of that touch for [`Self::since`], and a handle; `None` for a line that was never touched before.
    #[inline(always)]
    pub fn pass(&mut self, line: u64, now: u64) -> (Option<(u64, usize)>, usize) {
        if self.stamps.is_full() {
            self.compact();
        }
        let place = self.lines.place(line);
        let word = self.lines.word(place);
        let found = *word;
        *word = now << STAMP_BITS | (self.stamps.top() as u64 + 1);
        let date = (found & STAMP_MASK) as usize;
        let reuse = now.wrapping_sub(found >> STAMP_BITS) & TIME_MASK;
        (date.checked_sub(1).map(|date| (reuse, date)), place)
    }

    /// Returns the distinct lines of the sample touched since a date.
    pub fn since(&self, date: usize) -> u64 {
        self.stamps.count_from(date)
    }

    /// Takes all lines out of the stack that are not in the sample.
    pub fn thin(&mut self, keeps: impl Fn(u64) -> bool) {
        if self.stamps.is_full() {
            self.compact();
        }
        let stamps = &mut self.stamps;
        self.lines.for_each(|line, word| {
            if !keeps(line) {
                stamps.remove((*word & STAMP_MASK) as usize - 1);
            }
        });
    }

    /// Sets the time of a line's last touch, without moving the line in the stack.
    #[inline(always)]
    pub fn set_time(&mut self, place: usize, time: u64) {
        let word = self.lines.word(place);
        *word = time << STAMP_BITS | (*word & STAMP_MASK);
    }

    #[cold]
    #[inline(never)]
    fn compact(&mut self) {
        let ranks = self.stamps.ranks();
        self.lines.for_each(|_, word| {
            let rank = ranks.of((*word & STAMP_MASK) as usize - 1) as u64;
            *word = (*word & !STAMP_MASK) | (rank + 1);
        });
        self.stamps.compact();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Naive {
        stack: Vec<(u64, u64)>,
    }

    impl Naive {
        fn touch(&mut self, line: u64, now: u64) -> Touch {
            let found = self.stack.iter().rposition(|(l, _)| *l == line);
            let touch = found.map_or(Touch::Cold, |at| {
                let (_, then) = self.stack.remove(at);
                Touch::Again {
                    distance: (self.stack.len() - at) as u64,
                    reuse: now - then,
                }
            });
            self.stack.push((line, now));
            touch
        }
    }

    fn compare(touches: usize, mut next: impl FnMut(u64) -> u64) {
        let mut fast = Recency::new();
        let mut naive = Naive::default();
        let mut state = 99u64;
        for now in 1..=touches as u64 {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let line = next(state >> 33);
            assert_eq!(
                fast.touch(line, now).0,
                naive.touch(line, now),
                "touch {now} of line {line}"
            );
        }
    }

    #[test]
    fn distances_equal_the_definition_on_random_traces() {
        compare(30_000, |r| r % 5);
        compare(30_000, |r| r % 100);
        compare(60_000, |r| (r % 1000).min(r / 1000 % 1000));
        compare(30_000, |r| if r % 3 == 0 { r % 3000 } else { r % 12 });
    }

    #[test]
    fn lines_outside_the_sample_are_dated_by_those_inside() {
        let keeps = |line: u64| line.is_multiple_of(4);
        let mut recency = Recency::new();
        for line in 0..400 {
            recency.touch(line, line);
        }
        recency.thin(keeps);
        // Enough touches for several compactions.
        for now in 400..400_000u64 {
            let line = now % 400;
            if keeps(line) {
                let (touch, _) = recency.touch(line, now);
                let expected = Touch::Again {
                    distance: 99,
                    reuse: 400,
                };
                assert_eq!(touch, expected);
            } else {
                let (reuse, date) = recency.pass(line, now).0.unwrap();
                assert_eq!((reuse, recency.since(date)), (400, 100));
            }
        }
        assert_eq!(recency.pass(1000, 400_000).0, None);
    }

    #[test]
    fn distances_survive_compaction() {
        compare(300_000, |r| r % 70);
    }

    #[test]
    fn a_cyclic_sweep_has_one_distance() {
        let mut recency = Recency::new();
        for now in 1..=5000u64 {
            let (touch, _) = recency.touch(now % 500, now);
            let expected = if now <= 500 {
                Touch::Cold
            } else {
                Touch::Again {
                    distance: 499,
                    reuse: 500,
                }
            };
            assert_eq!(touch, expected);
        }
    }
}
