//! Entry point for QEMU: installs the observer that the plugin's arguments name.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use countersteer_model::profile::CaveatKind;

use crate::caveats;
use crate::ffi;
use crate::guest::Guest;
use crate::layout::Measure;
use crate::live::LiveThread;
use crate::log;
use crate::observers::{self, live::LiveSettings, profile::RecorderSettings};
use crate::translation::end;
use crate::vcpu::Vcpu;

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
        log::line(format_args!(
            "the plugin works with qemu-x86_64 and qemu-aarch64 only"
        ));
        return -1;
    };
    guest.keep();
    // SAFETY: QEMU passes `argc` strings.
    let arguments: Vec<&CStr> = (0..argc as usize)
        .map(|at| unsafe { CStr::from_ptr(*argv.add(at)) })
        .collect();
    let value = |key: &str| {
        let mut values = arguments.iter();
        values.find_map(|a| a.to_bytes().strip_prefix(key.as_bytes()))
    };
    let text = |key| value(key).and_then(|v| std::str::from_utf8(v).ok());
    if let Some(name) = value("live=") {
        return match LiveSettings::connected(name) {
            Ok(settings) => observers::install::<LiveThread>(id, settings),
            Err(error) => refuse("reach its receiver", name, &error),
        };
    }
    let Some(directory) = value("dir=") else {
        log::line(format_args!(
            "the plugin needs dir=DIRECTORY; run it through `steer profile`"
        ));
        return -1;
    };
    let measure = text("measure=")
        .and_then(Measure::named)
        .unwrap_or_default();
    let stream = text("stream=").and_then(|sets| sets.parse().ok());
    let settings = RecorderSettings::new(Path::new(OsStr::from_bytes(directory)), measure, stream);
    match settings {
        Ok(settings) if settings.control.stopped() => end(),
        Ok(settings) => {
            if caveats::has_rights_of_its_own(&settings.program) {
                settings.control.note(CaveatKind::Rights, &settings.program);
            }
            observers::install::<Vcpu>(id, settings)
        }
        Err(error) => refuse("use", directory, &error),
    }
}

/// Reports that the plugin cannot work; QEMU ends.
fn refuse(action: &str, name: &[u8], error: &std::io::Error) -> c_int {
    log::line(format_args!(
        "the plugin cannot {action} {}: {error}",
        name.escape_ascii()
    ));
    -1
}
