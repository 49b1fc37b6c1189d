//! Common code of the entry points for QEMU: translated blocks, and the restart of QEMU if a program executes another.
//!
//! Input: QEMU's translations. Output: decoded blocks, kept for the lifetime of the process.

use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::block::{MemoryUse, TranslatedBlock};
use crate::decode::decode;
use crate::exec;
use crate::ffi;
use crate::guest::Guest;

static BLOCKS: OnceLock<Mutex<HashMap<u64, Vec<EarlierBlock>>>> = OnceLock::new();
/// Distance from guest to host addresses.
static GUEST_BASE: AtomicUsize = AtomicUsize::new(0);

/// TranslatedBlock that was translated before; QEMU discards translations from time to time.
struct EarlierBlock {
    bytes: Vec<u8>,
    block: &'static TranslatedBlock,
    memory: &'static [Option<MemoryUse>],
}

/// Data about a block at its translation.
pub struct Translated {
    insns: Vec<*mut ffi::Insn>,
    block: &'static TranslatedBlock,
    /// Memory use by instruction.
    memory: &'static [Option<MemoryUse>],
    /// Address in this process of an instruction that queries the processor's features; `None` if the block has none or is not
    /// new.
    pub asks_features: Option<u64>,
}

impl Translated {
    /// Calls back at each execution of the block, and at each data access of its instructions.
    ///
    /// # Safety
    /// `tb` is the block of [`translated`], in the same call of QEMU's.
    pub unsafe fn observe(
        &self,
        tb: *mut ffi::Tb,
        on_block: ffi::ExecCallback,
        on_memory: impl Fn(&MemoryUse) -> ffi::MemoryCallback,
    ) {
        // SAFETY: the caller's block and its instructions are valid; decoded blocks live forever.
        unsafe {
            ffi::qemu_plugin_register_vcpu_tb_exec_cb(
                tb,
                on_block,
                ffi::NO_REGISTERS,
                std::ptr::from_ref(self.block).cast_mut().cast(),
            );
            for (insn, usage) in self.insns.iter().zip(self.memory) {
                let Some(usage) = usage else { continue };
                ffi::qemu_plugin_register_vcpu_mem_cb(
                    *insn,
                    on_memory(usage),
                    ffi::NO_REGISTERS,
                    ffi::READ_WRITE,
                    usage.pack() as *mut c_void,
                );
            }
        }
    }
}

/// Ends the process at once, without running any of the program's code.
pub fn end() -> ! {
    // SAFETY: the call has no preconditions and does not return.
    unsafe { libc::_exit(0) }
}

/// Returns a block that is being translated, with its instructions.
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
    let (pc, guest, in_host) = unsafe {
        (
            ffi::qemu_plugin_tb_vaddr(tb),
            ffi::qemu_plugin_insn_vaddr(first),
            ffi::qemu_plugin_insn_haddr(first),
        )
    };
    if !in_host.is_null() {
        GUEST_BASE.store((in_host as usize).wrapping_sub(guest as usize), Relaxed);
    }
    let QemuBlock {
        block,
        memory,
        asks_features,
    } = known_or_new(pc, &insns);
    Some(Translated {
        insns,
        block,
        memory,
        asks_features: asks_features.map(|guest| host(guest) as u64),
    })
}

/// TranslatedBlock as QEMU describes it.
struct QemuBlock {
    block: &'static TranslatedBlock,
    memory: &'static [Option<MemoryUse>],
    asks_features: Option<u64>,
}

fn known_or_new(pc: u64, insns: &[*mut ffi::Insn]) -> QemuBlock {
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
        return QemuBlock {
            block: known.block,
            memory: known.memory,
            asks_features: None,
        };
    }
    let code = code.iter().map(|(pc, own)| (*pc, &bytes[own.clone()]));
    let decoded = decode(Guest::own(), code);
    let block = &*Box::leak(Box::new(decoded.block));
    let memory = &*decoded.memory.leak();
    known.push(EarlierBlock {
        bytes,
        block,
        memory,
    });
    QemuBlock {
        block,
        memory,
        asks_features: decoded.asks_features,
    }
}

/// Returns the address in this process of a guest address.
fn host(guest: u64) -> usize {
    GUEST_BASE.load(Relaxed).wrapping_add(guest as usize)
}

/// Program execution of a system call.
pub struct Execution {
    path: CString,
    argv: u64,
    envp: u64,
}

/// Returns the execution that a system call requests; `None` for other calls.
///
/// # Safety
/// The arguments are those of the call. Invalid pointers from the program would otherwise only make the call fail.
pub unsafe fn execution(number: i64, arguments: [u64; 5]) -> Option<Execution> {
    // SAFETY: the caller says so.
    let text = |guest: u64| unsafe { CStr::from_ptr(host(guest) as *const c_char) };
    let [a1, a2, a3, a4, flags] = arguments;
    let calls = Guest::own().calls();
    match number {
        _ if number == calls.execve && a1 != 0 => Some(Execution {
            path: text(a1).to_owned(),
            argv: a2,
            envp: a3,
        }),
        _ if number == calls.execveat && a2 != 0 => Some(Execution {
            path: path_at(a1 as c_int, text(a2), flags as c_int)?,
            argv: a3,
            envp: a4,
        }),
        _ => None,
    }
}

/// Returns an equivalent path that needs no descriptor of a directory or of the file itself.
fn path_at(descriptor: c_int, path: &CStr, flags: c_int) -> Option<CString> {
    if descriptor == libc::AT_FDCWD || path.to_bytes().starts_with(b"/") {
        return Some(path.to_owned());
    }
    let own = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).ok()?;
    if !path.is_empty() {
        let file = own.join(OsStr::from_bytes(path.to_bytes()));
        return CString::new(file.into_os_string().into_encoded_bytes()).ok();
    }
    let itself = flags & libc::AT_EMPTY_PATH != 0;
    CString::new(own.into_os_string().into_encoded_bytes())
        .ok()
        .filter(|_| itself)
}

/// Replaces the process by QEMU running the executed program, if possible. Otherwise returns the program that continues
/// unrecorded, if any.
///
/// # Safety
/// As for [`execution`].
pub unsafe fn become_qemu(wrapper: &[CString], of: &Execution) -> Option<Vec<u8>> {
    let array = |guest| host(guest) as *const usize;
    let base = GUEST_BASE.load(Relaxed);
    // SAFETY: the caller says so.
    unsafe { exec::exec(wrapper, base, &of.path, array(of.argv), array(of.envp)) }
}
