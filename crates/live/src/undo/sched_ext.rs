//! Threads that are given to a sched_ext scheduler in partial mode, which schedules the threads with the policy SCHED_EXT.
//!
//! Input: threads to be scheduled by the scheduler. Output: the threads have that policy, which children inherit, and their
//! former policy is in the undo journal. A thread keeps SCHED_EXT after the scheduler has ended, and the next scheduler of any
//! program would schedule it.
use countersteer_sysfs::procfs::PROC;
use countersteer_sysfs::task::sched_policy::{SCHED_EXT, SchedPolicy};
use libc::{SCHED_BATCH, SCHED_OTHER};

use super::attribute::{self, RestoreScope, ThreadClassPolicy};
use super::entry::{JournalEntry, Touched};
use super::{Journal, JournalError};

/// Gives a thread to the scheduler. Threads with a real-time, deadline or idle policy keep theirs.
///
/// # Errors
/// Fails if the journal cannot be written; nothing is changed then.
pub fn give(journal: &mut Journal, pid: u32, tid: u32) -> Result<(), JournalError> {
    let Ok(before) = SchedPolicy::of(tid) else {
        return Ok(());
    };
    if !matches!(before.without_flag(), SCHED_OTHER | SCHED_BATCH) {
        return Ok(());
    }
    let wanted = SchedPolicy(SCHED_EXT).with_flag_of(before);
    if !write(journal, (pid, tid), before)? {
        return Ok(());
    }
    journal.write(JournalEntry::SchedPolicySet(wanted))?;
    // A thread that has exited in the meantime is skipped.
    let _ = wanted.set(tid);
    Ok(())
}

/// Writes to the journal a process that was forked by one with the policy SCHED_EXT, and so has inherited it.
///
/// # Errors
/// Fails if the journal cannot be written.
pub fn forked(journal: &mut Journal, pid: u32) -> Result<(), JournalError> {
    let changed = &journal.changes().sched_policy;
    let (Ok(now), Some(stat)) = (SchedPolicy::of(pid), PROC.stat(pid, pid)) else {
        return Ok(());
    };
    if !changed.set.contains(&now) {
        return Ok(());
    }
    let parent = changed.before.values().find(|t| t.pid == stat.parent);
    let own = parent.map_or(SchedPolicy(SCHED_OTHER), |t| t.value);
    write(journal, (pid, pid), own).map(drop)
}

/// Writes the former policy of a thread to the journal. Returns false if the thread no longer exists.
fn write(
    journal: &mut Journal,
    (pid, tid): (u32, u32),
    value: SchedPolicy,
) -> Result<bool, JournalError> {
    let Some(stat) = PROC.stat(pid, tid) else {
        return Ok(false);
    };
    journal.write(JournalEntry::SchedPolicy(Touched {
        pid,
        tid,
        started: stat.started,
        session: stat.session,
        value,
    }))?;
    Ok(true)
}

/// Removes the entry of a thread that has exited. The main thread's entry stays while its process has other threads.
pub fn exited(journal: &mut Journal, pid: u32, tid: u32) {
    if tid != pid || PROC.threads(pid).iter().all(|other| *other == pid) {
        journal.forget(tid);
    }
}

/// Restores the policies of the threads of these processes, and of threads that were forked in the meantime.
pub fn restore(journal: &Journal, of: &dyn Fn(u32) -> bool) {
    let changes = journal.changes();
    let scope = RestoreScope {
        since: changes.since,
        sessions: false,
        of: &|pid, _| of(pid),
    };
    attribute::restore(&ThreadClassPolicy, &changes.sched_policy, &scope);
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    struct Sleeper(Child);

    impl Sleeper {
        fn start() -> Self {
            let mut command = Command::new("sleep");
            Self(command.arg("60").stdin(Stdio::null()).spawn().unwrap())
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_thread_that_was_given_to_the_scheduler_has_its_own_policy_back() {
        let folder = tempfile::tempdir().unwrap();
        let sleeper = Sleeper::start();
        let pid = sleeper.0.id();
        SchedPolicy(SCHED_BATCH).set(pid).unwrap();
        if SchedPolicy(SCHED_EXT).set(pid).is_err() {
            countersteer_fuzz::skipped("this kernel has no sched_ext");
            return;
        }
        SchedPolicy(SCHED_BATCH).set(pid).unwrap();
        let mut journal = Journal::create(folder.path()).unwrap();
        give(&mut journal, pid, pid).unwrap();
        assert_eq!(SchedPolicy::of(pid).unwrap().0, SCHED_EXT);
        restore(&journal, &|process| process != pid);
        assert_eq!(SchedPolicy::of(pid).unwrap().0, SCHED_EXT, "not this one");
        restore(&journal, &|process| process == pid);
        assert_eq!(SchedPolicy::of(pid).unwrap().0, SCHED_BATCH);
    }

    #[test]
    fn a_real_time_thread_or_an_idle_one_is_no_business_of_the_scheduler() {
        let folder = tempfile::tempdir().unwrap();
        let sleeper = Sleeper::start();
        let pid = sleeper.0.id();
        SchedPolicy(libc::SCHED_IDLE).set(pid).unwrap();
        let mut journal = Journal::create(folder.path()).unwrap();
        give(&mut journal, pid, pid).unwrap();
        forked(&mut journal, pid).unwrap();
        assert_eq!(SchedPolicy::of(pid).unwrap().0, libc::SCHED_IDLE);
        assert!(journal.changes().entries().is_empty());
    }
}
