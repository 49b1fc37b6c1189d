//! From machine code to [`Block`]s.
//!
//! Stage: at translation. Input: addresses and bytes of a block's instructions. Output: a [`Block`], and per instruction
//! whether and how it touches memory. There is a decoder for each architecture whose programs are recorded.

use crate::block::{Block, MemoryUse};
use crate::guest::Guest;

mod arm64;
mod operations;
mod x86;

/// What is known of a block's code.
pub struct Decoded {
    pub block: Block,
    /// By instruction, how it accesses memory, if it does.
    pub memory: Vec<Option<MemoryUse>>,
    /// Address of an instruction that asks for the processor's features, if there is one.
    pub asks_features: Option<u64>,
}

/// Decodes the instructions of a block: the address of each, and its bytes.
pub fn decode<'a>(guest: Guest, code: impl Iterator<Item = (u64, &'a [u8])>) -> Decoded {
    match guest {
        Guest::X86_64 => x86::decode(code),
        Guest::Aarch64 => arm64::decode(code),
    }
}
