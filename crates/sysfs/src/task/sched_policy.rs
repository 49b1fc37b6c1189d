//! Scheduling policies of threads.
//!
//! Input: a thread. Output: its policy (SCHED_OTHER, SCHED_BATCH, SCHED_EXT, ...) with the flag for its children, or that another one
//! is set.

use std::io;

use libc::{c_int, pid_t};
use nix::errno::Errno;

/// The policy of threads that a sched_ext scheduler in partial mode schedules.
pub const SCHED_EXT: c_int = 7;
/// Children begin with the default policy; kept when a policy is changed.
const RESET_ON_FORK: c_int = libc::SCHED_RESET_ON_FORK;

/// A thread's scheduling policy, with the flag for its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SchedPolicy(pub c_int);

impl SchedPolicy {
    /// The policy of a thread.
    ///
    /// # Errors
    /// It has exited.
    pub fn of(tid: u32) -> io::Result<Self> {
        // SAFETY: takes no memory.
        let policy = unsafe { libc::sched_getscheduler(tid as pid_t) };
        if policy < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(policy))
    }

    /// Sets it; none that has a real-time priority.
    ///
    /// # Errors
    /// The thread has exited or is another user's, or the kernel does not know the policy.
    pub fn set(self, tid: u32) -> io::Result<()> {
        let none = libc::sched_param { sched_priority: 0 };
        // SAFETY: the parameters outlive the call.
        let done = unsafe { libc::sched_setscheduler(tid as pid_t, self.0, &raw const none) };
        Ok(Errno::result(done).map(drop)?)
    }

    /// The policy without the flag for children.
    pub const fn without_flag(self) -> c_int {
        self.0 & !RESET_ON_FORK
    }

    /// This policy, with another one's flag for children.
    pub const fn with_flag_of(self, other: Self) -> Self {
        Self(self.0 | (other.0 & RESET_ON_FORK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_that_was_set_is_read_back() {
        // A thread of its own: no other test depends on its policy.
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
