//! Scheduling policies of threads.
//!
//! Input: a thread. Output: its policy (SCHED_OTHER, SCHED_BATCH, SCHED_EXT, ...) with the flag for its children, or its change.

use std::io;

use libc::{c_int, pid_t};
use nix::errno::Errno;

/// Policy of threads that a sched_ext scheduler in partial mode schedules.
pub const SCHED_EXT: c_int = 7;
/// Flag: children begin with the default policy. It is kept when a policy is changed.
const RESET_ON_FORK: c_int = libc::SCHED_RESET_ON_FORK;

/// Scheduling policy of a thread, with the flag for its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SchedPolicy(pub c_int);

impl SchedPolicy {
    /// Returns the policy of a thread.
    ///
    /// # Errors
    /// Fails if the thread has exited.
    pub fn of(tid: u32) -> io::Result<Self> {
        // SAFETY: the call takes no pointers.
        let policy = unsafe { libc::sched_getscheduler(tid as pid_t) };
        if policy < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(policy))
    }

    /// Sets the policy of a thread; policies with a real-time priority are not supported.
    ///
    /// # Errors
    /// Fails if the thread has exited or belongs to another user, or if the kernel does not know the policy.
    pub fn set(self, tid: u32) -> io::Result<()> {
        let none = libc::sched_param { sched_priority: 0 };
        // SAFETY: the parameters outlive the call.
        let done = unsafe { libc::sched_setscheduler(tid as pid_t, self.0, &raw const none) };
        Ok(Errno::result(done).map(drop)?)
    }

    /// Returns the policy without the flag for children.
    pub const fn without_flag(self) -> c_int {
        self.0 & !RESET_ON_FORK
    }

    /// Returns this policy with another one's flag for children.
    pub const fn with_flag_of(self, other: Self) -> Self {
        Self(self.0 | (other.0 & RESET_ON_FORK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_that_was_set_is_read_back() {
        // The test uses its own thread, so that no other test depends on its policy.
        let seen = std::thread::spawn(|| {
            let batch = SchedPolicy(libc::SCHED_BATCH | RESET_ON_FORK);
            batch.set(0).unwrap();
            let read = SchedPolicy::of(0).unwrap();
            let plain = SchedPolicy(libc::SCHED_OTHER).with_flag_of(read);
            (read, plain, SchedPolicy(99).set(0).is_err())
        });
        let (read, plain, refused) = seen.join().unwrap();
        assert_eq!(read.without_flag(), libc::SCHED_BATCH);
        assert_eq!(plain, SchedPolicy(libc::SCHED_OTHER | RESET_ON_FORK));
        assert!(refused && SchedPolicy::of(u32::MAX >> 1).is_err());
    }
}
