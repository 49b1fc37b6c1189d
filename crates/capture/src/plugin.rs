//! Entry points for QEMU.
//!
//! Input: QEMU's callbacks, from all threads at once. Output: calls of the thread's [`Vcpu`].

use std::cell::Cell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::{LazyLock, OnceLock};

use countersteer_model::profile::CaveatKind;

use crate::block::{MemoryUse, TranslatedBlock};
use crate::caveats;
use crate::ffi;
use crate::guest::{Guest, IO_URING_SETUP};
use crate::layout::{COMMAND_FILE, Measure};
use crate::live_plugin;
use crate::shared::WindowControl;
use crate::threads::ThreadStates;
use crate::translation::{become_qemu, end, execution, translated};
use crate::vcpu::{CallerAction, Vcpu};

/// Interface version; QEMU reads it after loading the plugin.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static qemu_plugin_version: AtomicI32 = AtomicI32::new(ffi::FIRST_VERSION);

/// Constructor that the dynamic linker calls before QEMU reads the version.
#[used]
#[unsafe(link_section = ".init_array")]
static DECLARE_VERSION: extern "C" fn() = declare_version;

extern "C" fn declare_version() {
    qemu_plugin_version.store(ffi::declared_version(), Relaxed);
}

static VCPUS: ThreadStates<Vcpu> = ThreadStates::new();
static SETTINGS: OnceLock<RecorderSettings> = OnceLock::new();

thread_local! {
    /// True if the thread is about to become an unrecorded program, and this was noted. If its call returns, the call failed.
    static LEAVES: Cell<bool> = const { Cell::new(false) };
}

struct RecorderSettings {
    directory: PathBuf,
    control: WindowControl,
    wrapper: Vec<CString>,
    measure: Measure,
    /// Send events, through a filter of this many sets.
    stream: Option<u32>,
    program: Vec<u8>,
}

/// Installs the plugin; QEMU calls it after loading.
///
/// # Safety
/// QEMU passes its own description and `argc` strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: ffi::PluginId,
    info: *const ffi::Info,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: QEMU's description outlives the call.
    let info = unsafe { &*info };
    // SAFETY: its name is a string.
    let target = unsafe { CStr::from_ptr(info.target_name) };
    ffi::loaded_by(info);
    let Some(guest) = Guest::named(target).filter(|_| !info.system_emulation) else {
        eprintln!("steer: the plugin works with qemu-x86_64 and qemu-aarch64 only");
        return -1;
    };
    guest.keep();
    // SAFETY: QEMU passes `argc` strings.
    let arguments: Vec<&CStr> = (0..argc as usize)
        .map(|at| unsafe { CStr::from_ptr(*argv.add(at)) })
        .collect();
    if let Some(name) = arguments
        .iter()
        .find_map(|a| a.to_bytes().strip_prefix(b"live="))
    {
        return live_plugin::install(id, name);
    }
    let directory = arguments
        .iter()
        .find_map(|a| a.to_bytes().strip_prefix(b"dir="));
    let measure = arguments
        .iter()
        .find_map(|a| Measure::named(a.to_str().ok()?.strip_prefix("measure=")?))
        .unwrap_or_default();
    let stream = arguments
        .iter()
        .find_map(|a| a.to_str().ok()?.strip_prefix("stream=")?.parse().ok());
    let Some(directory) = directory else {
        eprintln!("steer: the plugin needs dir=DIRECTORY; run it through `steer profile`");
        return -1;
    };
    match settings(Path::new(OsStr::from_bytes(directory)), measure, stream) {
        Ok(settings) if settings.control.stopped() => end(),
        Ok(settings) => {
            if caveats::has_rights_of_its_own(&settings.program) {
                settings.control.note(CaveatKind::Rights, &settings.program);
            }
            drop(SETTINGS.set(settings));
        }
        Err(error) => {
            eprintln!(
                "steer: the plugin cannot use {}: {error}",
                directory.escape_ascii()
            );
            return -1;
        }
    }
    VCPUS.begin();
    // SAFETY: `id` is the one QEMU gave, and the callbacks have the types that QEMU expects.
    unsafe {
        ffi::qemu_plugin_register_vcpu_init_cb(id, on_init);
        ffi::qemu_plugin_register_vcpu_exit_cb(id, on_exit);
        ffi::qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
        ffi::qemu_plugin_register_vcpu_syscall_cb(id, on_call);
        ffi::qemu_plugin_register_vcpu_syscall_ret_cb(id, on_call_return);
        ffi::qemu_plugin_register_atexit_cb(id, on_process_end, std::ptr::null_mut());
    }
    0
}

fn settings(
    directory: &Path,
    measure: Measure,
    stream: Option<u32>,
) -> std::io::Result<RecorderSettings> {
    let command = std::fs::read(directory.join(COMMAND_FILE))?;
    let wrapper = command
        .split(|b| *b == 0)
        .filter(|a| !a.is_empty())
        .filter_map(|a| CString::new(a).ok())
        .collect();
    Ok(RecorderSettings {
        directory: directory.to_owned(),
        control: WindowControl::open(directory)?,
        wrapper,
        // Who reads the events wants those of all branches.
        measure: match stream {
            Some(_) => Measure::Exact,
            None => measure,
        },
        stream,
        program: caveats::own_program().unwrap_or_default(),
    })
}

fn obey(verdict: CallerAction) {
    if verdict == CallerAction::Stop {
        end();
    }
}

extern "C" fn on_init(_id: ffi::PluginId, index: c_uint) {
    if let Some(settings) = SETTINGS.get() {
        VCPUS.add(index, || start(settings));
    }
}

/// Starts to record a thread; if that is not possible, it continues unrecorded.
fn start(settings: &'static RecorderSettings) -> Option<Vcpu> {
    match Vcpu::new(&settings.directory, &settings.control, settings.measure) {
        Ok(mut vcpu) => {
            connect(&mut vcpu, settings);
            Some(vcpu)
        }
        Err(error) => {
            settings
                .control
                .note(CaveatKind::NotRecorded, &settings.program);
            eprintln!("steer: cannot record a thread: {error}");
            None
        }
    }
}

/// Connects a thread with the receiver of its events.
fn connect(vcpu: &mut Vcpu, settings: &RecorderSettings) {
    let connected = settings
        .stream
        .map(|sets| vcpu.connect(&settings.directory, sets));
    if let Some(Err(error)) = connected {
        eprintln!("steer: cannot send what a thread executes: {error}");
    }
}

extern "C" fn on_exit(_id: ffi::PluginId, index: c_uint) {
    if let Some(mut vcpu) = VCPUS.remove(index) {
        vcpu.exit();
    }
}

extern "C" fn on_process_end(_id: ffi::PluginId, _datum: *mut c_void) {
    VCPUS.for_each(Vcpu::release);
}

extern "C" fn on_block(index: c_uint, datum: *mut c_void) {
    // SAFETY: the datum is the leaked block that was registered with this callback.
    let block: &'static TranslatedBlock = unsafe { &*datum.cast::<TranslatedBlock>() };
    if let Some(vcpu) = VCPUS.own(index) {
        obey(vcpu.block(block));
    }
}

extern "C" fn on_sampled_block(index: c_uint, datum: *mut c_void) {
    // SAFETY: as for `on_block`.
    let block: &'static TranslatedBlock = unsafe { &*datum.cast::<TranslatedBlock>() };
    if let Some(vcpu) = VCPUS.own(index)
        && !vcpu.common_block(block)
    {
        on_special_block(vcpu, block);
    }
}

/// Passes on a block; out of line, so that the common case saves no registers.
#[inline(never)]
extern "C" fn on_special_block(vcpu: &mut Vcpu, block: &'static TranslatedBlock) {
    obey(vcpu.special_block(block));
}

extern "C" fn on_streamed_block(index: c_uint, datum: *mut c_void) {
    // SAFETY: as for `on_block`.
    let block: &'static TranslatedBlock = unsafe { &*datum.cast::<TranslatedBlock>() };
    if let Some(vcpu) = VCPUS.own(index) {
        obey(vcpu.streamed_block(block));
    }
}

extern "C" fn on_memory<const WIDE: bool, const SPLIT: bool, const STREAMED: bool>(
    index: c_uint,
    info: u32,
    address: u64,
    datum: *mut c_void,
) {
    let Some(vcpu) = VCPUS.own(index) else { return };
    if STREAMED {
        vcpu.stream_memory(info, address);
    }
    if SPLIT {
        vcpu.split_memory::<WIDE>(info, address, datum as usize);
    } else {
        vcpu.memory::<WIDE>(info, address, datum as usize);
    }
}

extern "C" fn on_translate(_id: ffi::PluginId, tb: *mut ffi::Tb) {
    // SAFETY: QEMU's block and its instructions are valid during this call.
    let Some(of) = (unsafe { translated(tb) }) else {
        return;
    };
    if let Some(address) = of.asks_features {
        note_features(address);
    }
    let settings = SETTINGS.get();
    let streams = settings.is_some_and(|s| s.stream.is_some());
    let on_block = match settings.map(|s| s.measure) {
        _ if streams => on_streamed_block,
        Some(Measure::Sampled) => on_sampled_block,
        _ => on_block,
    };
    // SAFETY: as above.
    unsafe { of.observe(tb, on_block, |usage| memory_callback(usage, streams)) };
}

/// Notes that code queries the processor's features: QEMU does not report all of the host's features. The dynamic linker queries
/// them in every program and is left out.
#[cold]
fn note_features(address: u64) {
    let Some(settings) = SETTINGS.get().filter(|_| has_more_features()) else {
        return;
    };
    let file = caveats::mapped_file(address);
    let file = file.as_ref().unwrap_or(&settings.program);
    if !caveats::is_dynamic_linker(file) {
        settings.control.note(CaveatKind::Processor, file);
    }
}

/// True if this processor has features that programs select code for, and that QEMU lacks.
fn has_more_features() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx512f");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// True if this processor has the features that the models' second version needs.
fn is_recent() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Returns the callback for an instruction: the models have a version for recent processors.
fn memory_callback(usage: &MemoryUse, streams: bool) -> ffi::MemoryCallback {
    static WIDE: LazyLock<bool> = LazyLock::new(is_recent);
    match (*WIDE, usage.repeat || usage.split, streams) {
        (true, false, false) => on_memory::<true, false, false>,
        (false, false, false) => on_memory::<false, false, false>,
        (true, true, false) => on_memory::<true, true, false>,
        (false, true, false) => on_memory::<false, true, false>,
        (true, false, true) => on_memory::<true, false, true>,
        (false, false, true) => on_memory::<false, false, true>,
        (true, true, true) => on_memory::<true, true, true>,
        (false, true, true) => on_memory::<false, true, true>,
    }
}

extern "C" fn on_call(
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
    let (Some(vcpu), Some(settings)) = (VCPUS.own(index), SETTINGS.get()) else {
        return;
    };
    obey(vcpu.enter_call());
    // SAFETY: these are the arguments of a call that the program makes.
    let execution = unsafe { execution(number, [a1, a2, a3, a4, a5]) };
    let exits = number == Guest::own().calls().exit_group;
    if exits || execution.is_some() {
        vcpu.send_last(exits);
    }
    if exits {
        vcpu.end_process();
    }
    let Some(execution) = execution else { return };
    vcpu.exec(true);
    // SAFETY: as above.
    if let Some(file) = unsafe { become_qemu(&settings.wrapper, &execution) } {
        settings.control.note(CaveatKind::NotFollowed, &file);
        LEAVES.set(true);
    }
    vcpu.exec(false);
}

extern "C" fn on_call_return(_id: ffi::PluginId, index: c_uint, number: i64, result: i64) {
    let (Some(vcpu), Some(settings)) = (VCPUS.own(index), SETTINGS.get()) else {
        return;
    };
    if VCPUS.is_forked(index, (number, result), |_| ()) {
        if let Err(error) = vcpu.fork(&settings.directory) {
            settings
                .control
                .note(CaveatKind::NotRecorded, &settings.program);
            eprintln!("steer: cannot record a child process: {error}");
            // The child runs on unrecorded and does not count as runnable. The state is a copy of its parent's.
            VCPUS.remove(index).map(Box::leak);
            return;
        }
        connect(vcpu, settings);
    }
    if LEAVES.take() {
        settings.control.take_back(CaveatKind::NotFollowed);
    }
    if number == IO_URING_SETUP && result == -i64::from(libc::ENOSYS) {
        settings
            .control
            .note(CaveatKind::IoUring, &settings.program);
    }
    obey(vcpu.leave_call());
}
