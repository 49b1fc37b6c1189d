//! Model of a stream prefetcher.
//!
//! Input: lines beyond the reach of the first-level cache. Output: true for each line that continues a stream. One tracker per
//! page keeps the last line and the last step. A line is predicted if the previous step leads to it. A stream that leaves its
//! page continues in the next one.

/// Number of trackers. Hardware has 16 to 64, of which only those of active streams matter.
const TRACKERS: usize = 64;
/// Lines per page.
const PAGE_LINES: u64 = 64;
const NO_PAGE: u64 = u64::MAX;

#[derive(Clone, Copy)]
struct Tracker {
    page: u64,
    last: u64,
    step: i64,
}

/// Streams of one thread.
pub struct Streams {
    trackers: Box<[Tracker; TRACKERS]>,
}

impl Streams {
    pub fn new() -> Self {
        let empty = Tracker {
            page: NO_PAGE,
            last: 0,
            step: 0,
        };
        Self {
            trackers: Box::new([empty; TRACKERS]),
        }
    }

    /// Records a line. Returns true if it continues a stream.
    pub fn touch(&mut self, line: u64) -> bool {
        let page = line / PAGE_LINES;
        let own = self.trackers[slot(page)];
        if own.page == page {
            let step = line.wrapping_sub(own.last) as i64;
            let foreseen = step != 0 && step == own.step;
            self.set(page, line, if step == 0 { own.step } else { step });
            return foreseen;
        }
        let neighbours = [page.wrapping_sub(1), page.wrapping_add(1)];
        let from = neighbours
            .map(|near| self.trackers[slot(near)])
            .into_iter()
            .find(|t| neighbours.contains(&t.page) && t.last.wrapping_add_signed(t.step) == line);
        self.set(page, line, from.map_or(0, |t| t.step));
        from.is_some_and(|t| t.step != 0)
    }

    fn set(&mut self, page: u64, last: u64, step: i64) {
        self.trackers[slot(page)] = Tracker { page, last, step };
    }
}

fn slot(page: u64) -> usize {
    (page ^ page >> 6 ^ page >> 12) as usize % TRACKERS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn foreseen(lines: impl Iterator<Item = u64>) -> usize {
        let mut streams = Streams::new();
        lines.filter(|line| streams.touch(*line)).count()
    }

    #[test]
    fn strides_are_foreseen_across_pages_and_random_lines_are_not() {
        assert_eq!(foreseen(1000..1200), 198, "all but the first two");
        assert_eq!(foreseen((1000..1200).rev()), 198);
        assert_eq!(foreseen((0..100).map(|i| 5000 + 3 * i)), 98);
        let random = (0..1000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40);
        assert!(foreseen(random) < 10);
    }

    #[test]
    fn two_streams_do_not_disturb_each_other() {
        let both = (0..200u64).map(|i| {
            if i % 2 == 0 {
                10_000 + i / 2
            } else {
                77_013 + i / 2
            }
        });
        assert_eq!(foreseen(both), 196);
    }
}
