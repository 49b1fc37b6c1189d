//! Bindings to the part of QEMU's TCG plugin interface that the plugin uses, for every version from 1 on. No package ships the
//! header (`include/qemu/qemu-plugin.h` in QEMU's source, which lists the versions).

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// Identifies the plugin to QEMU.
pub type PluginId = u64;
/// Interface version that QEMU up to 8.2 accepts.
pub const FIRST_VERSION: c_int = 1;
/// Lowest interface version that QEMU from 9.0 on accepts.
const SECOND_VERSION: c_int = 2;
/// First version that copies the bytes of an instruction to the caller.
const COPIES_BYTES: c_int = 3;
/// Longest instruction of any architecture that is recorded.
const LONGEST_INSN: usize = 16;
/// Symbol that only QEMU with interface version 2 or later exports.
const SINCE_SECOND: &CStr = c"qemu_plugin_scoreboard_new";

/// Interface version of the QEMU that has loaded the plugin.
static LOADED_BY: AtomicI32 = AtomicI32::new(FIRST_VERSION);
/// The callback neither reads nor writes registers.
pub const NO_REGISTERS: c_int = 0;
/// The callback reads and writes registers.
pub const READ_WRITE: c_int = 3;

#[repr(C)]
pub struct Tb {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct Insn {
    _opaque: [u8; 0],
}

/// Description that QEMU passes of itself.
#[repr(C)]
pub struct Info {
    /// Name of the emulated architecture.
    pub target_name: *const c_char,
    pub version_min: c_int,
    pub version_current: c_int,
    /// True if QEMU emulates a whole machine.
    pub system_emulation: bool,
}

pub type VcpuCallback = extern "C" fn(PluginId, c_uint);
pub type ExecCallback = extern "C" fn(c_uint, *mut c_void);
pub type MemoryCallback = extern "C" fn(c_uint, u32, u64, *mut c_void);
pub type TranslateCallback = extern "C" fn(PluginId, *mut Tb);
pub type ExitCallback = extern "C" fn(PluginId, *mut c_void);
pub type CallCallback =
    extern "C" fn(PluginId, c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64);
pub type CallReturnCallback = extern "C" fn(PluginId, c_uint, i64, i64);

/// Type of `qemu_plugin_insn_data` from version [`COPIES_BYTES`] on.
type CopyInsn = unsafe extern "C" fn(*const Insn, *mut c_void, usize) -> usize;

unsafe extern "C" {
    pub fn qemu_plugin_register_vcpu_init_cb(id: PluginId, callback: VcpuCallback);
    pub fn qemu_plugin_register_vcpu_exit_cb(id: PluginId, callback: VcpuCallback);
    pub fn qemu_plugin_register_vcpu_tb_trans_cb(id: PluginId, callback: TranslateCallback);
    pub fn qemu_plugin_register_vcpu_tb_exec_cb(
        tb: *mut Tb,
        callback: ExecCallback,
        flags: c_int,
        datum: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_mem_cb(
        insn: *mut Insn,
        callback: MemoryCallback,
        flags: c_int,
        rw: c_int,
        datum: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_syscall_cb(id: PluginId, callback: CallCallback);
    pub fn qemu_plugin_register_vcpu_syscall_ret_cb(id: PluginId, callback: CallReturnCallback);
    pub fn qemu_plugin_register_atexit_cb(id: PluginId, callback: ExitCallback, datum: *mut c_void);
    pub fn qemu_plugin_tb_n_insns(tb: *const Tb) -> usize;
    pub fn qemu_plugin_tb_vaddr(tb: *const Tb) -> u64;
    pub fn qemu_plugin_tb_get_insn(tb: *const Tb, index: usize) -> *mut Insn;
    fn qemu_plugin_insn_data(insn: *const Insn) -> *const c_void;
    fn qemu_plugin_insn_size(insn: *const Insn) -> usize;
    pub fn qemu_plugin_insn_vaddr(insn: *const Insn) -> u64;
    pub fn qemu_plugin_insn_haddr(insn: *const Insn) -> *mut c_void;
}

/// Returns the interface version to declare, which QEMU compares with its own range.
pub fn declared_version() -> c_int {
    // SAFETY: the name is a string; the address found is not used.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, SINCE_SECOND.as_ptr()) };
    if found.is_null() {
        FIRST_VERSION
    } else {
        SECOND_VERSION
    }
}

/// Stores QEMU's description of itself.
pub fn loaded_by(info: &Info) {
    LOADED_BY.store(info.version_current, Relaxed);
}

/// Appends the bytes of an instruction.
///
/// # Safety
/// The instruction is valid, as it is during a call of the callback for translations.
pub unsafe fn append_insn(insn: *const Insn, bytes: &mut Vec<u8>) {
    // SAFETY: the caller's instruction is valid. From this version on, the call copies at most the given number of bytes. In
    // earlier versions it returns a pointer to as many bytes as the instruction has.
    unsafe {
        let size = qemu_plugin_insn_size(insn);
        if LOADED_BY.load(Relaxed) >= COPIES_BYTES {
            let copy: CopyInsn = std::mem::transmute(qemu_plugin_insn_data as *const c_void);
            let mut own = [0u8; LONGEST_INSN];
            let copied = copy(insn, own.as_mut_ptr().cast(), own.len());
            bytes.extend_from_slice(&own[..copied.min(own.len())]);
        } else {
            let data = qemu_plugin_insn_data(insn).cast::<u8>();
            bytes.extend_from_slice(std::slice::from_raw_parts(data, size));
        }
    }
}
