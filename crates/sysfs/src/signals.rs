//! Signals. Those that end a run are caught and read from a descriptor. SIGPIPE, which Rust's runtime ignores, is reset to its
//! default disposition for filters.
//!
//! Input: nothing, or a child process. Output: received signals, or a signal sent.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
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

/// Signals that ask a program to end. Several listeners are possible; each receives all signals.
#[derive(Debug)]
pub struct EndSignals(SignalDelivery<UnixStream, WithOrigin>);

impl EndSignals {
    /// Catches the signals: from now on they do not end this process.
    ///
    /// # Errors
    /// Fails with EMFILE.
    pub fn listen() -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        SignalDelivery::with_pipe(
            read,
            write,
            WithOrigin::default(),
            [SIGINT, SIGTERM, SIGHUP],
        )
        .map(Self)
    }

    /// Returns the last signal since the previous call, and true if it was sent to this process alone, not to all processes of a
    /// terminal.
    pub fn pending(&mut self) -> Option<(i32, bool)> {
        self.0
            .pending()
            .last()
            .map(|origin| (origin.signal, origin.process.is_some()))
    }
}

impl AsFd for EndSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_read().as_fd()
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
