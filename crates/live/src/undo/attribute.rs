//! Attributes of threads that are changed and restored: CPU mask, nice value, utilisation clamp, scheduling policy.
//!
//! Input: the journal entries of an attribute. Output: each thread has its own value again, also a thread that inherited a
//! changed value and has no entry. A value is restored only if it was set by this program; a value that another program has set
//! since is kept.
use std::collections::BTreeSet;
use std::io;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::placement::Clamp;
use countersteer_sysfs::procfs::PROC;
use countersteer_sysfs::task::sched_policy::SchedPolicy;
use countersteer_sysfs::task::uclamp::Clamps;
use countersteer_sysfs::task::{affinity, nice};

use super::changes::Changed;
use super::entry::Touched;

/// Limit on the number of searches for threads that were forked by changed ones in the meantime.
const MOST_ROUNDS: usize = 100;

/// Attribute that a new thread inherits from the thread that forks it.
pub(crate) trait Attribute {
    type Value: Clone + Ord;

    fn get(&self, pid: u32, tid: u32) -> Option<Self::Value>;
    fn set(&self, tid: u32, value: &Self::Value) -> io::Result<()>;
}

/// CPU affinity mask of a thread.
pub(crate) struct Affinity;

impl Attribute for Affinity {
    type Value = CpuSet;

    fn get(&self, _: u32, tid: u32) -> Option<CpuSet> {
        affinity::stored_mask(tid).ok()
    }

    fn set(&self, tid: u32, cpus: &CpuSet) -> io::Result<()> {
        affinity::confine(tid, cpus)
    }
}

/// Nice value of a thread.
pub(crate) struct Nice;

impl Attribute for Nice {
    type Value = i8;

    fn get(&self, pid: u32, tid: u32) -> Option<i8> {
        PROC.stat(pid, tid).map(|stat| stat.nice)
    }

    fn set(&self, tid: u32, nice: &i8) -> io::Result<()> {
        nice::renice(tid, *nice)
    }
}

/// Frequency hint (uclamp) of a thread.
pub(crate) struct Uclamp<'a>(pub(crate) &'a dyn Clamps);

impl Attribute for Uclamp<'_> {
    type Value = Clamp;

    fn get(&self, _: u32, tid: u32) -> Option<Clamp> {
        self.0.get(tid).ok()
    }

    fn set(&self, tid: u32, clamp: &Clamp) -> io::Result<()> {
        self.0.set(tid, *clamp)
    }
}

/// Scheduling policy of a thread.
pub(crate) struct ThreadClassPolicy;

impl Attribute for ThreadClassPolicy {
    type Value = SchedPolicy;

    fn get(&self, _: u32, tid: u32) -> Option<SchedPolicy> {
        SchedPolicy::of(tid).ok()
    }

    fn set(&self, tid: u32, policy: &SchedPolicy) -> io::Result<()> {
        policy.set(tid)
    }
}

/// Selection of the threads to restore.
pub(crate) struct RestoreScope<'a> {
    /// Start of the engine, in clock ticks since boot. Threads that started earlier have inherited no changed value.
    pub(crate) since: u64,
    /// True if relatives are also searched in whole sessions, where other engines may be active.
    pub(crate) sessions: bool,
    /// Function that returns true if a changed thread, given by PID and TID, is to be restored.
    pub(crate) of: &'a dyn Fn(u32, u32) -> bool,
}

/// Numbers of threads by the result of restoring them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RestoreOutcome {
    pub(crate) restored: usize,
    pub(crate) left: usize,
    pub(crate) failed: usize,
}

impl RestoreOutcome {
    fn count(&mut self, done: io::Result<()>) {
        match done {
            Ok(()) => self.restored += 1,
            // The thread has ended, which is no failure.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            Err(_) => self.failed += 1,
        }
    }
}

/// Restores an attribute of changed threads, then of threads that inherited a changed value. The search is repeated until it
/// finds none, because a thread may have forked in the meantime.
pub(crate) fn restore<A: Attribute>(
    attribute: &A,
    changed: &Changed<A::Value>,
    scope: &RestoreScope<'_>,
) -> RestoreOutcome {
    let mut outcome = RestoreOutcome::default();
    // If no value was ever set, no thread can have or inherit one.
    if changed.set.is_empty() {
        return outcome;
    }
    let family = ChangedFamily { changed, scope };
    for touched in family.members() {
        restore_touched(attribute, touched, changed, &mut outcome);
    }
    let mut done = BTreeSet::new();
    for _ in 0..MOST_ROUNDS {
        let has_inherited = |pid: u32, tid: u32, own: &A::Value| {
            let now = attribute.get(pid, tid);
            now.is_some_and(|now| now != *own && changed.set.contains(&now))
        };
        let mut inheritors = family.forked();
        inheritors.retain(|(pid, tid, own)| !done.contains(tid) && has_inherited(*pid, *tid, own));
        if inheritors.is_empty() {
            break;
        }
        for (_, tid, own) in inheritors {
            done.insert(tid);
            outcome.count(attribute.set(tid, own));
        }
    }
    outcome
}

fn restore_touched<A: Attribute>(
    attribute: &A,
    touched: &Touched<A::Value>,
    changed: &Changed<A::Value>,
    outcome: &mut RestoreOutcome,
) {
    if !is_same(touched) {
        return;
    }
    match attribute.get(touched.pid, touched.tid) {
        Some(now) if now == touched.value => {}
        Some(now) if changed.set.contains(&now) => {
            outcome.count(attribute.set(touched.tid, &touched.value));
        }
        Some(_) => outcome.left += 1,
        None => {}
    }
}

/// True if a TID still belongs to the thread that was changed.
fn is_same<V>(touched: &Touched<V>) -> bool {
    PROC.stat(touched.pid, touched.tid)
        .is_some_and(|now| now.started == touched.started)
}

/// Changed threads to restore, for finding relatives by process, parent or session.
struct ChangedFamily<'a, V> {
    changed: &'a Changed<V>,
    scope: &'a RestoreScope<'a>,
}

impl<'a, V> ChangedFamily<'a, V> {
    fn members(&self) -> impl Iterator<Item = &'a Touched<V>> {
        let of = self.scope.of;
        let touched = self.changed.before.values();
        touched.filter(move |t| of(t.pid, t.tid))
    }

    /// Returns a changed thread of a process. `None` if there is none, or if the process's PID was reused.
    fn of_process(&self, pid: u32) -> Option<&'a Touched<V>> {
        let leader = self.changed.before.get(&pid);
        let known = self.members().find(|t| t.pid == pid);
        known.filter(|_| leader.is_none_or(is_same))
    }

    fn of_session(&self, session: u32) -> Option<&'a Touched<V>> {
        let mut members = self.members();
        members.find(|t| self.scope.sessions && t.session == session)
    }

    /// Returns the threads without an entry that started after the engine and have a changed relative, each with the relative's
    /// former value.
    fn forked(&self) -> Vec<(u32, u32, &'a V)> {
        let mut found = Vec::new();
        for pid in PROC.processes() {
            let Some(stat) = PROC.stat(pid, pid).filter(|stat| !stat.kernel) else {
                continue;
            };
            let is_new = stat.started >= self.scope.since;
            let by_others = || {
                let parent = self.of_process(stat.parent);
                parent.or_else(|| self.of_session(stat.session))
            };
            let relative = self
                .of_process(pid)
                .or_else(|| is_new.then(by_others).flatten());
            let Some(relative) = relative else { continue };
            let unlisted = PROC
                .threads(pid)
                .into_iter()
                .filter(|tid| !self.changed.before.contains_key(tid));
            let new = unlisted.filter(|tid| is_new || self.is_new(pid, *tid));
            found.extend(new.map(|tid| (pid, tid, &relative.value)));
        }
        found
    }

    fn is_new(&self, pid: u32, tid: u32) -> bool {
        PROC.stat(pid, tid)
            .is_some_and(|stat| stat.started >= self.scope.since)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::time::Duration;

    use super::*;

    /// Thread of this process that lives until it is dropped.
    struct Thread {
        tid: u32,
        _end: Sender<()>,
    }

    impl Thread {
        fn start() -> Self {
            let (end, wait) = channel::<()>();
            let (tell, sent) = channel();
            std::thread::spawn(move || {
                let _ = tell.send(nix::unistd::gettid().as_raw() as u32);
                let _ = wait.recv();
            });
            let tid = sent.recv().unwrap();
            Self { tid, _end: end }
        }

        fn started(&self) -> u64 {
            PROC.stat(std::process::id(), self.tid).unwrap().started
        }

        fn mask(&self) -> CpuSet {
            affinity::mask(self.tid).unwrap()
        }
    }

    #[test]
    fn a_thread_that_an_older_process_has_forked_meanwhile_is_restored_and_older_threads_are_not() {
        let own = affinity::mask(0).unwrap();
        let set: CpuSet = own.iter().take(1).collect();
        if set == own {
            countersteer_fuzz::skipped("this machine has a single CPU");
            return;
        }
        let [touched, older] = [Thread::start(), Thread::start()];
        // Start times are known by the clock tick.
        std::thread::sleep(Duration::from_millis(50));
        let inheritor = Thread::start();
        for thread in [&touched, &older, &inheritor] {
            affinity::confine(thread.tid, &set).unwrap();
        }
        let before = Touched {
            pid: std::process::id(),
            tid: touched.tid,
            started: touched.started(),
            session: 0,
            value: own.clone(),
        };
        let changed = Changed {
            before: [(touched.tid, before)].into(),
            set: [set.clone()].into(),
        };
        let scope = RestoreScope {
            since: inheritor.started(),
            sessions: false,
            of: &|_, _| true,
        };
        let outcome = restore(&Affinity, &changed, &scope);
        assert_eq!((outcome.left, outcome.failed), (0, 0));
        assert_eq!((touched.mask(), inheritor.mask()), (own.clone(), own));
        assert_eq!(older.mask(), set, "it was not confined by this program");
    }
}
