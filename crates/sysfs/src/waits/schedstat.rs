//! Run-queue latencies from `/proc/PID/task/TID/schedstat`: sums that the kernel keeps for each thread. No privilege is needed.
//! Waits of a thread between the last sample and its exit are missed.

use std::collections::hash_map::Entry;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::procfs::{PROC, Procfs, SchedstatSums};

use super::{ThreadWaits, WaitSource, Waits, Whose};

impl SchedstatSums {
    /// Returns the waits since `before`. Sums that shrank belong to another thread that reused the TID.
    #[must_use]
    pub fn since(self, before: Self) -> Waits {
        let before = if self.times < before.times || self.waited_ns < before.waited_ns {
            Self::default()
        } else {
            before
        };
        Waits {
            times: self.times - before.times,
            total_ns: self.waited_ns - before.waited_ns,
            measured: None,
        }
    }
}

/// Reader of the kernel's sums of single threads.
#[derive(Debug)]
pub struct ThreadSums {
    proc: Procfs,
    /// Process of each thread that is known by its process, and sums at the last sample.
    threads: FxHashMap<u32, (Option<u32>, SchedstatSums)>,
}

impl ThreadSums {
    #[must_use]
    pub fn new(proc: Procfs) -> Self {
        let threads = FxHashMap::default();
        Self { proc, threads }
    }

    /// Begins to read a thread unless it is known: from its start if it is new, else from now on.
    pub fn follow(&mut self, tid: u32, is_new: bool) {
        self.follow_of(None, tid, is_new);
    }

    fn follow_of(&mut self, pid: Option<u32>, tid: u32, is_new: bool) {
        if let Entry::Vacant(unknown) = self.threads.entry(tid) {
            let start = is_new.then(SchedstatSums::default);
            if let Some(sums) = start.or_else(|| self.proc.sums(tid)) {
                unknown.insert((pid, sums));
            }
        }
    }

    pub fn leave(&mut self, tid: u32) {
        self.threads.remove(&tid);
    }

    /// Passes on the waits of each living thread since the last sample.
    pub fn read(&mut self, mut hear: impl FnMut(u32, Waits)) {
        self.read_of(|_, tid, waits| hear(tid, waits));
    }

    fn read_of(&mut self, mut hear: impl FnMut(Option<u32>, u32, Waits)) {
        let proc = &self.proc;
        self.threads.retain(|tid, (pid, before)| {
            let now = proc.sums(*tid);
            if let Some(now) = now {
                hear(*pid, *tid, now.since(std::mem::replace(before, now)));
            }
            now.is_some()
        });
    }
}

/// Reader of the kernel's sums of processes and threads.
#[derive(Debug)]
pub struct Schedstat {
    proc: Procfs,
    whose: Whose,
    processes: FxHashSet<u32>,
    threads: ThreadSums,
}

impl Schedstat {
    /// Creates a reader of the sums of these processes from now on.
    #[must_use]
    pub fn new(whose: Whose) -> Self {
        Self::below(PROC.clone(), whose)
    }

    fn below(proc: Procfs, mut whose: Whose) -> Self {
        let pids = std::mem::take(&mut whose.pids);
        let present = if whose.all { proc.processes() } else { pids };
        let mut new = Self {
            threads: ThreadSums::new(proc.clone()),
            proc,
            whose,
            processes: FxHashSet::default(),
        };
        present.into_iter().for_each(|pid| new.follow(pid));
        new
    }

    /// Finds the existing processes: the known ones, their descendants, and this process's if requested.
    fn find(&mut self) {
        if self.whose.all {
            self.processes.extend(self.proc.processes());
            return;
        }
        let mut parents: Vec<u32> = self.processes.iter().copied().collect();
        parents.extend(self.whose.children.then(std::process::id));
        let mut seen: FxHashSet<u32> = parents.iter().copied().collect();
        while let Some(parent) = parents.pop() {
            for child in self.proc.children(parent) {
                if seen.insert(child) {
                    self.processes.insert(child);
                    parents.push(child);
                }
            }
        }
    }
}

impl WaitSource for Schedstat {
    fn follow(&mut self, pid: u32) {
        if self.processes.insert(pid) {
            for tid in self.proc.threads(pid) {
                self.threads.follow_of(Some(pid), tid, false);
            }
        }
    }

    fn follow_thread(&mut self, tid: u32, is_new: bool) -> Option<u32> {
        self.threads.follow(tid, is_new);
        None
    }

    fn read(&mut self, hear: &mut dyn FnMut(ThreadWaits)) {
        self.find();
        self.processes.retain(|pid| {
            let tids = self.proc.threads(*pid);
            for tid in &tids {
                self.threads.follow_of(Some(*pid), *tid, true);
            }
            !tids.is_empty()
        });
        let name = |tid| self.proc.name(tid).unwrap_or_default();
        self.threads.read_of(|pid, tid, waits| {
            if waits.times > 0 {
                hear(ThreadWaits {
                    pid: pid.unwrap_or(tid),
                    tid,
                    name: pid.map_or_else(String::new, |_| name(tid)),
                    ended: false,
                    waits,
                });
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use countersteer_fuzz::fake_root::write;

    use super::*;

    #[test]
    fn sums_count_since_a_thread_was_known_and_whole_where_it_is_new() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            write(root.path(), &[(&format!("proc/{path}"), text)]);
        };
        let thread = |tid: u32, text: &str| {
            write(&format!("7/task/{tid}/children"), "");
            write(&format!("{tid}/schedstat"), text);
            write(&format!("{tid}/comm"), "worker\n");
        };
        thread(7, "100 50 5\n");
        let mut source = Schedstat::below(Procfs::below(root.path()), Whose::default());
        source.follow(7);
        thread(7, "200 80 7\n");
        thread(8, "10 6 2\n");
        // A child that appears later is read too, from its start.
        write("7/task/7/children", "9 ");
        write("9/task/9/children", "");
        write("9/schedstat", "5 4 1\n");
        let mut read = || {
            let mut heard = Vec::new();
            source.read(&mut |t| heard.push((t.tid, t.waits.times, t.waits.total_ns)));
            heard.sort_unstable();
            heard
        };
        assert_eq!(read(), [(7, 2, 30), (8, 2, 6), (9, 1, 4)]);
        // Another thread has reused the TID.
        thread(8, "10 3 1\n");
        assert_eq!(read(), [(8, 1, 3)]);
    }

    #[test]
    fn a_thread_that_is_followed_alone_counts_from_its_start_only_where_it_is_new() {
        let root = tempfile::tempdir().unwrap();
        let sums = |tid: u32, text: &str| {
            write(root.path(), &[(&format!("proc/{tid}/schedstat"), text)]);
        };
        let mut source = ThreadSums::new(Procfs::below(root.path()));
        sums(7, "100 50 5\n");
        sums(8, "10 6 2\n");
        let mut read = |followed: &[(u32, bool)]| {
            for (tid, is_new) in followed {
                source.follow(*tid, *is_new);
            }
            let mut heard = Vec::new();
            source.read(|tid, waits| heard.push((tid, waits.times, waits.total_ns)));
            heard.sort_unstable();
            heard
        };
        assert_eq!(
            read(&[(7, false), (8, true), (9, false)]),
            [(7, 0, 0), (8, 2, 6)]
        );
        sums(7, "100 80 7\n");
        assert_eq!(read(&[(7, false)]), [(7, 2, 30), (8, 0, 0)]);
        sums(8, "10 3 1\n");
        assert_eq!(read(&[]), [(7, 0, 0), (8, 1, 3)], "the TID was reused");
        std::fs::remove_file(root.path().join("proc/8/schedstat")).unwrap();
        assert_eq!(read(&[]), [(7, 0, 0)]);
    }
}
