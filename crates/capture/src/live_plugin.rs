//! Entry points for QEMU if a program is simulated while it runs.
//!
//! Input: QEMU's callbacks, from all threads at once. Output: calls of the thread's [`LiveThread`]. No files are left: the
//! receiver listens at abstract socket addresses, and an executed program receives QEMU's own command line.
//!
//! A second connection (`lifeline`) binds a process to its receiver. When the other end closes, the kernel sends the process
//! SIGKILL, in any state.

use std::ffi::{CString, c_int, c_uint, c_void};
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::OnceLock;

use countersteer_cache::wire::LIVE_FILTER_SETS;

use crate::block::TranslatedBlock;
use crate::ffi;
use crate::guest::Guest;
use crate::layout::LIFELINE_SUFFIX;
use crate::live::LiveThread;
use crate::stream::out_of_the_way;
use crate::threads::ThreadStates;
use crate::translation::{become_qemu, end, execution, translated};

static LIVE: ThreadStates<LiveThread> = ThreadStates::new();
static SETTINGS: OnceLock<LiveSettings> = OnceLock::new();

struct LiveSettings {
    stream: SocketAddr,
    lifeline: SocketAddr,
    wrapper: Vec<CString>,
}

/// Installs the callbacks when the plugin is loaded; `name` is the receiver's address.
pub fn install(id: ffi::PluginId, name: &[u8]) -> c_int {
    let connected = settings(name).and_then(|settings| {
        hold(&settings.lifeline)?;
        Ok(settings)
    });
    match connected {
        Ok(settings) => drop(SETTINGS.set(settings)),
        Err(error) => {
            eprintln!(
                "steer: the plugin cannot reach its receiver {}: {error}",
                name.escape_ascii()
            );
            return -1;
        }
    }
    LIVE.begin();
    // SAFETY: `id` is the one QEMU gave, and the callbacks have the types that QEMU expects.
    unsafe {
        ffi::qemu_plugin_register_vcpu_init_cb(id, on_init);
        ffi::qemu_plugin_register_vcpu_exit_cb(id, on_exit);
        ffi::qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
        ffi::qemu_plugin_register_vcpu_syscall_cb(id, on_call);
        ffi::qemu_plugin_register_vcpu_syscall_ret_cb(id, on_call_return);
    }
    0
}

fn settings(name: &[u8]) -> io::Result<LiveSettings> {
    let own = std::fs::read("/proc/self/cmdline")?;
    let wrapper = own
        .split(|b| *b == 0)
        .take_while(|a| *a != b"-0")
        .filter_map(|a| CString::new(a).ok())
        .collect();
    Ok(LiveSettings {
        stream: SocketAddr::from_abstract_name(name)?,
        lifeline: SocketAddr::from_abstract_name([name, LIFELINE_SUFFIX.as_bytes()].concat())?,
        wrapper,
    })
}

/// Makes this process end with its receiver. The descriptor stays open across exec.
fn hold(lifeline: &SocketAddr) -> io::Result<()> {
    const SET_SIGNAL: c_int = 10;
    let socket = out_of_the_way(UnixStream::connect_addr(lifeline)?);
    let descriptor = socket.as_raw_fd();
    let settings = [
        (libc::F_SETFD, 0),
        (libc::F_SETOWN, std::process::id() as c_int),
        (SET_SIGNAL, libc::SIGKILL),
        (libc::F_SETFL, libc::O_ASYNC),
    ];
    for (command, value) in settings {
        // SAFETY: the descriptor is open.
        if unsafe { libc::fcntl(descriptor, command, value) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    let mut now = libc::pollfd {
        fd: socket.into_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // The receiver may have closed the connection before the kernel watched it.
    // SAFETY: one descriptor is polled.
    if unsafe { libc::poll(&raw mut now, 1, 0) } > 0 {
        end();
    }
    Ok(())
}

/// Ends the process if the receiver is gone.
#[inline]
fn obey(sent: io::Result<()>) {
    if sent.is_err() {
        end();
    }
}

extern "C" fn on_init(_id: ffi::PluginId, index: c_uint) {
    let Some(settings) = SETTINGS.get() else {
        return;
    };
    LIVE.add(index, || {
        let thread = LiveThread::connect(&settings.stream, LIVE_FILTER_SETS);
        Some(thread.unwrap_or_else(|_| end()))
    });
}

extern "C" fn on_exit(_id: ffi::PluginId, index: c_uint) {
    if let Some(mut thread) = LIVE.remove(index) {
        obey(thread.stream.enter_kernel(true, 0));
    }
}

extern "C" fn on_block(index: c_uint, datum: *mut c_void) {
    // SAFETY: the datum is the leaked block that was registered with this callback.
    let block: &'static TranslatedBlock = unsafe { &*datum.cast::<TranslatedBlock>() };
    if let Some(thread) = LIVE.own(index) {
        obey(thread.block(block));
    }
}

extern "C" fn on_memory(index: c_uint, info: u32, address: u64, _: *mut c_void) {
    if let Some(thread) = LIVE.own(index) {
        thread.stream.data(info, address);
    }
}

extern "C" fn on_translate(_id: ffi::PluginId, tb: *mut ffi::Tb) {
    // SAFETY: QEMU's block and its instructions are valid during this call.
    unsafe {
        if let Some(of) = translated(tb) {
            of.observe(tb, on_block, |_| on_memory);
        }
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
    let (Some(thread), Some(settings)) = (LIVE.own(index), SETTINGS.get()) else {
        return;
    };
    // SAFETY: these are the arguments of a call that the program makes.
    if let Some(execution) = unsafe { execution(number, [a1, a2, a3, a4, a5]) } {
        obey(thread.stream.send(0, 0));
        // SAFETY: as above.
        unsafe { become_qemu(&settings.wrapper, &execution) };
        return;
    }
    let ends = number == Guest::own().calls().exit_group;
    obey(thread.stream.enter_kernel(ends, 0));
}

extern "C" fn on_call_return(_id: ffi::PluginId, index: c_uint, number: i64, result: i64) {
    let Some(settings) = SETTINGS.get() else {
        return;
    };
    // The sockets of other threads would keep the parent's streams open.
    if !LIVE.is_forked(index, (number, result), |of| of.stream.abandon()) {
        return;
    }
    if hold(&settings.lifeline).is_err() {
        end();
    }
    if let Some(thread) = LIVE.own(index) {
        obey(thread.reconnect(&settings.stream, LIVE_FILTER_SETS));
    }
}
