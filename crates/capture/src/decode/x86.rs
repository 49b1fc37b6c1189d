//! Decoder of x86-64.
//!
//! Registers are bits: 0-15 general, 16 flags, 17 x87 and MMX, 18-25 mask registers, 26-57 vector registers. Data flow follows
//! the behaviour of cores, not the manual. Stack instructions do not depend on each other's stack pointer. Writing part of a
//! register keeps the rest. Zeroing idioms depend on nothing.

use std::sync::LazyLock;

use iced_x86::{
    Code, CpuidFeature, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory,
    Mnemonic, OpAccess, Register,
};

use super::{Decoded, operations};
use crate::block::{BlockEnd, InsnFlow, MemoryUse, PackedClasses, TranslatedBlock};

/// Bit of the flags among an instruction's registers.
const FLAGS: u64 = 1 << 16;
/// Bit of the stack pointer.
const STACK_POINTER: u64 = 1 << 4;
/// Bit of the accumulator, which holds the result of a system call.
const ACCUMULATOR: u64 = 1;
/// Size in bytes assumed for accesses that QEMU performs in one piece.
const ONE_PIECE: u8 = 8;

/// True for mnemonics that work on one floating-point value of a vector register.
static SCALAR: LazyLock<Vec<bool>> =
    LazyLock::new(|| Mnemonic::values().map(is_scalar_name).collect());

fn is_scalar_name(mnemonic: Mnemonic) -> bool {
    let name = format!("{mnemonic:?}").to_ascii_lowercase();
    let name = name.strip_prefix('v').unwrap_or(&name);
    let converts = [
        "cvtsi2", "cvtss2", "cvtsd2", "cvttss2", "cvttsd2", "cvtusi2",
    ]
    .iter()
    .any(|p| name.starts_with(p));
    let fused = ["213", "132", "231"].iter().any(|n| name.contains(n))
        && (name.ends_with("sd") || name.ends_with("ss"));
    let plain = [
        "add", "sub", "mul", "div", "sqrt", "min", "max", "mov", "comi", "ucomi", "cmp", "round",
        "rcp", "rsqrt",
    ];
    converts
        || fused
        || plain.iter().any(|p| {
            name.strip_prefix(p)
                .is_some_and(|rest| rest == "sd" || rest == "ss")
        })
}

/// Decodes the instructions of a block.
pub fn decode<'a>(code: impl Iterator<Item = (u64, &'a [u8])>) -> Decoded {
    let mut code = code.peekable();
    let mut builder = Builder::new(code.peek().map_or(0, |(pc, _)| *pc));
    let memory = code.map(|(pc, bytes)| builder.push(pc, bytes)).collect();
    Decoded {
        memory,
        asks_features: builder.asks_features,
        block: builder.build(),
    }
}

struct Builder {
    block: TranslatedBlock,
    classes: PackedClasses,
    insns: Vec<InsnFlow>,
    previous: Mnemonic,
    /// Address of an instruction that queries the processor's features, if one was seen.
    asks_features: Option<u64>,
    factory: InstructionInfoFactory,
}

impl Builder {
    /// Begins a block at `pc`.
    fn new(pc: u64) -> Self {
        let block = TranslatedBlock {
            pc,
            after: pc,
            ..TranslatedBlock::default()
        };
        Self {
            block,
            classes: PackedClasses::default(),
            insns: Vec::new(),
            previous: Mnemonic::INVALID,
            asks_features: None,
            factory: InstructionInfoFactory::new(),
        }
    }

    /// Adds the next instruction. Returns its memory use, if any.
    fn push(&mut self, pc: u64, bytes: &[u8]) -> Option<MemoryUse> {
        let insn = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE).decode();
        let index = self.insns.len() as u32;
        let repeat =
            insn.is_string_instruction() && (insn.has_rep_prefix() || insn.has_repne_prefix());
        if insn.mnemonic() == Mnemonic::Cpuid {
            self.asks_features = Some(pc);
        }
        self.classify(&insn);
        self.finish_at(&insn, pc, bytes.len() as u64, repeat);
        let (mut flow, bytes) = self.flow(&insn);
        flow.operation = operations::operation(&insn, is_vector(&insn));
        flow.fused = insn.is_jcc_short_or_near() && operations::fuses(self.previous);
        self.previous = insn.mnemonic();
        self.insns.push(flow);
        bytes.map(|bytes| MemoryUse {
            index,
            bytes,
            split: bytes > ONE_PIECE,
            repeat,
        })
    }

    fn build(mut self) -> TranslatedBlock {
        self.block.count = self.insns.len() as u32;
        self.block.classes = self.classes.pack();
        self.block.insns = self.insns.into_boxed_slice();
        self.block
    }

    fn finish_at(&mut self, insn: &Instruction, pc: u64, length: u64, repeat: bool) {
        let block = &mut self.block;
        block.end = end(insn);
        block.branch = pc;
        block.after = pc + length;
        block.target = insn.near_branch_target();
        block.ends_repeat = if repeat { pc } else { 0 };
        block.starts_repeat |= repeat && pc == block.pc;
    }

    fn classify(&mut self, insn: &Instruction) {
        self.classes.branches += u64::from(end(insn) != BlockEnd::Fall);
        let x87 = insn.cpuid_features().iter().any(|f| {
            matches!(
                f,
                CpuidFeature::FPU | CpuidFeature::FPU287 | CpuidFeature::FPU387
            )
        });
        let vector = is_vector(insn);
        let scalar = vector
            && SCALAR
                .get(insn.mnemonic() as usize)
                .copied()
                .unwrap_or(false);
        self.classes.fp += u64::from(x87 || scalar);
        self.classes.simd += u64::from(vector && !scalar);
    }

    /// Returns the registers read and written, and the bytes of the memory access.
    fn flow(&mut self, insn: &Instruction) -> (InsnFlow, Option<u8>) {
        let info = self.factory.info(insn);
        let bytes = info
            .used_memory()
            .iter()
            .filter(|m| m.access() != OpAccess::NoMemAccess)
            .map(|m| m.memory_size().size())
            .max();
        // For unknown instructions, QEMU decides if they access memory.
        let bytes = if insn.is_invalid() {
            Some(ONE_PIECE)
        } else {
            bytes.map(|b| {
                if matches!(b, 16 | 32) {
                    b as u8
                } else {
                    ONE_PIECE
                }
            })
        };
        if matches!(insn.mnemonic(), Mnemonic::Vzeroupper | Mnemonic::Vzeroall) {
            return (InsnFlow::default(), bytes);
        }
        let mut flow = InsnFlow::default();
        for used in info.used_registers() {
            add_register(&mut flow, used.register(), used.access());
        }
        for memory in info
            .used_memory()
            .iter()
            .filter(|m| m.access() != OpAccess::NoMemAccess)
        {
            flow.address |= bit(memory.base()) | bit(memory.index());
        }
        // An instruction that depends on its access also depends on the address.
        flow.reads &= !flow.address;
        if insn.rflags_read() != 0 {
            flow.reads |= FLAGS;
        }
        if insn.rflags_modified() != 0 {
            flow.writes |= FLAGS;
        }
        if insn.is_stack_instruction() {
            flow.reads &= !STACK_POINTER;
            flow.address &= !STACK_POINTER;
            flow.writes &= !STACK_POINTER;
        }
        if insn.code() == Code::Syscall {
            flow.writes |= ACCUMULATOR;
        }
        (flow, bytes)
    }
}

fn is_vector(insn: &Instruction) -> bool {
    (0..insn.op_count()).any(|op| {
        let register = insn.op_register(op);
        register.is_vector_register() || register.is_mm()
    })
}

fn add_register(flow: &mut InsnFlow, register: Register, access: OpAccess) {
    let bit = bit(register);
    let (reads, writes) = match access {
        OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess => (true, false),
        OpAccess::Write => (register.is_gpr8() || register.is_gpr16(), true),
        OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
        OpAccess::None => (false, false),
    };
    flow.reads |= if reads { bit } else { 0 };
    flow.writes |= if writes { bit } else { 0 };
}

fn bit(register: Register) -> u64 {
    let full = register.full_register();
    let number = full.number() as u64;
    if full.is_gpr() {
        1 << number
    } else if full.is_st() || full.is_mm() {
        1 << 17
    } else if full.is_k() {
        1 << (18 + number)
    } else if full.is_vector_register() {
        1 << (26 + number)
    } else {
        0
    }
}

fn end(insn: &Instruction) -> BlockEnd {
    match insn.flow_control() {
        FlowControl::UnconditionalBranch => BlockEnd::Jump,
        FlowControl::ConditionalBranch => BlockEnd::Condition,
        FlowControl::IndirectBranch => BlockEnd::IndirectJump,
        // The decoder classifies system calls as calls.
        FlowControl::Call if insn.is_call_near() => BlockEnd::Call,
        FlowControl::IndirectCall if insn.is_call_near_indirect() => BlockEnd::IndirectCall,
        FlowControl::Return if insn.mnemonic() == Mnemonic::Ret => BlockEnd::Return,
        _ => BlockEnd::Fall,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8]) -> (TranslatedBlock, Option<MemoryUse>) {
        let mut builder = Builder::new(0x1000);
        let memory = builder.push(0x1000, bytes);
        (builder.build(), memory)
    }

    #[test]
    fn a_load_reads_its_address_and_writes_its_target() {
        // mov rax, [rbx+rcx*8]
        let (block, memory) = decode(&[0x48, 0x8b, 0x04, 0xcb]);
        assert_eq!(
            block.insns[0],
            InsnFlow {
                address: 1 << 3 | 1 << 1,
                reads: 0,
                writes: 1,
                ..InsnFlow::default()
            }
        );
        assert_eq!(
            memory,
            Some(MemoryUse {
                index: 0,
                bytes: 8,
                split: false,
                repeat: false
            })
        );
    }

    #[test]
    fn address_arithmetic_is_no_access() {
        // lea rax, [rbx+rcx*8]
        assert_eq!(decode(&[0x48, 0x8d, 0x04, 0xcb]).1, None);
        // nop dword [rax]
        assert_eq!(decode(&[0x0f, 0x1f, 0x00]).1, None);
    }

    #[test]
    fn zeroing_waits_for_nothing_and_pushes_do_not_wait_for_each_other() {
        // xor eax, eax
        assert_eq!(decode(&[0x31, 0xc0]).0.insns[0].reads, 0);
        // push rbp
        let (block, memory) = decode(&[0x55]);
        assert_eq!(
            block.insns[0],
            InsnFlow {
                address: 0,
                reads: 1 << 5,
                writes: 0,
                ..InsnFlow::default()
            }
        );
        assert!(memory.is_some());
    }

    #[test]
    fn partial_writes_keep_the_rest() {
        // mov al, 1
        assert_eq!(
            decode(&[0xb0, 0x01]).0.insns[0],
            InsnFlow {
                address: 0,
                reads: 1,
                writes: 1,
                ..InsnFlow::default()
            }
        );
    }

    #[test]
    fn ends_are_distinguished() {
        let (block, _) = decode(&[0x74, 0x10]);
        assert_eq!(
            (block.end, block.target, block.after),
            (BlockEnd::Condition, 0x1012, 0x1002)
        );
        assert_eq!(decode(&[0xeb, 0x10]).0.end, BlockEnd::Jump);
        assert_eq!(decode(&[0xe8, 0, 0, 0, 0]).0.end, BlockEnd::Call);
        assert_eq!(decode(&[0xff, 0xd0]).0.end, BlockEnd::IndirectCall);
        assert_eq!(decode(&[0xff, 0xe0]).0.end, BlockEnd::IndirectJump);
        assert_eq!(decode(&[0xc3]).0.end, BlockEnd::Return);
        assert_eq!(decode(&[0x0f, 0x05]).0.end, BlockEnd::Fall, "syscall");
    }

    #[test]
    fn classes_follow_the_operation() {
        let class = |bytes: &[u8]| PackedClasses::unpack(decode(bytes).0.classes);
        assert_eq!(class(&[0xf2, 0x0f, 0x58, 0xc1]).fp, 1, "addsd");
        assert_eq!(class(&[0x66, 0x0f, 0x58, 0xc1]).simd, 1, "addpd");
        assert_eq!(class(&[0xf3, 0x0f, 0x6f, 0x06]).simd, 1, "movdqu");
        assert_eq!(class(&[0xd8, 0xc1]).fp, 1, "fadd");
        assert_eq!(class(&[0x66, 0x0f, 0xef, 0xc0]).simd, 1, "pxor");
        assert_eq!(class(&[0x48, 0x01, 0xd8]), PackedClasses::default(), "add");
    }

    #[test]
    fn wide_accesses_are_split_and_strings_repeat() {
        assert_eq!(
            decode(&[0xf3, 0x0f, 0x6f, 0x06])
                .1
                .map(|m| (m.bytes, m.split)),
            Some((16, true)),
            "movdqu"
        );
        assert_eq!(
            decode(&[0xc5, 0xfe, 0x6f, 0x06])
                .1
                .map(|m| (m.bytes, m.split)),
            Some((32, true)),
            "vmovdqu ymm"
        );
        let (block, memory) = decode(&[0xf3, 0xa4]);
        assert!(
            block.starts_repeat && block.ends_repeat == 0x1000 && memory.is_some_and(|m| m.repeat)
        );
    }
}
