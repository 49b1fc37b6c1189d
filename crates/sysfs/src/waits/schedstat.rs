//! Waits from `/proc/PID/task/TID/schedstat`: sums that the kernel keeps of each thread. No privilege is needed; what a thread
//! waited between the last reading and its end is not seen.

use std::path::{Path, PathBuf};

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Source, ThreadWaits, Waits, Whose};

/// Sums that the kernel keeps of a thread since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub ran_ns: u64,
    pub waited_ns: u64,
    /// Times that it got a CPU.
    pub times: u64,
}

impl Sums {
    /// Of a thread that is alive, where the kernel keeps them; `proc` is the folder of /proc.
    #[must_use]
    pub fn of(proc: &Path, tid: u32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(proc.join(format!("{tid}/schedstat"))).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split_whitespace().map(|f| f.parse().ok());
        let mut next = || fields.next().flatten();
        Some(Self {
            ran_ns: next()?,
            waited_ns: next()?,
            times: next()?,
        })
    }

    /// What is new since then. Sums that shrank are another thread's, which got the number meanwhile.
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

/// Reads the kernel's sums of threads.
#[derive(Debug)]
pub struct Schedstat {
    proc: PathBuf,
    whose: Whose,
    /// Processes with their threads that live.
    known: FxHashMap<u32, FxHashMap<u32, Sums>>,
}

impl Schedstat {
    /// Sums of these processes from now on.
    #[must_use]
    pub fn new(whose: Whose) -> Self {
        let mut new = Self {
            proc: "/proc".into(),
            known: FxHashMap::default(),
            whose: Whose {
                pids: Vec::new(),
                ..whose
            },
        };
        let present = if new.whose.all {
            numbers(&new.proc)
        } else {
            whose.pids
        };
        present.into_iter().for_each(|pid| new.follow(pid));
        new
    }

    fn threads(&self, pid: u32) -> Vec<u32> {
        numbers(&self.proc.join(format!("{pid}/task")))
    }

    /// Processes that are there now: those known, their descendants, and this process's where those are wanted.
    fn find(&mut self) {
        if self.whose.all {
            for pid in numbers(&self.proc) {
                self.known.entry(pid).or_default();
            }
            return;
        }
        let mut parents: Vec<u32> = self.known.keys().copied().collect();
        parents.extend(self.whose.children.then(std::process::id));
        let mut seen: FxHashSet<u32> = parents.iter().copied().collect();
        while let Some(parent) = parents.pop() {
            for child in self.children(parent) {
                if seen.insert(child) {
                    self.known.entry(child).or_default();
                    parents.push(child);
                }
            }
        }
    }

    fn children(&self, pid: u32) -> Vec<u32> {
        let of = |tid: u32| {
            let path = self.proc.join(format!("{pid}/task/{tid}/children"));
            std::fs::read_to_string(path).unwrap_or_default()
        };
        let texts = self.threads(pid).into_iter().map(of);
        texts
            .flat_map(|t| {
                t.split_whitespace()
                    .filter_map(|n| n.parse().ok())
                    .collect::<Vec<u32>>()
            })
            .collect()
    }

    fn name(&self, tid: u32) -> String {
        let comm = std::fs::read(self.proc.join(format!("{tid}/comm"))).unwrap_or_default();
        String::from_utf8_lossy(&comm).trim_end().to_owned()
    }
}

/// Names in a folder that are numbers.
fn numbers(folder: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect()
}

impl Source for Schedstat {
    fn follow(&mut self, pid: u32) {
        let threads = self.threads(pid).into_iter();
        let sums = threads.filter_map(|tid| Some((tid, Sums::of(&self.proc, tid)?)));
        let sums: FxHashMap<u32, Sums> = sums.collect();
        self.known.entry(pid).or_insert(sums);
    }

    fn read(&mut self, hear: &mut dyn FnMut(ThreadWaits)) {
        self.find();
        let mut known = std::mem::take(&mut self.known);
        known.retain(|pid, before| {
            let now: FxHashMap<u32, Sums> = self
                .threads(*pid)
                .into_iter()
                .filter_map(|tid| Some((tid, Sums::of(&self.proc, tid)?)))
                .collect();
            for (tid, sums) in &now {
                let waits = sums.since(before.get(tid).copied().unwrap_or_default());
                if waits.times > 0 {
                    hear(ThreadWaits {
                        pid: *pid,
                        tid: *tid,
                        name: self.name(*tid),
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
    use super::*;

    #[test]
    fn sums_count_since_a_thread_was_known_and_whole_where_it_is_new() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let thread = |tid: u32, text: &str| {
            write(&format!("7/task/{tid}/children"), "");
            write(&format!("{tid}/schedstat"), text);
            write(&format!("{tid}/comm"), "worker\n");
        };
        thread(7, "100 50 5\n");
        let mut source = Schedstat {
            proc: root.path().into(),
            whose: Whose::default(),
            known: FxHashMap::default(),
        };
        source.follow(7);
        thread(7, "200 80 7\n");
        thread(8, "10 6 2\n");
        // A child that appears later is read too, and whole.
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
        // Another thread has the number now.
        thread(8, "10 3 1\n");
        assert_eq!(read(), [(8, 1, 3)]);
        assert_eq!(Sums::parse("garbage"), None);
    }
}
