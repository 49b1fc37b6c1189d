//! Encoder of a thread's instructions and accesses as blocks of events.
//!
//! Input: instructions, fetches and data accesses, as a plugin or an import observes them. Output: blocks with their heads.

use crate::private::AccessKind;
use crate::wire::{BlockHead, Encoder, Filter};

/// Number of instructions at which a block is complete.
pub const BLOCK_INSTRUCTIONS: u32 = 1 << 17;
/// Number of words at which a block is complete.
const BLOCK_WORDS: usize = 1 << 17;

/// Encoder of one thread, with the block in progress.
#[derive(Clone, Debug)]
pub struct ThreadTracer {
    encoder: Encoder,
    data: Filter,
    code: Filter,
    gap: u32,
    head: BlockHead,
}

impl ThreadTracer {
    /// Creates the encoder of a thread; `filter_sets` is that of the trace's header.
    #[must_use]
    pub fn new(thread: u32, pid: u32, filter_sets: u32) -> Self {
        Self {
            encoder: Encoder::default(),
            data: Filter::new(filter_sets as usize),
            code: Filter::new(filter_sets as usize),
            gap: 0,
            head: BlockHead {
                thread,
                pid,
                ..BlockHead::default()
            },
        }
    }

    /// Adds `count` instructions, which are executed before the next event.
    #[inline]
    pub fn instructions(&mut self, count: u32) {
        self.gap = self.gap.saturating_add(count);
        self.head.instructions = self.head.instructions.saturating_add(count);
    }

    /// Adds a fetch of code from the lines `first` to `last`, inclusive.
    #[inline]
    pub fn fetch(&mut self, first: u64, last: u64) {
        for line in first..=last.min(first.saturating_add(63)) {
            if self.code.passes(line, false) {
                let gap = std::mem::take(&mut self.gap);
                self.encoder.access(gap, AccessKind::Fetch, line);
            }
        }
    }

    /// Adds a data access to the lines `first` to `last`, inclusive.
    #[inline]
    pub fn data(&mut self, first: u64, last: u64, store: bool) {
        if store {
            self.head.stores += 1;
        } else {
            self.head.loads += 1;
        }
        self.touch(first, store);
        if last != first {
            self.more(first, last, store);
        }
    }

    #[inline]
    fn touch(&mut self, line: u64, store: bool) {
        if self.data.passes(line, store) {
            let gap = std::mem::take(&mut self.gap);
            let access = if store {
                AccessKind::Store
            } else {
                AccessKind::Load
            };
            self.encoder.access(gap, access, line);
        }
    }

    #[cold]
    fn more(&mut self, first: u64, last: u64, store: bool) {
        for line in first.saturating_add(1)..=last.min(first.saturating_add(63)) {
            self.touch(line, store);
        }
    }

    /// Marks the last executed branch as mispredicted.
    pub fn mispredicted(&mut self) {
        let gap = std::mem::take(&mut self.gap);
        self.encoder.mispredicted(gap);
    }

    /// True if the current block is complete.
    #[inline]
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.head.instructions >= BLOCK_INSTRUCTIONS || self.encoder.words().len() >= BLOCK_WORDS
    }

    /// Returns the number of instructions in the current block.
    #[must_use]
    pub fn pending(&self) -> u32 {
        self.head.instructions
    }

    /// Passes the current block to `to` and begins the next one. The state of the filters is kept.
    pub fn hand_on(&mut self, flags: u32, stamp: u64, to: impl FnOnce(BlockHead, &[u32])) {
        let words = self.encoder.words();
        let head = BlockHead {
            words: words.len() as u32,
            flags,
            stamp,
            ..self.head
        };
        to(head, words);
        self.encoder.clear();
        self.gap = 0;
        (self.head.instructions, self.head.loads, self.head.stores) = (0, 0, 0);
    }
}
