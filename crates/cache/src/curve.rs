//! Miss curves of streams of memory accesses.
//!
//! Input: lines in order of access, with the blocks of several threads interleaved. Output: misses of fully associative caches
//! of any size ([`Stack`]) and of set-associative caches ([`Forest`]), for data or for code.

use crate::forest::Forest;
use crate::private::AccessKind;
use crate::space::Spaces;
use crate::stack::Stack;
use crate::wire::{BlockHead, Decoder, WireError, WireKind};

/// Smallest and largest number of sets in the forest, as powers of two: from 16 KiB with 32 ways to 16 MiB with 4 ways.
const SETS: (u32, u32) = (3, 16);

/// Kind of accesses that a miss curve counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessSide {
    #[default]
    Data,
    Code,
    Both,
}

impl AccessSide {
    /// True if an access is of the kind that is counted.
    #[must_use]
    pub fn takes(self, access: AccessKind) -> bool {
        match self {
            Self::Data => access != AccessKind::Fetch,
            Self::Code => access == AccessKind::Fetch,
            Self::Both => true,
        }
    }
}

/// Miss curve of a stream of accesses, under measurement.
#[derive(Clone, Debug)]
pub struct Curve {
    side: AccessSide,
    instructions: u64,
    stack: Option<Stack>,
    forest: Option<Forest>,
    spaces: Spaces,
}

impl Curve {
    /// Creates an empty miss curve. Stack distances are measured at the sampling rate `stack_rate`, if given. Set-associative
    /// caches are simulated if `forest` is true.
    #[must_use]
    pub fn new(side: AccessSide, stack_rate: Option<f64>, forest: bool) -> Self {
        Self {
            side,
            instructions: 0,
            stack: stack_rate.map(Stack::new),
            forest: forest.then(|| Forest::new(SETS.0, SETS.1)),
            spaces: Spaces::default(),
        }
    }

    /// Adds `count` executed instructions.
    pub fn instructions(&mut self, count: u64) {
        self.instructions += count;
    }

    /// Adds an access to a line.
    #[inline]
    pub fn touch(&mut self, line: u64) {
        if let Some(stack) = &mut self.stack {
            stack.touch(line);
        }
        if let Some(forest) = &mut self.forest {
            forest.touch(line);
        }
    }

    /// Adds the accesses and instructions of a block of a trace.
    ///
    /// # Errors
    /// Fails if the words come from no encoder.
    pub fn block(&mut self, head: &BlockHead, words: &[u32]) -> Result<(), WireError> {
        self.instructions(u64::from(head.instructions));
        let mark = self.spaces.mark(head, u64::BITS);
        let mut decoder = Decoder::new(words);
        while let Some(event) = decoder.next_event()? {
            if let WireKind::Access(access) = event.what
                && self.side.takes(access)
            {
                self.touch(event.line ^ mark);
            }
        }
        Ok(())
    }

    /// Returns the number of instructions so far.
    #[must_use]
    pub fn executed(&self) -> u64 {
        self.instructions
    }

    /// Returns the misses per kilo-instruction of a fully associative cache of `lines` lines; `None` if stack distances are not
    /// measured.
    #[must_use]
    pub fn full_mpki(&self, lines: u64) -> Option<f64> {
        let stack = self.stack.as_ref()?;
        let misses = stack.miss_ratio(lines) * stack.accesses() as f64;
        Some(misses * 1000.0 / self.instructions.max(1) as f64)
    }

    /// Returns the number of misses of a cache with `lines` lines and `ways` ways; `None` if the forest has no such cache.
    #[must_use]
    pub fn misses(&self, lines: u64, ways: u32) -> Option<u64> {
        let sets = lines / u64::from(ways.max(1));
        self.forest.as_ref()?.misses(sets, ways)
    }

    /// Returns the misses per kilo-instruction of a cache with `lines` lines and `ways` ways; `None` if the forest has no such
    /// cache.
    #[must_use]
    pub fn mpki(&self, lines: u64, ways: u32) -> Option<f64> {
        let misses = self.misses(lines, ways)? as f64;
        Some(misses * 1000.0 / self.instructions.max(1) as f64)
    }

    /// Returns the number of distinct lines that were accessed; `None` if stack distances are not measured.
    #[must_use]
    pub fn footprint_lines(&self) -> Option<f64> {
        self.stack.as_ref().map(Stack::footprint_lines)
    }
}
