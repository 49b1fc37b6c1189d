//! The part of QEMU's TCG plugin interface, version 1, that the plugin uses. No package ships the header.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// Identifies the plugin to QEMU.
pub type PluginId = u64;
/// Version that this plugin is written for.
pub const API_VERSION: c_int = 1;
/// The callback neither reads nor writes registers.
pub const NO_REGISTERS: c_int = 0;
/// The callback wants reads and writes.
pub const READ_WRITE: c_int = 3;

#[repr(C)]
pub struct Tb {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct Insn {
    _opaque: [u8; 0],
}

/// What QEMU says about itself.
#[repr(C)]
pub struct Info {
    /// Name of the emulated architecture.
    pub target_name: *const c_char,
    pub version_min: c_int,
    pub version_current: c_int,
    /// Whether QEMU emulates a whole machine.
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
    pub fn qemu_plugin_insn_data(insn: *const Insn) -> *const c_void;
    pub fn qemu_plugin_insn_size(insn: *const Insn) -> usize;
    pub fn qemu_plugin_insn_vaddr(insn: *const Insn) -> u64;
    pub fn qemu_plugin_insn_haddr(insn: *const Insn) -> *mut c_void;
}
