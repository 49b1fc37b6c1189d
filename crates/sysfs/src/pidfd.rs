//! Processes by file descriptor. A PID may be reused by another process; a descriptor always means the same process.
//!
//! Input: a PID. Output: a descriptor that becomes readable when the process exits, and through which signals can be sent.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::sys::signal::Signal;

/// Returns a descriptor that becomes readable when the process has exited.
///
/// # Errors
/// Fails if there is no such process, or with EMFILE.
pub fn open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: this takes no pointers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor, and no other code has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Sends a signal to the process of a descriptor from [`open`]. A process that has exited is ignored.
pub fn send_signal(process: &OwnedFd, signal: Signal) {
    let fd = process.as_raw_fd();
    let signal = signal as libc::c_int;
    let no_info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: the call takes plain numbers and no information about the signal.
    let _ = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, no_info, 0) };
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::process::{Command, Stdio};

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    #[test]
    fn a_descriptor_is_readable_when_its_process_has_exited() {
        let mut command = Command::new("sleep");
        let mut child = command.arg("60").stdin(Stdio::null()).spawn().unwrap();
        let process = open(child.id()).unwrap();
        let readable = |timeout: PollTimeout| {
            let mut files = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
            poll(&mut files, timeout).unwrap() == 1
        };
        assert!(!readable(PollTimeout::ZERO));
        send_signal(&process, Signal::SIGTERM);
        assert!(readable(PollTimeout::from(10_000_u16)));
        assert!(!child.wait().unwrap().success());
        send_signal(&process, Signal::SIGTERM);
        assert!(open(u32::MAX >> 1).is_err());
    }
}
