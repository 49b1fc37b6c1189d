//! Signals. Those that end a run are caught and read from a descriptor, and have their former effect again after the last
//! listener. SIGPIPE, which Rust's runtime ignores, is reset to its default disposition for filters.
//!
//! Input: nothing, or a child process. Output: received signals, or a signal sent.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::register_conditional_default;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::WithOrigin;

/// Lets a closed pipe end the process quietly, as in C programs: `steer ... | head` must not fail with a message.
pub fn default_sigpipe() {
    // SAFETY: SIG_DFL is a valid disposition for SIGPIPE, and no other thread exists yet when main begins.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}

/// Blocks SIGPIPE for this thread: its writes to a closed pipe return an error, and the process continues. A closed stdout still
/// ends the process through any other thread.
///
/// # Errors
/// Never fails on Linux.
pub fn block_sigpipe() -> io::Result<()> {
    let mut signals = nix::sys::signal::SigSet::empty();
    signals.add(nix::sys::signal::Signal::SIGPIPE);
    Ok(signals.thread_block()?)
}

/// Signals that ask a program to end.
pub const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

static NO_LISTENER: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| Arc::new(AtomicBool::new(true)));
static LISTENERS: Mutex<Listeners> = Mutex::new(Listeners {
    count: 0,
    defaults: None,
});

struct Listeners {
    count: usize,
    /// Signals that had their default effect before the first listener.
    defaults: Option<Vec<i32>>,
}

fn listeners() -> MutexGuard<'static, Listeners> {
    // No code panics between two changes that belong together.
    LISTENERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Leaves signals caught after the last listener. A command that writes its result then calls this function before the first
/// listener.
pub fn stay_caught() {
    listeners().defaults.get_or_insert_default();
}

/// True while a listener exists, so that signals do not end this process.
#[must_use]
pub fn are_caught() -> bool {
    listeners().count > 0
}

/// Existence of a listener. After the last one, signals have their default effect again if it was theirs before the first one.
#[derive(Debug)]
pub struct Listener(());

impl Listener {
    /// Counts a listener, whose own handlers are registered afterwards and removed before this value is dropped.
    ///
    /// # Errors
    /// The kernel refuses a handler.
    pub fn begin() -> io::Result<Self> {
        let mut listeners = listeners();
        // Before a handler is there, which would otherwise end this process in between.
        listeners.count += 1;
        NO_LISTENER.store(false, Ordering::SeqCst);
        let listener = Self(());
        if listeners.defaults.is_none() {
            let mut defaults = Vec::new();
            for signal in ENDING.into_iter().filter(|signal| is_default(*signal)) {
                let registered = register_conditional_default(signal, Arc::clone(&NO_LISTENER));
                if let Err(error) = registered {
                    drop(listeners);
                    return Err(error);
                }
                defaults.push(signal);
            }
            listeners.defaults = Some(defaults);
        }
        Ok(listener)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut listeners = listeners();
        listeners.count -= 1;
        NO_LISTENER.store(listeners.count == 0, Ordering::SeqCst);
    }
}

fn is_default(signal: i32) -> bool {
    // SAFETY: zeros are a valid `sigaction`, which the call only writes to.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_DFL
    }
}

/// Signals that ask a program to end. Several listeners are possible; each receives all signals.
#[derive(Debug)]
pub struct EndSignals {
    // Dropped in this order.
    delivery: SignalDelivery<UnixStream, WithOrigin>,
    _listener: Listener,
}

impl EndSignals {
    /// Catches the signals: they do not end this process while this value exists.
    ///
    /// # Errors
    /// Fails with EMFILE.
    pub fn listen() -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let listener = Listener::begin()?;
        let delivery = SignalDelivery::with_pipe(read, write, WithOrigin::default(), ENDING)?;
        Ok(Self {
            delivery,
            _listener: listener,
        })
    }

    /// Returns the last signal since the previous call, and true if it was sent to this process alone, not to all processes of a
    /// terminal.
    pub fn pending(&mut self) -> Option<(i32, bool)> {
        self.delivery
            .pending()
            .last()
            .map(|origin| (origin.signal, origin.process.is_some()))
    }

    /// Stops listening. If a signal arrived and had its default effect before the first listener, it now ends this process, unless
    /// others listen.
    pub fn end(mut self) {
        let signal = self.pending().map(|(signal, _)| signal);
        drop(self);
        let is_due = |signal: &i32| {
            let listeners = listeners();
            let defaults = listeners.defaults.as_ref();
            listeners.count == 0 && defaults.is_some_and(|all| all.contains(signal))
        };
        if let Some(signal) = signal.filter(is_due) {
            // A valid signal number does not fail.
            let _ = signal_hook::low_level::raise(signal);
        }
    }
}

impl AsFd for EndSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.delivery.get_read().as_fd()
    }
}

/// Kills a child process and its process group, of which it is the leader. It must not have been waited for, since the number may
/// then be that of another group.
pub fn kill_group(leader: u32) {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(leader).unwrap_or(i32::MAX));
    let _ = nix::sys::signal::killpg(pid, nix::sys::signal::Signal::SIGKILL);
}

/// Asks a child process to end, as Ctrl-C would. A process that has already ended is ignored.
pub fn interrupt(child: u32) {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child).unwrap_or(i32::MAX));
    let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT);
}
