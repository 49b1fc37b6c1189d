//! Observer of a recording: the thread is counted and modelled, and sends its events if they are wanted.

use std::cell::Cell;
use std::ffi::{CString, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, OnceLock};

use countersteer_model::profile::CaveatKind;

use super::{EnteredCall, Observer, obey, own, own_block};
use crate::action::CallerAction;
use crate::block::{MemoryUse, TranslatedBlock};
use crate::caveats;
use crate::ffi;
use crate::guest::IO_URING_SETUP;
use crate::layout::{COMMAND_FILE, Measure};
use crate::log;
use crate::shared::WindowControl;
use crate::threads::ThreadStates;
use crate::vcpu::Vcpu;

static STATES: ThreadStates<Vcpu> = ThreadStates::new();
static SETTINGS: OnceLock<RecorderSettings> = OnceLock::new();

thread_local! {
    /// True if the thread is about to become an unrecorded program, and this was noted. If its call returns, the call failed.
    static LEAVES: Cell<bool> = const { Cell::new(false) };
}

/// Settings of a recording.
pub struct RecorderSettings {
    directory: PathBuf,
    pub control: WindowControl,
    wrapper: Vec<CString>,
    measure: Measure,
    /// Send events, through a filter of this many sets.
    stream: Option<u32>,
    pub program: Vec<u8>,
}

impl RecorderSettings {
    /// Reads the settings of a scratch directory.
    pub fn new(directory: &Path, measure: Measure, stream: Option<u32>) -> std::io::Result<Self> {
        let command = std::fs::read(directory.join(COMMAND_FILE))?;
        let wrapper = command
            .split(|b| *b == 0)
            .filter(|a| !a.is_empty())
            .filter_map(|a| CString::new(a).ok())
            .collect();
        Ok(Self {
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

    /// Notes that a thread or a process is not recorded.
    fn not_recorded(&self, which: &str, error: &std::io::Error) {
        self.control.note(CaveatKind::NotRecorded, &self.program);
        log::line(format_args!("cannot record a {which}: {error}"));
    }

    /// Connects a thread with the receiver of its events.
    fn connect(&self, vcpu: &mut Vcpu) {
        let connected = self.stream.map(|sets| vcpu.connect(&self.directory, sets));
        if let Some(Err(error)) = connected {
            log::line(format_args!("cannot send what a thread executes: {error}"));
        }
    }
}

impl Observer for Vcpu {
    type Settings = RecorderSettings;

    fn states() -> &'static ThreadStates<Self> {
        &STATES
    }

    fn settings() -> &'static OnceLock<RecorderSettings> {
        &SETTINGS
    }

    fn start(settings: &'static RecorderSettings) -> Option<Self> {
        let vcpu = Self::new(&settings.directory, &settings.control, settings.measure);
        let failed = |error: &std::io::Error| settings.not_recorded("thread", error);
        let mut vcpu = vcpu.inspect_err(failed).ok()?;
        settings.connect(&mut vcpu);
        Some(vcpu)
    }

    fn block_callback(settings: &RecorderSettings) -> ffi::ExecCallback {
        match (settings.stream, settings.measure) {
            (Some(_), _) => on_streamed_block,
            (None, Measure::Sampled) => on_sampled_block,
            (None, _) => on_block,
        }
    }

    /// The models have a version for recent processors.
    fn memory_callback(settings: &RecorderSettings, usage: &MemoryUse) -> ffi::MemoryCallback {
        let streams = settings.stream.is_some();
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

    /// QEMU does not report all of the host's features. The dynamic linker queries them in every program and is left out.
    #[cold]
    fn asks_features(settings: &RecorderSettings, address: u64) {
        if !has_more_features() {
            return;
        }
        let file = caveats::mapped_file(address);
        let file = file.as_ref().unwrap_or(&settings.program);
        if !caveats::is_dynamic_linker(file) {
            settings.control.note(CaveatKind::Processor, file);
        }
    }

    fn enter(&mut self, call: EnteredCall) -> CallerAction {
        let action = self.enter_call();
        if action == CallerAction::Stop {
            return action;
        }
        match call {
            EnteredCall::Exit => {
                self.send_last(true);
                self.end_process();
            }
            EnteredCall::Exec => {
                self.send_last(false);
                self.exec(true);
            }
            EnteredCall::Other => {}
        }
        CallerAction::Go
    }

    fn wrapper(settings: &RecorderSettings) -> &[CString] {
        &settings.wrapper
    }

    fn not_followed(&mut self, settings: &RecorderSettings, leaves: Option<&[u8]>) {
        if let Some(file) = leaves {
            settings.control.note(CaveatKind::NotFollowed, file);
            LEAVES.set(true);
        }
        self.exec(false);
    }

    fn leave(&mut self, settings: &RecorderSettings, number: i64, result: i64) -> CallerAction {
        if LEAVES.take() {
            settings.control.take_back(CaveatKind::NotFollowed);
        }
        if number == IO_URING_SETUP && result == -i64::from(libc::ENOSYS) {
            settings
                .control
                .note(CaveatKind::IoUring, &settings.program);
        }
        self.leave_call()
    }

    fn fork(&mut self, settings: &'static RecorderSettings) -> bool {
        if let Err(error) = Self::fork(self, &settings.directory) {
            // The child runs on unrecorded and does not count as runnable.
            settings.not_recorded("child process", &error);
            return false;
        }
        settings.connect(self);
        true
    }

    fn exit(&mut self) {
        Self::exit(self);
    }

    fn release(&self) {
        Self::release(self);
    }
}

extern "C" fn on_block(index: c_uint, datum: *mut c_void) {
    if let Some((vcpu, block)) = own_block::<Vcpu>(index, datum) {
        obey(vcpu.block(block));
    }
}

extern "C" fn on_sampled_block(index: c_uint, datum: *mut c_void) {
    if let Some((vcpu, block)) = own_block::<Vcpu>(index, datum)
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
    if let Some((vcpu, block)) = own_block::<Vcpu>(index, datum) {
        obey(vcpu.streamed_block(block));
    }
}

extern "C" fn on_memory<const WIDE: bool, const SPLIT: bool, const STREAMED: bool>(
    index: c_uint,
    info: u32,
    address: u64,
    datum: *mut c_void,
) {
    let Some(vcpu) = own::<Vcpu>(index) else {
        return;
    };
    if STREAMED {
        vcpu.stream_memory(info, address);
    }
    if SPLIT {
        vcpu.split_memory::<WIDE>(info, address, datum as usize);
    } else {
        vcpu.memory::<WIDE>(info, address, datum as usize);
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
