//! Translation blocks for the callbacks: everything that is known before the first execution.
//!
//! Stage: `decode` makes a block once per translation; the callbacks read it at every execution.

use std::sync::LazyLock;

use countersteer_model::profile::Operation;

/// Control transfer at the end of a block. The kinds after [`BlockEnd::Jump`] need a prediction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum BlockEnd {
    /// No branch, or a branch that the front end does not predict (system calls).
    #[default]
    Fall,
    Jump,
    Condition,
    Call,
    /// Call through a register or memory.
    IndirectCall,
    /// Jump through a register or memory.
    IndirectJump,
    Return,
}

/// Data flow of one instruction. Registers are bits, numbered by the decoder of the architecture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InsnFlow {
    /// Registers that the address of its memory access needs.
    pub address: u64,
    /// Other registers that it reads.
    pub reads: u64,
    pub writes: u64,
    /// Operation that it computes; `None` for moves, branches, loads and stores.
    pub operation: Option<Operation>,
    /// True for the branch of a pair that cores fuse into one operation.
    pub fused: bool,
}

/// A line of the block is in the sample.
pub const SAMPLES_LINE: u8 = 1;
/// A page of the block is in the sample.
pub const SAMPLES_PAGE: u8 = 2;
/// The block ends with a repeated string instruction.
pub const REPEATS: u8 = 4;

/// Translated block. The fields that the callback reads come first, in one cache line.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct TranslatedBlock {
    /// Address of the first instruction.
    pub pc: u64,
    /// Counts of branches, scalar floating-point and vector instructions, packed as [`PackedClasses`].
    pub classes: u64,
    /// Address of the last instruction.
    pub branch: u64,
    /// Target of the last instruction, if it is known.
    pub target: u64,
    /// Address after the last instruction.
    pub after: u64,
    /// Address of a repeated string instruction at its end, or 0.
    pub ends_repeat: u64,
    pub count: u32,
    pub end: BlockEnd,
    /// True if the block starts with a repeated string instruction, which QEMU executes as one block per element.
    pub starts_repeat: bool,
    /// Reasons for which sampled recordings do not pass over the block: [`SAMPLES_LINE`], [`SAMPLES_PAGE`], [`REPEATS`].
    pub special: u8,
    /// True if the branch at its end is in the sample.
    pub samples_branch: bool,
    /// Entry of the simple predictor of sampled recordings.
    pub slot: u16,
    pub insns: Box<[InsnFlow]>,
}

/// Block before the first.
pub static NO_BLOCK: LazyLock<TranslatedBlock> = LazyLock::new(TranslatedBlock::default);

impl TranslatedBlock {
    /// True if the block is another element of a repeated string instruction. QEMU executes each as a block; together they
    /// count as one instruction.
    #[inline(always)]
    pub fn continues(&self, previous: &Self) -> bool {
        self.ends_repeat != 0 && self.starts_repeat && previous.ends_repeat == self.pc
    }
}

/// Three counts packed in one word, so that one addition adds all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackedClasses {
    pub branches: u64,
    pub fp: u64,
    pub simd: u64,
}

/// Bits per count: enough for one slice of the execution; the owner unpacks at its end.
const CLASS_BITS: u32 = 21;
const CLASS_MASK: u64 = (1 << CLASS_BITS) - 1;

impl PackedClasses {
    pub fn pack(self) -> u64 {
        self.branches | self.fp << CLASS_BITS | self.simd << (2 * CLASS_BITS)
    }

    /// Unpacks one word, or a sum of such words.
    pub fn unpack(word: u64) -> Self {
        Self {
            branches: word & CLASS_MASK,
            fp: word >> CLASS_BITS & CLASS_MASK,
            simd: word >> (2 * CLASS_BITS),
        }
    }
}

/// Position, in QEMU's information about a data access, of the size (log2) and of the read and write bits.
pub const SIZE_SHIFT: u32 = 4;
pub const READ_SHIFT: u32 = 16;
pub const WRITE_SHIFT: u32 = 17;

/// Data about an instruction for its memory callback, in the pointer-sized datum that QEMU passes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// Position of the instruction in its block.
    pub index: u32,
    /// Bytes of the access.
    pub bytes: u8,
    /// True if QEMU may perform it in pieces, from the lowest address up. Their size depends on QEMU's version.
    pub split: bool,
    /// True for a repeated string instruction.
    pub repeat: bool,
}

impl MemoryUse {
    pub fn pack(self) -> usize {
        (self.index as usize) << 10
            | (self.bytes as usize) << 2
            | usize::from(self.split) << 1
            | usize::from(self.repeat)
    }

    #[inline]
    pub fn unpack(datum: usize) -> Self {
        Self {
            index: (datum >> 10) as u32,
            bytes: (datum >> 2) as u8,
            split: datum >> 1 & 1 != 0,
            repeat: datum & 1 != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_is_reversible_and_sums_add_up() {
        let classes = PackedClasses {
            branches: 3,
            fp: 70_000,
            simd: 9,
        };
        let sum = classes.pack() * 5;
        assert_eq!(
            PackedClasses::unpack(sum),
            PackedClasses {
                branches: 15,
                fp: 350_000,
                simd: 45
            }
        );
        let memory = MemoryUse {
            index: 511,
            bytes: 64,
            split: true,
            repeat: true,
        };
        assert_eq!(MemoryUse::unpack(memory.pack()), memory);
    }
}
