//! Observer of a program that is simulated while it runs: the thread only sends its events.
//!
//! No files are left: the receiver listens at abstract socket addresses, and an executed program receives QEMU's own command
//! line.
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

use super::{EnteredCall, Observer, obey, own, own_block};
use crate::action::CallerAction;
use crate::block::MemoryUse;
use crate::ffi;
use crate::layout::LIFELINE_SUFFIX;
use crate::live::LiveThread;
use crate::stream::out_of_the_way;
use crate::threads::ThreadStates;
use crate::translation::end;

static STATES: ThreadStates<LiveThread> = ThreadStates::new();
static SETTINGS: OnceLock<LiveSettings> = OnceLock::new();

/// Addresses of the receiver, and the command line of QEMU.
pub struct LiveSettings {
    stream: SocketAddr,
    lifeline: SocketAddr,
    wrapper: Vec<CString>,
}

impl LiveSettings {
    /// Connects this process with the receiver at an address.
    pub fn connected(name: &[u8]) -> io::Result<Self> {
        let own = std::fs::read("/proc/self/cmdline")?;
        let wrapper = own
            .split(|b| *b == 0)
            .take_while(|a| *a != b"-0")
            .filter_map(|a| CString::new(a).ok())
            .collect();
        let settings = Self {
            stream: SocketAddr::from_abstract_name(name)?,
            lifeline: SocketAddr::from_abstract_name([name, LIFELINE_SUFFIX.as_bytes()].concat())?,
            wrapper,
        };
        hold(&settings.lifeline)?;
        Ok(settings)
    }
}

impl Observer for LiveThread {
    type Settings = LiveSettings;

    fn states() -> &'static ThreadStates<Self> {
        &STATES
    }

    fn settings() -> &'static OnceLock<LiveSettings> {
        &SETTINGS
    }

    fn start(settings: &'static LiveSettings) -> Option<Self> {
        let thread = Self::connect(&settings.stream, LIVE_FILTER_SETS);
        Some(thread.unwrap_or_else(|_| end()))
    }

    fn block_callback(_: &LiveSettings) -> ffi::ExecCallback {
        on_block
    }

    fn memory_callback(_: &LiveSettings, _: &MemoryUse) -> ffi::MemoryCallback {
        on_memory
    }

    fn enter(&mut self, call: EnteredCall) -> CallerAction {
        let sent = match call {
            EnteredCall::Exec => self.stream.send(0, 0),
            call => self.stream.enter_kernel(call == EnteredCall::Exit, 0),
        };
        CallerAction::after(&sent)
    }

    fn wrapper(settings: &LiveSettings) -> &[CString] {
        &settings.wrapper
    }

    /// The sockets of other threads would keep the parent's streams open.
    fn abandon(&self) {
        self.stream.abandon();
    }

    fn fork(&mut self, settings: &'static LiveSettings) -> bool {
        let connected = hold(&settings.lifeline)
            .and_then(|()| self.reconnect(&settings.stream, LIVE_FILTER_SETS));
        obey(CallerAction::after(&connected));
        true
    }

    fn exit(&mut self) {
        let sent = self.stream.enter_kernel(true, 0);
        obey(CallerAction::after(&sent));
    }
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

extern "C" fn on_block(index: c_uint, datum: *mut c_void) {
    if let Some((thread, block)) = own_block::<LiveThread>(index, datum) {
        obey(CallerAction::after(&thread.block(block)));
    }
}

extern "C" fn on_memory(index: c_uint, info: u32, address: u64, _: *mut c_void) {
    if let Some(thread) = own::<LiveThread>(index) {
        thread.stream.data(info, address);
    }
}
