//! What every entry point for QEMU needs: blocks as they are translated, and becoming QEMU again where a program executes another.
//!
//! Input: QEMU's translations. Output: decoded blocks, kept for as long as the process lives.

use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::block::{Block, MemoryUse};
use crate::decode::Builder;
use crate::exec;
use crate::ffi;

/// System calls of x86-64 that need more than the usual.
pub const FORKS: [i64; 3] = [libc::SYS_clone, libc::SYS_fork, libc::SYS_vfork];

static BLOCKS: OnceLock<Mutex<HashMap<u64, Vec<Known>>>> = OnceLock::new();
/// Distance from guest to host addresses.
static GUEST_BASE: AtomicUsize = AtomicUsize::new(0);

/// A block that was translated before; QEMU throws translations away now and then.
struct Known {
    bytes: Vec<u8>,
    block: &'static Block,
    memory: &'static [Option<MemoryUse>],
}

/// What is known of a block when it is translated.
pub struct Translated {
    pub insns: Vec<*mut ffi::Insn>,
    pub block: &'static Block,
    /// By instruction, how it accesses memory.
    pub memory: &'static [Option<MemoryUse>],
}

/// Ends the process at once, without another look at the program.
pub fn end() -> ! {
    // SAFETY: the call has no preconditions and does not return.
    unsafe { libc::_exit(0) }
}

/// A block that is being translated, with its instructions.
///
/// # Safety
/// QEMU's block is valid, as it is during a call of its callback.
pub unsafe fn translated(tb: *mut ffi::Tb) -> Option<Translated> {
    // SAFETY: the caller's block is valid.
    let insns: Vec<*mut ffi::Insn> = unsafe {
        (0..ffi::qemu_plugin_tb_n_insns(tb))
            .map(|at| ffi::qemu_plugin_tb_get_insn(tb, at))
            .collect()
    };
    let first = *insns.first()?;
    // SAFETY: as above.
    let (pc, guest, host) = unsafe {
        (
            ffi::qemu_plugin_tb_vaddr(tb),
            ffi::qemu_plugin_insn_vaddr(first),
            ffi::qemu_plugin_insn_haddr(first),
        )
    };
    if !host.is_null() {
        GUEST_BASE.store((host as usize).wrapping_sub(guest as usize), Relaxed);
    }
    let (block, memory) = known_or_new(pc, &insns);
    Some(Translated {
        insns,
        block,
        memory,
    })
}

fn known_or_new(
    pc: u64,
    insns: &[*mut ffi::Insn],
) -> (&'static Block, &'static [Option<MemoryUse>]) {
    let mut bytes = Vec::new();
    let code: Vec<(u64, Range<usize>)> = insns
        .iter()
        .map(|insn| {
            let start = bytes.len();
            // SAFETY: the caller's instructions are valid during translation.
            let pc = unsafe {
                ffi::append_insn(*insn, &mut bytes);
                ffi::qemu_plugin_insn_vaddr(*insn)
            };
            (pc, start..bytes.len())
        })
        .collect();
    let mut blocks = BLOCKS
        .get_or_init(Mutex::default)
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let known = blocks.entry(pc).or_default();
    if let Some(known) = known
        .iter()
        .find(|k| k.bytes == bytes && k.memory.len() == insns.len())
    {
        return (known.block, known.memory);
    }
    let mut builder = Builder::new(pc);
    let memory: Vec<Option<MemoryUse>> = code
        .iter()
        .map(|(pc, own)| builder.push(*pc, &bytes[own.clone()]))
        .collect();
    let block = &*Box::leak(Box::new(builder.build()));
    let memory = &*memory.leak();
    known.push(Known {
        bytes,
        block,
        memory,
    });
    (block, memory)
}

/// Becomes QEMU running what the program executes, if that is possible.
///
/// # Safety
/// The arguments are those of an execve; a program that passes bad ones would only have got an error for them.
pub unsafe fn become_qemu(wrapper: &[CString], [path, argv, envp]: [u64; 3]) {
    let base = GUEST_BASE.load(Relaxed);
    let host = |guest: u64| base.wrapping_add(guest as usize);
    // SAFETY: the caller says so.
    unsafe {
        exec::exec(
            wrapper,
            base,
            host(path) as *const c_char,
            host(argv) as *const usize,
            host(envp) as *const usize,
        )
    };
}
