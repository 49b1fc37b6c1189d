//! Nice values of threads.
//!
//! Input: a thread, a nice value. Output: the change, or the error. [`crate::procfs::Procfs::stat`] reads the nice value with
//! the rest of a thread's state.

use std::io;

use nix::errno::Errno;

/// Sets a thread's nice value.
///
/// # Errors
/// Fails if the thread has exited, belongs to another user, or if the value is lower than permitted.
pub fn renice(tid: u32, nice: i8) -> io::Result<()> {
    // SAFETY: plain system call without pointers.
    let done = unsafe { libc::setpriority(libc::PRIO_PROCESS, tid, i32::from(nice)) };
    Ok(Errno::result(done).map(drop)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::PROC;

    #[test]
    fn a_nice_value_that_was_set_is_read_back() {
        let tid = nix::unistd::gettid().as_raw().unsigned_abs();
        let own = || PROC.stat(std::process::id(), tid).unwrap().nice;
        let nicer = own() + 1;
        renice(tid, nicer).unwrap();
        assert_eq!(own(), nicer);
        assert!(renice(u32::MAX >> 1, nicer).is_err());
    }
}
