//! Decoder tests. The words are GNU as's encodings of the instructions beside them.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use Operation::{Alu, Divide, FpAdd, FpDivide, FpMultiply, Multiply, Shift, Simd};

use super::*;

/// Returns general registers as bits.
fn x<const COUNT: usize>(numbers: [u32; COUNT]) -> u64 {
    numbers.iter().fold(0, |all, at| all | 1 << at)
}

/// Returns vector registers as bits.
fn v<const COUNT: usize>(numbers: [u32; COUNT]) -> u64 {
    x(numbers) << 32
}

fn of(word: u32) -> Decode {
    one(0x1000, InstructionWord(word))
}

#[test]
fn accesses_have_addresses_bytes_and_registers() {
    // Word, bytes, address, other reads, writes, classes.
    let cases = [
        (
            0xf862_7820,
            8,
            x([1, 2]),
            0,
            x([0]),
            "",
            "ldr x0, [x1, x2, lsl #3]",
        ),
        (
            0xb800_4483,
            4,
            x([4]),
            x([3]),
            x([4]),
            "",
            "str w3, [x4], #4",
        ),
        (
            0xa941_53f3,
            16,
            0,
            0,
            x([19, 20]),
            "",
            "ldp x19, x20, [sp, #16]",
        ),
        (
            0xa9be_7bfd,
            16,
            0,
            x([29, 30]),
            0,
            "",
            "stp x29, x30, [sp, #-32]!",
        ),
        (0x3dc0_0020, 16, x([1]), 0, v([0]), "simd", "ldr q0, [x1]"),
        (0xfd40_0441, 8, x([2]), 0, v([1]), "fp", "ldr d1, [x2, #8]"),
        (
            0x4cc4_8860,
            32,
            x([3]),
            x([4]),
            v([0, 1]) | x([3]),
            "simd",
            "ld2 {v0.4s, v1.4s}, [x3], x4",
        ),
        (
            0xf821_0062,
            8,
            x([3]),
            x([1]),
            x([2]),
            "",
            "ldadd x1, x2, [x3]",
        ),
        (0xc85f_fcc5, 8, x([6]), 0, x([5]), "", "ldaxr x5, [x6]"),
        (
            0xc807_fcc5,
            8,
            x([6]),
            x([5]),
            x([7]),
            "",
            "stlxr w7, x5, [x6]",
        ),
        (
            0xc8a1_7c62,
            8,
            x([3]),
            x([1, 2]),
            x([1]),
            "",
            "cas x1, x2, [x3]",
        ),
        (0x5800_0009, 8, 0, 0, x([9]), "", "ldr x9, ."),
        (0xb980_0041, 4, x([2]), 0, x([1]), "", "ldrsw x1, [x2]"),
    ];
    for (word, bytes, address, reads, writes, class, name) in cases {
        let of = of(word);
        assert_eq!(of.bytes, Some(bytes), "{name}");
        assert_eq!(of.split, bytes > 8, "{name}");
        assert_eq!(
            (of.flow.address, of.flow.reads, of.flow.writes),
            (address, reads, writes),
            "{name}"
        );
        assert_eq!((of.fp, of.simd), (class == "fp", class == "simd"), "{name}");
        assert_eq!(of.flow.operation, None, "{name}");
    }
    assert_eq!(of(0xf980_0000), Decode::default(), "prfm pldl1keep, [x0]");
}

#[test]
fn operations_need_units_and_wait_for_registers() {
    let flags = FLAGS;
    let cases = [
        (0x8b02_0020, Some(Alu), x([1, 2]), x([0]), "add x0, x1, x2"),
        (0xf100_107f, Some(Alu), x([3]), flags, "cmp x3, #4"),
        (0xaa06_03e5, None, x([6]), x([5]), "mov x5, x6"),
        (0xd280_00e5, None, 0, x([5]), "mov x5, #7"),
        (
            0xf2a0_0025,
            Some(Alu),
            x([5]),
            x([5]),
            "movk x5, #1, lsl #16",
        ),
        (0xd37d_f041, Some(Shift), x([2]), x([1]), "lsl x1, x2, #3"),
        (
            0x9ac3_2441,
            Some(Shift),
            x([2, 3]),
            x([1]),
            "lsr x1, x2, x3",
        ),
        (
            0x9b03_7c41,
            Some(Multiply),
            x([2, 3]),
            x([1]),
            "mul x1, x2, x3",
        ),
        (
            0x9ac3_0841,
            Some(Divide),
            x([2, 3]),
            x([1]),
            "udiv x1, x2, x3",
        ),
        (
            0x9a03_0041,
            Some(Alu),
            x([2, 3]) | flags,
            x([1]),
            "adc x1, x2, x3",
        ),
        (
            0x9a82_0020,
            Some(Alu),
            x([1, 2]) | flags,
            x([0]),
            "csel x0, x1, x2, eq",
        ),
        (
            0xfa42_1020,
            Some(Alu),
            x([1, 2]) | flags,
            flags,
            "ccmp x1, x2, #0, ne",
        ),
        (0x9000_0000, Some(Alu), 0, x([0]), "adrp x0, ."),
        (0xd400_0001, None, 0, x([0]), "svc #0"),
        (0xd503_201f, None, 0, 0, "nop"),
        (0xd53b_d043, None, 0, x([3]), "mrs x3, tpidr_el0"),
        (
            0x1e62_2820,
            Some(FpAdd),
            v([1, 2]),
            v([0]),
            "fadd d0, d1, d2",
        ),
        (
            0x1e22_0820,
            Some(FpMultiply),
            v([1, 2]),
            v([0]),
            "fmul s0, s1, s2",
        ),
        (
            0x1e62_1820,
            Some(FpDivide),
            v([1, 2]),
            v([0]),
            "fdiv d0, d1, d2",
        ),
        (0x1e61_c020, Some(FpDivide), v([1]), v([0]), "fsqrt d0, d1"),
        (
            0x1f42_0c20,
            Some(FpMultiply),
            v([1, 2, 3]),
            v([0]),
            "fmadd d0, d1, d2, d3",
        ),
        (0x1e60_4020, None, v([1]), v([0]), "fmov d0, d1"),
        (0x9e67_0020, None, x([1]), v([0]), "fmov d0, x1"),
        (0x9e66_0001, None, v([0]), x([1]), "fmov x1, d0"),
        (0x9e62_0020, Some(FpAdd), x([1]), v([0]), "scvtf d0, x1"),
        (0x9e78_0020, Some(FpAdd), v([1]), x([0]), "fcvtzs x0, d1"),
        (0x1e61_2000, Some(FpAdd), v([0, 1]), flags, "fcmp d0, d1"),
        (
            0x1e62_1c20,
            Some(FpAdd),
            v([1, 2]) | flags,
            v([0]),
            "fcsel d0, d1, d2, ne",
        ),
        (0x1e6e_1000, None, 0, v([0]), "fmov d0, #1.0"),
        (
            0x4e62_d420,
            Some(FpAdd),
            v([1, 2]),
            v([0]),
            "fadd v0.2d, v1.2d, v2.2d",
        ),
        (
            0x4e22_cc20,
            Some(FpMultiply),
            v([0, 1, 2]),
            v([0]),
            "fmla v0.4s, v1.4s, v2.4s",
        ),
        (
            0x4fa2_1020,
            Some(FpMultiply),
            v([0, 1, 2]),
            v([0]),
            "fmla v0.4s, v1.4s, v2.s[1]",
        ),
        (
            0x6e62_fc20,
            Some(FpDivide),
            v([1, 2]),
            v([0]),
            "fdiv v0.2d, v1.2d, v2.2d",
        ),
        (
            0x4ea2_8420,
            Some(Simd),
            v([1, 2]),
            v([0]),
            "add v0.4s, v1.4s, v2.4s",
        ),
        (0x4ea1_1c20, None, v([1]), v([0]), "mov v0.16b, v1.16b"),
        (0x4f00_0400, None, 0, v([0]), "movi v0.4s, #0"),
        (0x4e04_0c20, Some(Simd), x([1]), v([0]), "dup v0.4s, w1"),
        (0x0e04_3c20, Some(Simd), v([1]), x([0]), "umov w0, v1.s[0]"),
        (
            0x4e18_1c20,
            Some(Simd),
            v([0]) | x([1]),
            v([0]),
            "ins v0.d[1], x1",
        ),
        (
            0x4e03_2020,
            Some(Simd),
            v([1, 2, 3]),
            v([0]),
            "tbl v0.16b, {v1.16b, v2.16b}, v3.16b",
        ),
        (
            0x4e28_4820,
            Some(Simd),
            v([0, 1]),
            v([0]),
            "aese v0.16b, v1.16b",
        ),
        (
            0x2f08_a420,
            Some(Simd),
            v([1]),
            v([0]),
            "ushll v0.8h, v1.8b, #0",
        ),
        (0x0e21_2820, Some(Simd), v([1]), v([0]), "xtn v0.8b, v1.8h"),
        (
            0x4f23_5420,
            Some(Simd),
            v([1]),
            v([0]),
            "shl v0.4s, v1.4s, #3",
        ),
        (
            0x0e62_8020,
            Some(Simd),
            v([0, 1, 2]),
            v([0]),
            "smlal v0.4s, v1.4h, v2.4h",
        ),
        (0x7e70_d820, Some(FpAdd), v([1]), v([0]), "faddp d0, v1.2d"),
    ];
    for (word, operation, reads, writes, name) in cases {
        let of = of(word);
        assert_eq!(of.flow.operation, operation, "{name}");
        assert_eq!((of.flow.reads, of.flow.writes), (reads, writes), "{name}");
        assert_eq!((of.bytes, of.end), (None, BlockEnd::Fall), "{name}");
    }
    let class = |word| (of(word).fp, of(word).simd);
    assert_eq!(class(0x1e62_2820), (true, false), "fadd d0, d1, d2");
    assert_eq!(class(0x7e70_d820), (true, false), "faddp d0, v1.2d");
    assert_eq!(
        class(0x4e62_d420),
        (false, true),
        "fadd v0.2d, v1.2d, v2.2d"
    );
    assert_eq!(class(0x8b02_0020), (false, false), "add x0, x1, x2");
}

#[test]
fn branches_have_targets_and_pairs_fuse() {
    let cases = [
        (
            0x5400_0040,
            BlockEnd::Condition,
            0x1008,
            FLAGS,
            0,
            "b.eq .+8",
        ),
        (
            0xb4ff_ffe3,
            BlockEnd::Condition,
            0x0ffc,
            x([3]),
            0,
            "cbz x3, .-4",
        ),
        (
            0x3718_0004,
            BlockEnd::Condition,
            0x1000,
            x([4]),
            0,
            "tbnz w4, #3, .",
        ),
        (0x1400_0000, BlockEnd::Jump, 0x1000, 0, 0, "b ."),
        (0x97ff_ffff, BlockEnd::Call, 0x0ffc, 0, LINK, "bl .-4"),
        (
            0xd63f_0100,
            BlockEnd::IndirectCall,
            0,
            x([8]),
            LINK,
            "blr x8",
        ),
        (0xd61f_0200, BlockEnd::IndirectJump, 0, x([16]), 0, "br x16"),
        (0xd65f_03c0, BlockEnd::Return, 0, x([30]), 0, "ret"),
    ];
    for (word, end, target, reads, writes, name) in cases {
        let of = of(word);
        assert_eq!((of.end, of.target), (end, target), "{name}");
        assert_eq!((of.flow.reads, of.flow.writes), (reads, writes), "{name}");
    }
    // cmp x3, #4; b.eq .+8
    let words = [0xf100_107f_u32, 0x5400_0040].map(u32::to_le_bytes);
    let code = [0x1000, 0x1004]
        .into_iter()
        .zip(words.iter().map(|w| &w[..]));
    let block = decode(code).block;
    assert_eq!(
        (block.pc, block.branch, block.after, block.target),
        (0x1000, 0x1004, 0x1008, 0x100c)
    );
    assert_eq!(
        (block.count, PackedClasses::unpack(block.classes).branches),
        (2, 1)
    );
    assert_eq!([false, true], [0, 1].map(|at: usize| block.insns[at].fused));
}
