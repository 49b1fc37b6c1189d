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
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};

use countersteer_cache::wire::LIVE_FILTER_SETS;

use crate::block::Block;
use crate::ffi;
use crate::guest::Guest;
use crate::layout::LIFELINE_SUFFIX;
use crate::live::LiveThread;
use crate::stream::out_of_the_way;
use crate::translation::{become_qemu, end, execution, translated};

/// Largest number of threads of a process at a time.
const THREADS: usize = 1 << 16;

static LIVE: [AtomicPtr<LiveThread>; THREADS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; THREADS];
static SETTINGS: OnceLock<Settings> = OnceLock::new();
static PID: AtomicU32 = AtomicU32::new(0);

struct Settings {
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
    PID.store(std::process::id(), Relaxed);
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

fn settings(name: &[u8]) -> io::Result<Settings> {
    let own = std::fs::read("/proc/self/cmdline")?;
    let wrapper = own
        .split(|b| *b == 0)
        .take_while(|a| *a != b"-0")
        .filter_map(|a| CString::new(a).ok())
        .collect();
    Ok(Settings {
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

/// Returns the state of the calling thread.
#[inline]
fn live(index: c_uint) -> Option<&'static mut LiveThread> {
    let pointer = LIVE.get(index as usize)?.load(Relaxed);
    // SAFETY: entries are null or leaked boxes, freed only by the thread itself when it ends. QEMU calls back with a thread's
    // index from that thread alone.
    unsafe { pointer.as_mut() }
}

/// Ends the process if the receiver is gone.
#[inline]
fn obey(sent: io::Result<()>) {
    if sent.is_err() {
        end();
    }
}

extern "C" fn on_init(_id: ffi::PluginId, index: c_uint) {
    let (Some(settings), Some(slot)) = (SETTINGS.get(), LIVE.get(index as usize)) else {
        return;
    };
    match LiveThread::connect(&settings.stream, LIVE_FILTER_SETS) {
        Ok(thread) => slot.store(Box::into_raw(Box::new(thread)), Relaxed),
        Err(_) => end(),
    }
}

extern "C" fn on_exit(_id: ffi::PluginId, index: c_uint) {
    let Some(slot) = LIVE.get(index as usize) else {
        return;
    };
    let pointer = slot.swap(std::ptr::null_mut(), Relaxed);
    if !pointer.is_null() {
        // SAFETY: entries come from boxes, and the swap made this the only pointer.
        let mut thread = unsafe { Box::from_raw(pointer) };
        obey(thread.enter_kernel(true));
    }
}

extern "C" fn on_block(index: c_uint, datum: *mut c_void) {
    // SAFETY: the datum is the leaked block that was registered with this callback.
    let block: &'static Block = unsafe { &*datum.cast::<Block>() };
    if let Some(thread) = live(index) {
        obey(thread.block(block));
    }
}

extern "C" fn on_memory(index: c_uint, info: u32, address: u64, _: *mut c_void) {
    if let Some(thread) = live(index) {
        thread.memory(info, address);
    }
}

extern "C" fn on_translate(_id: ffi::PluginId, tb: *mut ffi::Tb) {
    // SAFETY: QEMU's block and its instructions are valid during this call; the blocks live forever.
    unsafe {
        let Some(of) = translated(tb) else { return };
        ffi::qemu_plugin_register_vcpu_tb_exec_cb(
            tb,
            on_block,
            ffi::NO_REGISTERS,
            std::ptr::from_ref(of.block).cast_mut().cast(),
        );
        for (insn, usage) in of.insns.iter().zip(of.memory) {
            if usage.is_some() {
                ffi::qemu_plugin_register_vcpu_mem_cb(
                    *insn,
                    on_memory,
                    ffi::NO_REGISTERS,
                    ffi::READ_WRITE,
                    std::ptr::null_mut(),
                );
            }
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
    let (Some(thread), Some(settings)) = (live(index), SETTINGS.get()) else {
        return;
    };
    // SAFETY: these are the arguments of a call that the program makes.
    if let Some(execution) = unsafe { execution(number, [a1, a2, a3, a4, a5]) } {
        obey(thread.flush());
        // SAFETY: as above.
        unsafe { become_qemu(&settings.wrapper, &execution) };
        return;
    }
    obey(thread.enter_kernel(number == Guest::own().calls().exit_group));
}

extern "C" fn on_call_return(_id: ffi::PluginId, index: c_uint, number: i64, result: i64) {
    let forked = result == 0 && Guest::own().calls().forks.contains(&number);
    let Some(settings) = SETTINGS.get().filter(|_| forked) else {
        return;
    };
    if std::process::id() == PID.load(Relaxed) {
        return;
    }
    PID.store(std::process::id(), Relaxed);
    for (other, slot) in LIVE.iter().enumerate() {
        if other == index as usize {
            continue;
        }
        // The state is a copy of the parent's and stays unused. Only the sockets matter: they would keep the parent's streams
        // open.
        let parents = slot.swap(std::ptr::null_mut(), Relaxed);
        // SAFETY: entries are null or leaked boxes, and the threads that they belong to are not in this process.
        if let Some(parents) = unsafe { parents.as_ref() } {
            parents.abandon();
        }
    }
    if hold(&settings.lifeline).is_err() {
        end();
    }
    if let Some(thread) = live(index) {
        obey(thread.reconnect(&settings.stream, LIVE_FILTER_SETS));
    }
}
