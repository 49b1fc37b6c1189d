//! Decoders from machine code to [`TranslatedBlock`]s.
//!
//! Stage: translation. Input: addresses and bytes of a block's instructions. Output: a [`TranslatedBlock`], and the memory use of each
//! instruction. Each recorded architecture has its own decoder.

use crate::block::{MemoryUse, REPEATS, TranslatedBlock};
use crate::guest::Guest;
use crate::reach;
use crate::simple;

mod arm64;
mod operations;
mod x86;

/// Decoded code of a block.
pub struct Decoded {
    pub block: TranslatedBlock,
    /// Memory use by instruction; `None` for instructions without an access.
    pub memory: Vec<Option<MemoryUse>>,
    /// Address of an instruction that queries the processor's features, if there is one.
    pub asks_features: Option<u64>,
}

/// Decodes the instructions of a block, given the address and bytes of each.
pub fn decode<'a>(guest: Guest, code: impl Iterator<Item = (u64, &'a [u8])>) -> Decoded {
    let mut decoded = match guest {
        Guest::X86_64 => x86::decode(code),
        Guest::Aarch64 => arm64::decode(code),
    };
    let block = &mut decoded.block;
    block.special = reach::sampled_code(block);
    if block.ends_repeat != 0 {
        block.special |= REPEATS;
    }
    block.samples_branch = reach::samples_branch(block);
    block.slot = simple::slot(block);
    decoded
}
