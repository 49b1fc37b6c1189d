//! Threads that are killed while they execute, and would therefore count as runnable forever.
//!
//! Input: headers of threads' files, periodically, and /proc. Output: the number of such threads, on the control page. A signal
//! ends QEMU without a callback to the plugin, so only another process can detect it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::layout::{THREAD_MAGIC, THREAD_SUFFIX, control, header};

/// Watches the threads of a recording.
pub struct Lost {
    directory: PathBuf,
    control: File,
    /// Threads that existed at the previous check.
    known: u64,
    /// Threads that were added to `watched` so far.
    taken: u64,
    watched: Vec<WatchedSignals>,
    /// Number on the control page.
    written: u64,
}

struct WatchedSignals {
    ordinal: u64,
    /// True if the thread was killed while it executed. Its PID may have been reused since.
    lost: bool,
}

impl Lost {
    /// Creates the watcher of a recording in a scratch directory with this control file.
    pub fn new(directory: &Path, control: &Path) -> io::Result<Self> {
        Ok(Self {
            directory: directory.to_owned(),
            control: File::options().write(true).open(control)?,
            known: 0,
            taken: 0,
            watched: Vec::new(),
            written: 0,
        })
    }

    /// Checks all threads; `threads` is their number.
    pub fn look(&mut self, threads: u64) {
        // The files of new threads may still be incomplete at this check.
        let settled = self.taken + 1..=self.known;
        self.watched.extend(settled.map(|ordinal| WatchedSignals {
            ordinal,
            lost: false,
        }));
        (self.taken, self.known) = (self.known, threads);
        let directory = &self.directory;
        // Threads of one process usually follow each other.
        let mut last = (0, false);
        self.watched
            .retain_mut(|thread| still_watched(directory, thread, &mut last));
        let lost = self.watched.iter().filter(|of| of.lost).count() as u64;
        if lost != self.written {
            let place = control::LOST as u64 * 8;
            let written = self.control.write_all_at(&lost.to_ne_bytes(), place);
            // A failed write is repeated at the next check.
            self.written = written.map_or(self.written, |()| lost);
        }
    }
}

/// True if a thread is or may become lost. `last` is the last checked process, and true if it exists.
fn still_watched(directory: &Path, thread: &mut WatchedSignals, last: &mut (u64, bool)) -> bool {
    let Some(first) = head(directory, thread.ordinal) else {
        return false;
    };
    if first[header::ENDED] != 0 || thread.lost {
        return thread.lost && first[header::IN_CALL] == 0;
    }
    if last.0 != first[header::PID] {
        *last = (first[header::PID], is_there(first[header::PID]));
    }
    if last.1 {
        return true;
    }
    // The thread may have entered a system call between the two reads.
    thread.lost = head(directory, thread.ordinal).is_some_and(|of| of[header::IN_CALL] == 0);
    thread.lost
}

fn head(directory: &Path, ordinal: u64) -> Option<[u64; header::WORDS]> {
    let path = directory.join(format!("{ordinal:06}.{THREAD_SUFFIX}"));
    let mut bytes = [0; header::WORDS * 8];
    let file = File::open(path).ok()?;
    file.read_exact_at(&mut bytes, 0).ok()?;
    let words = bytes.as_chunks::<8>().0;
    let head: [u64; header::WORDS] = std::array::from_fn(|at| u64::from_ne_bytes(words[at]));
    (head[header::MAGIC] == THREAD_MAGIC).then_some(head)
}

/// True if any thread of a process exists. An ended process is a zombie until its parent waits for it. A process whose main
/// thread alone has ended also looks like a zombie, but has other threads.
fn is_there(pid: u64) -> bool {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    tasks.flatten().any(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // The state follows the name, which may contain any characters.
        let state = stat.rsplit_once(") ").and_then(|of| of.1.chars().next());
        state.is_some_and(|state| !"ZXx".contains(state))
    })
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::super::layout::{self, PAGE};
    use super::super::raw;
    use super::*;

    fn thread(directory: &Path, ordinal: u64, pid: u32, in_call: u64) {
        let mut head = [0u64; PAGE / 8];
        head[header::MAGIC] = layout::THREAD_MAGIC;
        head[header::PID] = u64::from(pid);
        head[header::IN_CALL] = in_call;
        let bytes: Vec<u8> = head.iter().flat_map(|w| w.to_ne_bytes()).collect();
        std::fs::write(directory.join(format!("{ordinal:06}.raw")), bytes).unwrap();
    }

    /// Returns an ended process whose status is not collected.
    fn zombie() -> Child {
        let child = Command::new("true").spawn().unwrap();
        while is_there(u64::from(child.id())) {
            std::thread::yield_now();
        }
        child
    }

    #[test]
    fn threads_of_dead_processes_that_were_in_no_call_are_lost() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let page = raw::create_control(directory, None).unwrap();
        let mut lost = Lost::new(directory, &page).unwrap();
        let written = || {
            let bytes = std::fs::read(&page).unwrap();
            u64::from_ne_bytes(bytes.as_chunks::<8>().0[control::LOST])
        };
        let mut dead = zombie();
        let own = std::process::id();
        thread(directory, 1, own, 0);
        thread(directory, 2, dead.id(), 0);
        thread(directory, 3, dead.id(), 1);
        thread(directory, 5, dead.id(), 0);
        // There is no fourth file.
        lost.look(5);
        assert_eq!(written(), 0, "they may be under way");
        lost.look(5);
        assert_eq!((written(), lost.watched.len()), (2, 3));
        dead.wait().unwrap();
        lost.look(5);
        assert_eq!(written(), 2);
        // It may have been in a PID namespace, where processes have other numbers.
        thread(directory, 5, dead.id(), 1);
        lost.look(5);
        assert_eq!(written(), 1);
        thread(directory, 1, own, 1);
        lost.look(5);
        assert_eq!((written(), lost.watched.len()), (1, 2));
    }
}
