//! Nice values of threads.
//!
//! Input: a thread, a nice value. Output: it is set, or why not; it is read with the rest of a thread's state
//! ([`crate::procfs::Procfs::stat`]).

use std::io;

use nix::errno::Errno;

/// Sets a thread's nice value.
///
/// # Errors
/// It has exited, is another user's, or would rank higher than is permitted.
pub fn renice(tid: u32, nice: i8) -> io::Result<()> {
    // SAFETY: plain system call without memory.
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
