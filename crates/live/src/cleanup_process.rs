//! Cleanup process: it lives slightly longer than this process, to restore this process's changes.
//!
//! Input: a command that calls [`settle_in`] first. Output: the cleanup process, which detects the exit of this process by
//! the end of a pipe. It has a session of its own, so that neither signals of the terminal nor those to a process group reach
//! it. It has none of this process's streams, so that their readers do not wait for it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigHandler, Signal, signal};

use countersteer_sysfs::pidfd;

/// Cleanup process that waits for the end of this process.
#[derive(Debug)]
pub struct CleanupProcess {
    process: Child,
    line: Option<ChildStdin>,
}

impl CleanupProcess {
    /// Starts the cleanup process, whose stdin ends when this process ends.
    ///
    /// # Errors
    /// Fails if the cleanup process cannot be started.
    pub fn start(mut command: Command) -> io::Result<Self> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // SAFETY: between fork and exec, this closure makes one system call and accesses no memory.
        unsafe { command.pre_exec(|| nix::unistd::setsid().map(drop).map_err(Into::into)) };
        let mut process = command.spawn()?;
        let line = process.stdin.take();
        Ok(Self { process, line })
    }
}

impl Drop for CleanupProcess {
    /// Closes the pipe, and waits until the cleanup process has exited.
    fn drop(&mut self) {
        drop(self.line.take());
        let _ = self.process.wait();
    }
}

/// Prepares a process that was started by [`CleanupProcess::start`]. It ignores every signal that can be ignored, closes
/// inherited files, changes its working directory to `/`, and sets its name in lists of processes.
pub fn settle_in(name: &str) {
    for refused in [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
    ] {
        // SAFETY: no handler of this program is replaced, and ignoring a signal runs no code.
        let _ = unsafe { signal(refused, SigHandler::SigIgn) };
    }
    // SAFETY: this process has only its standard streams open, which are not closed.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    let _ = std::env::set_current_dir("/");
    let _ = std::fs::write("/proc/self/comm", name);
}

/// Waits until the process that started this one has ended or has closed its end of the pipe.
pub fn wait_for_end(parent: u32, line: impl AsFd) {
    let process = pidfd::open(parent)
        .ok()
        .filter(|_| std::os::unix::process::parent_id() == parent);
    let Some(process) = process else { return };
    let gone = PollFlags::POLLIN | PollFlags::POLLHUP;
    let watched = |file: BorrowedFd<'_>| -> Result<bool, Errno> {
        // The parent never writes to the pipe, so only the end of the pipe is an event.
        let mut files = [PollFd::new(process.as_fd(), gone), PollFd::new(file, gone)];
        poll(&mut files, PollTimeout::NONE).map(|n| n > 0)
    };
    while matches!(watched(line.as_fd()), Ok(false) | Err(Errno::EINTR)) {}
}
