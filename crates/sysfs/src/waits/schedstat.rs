//! Run-queue latencies from `/proc/PID/task/TID/schedstat`: sums that the kernel keeps for each thread. No privilege is needed.
//! Waits of a thread between the last sample and its exit are missed.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::procfs::{PROC, Procfs, Sums};

use super::{Source, ThreadWaits, Waits, Whose};

impl Sums {
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

/// Reader of the kernel's sums of threads.
#[derive(Debug)]
pub struct Schedstat {
    proc: Procfs,
    whose: Whose,
    /// Known processes with their live threads.
    known: FxHashMap<u32, FxHashMap<u32, Sums>>,
}

impl Schedstat {
    /// Creates a reader of the sums of these processes from now on.
    #[must_use]
    pub fn new(whose: Whose) -> Self {
        let mut new = Self {
            proc: PROC.clone(),
            known: FxHashMap::default(),
            whose: Whose {
                pids: Vec::new(),
                ..whose
            },
        };
        let present = if new.whose.all {
            new.proc.processes()
        } else {
            whose.pids
        };
        present.into_iter().for_each(|pid| new.follow(pid));
        new
    }

    fn sums(&self, pid: u32) -> FxHashMap<u32, Sums> {
        let threads = self.proc.threads(pid).into_iter();
        threads
            .filter_map(|tid| Some((tid, self.proc.sums(tid)?)))
            .collect()
    }

    /// Finds the existing processes: the known ones, their descendants, and this process's if requested.
    fn find(&mut self) {
        if self.whose.all {
            for pid in self.proc.processes() {
                self.known.entry(pid).or_default();
            }
            return;
        }
        let mut parents: Vec<u32> = self.known.keys().copied().collect();
        parents.extend(self.whose.children.then(std::process::id));
        let mut seen: FxHashSet<u32> = parents.iter().copied().collect();
        while let Some(parent) = parents.pop() {
            for child in self.proc.children(parent) {
                if seen.insert(child) {
                    self.known.entry(child).or_default();
                    parents.push(child);
                }
            }
        }
    }
}

impl Source for Schedstat {
    fn follow(&mut self, pid: u32) {
        let sums = self.sums(pid);
        self.known.entry(pid).or_insert(sums);
    }

    fn read(&mut self, hear: &mut dyn FnMut(ThreadWaits)) {
        self.find();
        let mut known = std::mem::take(&mut self.known);
        known.retain(|pid, before| {
            let now = self.sums(*pid);
            for (tid, sums) in &now {
                let waits = sums.since(before.get(tid).copied().unwrap_or_default());
                if waits.times > 0 {
                    hear(ThreadWaits {
                        pid: *pid,
                        tid: *tid,
                        name: self.proc.name(*tid).unwrap_or_default(),
                        ended: false,
                        waits,
                    });
                }
            }
            *before = now;
            !before.is_empty()
        });
        self.known = known;
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
        let mut source = Schedstat {
            proc: Procfs::below(root.path()),
            whose: Whose::default(),
            known: FxHashMap::default(),
        };
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
}
