//! Observers of the program's threads, and the entry points that they share.
//!
//! Input: QEMU's callbacks, from all threads at once. Output: calls of the calling thread's [`Observer`]: `profile` measures,
//! `live` only sends what the thread executes.

pub mod live;
pub mod profile;

use std::ffi::{CString, c_int, c_uint, c_void};
use std::sync::OnceLock;

use crate::action::CallerAction;
use crate::block::{MemoryUse, TranslatedBlock};
use crate::ffi;
use crate::guest::Guest;
use crate::threads::ThreadStates;
use crate::translation::{become_qemu, end, execution, translated};

/// System call that a thread is about to make.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum EnteredCall {
    /// The call ends the process.
    Exit,
    /// The process becomes another program, unless the call fails.
    Exec,
    Other,
}

/// State of one thread of the program.
pub trait Observer: Sized + 'static {
    /// Data that all threads of a process share.
    type Settings: Sync + 'static;

    /// Observers of this process, by QEMU's number of their threads.
    fn states() -> &'static ThreadStates<Self>;

    /// Settings of this process, set when the plugin is loaded.
    fn settings() -> &'static OnceLock<Self::Settings>;

    /// Begins to observe the calling thread. `None`: it continues unobserved.
    fn start(settings: &'static Self::Settings) -> Option<Self>;

    /// Returns the callback for executed blocks.
    fn block_callback(settings: &Self::Settings) -> ffi::ExecCallback;

    /// Returns the callback for the data accesses of an instruction.
    fn memory_callback(settings: &Self::Settings, usage: &MemoryUse) -> ffi::MemoryCallback;

    /// Notes that code at this address queries the processor's features.
    fn asks_features(_settings: &Self::Settings, _address: u64) {}

    /// Records that the thread enters the kernel.
    fn enter(&mut self, call: EnteredCall) -> CallerAction;

    /// Returns the command line of QEMU, to which the program and its arguments are added.
    fn wrapper(settings: &Self::Settings) -> &[CString];

    /// Records that QEMU did not become the program of a call, which the process now makes itself. `leaves` is the program that
    /// will run unobserved if the call succeeds.
    fn not_followed(&mut self, _settings: &Self::Settings, _leaves: Option<&[u8]>) {}

    /// Records that the thread returns from a system call.
    fn leave(&mut self, _: &Self::Settings, _number: i64, _result: i64) -> CallerAction {
        CallerAction::Go
    }

    /// Gives up the copy of another thread's state in a child process.
    fn abandon(&self) {}

    /// Continues the thread as the only one of a child process. Returns false if it continues unobserved.
    fn fork(&mut self, settings: &'static Self::Settings) -> bool;

    /// Records the end of the thread; its state is dropped next.
    fn exit(&mut self);

    /// Records the end of the process. The thread may still run, so only atomic fields may be touched.
    fn release(&self) {}
}

/// Registers the callbacks when the plugin is loaded.
pub fn install<O: Observer>(id: ffi::PluginId, settings: O::Settings) -> c_int {
    drop(O::settings().set(settings));
    O::states().begin();
    // SAFETY: `id` is the one QEMU gave, and the callbacks have the types that QEMU expects.
    unsafe {
        ffi::qemu_plugin_register_vcpu_init_cb(id, on_init::<O>);
        ffi::qemu_plugin_register_vcpu_exit_cb(id, on_exit::<O>);
        ffi::qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate::<O>);
        ffi::qemu_plugin_register_vcpu_syscall_cb(id, on_call::<O>);
        ffi::qemu_plugin_register_vcpu_syscall_ret_cb(id, on_call_return::<O>);
        ffi::qemu_plugin_register_atexit_cb(id, on_process_end::<O>, std::ptr::null_mut());
    }
    0
}

/// Returns the observer of the calling thread.
#[inline(always)]
fn own<O: Observer>(index: c_uint) -> Option<&'static mut O> {
    O::states().own(index)
}

/// Returns the observer of the calling thread, and the block of a block callback.
#[inline(always)]
fn own_block<O: Observer>(
    index: c_uint,
    datum: *mut c_void,
) -> Option<(&'static mut O, &'static TranslatedBlock)> {
    // SAFETY: the datum is the leaked block that was registered with the callback.
    let block: &'static TranslatedBlock = unsafe { &*datum.cast::<TranslatedBlock>() };
    own(index).map(|observer| (observer, block))
}

/// Ends the process if an observer asks for it.
#[inline(always)]
fn obey(action: CallerAction) {
    if action == CallerAction::Stop {
        end();
    }
}

extern "C" fn on_init<O: Observer>(_id: ffi::PluginId, index: c_uint) {
    if let Some(settings) = O::settings().get() {
        O::states().add(index, || O::start(settings));
    }
}

extern "C" fn on_exit<O: Observer>(_id: ffi::PluginId, index: c_uint) {
    if let Some(mut observer) = O::states().remove(index) {
        observer.exit();
    }
}

extern "C" fn on_process_end<O: Observer>(_id: ffi::PluginId, _datum: *mut c_void) {
    O::states().for_each(O::release);
}

extern "C" fn on_translate<O: Observer>(_id: ffi::PluginId, tb: *mut ffi::Tb) {
    let Some(settings) = O::settings().get() else {
        return;
    };
    // SAFETY: QEMU's block and its instructions are valid during this call.
    let Some(of) = (unsafe { translated(tb) }) else {
        return;
    };
    if let Some(address) = of.asks_features {
        O::asks_features(settings, address);
    }
    let on_memory = |usage: &MemoryUse| O::memory_callback(settings, usage);
    // SAFETY: as above.
    unsafe { of.observe(tb, O::block_callback(settings), on_memory) };
}

extern "C" fn on_call<O: Observer>(
    _id: ffi::PluginId,
    index: c_uint,
    number: i64,
    a1: u64,
    a2: u64,
    a3: u64,
    a4: u64,
    a5: u64,
    _a6: u64,
    _a7: u64,
    _a8: u64,
) {
    let (Some(observer), Some(settings)) = (own::<O>(index), O::settings().get()) else {
        return;
    };
    // SAFETY: these are the arguments of a call that the program makes.
    let execution = unsafe { execution(number, [a1, a2, a3, a4, a5]) };
    obey(observer.enter(match execution {
        Some(_) => EnteredCall::Exec,
        None if number == Guest::own().calls().exit_group => EnteredCall::Exit,
        None => EnteredCall::Other,
    }));
    let Some(execution) = execution else { return };
    // SAFETY: as above.
    let leaves = unsafe { become_qemu(O::wrapper(settings), &execution) };
    observer.not_followed(settings, leaves.as_deref());
}

extern "C" fn on_call_return<O: Observer>(
    _id: ffi::PluginId,
    index: c_uint,
    number: i64,
    result: i64,
) {
    let Some(settings) = O::settings().get() else {
        return;
    };
    let forked = O::states().is_forked(index, (number, result), O::abandon);
    let Some(observer) = own::<O>(index) else {
        return;
    };
    if forked && !observer.fork(settings) {
        // The state is a copy of its parent's, so it is not dropped.
        O::states().remove(index).map(Box::leak);
        return;
    }
    obey(observer.leave(settings, number, result));
}
