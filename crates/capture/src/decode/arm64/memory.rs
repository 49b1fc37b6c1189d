//! Memory accesses of A64.

use super::{A, D, Decode, InstructionWord, M, N};
use crate::block::InsnFlow;

/// Returns the decoding of a memory access with the registers it reads and writes besides its address.
fn touches(bytes: u32, address: u64, reads: u64, writes: u64) -> Decode {
    Decode {
        flow: InsnFlow {
            address,
            reads,
            writes,
            ..InsnFlow::default()
        },
        bytes: Some(bytes as u8),
        split: bytes > 8,
        ..Decode::default()
    }
}

/// Decodes loads and stores (C4.1.94).
pub fn access(w: InstructionWord) -> Decode {
    let vector = w.has(26);
    let mut of = match w.bits(29, 28) {
        0b00 if vector => structures(w),
        0b00 => exclusive(w),
        0b01 if !w.has(24) => literal(w),
        // Tags, and ordered accesses with an offset.
        0b01 => ordered(w),
        0b10 => pair(w),
        _ => single(w),
    };
    if vector && of.bytes.is_some() {
        of.fp = match w.bits(29, 28) {
            0b00 => false,
            0b10 => w.bits(31, 30) != 0b10,
            _ => of.bytes.is_some_and(|bytes| bytes <= 8),
        };
        of.simd = !of.fp;
    }
    of
}

/// Decodes loads and stores of one or more whole structures, or of one element of each.
fn structures(w: InstructionWord) -> Decode {
    let quad = if w.has(30) { 16 } else { 8 };
    let (registers, bytes, keeps) = if w.has(24) {
        let registers = (u32::from(w.has(13)) << 1 | w.bits(21, 21)) + 1;
        let replicates = w.bits(15, 14) == 0b11;
        let element = match w.bits(15, 14) {
            0b00 => 1,
            0b01 => 2,
            0b10 if w.has(10) => 8,
            0b10 => 4,
            _ => 1 << w.bits(11, 10),
        };
        (registers, registers * element, !replicates)
    } else {
        let registers = match w.bits(15, 12) {
            0b0000 | 0b0010 => 4,
            0b0100 | 0b0110 => 3,
            0b1000 | 0b1010 => 2,
            _ => 1,
        };
        (registers, registers * quad, false)
    };
    let first = w.bits(4, 0);
    let all = (0..registers).fold(0, |all, at| all | 1 << (32 + (first + at) % 32));
    let post = w.has(23);
    let step = if post { w.general(M) } else { 0 };
    let mut of = if w.has(22) {
        touches(bytes, w.general(N), step | if keeps { all } else { 0 }, all)
    } else {
        touches(bytes, w.general(N), step | all, 0)
    };
    of.flow.writes |= if post { w.general(N) } else { 0 };
    of.split = registers > 1 || bytes > 8;
    of
}

/// Decodes exclusive, ordered and comparing accesses.
fn exclusive(w: InstructionWord) -> Decode {
    let (t, second, status) = (w.general(D), w.general(A), w.general(M));
    let size = 1 << w.bits(31, 30);
    let address = w.general(N);
    match (w.has(23), w.has(21), w.has(22)) {
        // Compare and swap, of one register or two.
        (true, true, _) => touches(size, address, status | t, status),
        (false, true, _) if !w.has(31) => {
            let next = |register: u64| register | register << 1;
            touches(
                8 << w.bits(30, 30),
                address,
                next(status) | next(t),
                next(status),
            )
        }
        (false, pair, true) => {
            let bytes = if pair { 2 * size } else { size };
            touches(bytes, address, 0, t | if pair { second } else { 0 })
        }
        (false, pair, false) => {
            let bytes = if pair { 2 * size } else { size };
            touches(bytes, address, t | if pair { second } else { 0 }, status)
        }
        (true, false, true) => touches(size, address, 0, t),
        (true, false, false) => touches(size, address, t, 0),
    }
}

fn literal(w: InstructionWord) -> Decode {
    let vector = w.has(26);
    match (w.bits(31, 30), vector) {
        // Prefetch.
        (0b11, false) => Decode::default(),
        (0b10, false) => touches(4, 0, 0, w.general(D)),
        (size, _) => touches(4 << size, 0, 0, w.register(D, vector)),
    }
}

fn ordered(w: InstructionWord) -> Decode {
    let (t, address) = (w.general(D), w.general(N));
    if w.bits(23, 22) == 0 {
        touches(1 << w.bits(31, 30), address, t, 0)
    } else {
        touches(1 << w.bits(31, 30), address, 0, t)
    }
}

fn pair(w: InstructionWord) -> Decode {
    let vector = w.has(26);
    let each = match (vector, w.bits(31, 30)) {
        (true, size) => 4 << size,
        (false, 0b10) => 8,
        (false, _) => 4,
    };
    let both = w.register(D, vector) | w.register(A, vector);
    let address = w.general(N);
    let mut of = if w.has(22) {
        touches(2 * each, address, 0, both)
    } else {
        touches(2 * each, address, both, 0)
    };
    of.flow.writes |= if w.has(23) { address } else { 0 };
    of.split = true;
    of
}

/// Decodes accesses of one register.
fn single(w: InstructionWord) -> Decode {
    let vector = w.has(26);
    let (t, n) = (w.register(D, vector), w.general(N));
    let size = w.bits(31, 30);
    let bytes = if vector && w.has(23) { 16 } else { 1 << size };
    if !w.has(24) && w.has(21) && w.bits(11, 10) == 0b00 {
        // Atomic read-modify-write.
        return touches(bytes, n, w.general(M), w.general(D));
    }
    let checks = !w.has(24) && w.has(21) && w.has(10);
    if !vector && size == 0b11 && w.bits(23, 22) == 0b10 && !checks {
        // Prefetch.
        return Decode::default();
    }
    let (indexed, writes_back) = match (w.has(24), w.has(21), w.bits(11, 10)) {
        (true, ..) => (0, false),
        (false, true, 0b10) => (w.general(M), false),
        // Loads with pointer authentication.
        (false, true, _) => (0, w.has(11)),
        (false, false, mode) => (0, mode & 1 != 0),
    };
    let loads = checks || w.has(22) || !vector && w.bits(23, 22) == 0b10;
    let mut of = if loads {
        touches(bytes, n | indexed, 0, t)
    } else {
        touches(bytes, n | indexed, t, 0)
    };
    of.flow.writes |= if writes_back { n } else { 0 };
    of
}
