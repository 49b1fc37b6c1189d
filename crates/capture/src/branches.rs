//! Reference front end: TAGE for conditional branches, a return stack, and target tables for indirect jumps.
//!
//! Input: the block that ended, and the address of the next block. Output: a count of mispredictions. Direct jumps and calls are
//! always predicted correctly.

use crate::block::{BlockEnd, TranslatedBlock};
use crate::tage::Tage;
use crate::targets::BranchTargets;

const RETURNS: usize = 32;

/// Predictors of one thread.
pub struct Branches {
    tage: Tage,
    returns: [u64; RETURNS],
    depth: usize,
    targets: BranchTargets,
    /// Mispredictions so far.
    pub wrong: u64,
}

impl Branches {
    pub fn new() -> Self {
        Self {
            tage: Tage::new(),
            returns: [0; RETURNS],
            depth: 0,
            targets: BranchTargets::new(),
            wrong: 0,
        }
    }

    /// Predicts the control transfer from `block` and learns the outcome `next`.
    #[inline]
    pub fn resolve(&mut self, block: &TranslatedBlock, next: u64) {
        if block.end == BlockEnd::Condition {
            self.condition(block, next);
        } else if block.end > BlockEnd::Jump {
            self.other(block, next);
        }
    }

    #[inline(always)]
    fn condition(&mut self, block: &TranslatedBlock, next: u64) {
        let taken = next == block.target;
        // A signal handler may execute in between; such a transfer is no outcome of the branch.
        if taken || next == block.after {
            self.wrong += u64::from(self.tage.resolve(block.branch, taken));
        }
    }

    #[inline(never)]
    fn other(&mut self, block: &TranslatedBlock, next: u64) {
        match block.end {
            BlockEnd::Fall | BlockEnd::Jump | BlockEnd::Condition => {}
            BlockEnd::Call => self.push(block.after),
            BlockEnd::IndirectCall => {
                self.indirect(block.branch, next);
                self.push(block.after);
            }
            BlockEnd::IndirectJump => self.indirect(block.branch, next),
            BlockEnd::Return => {
                self.depth = self.depth.wrapping_sub(1);
                self.wrong += u64::from(self.returns[self.depth % RETURNS] != next);
            }
        }
    }

    fn push(&mut self, after: u64) {
        self.returns[self.depth % RETURNS] = after;
        self.depth = self.depth.wrapping_add(1);
    }

    fn indirect(&mut self, pc: u64, next: u64) {
        self.wrong += u64::from(self.targets.resolve(pc, self.tage.history(), next));
        // The selected target helps to predict the branches that follow.
        let bits = next ^ next >> 7;
        self.tage.remember(bits & 1 != 0);
        self.tage.remember(bits & 2 != 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(end: BlockEnd, branch: u64) -> TranslatedBlock {
        TranslatedBlock {
            end,
            branch,
            target: branch + 0x100,
            after: branch + 4,
            ..TranslatedBlock::default()
        }
    }

    #[test]
    fn returns_match_their_calls_however_deep() {
        let mut branches = Branches::new();
        for call in 0..20 {
            branches.resolve(&block(BlockEnd::Call, 0x1000 + call * 16), 0x5000);
        }
        for call in (0..20).rev() {
            branches.resolve(&block(BlockEnd::Return, 0x5000), 0x1000 + call * 16 + 4);
        }
        assert_eq!(branches.wrong, 0);
        branches.resolve(&block(BlockEnd::Return, 0x5000), 0x9999);
        assert_eq!(branches.wrong, 1);
    }

    #[test]
    fn an_indirect_jump_with_one_target_is_wrong_until_learnt() {
        let mut branches = Branches::new();
        for _ in 0..100 {
            branches.resolve(&block(BlockEnd::IndirectJump, 0x1000), 0x7777);
        }
        assert!(branches.wrong < 15, "{}", branches.wrong);
    }

    #[test]
    fn neither_way_is_no_outcome() {
        let mut branches = Branches::new();
        branches.resolve(&block(BlockEnd::Condition, 0x1000), 0xdead);
        assert_eq!(branches.wrong, 0);
    }
}
