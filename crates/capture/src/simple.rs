//! Simple predictor of conditional branches, fast enough to see every branch of a sampled recording.
//!
//! Input: the block that ended, and the address of the next one. Output: a count of mispredictions. A branch is predicted by its own last
//! outcomes, with a counter of two bits. Blocks that end otherwise have two entries of their own, which are always right. So they need no
//! condition, which would be mispredicted itself.

use crate::block::{BlockEnd, TranslatedBlock};

/// Entries for branches.
const BRANCHES: u16 = 1 << 12;
/// Entry of blocks whose next address is never their target, and of those where it always is.
const NEVER: u16 = BRANCHES;
const ALWAYS: u16 = BRANCHES + 1;
/// Number of entries, most of them unused: any index is one.
const ENTRIES: usize = 1 << 16;

/// Predictor of one thread.
pub struct Simple {
    counters: Box<[u8; ENTRIES]>,
    /// Mispredictions so far.
    pub wrong: u64,
}

/// Returns the entry of a block.
pub fn slot(block: &TranslatedBlock) -> u16 {
    match block.end {
        BlockEnd::Condition => ((block.branch ^ block.branch >> 12) % u64::from(BRANCHES)) as u16,
        BlockEnd::Jump | BlockEnd::Call => ALWAYS,
        BlockEnd::Fall | BlockEnd::IndirectCall | BlockEnd::IndirectJump | BlockEnd::Return => {
            NEVER
        }
    }
}

impl Simple {
    pub fn new() -> Self {
        let mut counters = Box::new([1; ENTRIES]);
        counters[usize::from(NEVER)] = 0;
        counters[usize::from(ALWAYS)] = 3;
        Self { counters, wrong: 0 }
    }

    /// Predicts the branch at the end of a block, and learns its outcome `next`.
    #[inline(always)]
    pub fn resolve(&mut self, block: &TranslatedBlock, next: u64) {
        let taken = u8::from(next == block.target);
        let counter = &mut self.counters[usize::from(block.slot)];
        self.wrong += u64::from(*counter >> 1 ^ taken);
        *counter = (*counter + 2 * taken).saturating_sub(1).min(3);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(end: BlockEnd, next: impl Fn(u64) -> u64) -> u64 {
        let mut block = TranslatedBlock {
            branch: 0x1234,
            target: if end > BlockEnd::Fall && end != BlockEnd::Return {
                0x2000
            } else {
                0
            },
            end,
            ..TranslatedBlock::default()
        };
        block.slot = slot(&block);
        let mut simple = Simple::new();
        (0..100).for_each(|nth| simple.resolve(&block, next(nth)));
        simple.wrong
    }

    #[test]
    fn only_conditional_branches_are_mispredicted() {
        let seventh = |nth: u64| if nth % 7 == 6 { 0x1238 } else { 0x2000 };
        assert_eq!(
            wrong(BlockEnd::Condition, seventh),
            1 + 14,
            "once to learn it"
        );
        assert_eq!(wrong(BlockEnd::Jump, |_| 0x2000), 0);
        assert_eq!(wrong(BlockEnd::Fall, |_| 0x1238), 0);
        assert_eq!(wrong(BlockEnd::Return, |nth| 0x4000 + nth), 0);
    }
}
