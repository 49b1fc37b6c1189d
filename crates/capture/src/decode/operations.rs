//! Operations of x86 instructions: the execution unit that each needs.
//!
//! Stage: translation. Input: a decoded instruction. Output: its [`Operation`]; `None` for moves, no-operations, branches, and
//! plain loads and stores.

use std::sync::LazyLock;

use countersteer_model::profile::Operation;
use iced_x86::{FlowControl, Instruction, Mnemonic};

/// Operations by mnemonic.
static OPERATIONS: LazyLock<Vec<Option<Operation>>> = LazyLock::new(|| {
    let name = |mnemonic: Mnemonic| format!("{mnemonic:?}").to_ascii_lowercase();
    Mnemonic::values().map(|m| by_name(&name(m))).collect()
});

/// Vector mnemonics end in the type of their elements.
const FP_TYPES: [&str; 6] = ["ss", "sd", "ps", "pd", "sh", "ph"];
const FP_ADD: [&str; 14] = [
    "add", "sub", "min", "max", "cmp", "comi", "ucomi", "cvt", "round", "hadd", "hsub", "addsub",
    "dp", "rndscale",
];
const FP_MULTIPLY: [&str; 6] = ["mul", "fmadd", "fmsub", "fnmadd", "fnmsub", "rcp"];
const FP_DIVIDE: [&str; 3] = ["div", "sqrt", "rsqrt"];
const SHIFTS: [&str; 12] = [
    "shl", "shr", "sar", "sal", "rol", "ror", "rcl", "rcr", "shlx", "shrx", "sarx", "rorx",
];
/// Integer instructions that need no unit besides those for memory and branches.
const MOVES: [&str; 14] = [
    "mov", "movzx", "movsx", "movsxd", "push", "pop", "nop", "endbr64", "leave", "xchg", "movabs",
    "fnop", "pause", "movnti",
];

fn by_name(name: &str) -> Option<Operation> {
    if MOVES.contains(&name) {
        return None;
    }
    let plain = name.strip_prefix('v').unwrap_or(name);
    let converts = plain.starts_with("cvt");
    if converts || FP_TYPES.iter().any(|t| plain.ends_with(t)) {
        let is = |stems: &[&str]| stems.iter().any(|stem| plain.starts_with(stem));
        // Square roots and their reciprocals are matched first, because other prefixes match them too.
        if is(&FP_DIVIDE) && !is(&["rsqrt"]) {
            return Some(Operation::FpDivide);
        }
        if is(&FP_MULTIPLY) || is(&["rsqrt"]) {
            return Some(Operation::FpMultiply);
        }
        if is(&FP_ADD) {
            return Some(Operation::FpAdd);
        }
    }
    if SHIFTS.contains(&name) || name.starts_with("shld") || name.starts_with("shrd") {
        return Some(Operation::Shift);
    }
    match name {
        "imul" | "mul" | "mulx" => return Some(Operation::Multiply),
        "idiv" | "div" => return Some(Operation::Divide),
        _ => {}
    }
    if let Some(x87) = name.strip_prefix('f') {
        let is = |stems: &[&str]| stems.iter().any(|stem| x87.starts_with(stem));
        return match () {
            () if is(&["div", "idiv", "sqrt", "sin", "cos", "patan", "yl2x", "prem"]) => {
                Some(Operation::FpDivide)
            }
            () if is(&["mul", "imul"]) => Some(Operation::FpMultiply),
            () if is(&[
                "add", "iadd", "sub", "isub", "com", "ucom", "icom", "rndint",
            ]) =>
            {
                Some(Operation::FpAdd)
            }
            () => None,
        };
    }
    Some(Operation::Alu)
}

/// Returns the operation of `insn`; `vector` is true if it works on vector registers.
pub fn operation(insn: &Instruction, vector: bool) -> Option<Operation> {
    if insn.flow_control() != FlowControl::Next {
        return None;
    }
    let by_name = OPERATIONS[insn.mnemonic() as usize];
    if !vector {
        return by_name;
    }
    let name_says = by_name.filter(|o| {
        use Operation::{FpAdd, FpDivide, FpMultiply};
        matches!(o, FpAdd | FpDivide | FpMultiply)
    });
    let moves = is_vector_move(insn.mnemonic());
    name_says.or((!moves).then_some(Operation::Simd))
}

fn is_vector_move(mnemonic: Mnemonic) -> bool {
    let name = format!("{mnemonic:?}").to_ascii_lowercase();
    let name = name.strip_prefix('v').unwrap_or(&name);
    name.starts_with("mov") && !name.starts_with("movmsk") || name.starts_with("lddqu")
}

/// True if cores fuse `compare` with the conditional branch right after it.
pub fn fuses(compare: Mnemonic) -> bool {
    matches!(
        compare,
        Mnemonic::Cmp
            | Mnemonic::Test
            | Mnemonic::Add
            | Mnemonic::Sub
            | Mnemonic::And
            | Mnemonic::Inc
            | Mnemonic::Dec
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    fn of(bytes: &[u8]) -> Option<Operation> {
        let insn = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
        let vector = (0..insn.op_count()).any(|op| insn.op_register(op).is_vector_register());
        operation(&insn, vector)
    }

    #[test]
    fn instructions_need_the_unit_of_what_they_compute() {
        let cases: [(&[u8], Option<Operation>, &str); 14] = [
            (&[0x48, 0x01, 0xd8], Some(Operation::Alu), "add rax, rbx"),
            (&[0x48, 0x8d, 0x04, 0xcb], Some(Operation::Alu), "lea"),
            (&[0x48, 0x8b, 0x04, 0xcb], None, "mov rax, [..]"),
            (&[0x55], None, "push"),
            (&[0x74, 0x10], None, "je"),
            (&[0x48, 0xc1, 0xe0, 0x03], Some(Operation::Shift), "shl"),
            (&[0x48, 0x0f, 0xaf, 0xc3], Some(Operation::Multiply), "imul"),
            (&[0x48, 0xf7, 0xf3], Some(Operation::Divide), "div"),
            (&[0xf2, 0x0f, 0x58, 0xc1], Some(Operation::FpAdd), "addsd"),
            (
                &[0x66, 0x0f, 0x59, 0xc1],
                Some(Operation::FpMultiply),
                "mulpd",
            ),
            (
                &[0xf2, 0x0f, 0x51, 0xc1],
                Some(Operation::FpDivide),
                "sqrtsd",
            ),
            (&[0x66, 0x0f, 0xef, 0xc1], Some(Operation::Simd), "pxor"),
            (&[0xf3, 0x0f, 0x6f, 0x06], None, "movdqu"),
            (
                &[0xc4, 0xe2, 0xf1, 0xb8, 0xc2],
                Some(Operation::FpMultiply),
                "vfmadd231pd",
            ),
        ];
        for (bytes, expected, name) in cases {
            assert_eq!(of(bytes), expected, "{name}");
        }
    }
}
