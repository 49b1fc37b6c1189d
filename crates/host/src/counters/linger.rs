//! A process that keeps a counter open a little longer than this one, so that nobody waits for its closing.
//!
//! Input: a file. Output: a second process that holds nothing else, and ends soon.
//!
//! Whoever closes the last counter of a tracepoint waits, up to some 50 ms, until no CPU can still be in it. A tool that does that
//! at its end is so much later to return, and so is all that comes next if the wait merely begins later: the kernel lets nobody
//! open or close such a counter meanwhile. So the file is kept for long enough that a tool which is started again and again
//! finds the tracepoint still in use, and what is waited for then is waited for by a process that nobody waits for.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};

/// How long a counter is kept, which is a guess at how soon the next one comes.
pub(super) const LINGERING: Duration = Duration::from_millis(250);

/// Keeps a file open for so long, whatever this process does. Where no process can be made, closing takes its time.
pub(super) fn keep(file: &OwnedFd, time: Duration) {
    let time = libc::timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: time.subsec_nanos().into(),
    };
    let file = file.as_raw_fd();
    // SAFETY: the child makes system calls on memory that was there before, and ends.
    match unsafe { fork() } {
        // It has ended when its own child is there, which is then nobody's zombie.
        Ok(ForkResult::Parent { child }) => drop(waitpid(child, None)),
        Ok(ForkResult::Child) => linger(file, &time),
        Err(_) => {}
    }
}

/// What the child does: another fork, whose parent ends at once, and waiting.
fn linger(file: RawFd, time: &libc::timespec) -> ! {
    // SAFETY: system calls on memory that outlives them, and nothing else: nothing that the parent registered to run at its end
    // does, and no destructor of what this process has copied of it.
    unsafe {
        if libc::fork() == 0 {
            // Neither signals of a terminal nor a folder in use nor files that others wait to see closed.
            libc::setsid();
            libc::chdir(c"/".as_ptr());
            libc::dup2(file, 0);
            libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0);
            libc::prctl(libc::PR_SET_NAME, c"steer-lingers".as_ptr());
            libc::nanosleep(time, std::ptr::null_mut());
        }
        libc::_exit(0)
    }
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn one_file_is_kept_for_a_while_and_all_others_are_not() {
        let pipe = || nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
        let ((kept, keeps), (other, others)) = (pipe(), pipe());
        keep(&keeps, Duration::from_secs(1));
        drop((keeps, others));
        // Children of other tests, too, hold what this process has open until their `exec`.
        let mut files =
            [other.as_fd(), kept.as_fd()].map(|file| PollFd::new(file, PollFlags::POLLIN));
        poll(&mut files[..1], PollTimeout::NONE).unwrap();
        assert_eq!(poll(&mut files[1..], PollTimeout::ZERO), Ok(0));
        assert_eq!(poll(&mut files[1..], PollTimeout::NONE), Ok(1));
    }
}
