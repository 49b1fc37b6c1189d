//! A64, the instruction set of 64-bit Arm, by the encoding tables of the Arm Architecture Reference Manual (DDI 0487, chapter
//! C4). Only the group, the registers and a few bits of an instruction are decoded.
//!
//! Registers are bits: 0-30 general, 31 flags, 32-63 vectors. The stack pointer has no bit: as with stack instructions of x86,
//! its users do not depend on each other through it. SVE and SME are not decoded; QEMU is configured without them.

use countersteer_model::profile::Operation;

mod memory;
mod vector;

use super::Decoded;
use crate::block::{BlockEnd, InsnFlow, MemoryUse, PackedClasses, TranslatedBlock};

const FLAGS: u64 = 1 << 31;
/// Link register: it receives the return address of a call.
const LINK: u64 = 1 << 30;

/// Decoded properties of an instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Decode {
    flow: InsnFlow,
    end: BlockEnd,
    target: u64,
    /// Bytes of its memory access.
    bytes: Option<u8>,
    /// True if QEMU may split the access.
    split: bool,
    /// True for scalar floating point and vectors.
    fp: bool,
    simd: bool,
    /// True if the instruction only compares, that is, only sets the flags.
    compares: bool,
}

/// Fields of an instruction's word.
#[derive(Clone, Copy)]
struct InstructionWord(u32);

impl InstructionWord {
    /// Returns the bits from `high` down to `low`, both included, numbered as in the manual.
    const fn bits(self, high: u32, low: u32) -> u32 {
        self.0 >> low & ((1 << (high - low + 1)) - 1)
    }

    const fn has(self, bit: u32) -> bool {
        self.0 >> bit & 1 != 0
    }

    /// Returns a signed field, in units of four-byte words.
    fn offset(self, high: u32, low: u32) -> u64 {
        let width = high - low + 1;
        let value = (self.bits(high, low) << (32 - width)).cast_signed() >> (32 - width);
        (i64::from(value) * 4).cast_unsigned()
    }

    /// Returns the bit of the general register whose number starts at bit `low`; zero for the zero register and the stack
    /// pointer.
    const fn general(self, low: u32) -> u64 {
        let number = self.bits(low + 4, low);
        if number < 31 { 1 << number } else { 0 }
    }

    const fn vector(self, low: u32) -> u64 {
        1 << (32 + self.bits(low + 4, low))
    }

    const fn register(self, low: u32, vector: bool) -> u64 {
        if vector {
            self.vector(low)
        } else {
            self.general(low)
        }
    }
}

const D: u32 = 0;
const N: u32 = 5;
const A: u32 = 10;
const M: u32 = 16;

/// Decodes the instructions of a block.
pub fn decode<'a>(code: impl Iterator<Item = (u64, &'a [u8])>) -> Decoded {
    let mut block = TranslatedBlock::default();
    let mut classes = PackedClasses::default();
    let mut insns = Vec::new();
    let mut memory = Vec::new();
    let mut compared = false;
    for (pc, bytes) in code {
        let word = bytes.first_chunk().map_or(0, |b| u32::from_le_bytes(*b));
        let mut of = one(pc, InstructionWord(word));
        if insns.is_empty() {
            block.pc = pc;
        }
        of.flow.fused = compared && of.end == BlockEnd::Condition && of.flow.reads & FLAGS != 0;
        compared = of.compares;
        classes.branches += u64::from(of.end != BlockEnd::Fall);
        classes.fp += u64::from(of.fp);
        classes.simd += u64::from(of.simd);
        block.end = of.end;
        block.branch = pc;
        block.after = pc + bytes.len() as u64;
        block.target = of.target;
        let index = insns.len() as u32;
        memory.push(of.bytes.map(|bytes| MemoryUse {
            index,
            bytes,
            split: of.split,
            repeat: false,
        }));
        insns.push(of.flow);
    }
    block.count = insns.len() as u32;
    block.classes = classes.pack();
    block.insns = insns.into_boxed_slice();
    Decoded {
        block,
        memory,
        asks_features: None,
    }
}

fn one(pc: u64, w: InstructionWord) -> Decode {
    match w.bits(28, 25) {
        0b1000 | 0b1001 => immediate(w),
        0b1010 | 0b1011 => branch(pc, w),
        0b0100 | 0b0110 | 0b1100 | 0b1110 => memory::access(w),
        0b0101 | 0b1101 => registers(w),
        0b0111 | 0b1111 => vector::operation(w),
        _ => Decode::default(),
    }
}

fn computes(operation: Operation, reads: u64, writes: u64) -> Decode {
    Decode {
        flow: InsnFlow {
            reads,
            writes,
            operation: Some(operation),
            ..InsnFlow::default()
        },
        ..Decode::default()
    }
}

fn moves(reads: u64, writes: u64) -> Decode {
    let mut of = computes(Operation::Alu, reads, writes);
    of.flow.operation = None;
    of
}

/// Decodes data processing with an immediate (C4.1.92).
fn immediate(w: InstructionWord) -> Decode {
    let (d, n) = (w.general(D), w.general(N));
    match w.bits(25, 23) {
        // Addresses, and additions with tags.
        0b000 | 0b001 => computes(Operation::Alu, 0, d),
        0b010 => with_flags(w, w.has(29), n, d),
        0b100 => {
            let sets = w.bits(30, 29) == 0b11;
            if w.bits(30, 29) == 0b01 && n == 0 {
                moves(0, d)
            } else {
                with_flags(w, sets, n, d)
            }
        }
        0b101 if w.bits(30, 29) == 0b11 => computes(Operation::Alu, d, d),
        0b101 => moves(0, d),
        0b110 => {
            let kept = if w.bits(30, 29) == 0b01 { d } else { 0 };
            let extends = w.bits(21, 16) == 0 && matches!(w.bits(15, 10), 7 | 15 | 31);
            let operation = if extends {
                Operation::Alu
            } else {
                Operation::Shift
            };
            computes(operation, n | kept, d)
        }
        0b111 => computes(Operation::Shift, n | w.general(M), d),
        _ => computes(Operation::Alu, n, d),
    }
}

/// Decodes an addition or logical operation that may set the flags, or only sets the flags.
fn with_flags(w: InstructionWord, sets: bool, reads: u64, writes: u64) -> Decode {
    let mut of = computes(Operation::Alu, reads, writes);
    if sets {
        of.flow.writes |= FLAGS;
        of.compares = w.bits(4, 0) == 31;
    }
    of
}

/// Decodes branches, exceptions and system instructions (C4.1.93).
fn branch(pc: u64, w: InstructionWord) -> Decode {
    let jump = |end, target, reads| Decode {
        flow: InsnFlow {
            reads,
            ..InsnFlow::default()
        },
        end,
        target,
        ..Decode::default()
    };
    let to = |offset: u64| pc.wrapping_add(offset);
    if w.bits(30, 26) == 0b00101 {
        let mut of = jump(BlockEnd::Jump, to(w.offset(25, 0)), 0);
        if w.has(31) {
            of.end = BlockEnd::Call;
            of.flow.writes = LINK;
        }
        return of;
    }
    match w.bits(30, 25) {
        0b011010 => return jump(BlockEnd::Condition, to(w.offset(23, 5)), w.general(0)),
        0b011011 => return jump(BlockEnd::Condition, to(w.offset(18, 5)), w.general(0)),
        _ => {}
    }
    match w.bits(31, 25) {
        0b0101010 if w.bits(3, 1) == 0b111 => jump(BlockEnd::Jump, to(w.offset(23, 5)), 0),
        0b0101010 => jump(BlockEnd::Condition, to(w.offset(23, 5)), FLAGS),
        0b1101011 => {
            // Branches with pointer authentication have the bit above set.
            let end = match w.bits(22, 21) {
                0b00 => BlockEnd::IndirectJump,
                0b01 => BlockEnd::IndirectCall,
                _ => BlockEnd::Return,
            };
            let mut of = jump(end, 0, w.general(N));
            if end == BlockEnd::IndirectCall {
                of.flow.writes = LINK;
            }
            of
        }
        // A system call returns its result in the first register.
        0b1101010 if w.bits(31, 24) == 0b1101_0100 => moves(0, 1),
        // Reads and writes of system registers, and other system instructions.
        0b1101010 if w.has(21) => moves(0, w.general(D)),
        0b1101010 => moves(w.general(D), 0),
        _ => Decode::default(),
    }
}

/// Decodes data processing of registers (C4.1.95).
fn registers(w: InstructionWord) -> Decode {
    let (d, n, m) = (w.general(D), w.general(N), w.general(M));
    if !w.has(28) {
        let logical = !w.has(24);
        let plain = w.bits(30, 29) == 0b01 && !w.has(21) && w.bits(15, 10) == 0;
        if logical && plain && n == 0 {
            return moves(m, d);
        }
        let sets = if logical {
            w.bits(30, 29) == 0b11
        } else {
            w.has(29)
        };
        return with_flags(w, sets, n | m, d);
    }
    if w.has(24) {
        return computes(Operation::Multiply, n | m | w.general(A), d);
    }
    let flags = if w.has(29) { FLAGS } else { 0 };
    match w.bits(23, 21) {
        0b000 => computes(Operation::Alu, n | m | FLAGS, d | flags),
        0b010 => {
            let second = if w.has(11) { 0 } else { m };
            computes(Operation::Alu, n | second | FLAGS, FLAGS)
        }
        0b100 => computes(Operation::Alu, n | m | FLAGS, d),
        0b110 if w.has(30) => computes(Operation::Alu, n, d),
        0b110 => {
            let operation = match w.bits(15, 10) {
                0b000010 | 0b000011 => Operation::Divide,
                0b001000..=0b001011 => Operation::Shift,
                _ => Operation::Alu,
            };
            computes(operation, n | m, d | flags)
        }
        _ => computes(Operation::Alu, n | m, d),
    }
}

#[cfg(test)]
mod tests;
