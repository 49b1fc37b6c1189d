//! Locality of code and of pages: LRU stacks of code lines, taken branches, and pages of code and of data.
//!
//! Input: fetched lines, taken branches, touched data lines. Output: counts by stack distance in the window's record.
//!
//! Distances below [`REACH_NEAR`] are counted in captures only. Outside of captures, an item that was used within the current
//! epoch is passed over ([`crate::near`]). Other distances are then off by up to an epoch; those of data pages, by two.

use countersteer_model::profile::LogHistogram;

use crate::block::{BlockEnd, SAMPLES_LINE, SAMPLES_PAGE, TranslatedBlock};
use crate::layout::{REACH_BUCKETS, REACH_NEAR, Reached, record};
use crate::near::Near;
use crate::recency::{Recency, Touch};
use crate::sample;

/// Lines per page of 4 KiB, as a shift.
const PAGE_SHIFT: u32 = 6;
/// Bytes that two branches are apart at least, as a shift.
const BRANCH_SHIFT: u32 = 1;

/// LRU stack of items of one kind.
struct LruStack {
    near: Near,
    recency: Recency,
    /// Items for which one in the stack stands.
    one_in: u64,
}

impl LruStack {
    fn new() -> Self {
        Self {
            near: Near::new(),
            recency: Recency::new(),
            one_in: 1,
        }
    }

    /// Continues with a sample of the items.
    fn thin(&mut self, one_in: u64) {
        self.recency.thin(|item| sample::keeps(item, one_in));
        self.near.clear(|_, _| ());
        self.near.shorten(one_in);
        self.one_in = one_in;
    }

    /// Uses an item. Returns false if it was used in this epoch, and so is not counted.
    #[inline(always)]
    fn touch(
        &mut self,
        item: u64,
        into: &mut [u64; record::WORDS],
        kind: Reached,
        exact: bool,
    ) -> bool {
        !self.near.touch(item, 0) && self.count(item, into, kind, exact)
    }

    #[inline(never)]
    fn count(
        &mut self,
        item: u64,
        into: &mut [u64; record::WORDS],
        kind: Reached,
        exact: bool,
    ) -> bool {
        let (touch, place) = self.recency.touch(item, 0);
        if !exact && self.near.add(item, place, 0).1 {
            self.near.clear(|_, _| ());
        }
        let at = record::REACH + kind as usize * (REACH_BUCKETS + 1);
        match touch {
            Touch::Cold => into[at + REACH_BUCKETS] += self.one_in,
            Touch::Again { distance, .. } => {
                let distance = sample::scaled(distance, self.one_in);
                if exact || distance >= REACH_NEAR {
                    into[at + LogHistogram::bucket(distance).min(REACH_BUCKETS - 1)] += self.one_in;
                }
            }
        }
        true
    }
}

/// LRU stacks of a thread.
pub struct ReachStacks {
    lines: LruStack,
    branches: LruStack,
    code_pages: LruStack,
    data_pages: LruStack,
    /// Line of the last fetched instruction.
    line: u64,
    /// Page of the last fetch of a sampled recording.
    page: u64,
}

/// Returns [`SAMPLES_LINE`] and [`SAMPLES_PAGE`] if a line or a page of a block is in the sample.
pub fn sampled_code(block: &TranslatedBlock) -> u8 {
    let mut parts = 0;
    for line in lines(block.pc, block.after) {
        if sample::keeps(line, sample::LINES) {
            parts |= SAMPLES_LINE;
        }
        if sample::keeps(line >> PAGE_SHIFT, sample::PAGES) {
            parts |= SAMPLES_PAGE;
        }
    }
    parts
}

/// True if the branch at the end of a block is in the sample.
pub fn samples_branch(block: &TranslatedBlock) -> bool {
    block.end != BlockEnd::Fall && sample::keeps(block.branch >> BRANCH_SHIFT, sample::LINES)
}

/// Returns the lines of the code from `pc` up to `after`. A block without a known end is one line.
#[inline(always)]
fn lines(pc: u64, after: u64) -> std::ops::RangeInclusive<u64> {
    let last = if after > pc { after - 1 } else { pc };
    pc >> 6..=last >> 6
}

impl ReachStacks {
    pub fn new() -> Self {
        Self {
            lines: LruStack::new(),
            branches: LruStack::new(),
            code_pages: LruStack::new(),
            data_pages: LruStack::new(),
            line: crate::near::NO_LINE,
            page: crate::near::NO_LINE,
        }
    }

    /// Continues with `block` after `previous`.
    #[inline(always)]
    pub fn block(
        &mut self,
        previous: &TranslatedBlock,
        block: &TranslatedBlock,
        into: &mut [u64; record::WORDS],
        exact: bool,
    ) {
        let taken = previous.end != BlockEnd::Fall && block.pc != previous.after;
        if taken {
            self.take(previous.branch, into, exact);
        }
        if taken || self.leaves(block.pc, block.after) {
            self.fetch(block.pc, block.after, into, exact);
        }
    }

    /// True if a fetch from address `pc` up to `after` leaves the line of the last one.
    #[inline(always)]
    fn leaves(&self, pc: u64, after: u64) -> bool {
        pc >> 6 != self.line || after.wrapping_sub(1) >> 6 != self.line
    }

    /// Fetches from address `pc` up to `after`.
    #[inline(always)]
    fn fetch(&mut self, pc: u64, after: u64, into: &mut [u64; record::WORDS], exact: bool) {
        let lines = lines(pc, after);
        let last = *lines.end();
        for line in lines {
            if line != self.line && self.lines.touch(line, into, Reached::CodeLines, exact) {
                let page = line >> PAGE_SHIFT;
                self.code_pages.touch(page, into, Reached::CodePages, exact);
            }
        }
        self.line = last;
    }

    /// Continues with a sample of lines, branches and pages.
    pub fn thin(&mut self) {
        self.lines.thin(sample::LINES);
        self.branches.thin(sample::LINES);
        self.code_pages.thin(sample::PAGES);
        self.data_pages.thin(sample::PAGES);
    }

    /// Continues with `block` after `previous`, of which one is in the sample.
    #[inline(never)]
    pub fn sampled_block(
        &mut self,
        previous: &TranslatedBlock,
        block: &TranslatedBlock,
        into: &mut [u64; record::WORDS],
        exact: bool,
    ) {
        if previous.samples_branch && block.pc != previous.after {
            self.take(previous.branch, into, exact);
        }
        if block.special & SAMPLES_LINE != 0 && self.leaves(block.pc, block.after) {
            for line in lines(block.pc, block.after) {
                if line != self.line && sample::keeps(line, sample::LINES) {
                    self.lines.touch(line, into, Reached::CodeLines, exact);
                }
                self.line = line;
            }
        }
        if block.special & SAMPLES_PAGE != 0 {
            let page = block.pc >> 6 >> PAGE_SHIFT;
            for page in page..=block.after.wrapping_sub(1).max(block.pc) >> 6 >> PAGE_SHIFT {
                if page != self.page && sample::keeps(page, sample::PAGES) {
                    self.code_pages.touch(page, into, Reached::CodePages, exact);
                }
                self.page = page;
            }
        }
    }

    /// Takes the branch at an address.
    #[inline(always)]
    fn take(&mut self, branch: u64, into: &mut [u64; record::WORDS], exact: bool) {
        let item = branch >> BRANCH_SHIFT;
        self.branches
            .touch(item, into, Reached::BranchTargets, exact);
    }

    /// Touches a line of data that was not touched in this epoch of data lines.
    #[inline(always)]
    pub fn data(&mut self, line: u64, into: &mut [u64; record::WORDS], exact: bool) {
        let page = line >> PAGE_SHIFT;
        self.data_pages.touch(page, into, Reached::DataPages, exact);
    }

    /// Touches a line of data, if its page is in the sample.
    #[inline(always)]
    pub fn sampled_data(&mut self, line: u64, into: &mut [u64; record::WORDS], exact: bool) {
        if sample::keeps(line >> PAGE_SHIFT, sample::PAGES) {
            self.data(line, into, exact);
        }
    }

    /// Ends the epochs, so that every use is counted from now on.
    pub fn end_epochs(&mut self) {
        let stacks = [
            &mut self.lines,
            &mut self.branches,
            &mut self.code_pages,
            &mut self.data_pages,
        ];
        for stack in stacks {
            stack.near.clear(|_, _| ());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts of a kind by bucket, then first uses.
    fn counts(record: &[u64; record::WORDS], kind: Reached) -> &[u64] {
        &record[record::REACH + kind as usize * (REACH_BUCKETS + 1)..][..REACH_BUCKETS + 1]
    }

    /// Fetches a loop over `lines` lines, with a taken branch at the end of each, five times.
    fn looped(lines: u64, exact: bool) -> Box<[u64; record::WORDS]> {
        let mut reach = ReachStacks::new();
        let mut record = Box::new([0; record::WORDS]);
        for line in (0..5).flat_map(|_| 0..lines) {
            reach.fetch(line * 64, line * 64 + 64, &mut record, exact);
            reach.take(line * 64 + 60, &mut record, exact);
            reach.data(line, &mut record, exact);
        }
        record
    }

    #[test]
    fn a_loop_has_the_distance_of_its_lines_branches_and_pages() {
        let record = looped(6400, true);
        for (kind, items) in [
            (Reached::CodeLines, 6400),
            (Reached::BranchTargets, 6400),
            (Reached::CodePages, 100),
            (Reached::DataPages, 100),
        ] {
            let counts = counts(&record, kind);
            assert_eq!(counts[REACH_BUCKETS], items, "{kind:?}");
            let again = counts[LogHistogram::bucket(items - 1)];
            assert_eq!(again, 4 * items, "{kind:?}");
        }
        // The other fetches of a page follow each other.
        assert_eq!(counts(&record, Reached::CodePages)[0], 5 * (6400 - 100));
    }

    #[test]
    fn outside_captures_far_distances_are_off_by_less_than_two_epochs() {
        let record = looped(6400, false);
        let far = |kind, from: u64| -> u64 {
            let from = LogHistogram::bucket(from);
            counts(&record, kind)[from..REACH_BUCKETS].iter().sum()
        };
        assert_eq!(far(Reached::CodeLines, 6000), 4 * 6400);
        assert_eq!(far(Reached::BranchTargets, 6000), 4 * 6400);
        // Pages of two epochs are passed over at most.
        let uses = far(Reached::DataPages, 64) as f64;
        assert!((uses / 400.0 - 1.0).abs() < 0.35, "{uses}");
        // Near distances are left to the captures.
        assert_eq!(counts(&record, Reached::DataPages)[0], 0);
    }

    #[test]
    fn a_line_counts_once_until_it_is_left() {
        let mut reach = ReachStacks::new();
        assert!(reach.leaves(0x1000, 0x1010));
        let mut record = Box::new([0; record::WORDS]);
        reach.fetch(0x1000, 0x1010, &mut record, true);
        assert!(!reach.leaves(0x1010, 0x1040));
        assert!(reach.leaves(0x1030, 0x1050), "it ends in the next line");
        reach.fetch(0x1030, 0x1050, &mut record, true);
        assert_eq!(counts(&record, Reached::CodeLines)[REACH_BUCKETS], 2);
    }
}
