//! Translation blocks as the callbacks see them: everything that is known before the first execution.
//!
//! Stage: made once per translated block by `decode`, read at every execution.

use countersteer_model::profile::Operation;

/// How a block passes on control; those that need a prediction come after [`End::Jump`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum End {
    /// No branch, or one that the front end does not predict (system calls).
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

/// One instruction's part in data flow. Registers are bits, as the decoder of the architecture numbers them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Insn {
    /// Registers that its memory access needs for the address.
    pub address: u64,
    /// Registers whose value it needs otherwise.
    pub reads: u64,
    pub writes: u64,
    /// What it computes, if it does.
    pub operation: Option<Operation>,
    /// Whether it is the branch of a pair that cores execute as one.
    pub fused: bool,
}

/// A translated block. What the callback reads comes first, in one cache line.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Block {
    /// Address of the first instruction.
    pub pc: u64,
    /// Branches, scalar floating-point and vector instructions, as [`Classes`] packs them.
    pub classes: u64,
    /// Address of the last instruction.
    pub branch: u64,
    /// Where the last instruction jumps to, if that is known.
    pub target: u64,
    /// Address after the last instruction.
    pub after: u64,
    /// Address of a repeated string instruction at its end, or 0.
    pub ends_repeat: u64,
    pub count: u32,
    pub end: End,
    /// Whether it starts with a repeated string instruction, which QEMU executes as one block per element.
    pub starts_repeat: bool,
    pub insns: Box<[Insn]>,
}

/// Three counts in one word, so that a block adds all of them at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Classes {
    pub branches: u64,
    pub fp: u64,
    pub simd: u64,
}

/// Bits per count: enough for a slice of the execution, after which the owner unpacks.
const CLASS_BITS: u32 = 21;
const CLASS_MASK: u64 = (1 << CLASS_BITS) - 1;

impl Classes {
    pub fn pack(self) -> u64 {
        self.branches | self.fp << CLASS_BITS | self.simd << (2 * CLASS_BITS)
    }

    /// From one word, or from a sum of such words.
    pub fn unpack(word: u64) -> Self {
        Self {
            branches: word & CLASS_MASK,
            fp: word >> CLASS_BITS & CLASS_MASK,
            simd: word >> (2 * CLASS_BITS),
        }
    }
}

/// What a memory callback needs to know about its instruction, in the pointer-sized datum that QEMU hands back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// Position of the instruction in its block.
    pub index: u32,
    /// Bytes of the access.
    pub bytes: u8,
    /// Whether QEMU may perform it in pieces, from the lowest address up. How long these are depends on QEMU's version.
    pub split: bool,
    /// Whether it is a repeated string instruction.
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
        let classes = Classes {
            branches: 3,
            fp: 70_000,
            simd: 9,
        };
        let sum = classes.pack() * 5;
        assert_eq!(
            Classes::unpack(sum),
            Classes {
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
