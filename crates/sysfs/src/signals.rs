//! Signals: those that end a run are caught and read from a descriptor, and SIGPIPE, which Rust's runtime ignores, gets its default
//! disposition back for filters.
//!
//! Input: nothing, or a child process. Output: the signals that came, or that were sent.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::WithOrigin;

/// Lets a closed pipe end the process quietly, as it does every C program: `steer ... | head` must not complain.
pub fn default_sigpipe() {
    // SAFETY: SIG_DFL is a valid disposition for SIGPIPE, and no other thread exists yet when main begins.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}

/// Signals that ask a program to end: several may listen, each hears all.
#[derive(Debug)]
pub struct Signals(SignalDelivery<UnixStream, WithOrigin>);

impl Signals {
    /// From now on they do not end this process.
    ///
    /// # Errors
    /// No file is left.
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

    /// The last one that came since the last call, and whether it was sent to this process alone, as opposed to all of a
    /// terminal's.
    pub fn pending(&mut self) -> Option<(i32, bool)> {
        self.0
            .pending()
            .last()
            .map(|origin| (origin.signal, origin.process.is_some()))
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_read().as_fd()
    }
}

/// Asks a child process to end, as Ctrl-C would. One that has ended already is left alone.
pub fn interrupt(child: u32) {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child).unwrap_or(i32::MAX));
    let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT);
}
