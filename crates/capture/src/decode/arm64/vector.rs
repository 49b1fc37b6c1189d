//! Floating point and vector instructions of A64.

use countersteer_model::profile::Operation;

use super::{A, D, Decode, FLAGS, InstructionWord, M, N, computes, moves};

/// Decodes scalar floating point, vectors and cryptography (C4.1.96).
pub fn operation(w: InstructionWord) -> Decode {
    if w.has(28) && !w.has(30) {
        let mut of = scalar(w);
        of.fp = true;
        return of;
    }
    let mut of = vector(w);
    // Vector instructions on a single element count as scalar.
    let one = w.has(28) && w.has(30);
    let counts = matches!(
        of.flow.operation,
        Some(Operation::FpAdd | Operation::FpMultiply | Operation::FpDivide)
    );
    of.fp = one && counts;
    of.simd = !of.fp;
    of
}

fn scalar(w: InstructionWord) -> Decode {
    use Operation::{FpAdd, FpDivide, FpMultiply};
    let (d, n, m) = (w.vector(D), w.vector(N), w.vector(M));
    if w.has(24) {
        return computes(FpMultiply, n | m | w.vector(A), d);
    }
    if !w.has(21) || w.bits(15, 10) == 0 {
        // Moves and conversions between general and vector registers.
        return match w.bits(18, 16) {
            0b111 => moves(w.general(N), d),
            0b110 if w.bits(20, 19) != 0b11 => moves(n, w.general(D)),
            0b010 | 0b011 => computes(FpAdd, w.general(N), d),
            _ => computes(FpAdd, n, w.general(D)),
        };
    }
    match w.bits(11, 10) {
        0b01 => computes(FpAdd, n | m | FLAGS, FLAGS),
        0b11 => computes(FpAdd, n | m | FLAGS, d),
        0b10 => match w.bits(15, 12) {
            0b0000 | 0b1000 => computes(FpMultiply, n | m, d),
            0b0001 => computes(FpDivide, n | m, d),
            _ => computes(FpAdd, n | m, d),
        },
        // Immediate moves.
        _ if w.has(12) => moves(0, d),
        _ if w.has(13) => {
            let second = if w.has(3) { 0 } else { m };
            let mut of = computes(FpAdd, n | second, FLAGS);
            of.compares = true;
            of
        }
        _ => match w.bits(20, 15) {
            0b000000 => moves(n, d),
            0b000011 => computes(FpDivide, n, d),
            _ => computes(FpAdd, n, d),
        },
    }
}

fn vector(w: InstructionWord) -> Decode {
    let (d, n, m) = (w.vector(D), w.vector(N), w.vector(M));
    let simd = |reads, writes| computes(Operation::Simd, reads, writes);
    // SHA-512, SHA-3 and SM instructions, on up to four registers.
    if w.bits(31, 24) == 0b1100_1110 {
        return simd(d | n | m | w.vector(A), d);
    }
    let by_element = w.has(24);
    if by_element {
        return if w.has(10) {
            immediate_or_shift(w)
        } else {
            element(w)
        };
    }
    if !w.has(21) {
        return copy_or_permute(w);
    }
    match w.bits(11, 10) {
        // Three registers of one width.
        0b01 | 0b11 => same(w),
        // Three registers of different widths; accumulating instructions also read their destination.
        0b00 => {
            let high = w.has(30) && matches!(w.bits(15, 12), 0b0100 | 0b0110);
            let adds = matches!(w.bits(15, 12), 0b0101 | 0b1000..=0b1011);
            simd(n | m | if adds || high { d } else { 0 }, d)
        }
        _ => of_two(w),
    }
}

/// Decodes vector operations on three registers of one width.
fn same(w: InstructionWord) -> Decode {
    use Operation::{FpAdd, FpDivide, FpMultiply, Simd};
    let (d, n, m) = (w.vector(D), w.vector(N), w.vector(M));
    let other = w.has(29);
    let opcode = w.bits(15, 11);
    if opcode == 0b00011 && !other && w.bits(23, 22) == 0b10 && n == m {
        return moves(n, d);
    }
    let (operation, accumulates) = match opcode {
        0b11001 => (FpMultiply, true),
        0b11011 => (FpMultiply, false),
        0b11111 if other && !w.has(23) => (FpDivide, false),
        0b11111 => (FpMultiply, false),
        0b11101 if !other => (FpMultiply, true),
        0b11000.. => (FpAdd, false),
        // Bit selections, and accumulated differences and products.
        0b00011 => (Simd, other && w.bits(23, 22) != 0),
        0b01111 | 0b10010 => (Simd, true),
        _ => (Simd, false),
    };
    computes(operation, n | m | if accumulates { d } else { 0 }, d)
}

/// Decodes vector operations on one register.
fn of_two(w: InstructionWord) -> Decode {
    use Operation::{FpAdd, FpDivide, FpMultiply, Simd};
    let (d, n) = (w.vector(D), w.vector(N));
    // Cryptographic instructions also read their destination.
    let hashes = w.bits(21, 17) == 0b10100;
    if hashes {
        return computes(Simd, d | n, d);
    }
    let across_lanes = w.bits(20, 17) == 0b1000;
    let operation = match w.bits(16, 12) {
        0b01100..=0b01111 if across_lanes || w.has(23) => FpAdd,
        _ if across_lanes => Simd,
        0b11111 if w.has(29) && w.has(23) => FpDivide,
        0b11101 if w.has(23) => FpMultiply,
        0b10110.. => FpAdd,
        _ => Simd,
    };
    let narrows_high = w.has(30) && matches!(w.bits(16, 12), 0b10010 | 0b10100 | 0b10110);
    computes(operation, n | if narrows_high { d } else { 0 }, d)
}

/// Decodes vector operations with one element of the second register.
fn element(w: InstructionWord) -> Decode {
    use Operation::{FpMultiply, Simd};
    let reads = w.vector(N) | w.vector(M);
    let d = w.vector(D);
    match w.bits(15, 12) {
        0b0001 | 0b0101 => computes(FpMultiply, reads | d, d),
        0b1001 => computes(FpMultiply, reads, d),
        0b1000 | 0b1010..=0b1101 => computes(Simd, reads, d),
        _ => computes(Simd, reads | d, d),
    }
}

fn immediate_or_shift(w: InstructionWord) -> Decode {
    let (d, n) = (w.vector(D), w.vector(N));
    if w.bits(22, 19) == 0 {
        // Instructions that set or clear bits of their destination.
        let changes = w.has(12) && w.bits(15, 14) != 0b11;
        return if changes {
            computes(Operation::Simd, d, d)
        } else {
            moves(0, d)
        };
    }
    let opcode = w.bits(15, 11);
    let inserts = w.has(29) && matches!(opcode, 0b01000 | 0b01010);
    let adds = matches!(opcode, 0b00010 | 0b00110);
    let high = w.has(30) && matches!(opcode, 0b10000..=0b10011);
    let operation = if matches!(opcode, 0b11100 | 0b11111) {
        Operation::FpAdd
    } else {
        Operation::Simd
    };
    let kept = if inserts || adds || high { d } else { 0 };
    computes(operation, n | kept, d)
}

fn copy_or_permute(w: InstructionWord) -> Decode {
    let (d, n, m) = (w.vector(D), w.vector(N), w.vector(M));
    let simd = |reads, writes| computes(Operation::Simd, reads, writes);
    let copies = w.bits(23, 21) == 0 && !w.has(15) && w.has(10);
    if copies && w.has(29) {
        return simd(d | n, d);
    }
    if copies {
        return match w.bits(14, 11) {
            0b0001 => simd(w.general(N), d),
            0b0011 => simd(d | w.general(N), d),
            0b0101 | 0b0111 => simd(n, w.general(D)),
            _ => simd(n, d),
        };
    }
    // Accumulated products, and table look-ups that keep other elements of the destination.
    let adds = w.has(15) && w.has(10);
    let table = !w.has(29) && w.bits(15, 15) == 0 && w.bits(11, 10) == 0;
    if table {
        let first = w.bits(9, 5);
        let all = (0..=w.bits(14, 13)).fold(0, |all, at| all | 1 << (32 + (first + at) % 32));
        return simd(all | m | if w.has(12) { d } else { 0 }, d);
    }
    simd(n | m | if adds { d } else { 0 }, d)
}
