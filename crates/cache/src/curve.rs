//! Miss curves of streams of accesses.
//!
//! Input: lines in order, of threads one after the other as they come. Output: misses of fully associative caches of any size
//! ([`Stack`]) and of set-associative ones ([`Forest`]), of data or of code.

use crate::forest::Forest;
use crate::private::Access;
use crate::space::Spaces;
use crate::stack::Stack;
use crate::wire::{Decoder, Head, What, WireError};

/// Fewest and most sets of the forest, as powers of two: 16 KiB of 32 ways to 16 MiB of 4.
const SETS: (u32, u32) = (3, 16);

/// Which accesses count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Side {
    #[default]
    Data,
    Code,
    Both,
}

impl Side {
    /// Whether an access is on this side.
    #[must_use]
    pub fn takes(self, access: Access) -> bool {
        match self {
            Self::Data => access != Access::Fetch,
            Self::Code => access == Access::Fetch,
            Self::Both => true,
        }
    }
}

/// What is measured of a stream.
#[derive(Clone, Debug)]
pub struct Curve {
    side: Side,
    instructions: u64,
    stack: Option<Stack>,
    forest: Option<Forest>,
    spaces: Spaces,
}

impl Curve {
    /// Measures stack distances at a sampling rate, if any, and set-associative caches, if asked to.
    #[must_use]
    pub fn new(side: Side, stack_rate: Option<f64>, forest: bool) -> Self {
        Self {
            side,
            instructions: 0,
            stack: stack_rate.map(Stack::new),
            forest: forest.then(|| Forest::new(SETS.0, SETS.1)),
            spaces: Spaces::default(),
        }
    }

    /// Adds so many instructions.
    pub fn instructions(&mut self, count: u64) {
        self.instructions += count;
    }

    /// Adds an access.
    #[inline]
    pub fn touch(&mut self, line: u64) {
        if let Some(stack) = &mut self.stack {
            stack.touch(line);
        }
        if let Some(forest) = &mut self.forest {
            forest.touch(line);
        }
    }

    /// Adds a block of a trace.
    ///
    /// # Errors
    /// Words that no encoder makes.
    pub fn block(&mut self, head: &Head, words: &[u32]) -> Result<(), WireError> {
        self.instructions(u64::from(head.instructions));
        let mark = self.spaces.mark(head, u64::BITS);
        let mut decoder = Decoder::new(words);
        while let Some(event) = decoder.next_event()? {
            if let What::Access(access) = event.what
                && self.side.takes(access)
            {
                self.touch(event.line ^ mark);
            }
        }
        Ok(())
    }

    /// Instructions so far.
    #[must_use]
    pub fn executed(&self) -> u64 {
        self.instructions
    }

    /// Misses per kilo-instruction of a fully associative cache; none where stack distances were not measured.
    #[must_use]
    pub fn full_mpki(&self, lines: u64) -> Option<f64> {
        let stack = self.stack.as_ref()?;
        let misses = stack.miss_ratio(lines) * stack.accesses() as f64;
        Some(misses * 1000.0 / self.instructions.max(1) as f64)
    }

    /// Misses of a cache of so many lines and ways; none where there is no such cache in the forest.
    #[must_use]
    pub fn misses(&self, lines: u64, ways: u32) -> Option<u64> {
        let sets = lines / u64::from(ways.max(1));
        self.forest.as_ref()?.misses(sets, ways)
    }

    /// The same per kilo-instruction.
    #[must_use]
    pub fn mpki(&self, lines: u64, ways: u32) -> Option<f64> {
        let misses = self.misses(lines, ways)? as f64;
        Some(misses * 1000.0 / self.instructions.max(1) as f64)
    }

    /// Different lines; none where stack distances were not measured.
    #[must_use]
    pub fn footprint_lines(&self) -> Option<f64> {
        self.stack.as_ref().map(Stack::footprint_lines)
    }
}
