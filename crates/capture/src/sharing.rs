//! Directory of the lines that threads of the process touch: of each line, the threads with a valid copy.
//!
//! Input: accesses of all threads while at least two run. Output: for an access, its [`LineUse`] of the line. Copies are never evicted, as in
//! caches without end, so that all lost copies are lost to stores of others. The directory has a sample of the lines.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex};

use crate::lines::PageHasher;
use crate::sample;

/// Lines of which one is in the directory.
pub const LINES: u64 = sample::LINES;
/// Parts of the directory, each with a lock.
const PARTS: usize = 256;
/// Attempts to take a lock. A forked process may have copied a taken one, so no thread waits for ever.
const ATTEMPTS: usize = 64;

/// Threads of the process.
static THREADS: AtomicU32 = AtomicU32::new(0);
/// Next number of a thread.
static NEXT: AtomicU64 = AtomicU64::new(0);
static DIRECTORY: LazyLock<Directory> = LazyLock::new(Directory::new);

/// Use of a line by an access of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineUse {
    /// True if other threads touched the line, now or before.
    pub shared: bool,
    /// True if the thread had a copy that another thread's store invalidated.
    pub invalidated: bool,
}

/// Membership of a thread in its process. Threads whose numbers differ by a multiple of 64 count as one.
pub struct ProcessMember {
    bit: u64,
}

impl ProcessMember {
    pub fn new() -> Self {
        THREADS.fetch_add(1, Relaxed);
        Self {
            bit: 1 << (NEXT.fetch_add(1, Relaxed) % 64),
        }
    }

    /// Continues the thread as the only one of a forked process.
    pub fn forked(&self) {
        THREADS.store(1, Relaxed);
    }

    /// Ends the membership of a thread that exits.
    pub fn leave(&self) {
        THREADS.fetch_sub(1, Relaxed);
    }

    /// True if the process has other threads.
    pub fn has_company(&self) -> bool {
        THREADS.load(Relaxed) > 1
    }

    /// Notes an access to a line, and returns its use; `None` if the line is not in the sample.
    #[inline(always)]
    pub fn access(&self, line: u64, write: bool) -> Option<LineUse> {
        sample::keeps(line, LINES).then(|| DIRECTORY.access(line, self.bit, write))
    }
}

/// Threads that touched a line, and threads with a valid copy, one bit each.
#[derive(Clone, Copy, Default)]
struct Copies {
    touched: u64,
    valid: u64,
}

type SharedPart = HashMap<u64, Copies, BuildHasherDefault<PageHasher>>;

struct Directory {
    parts: Vec<Mutex<SharedPart>>,
}

impl Directory {
    fn new() -> Self {
        Self {
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
        }
    }

    #[inline(never)]
    fn access(&self, line: u64, bit: u64, write: bool) -> LineUse {
        let hash = sample::hash(line, LINES) >> 32;
        let part = &self.parts[hash as usize % PARTS];
        let Some(mut part) = (0..ATTEMPTS).find_map(|_| part.try_lock().ok()) else {
            return LineUse::default();
        };
        let copies = part.entry(line).or_default();
        let of = LineUse {
            shared: copies.touched & !bit != 0,
            invalidated: copies.touched & bit != 0 && copies.valid & bit == 0,
        };
        copies.touched |= bit;
        copies.valid = if write { bit } else { copies.valid | bit };
        of
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_invalidates_the_copies_of_others_once() {
        let directory = Directory::new();
        let of = |bit, write| {
            let of = directory.access(40, bit, write);
            (of.shared, of.invalidated)
        };
        assert_eq!(of(1, false), (false, false));
        assert_eq!(of(2, false), (true, false));
        assert_eq!(of(1, false), (true, false));
        assert_eq!(of(2, true), (true, false));
        assert_eq!(of(1, false), (true, true));
        assert_eq!(of(1, false), (true, false));
        assert_eq!(of(2, false), (true, false));
        assert_eq!(of(1, true), (true, false));
        assert_eq!(of(2, true), (true, true));
    }

    #[test]
    fn one_line_of_each_group_is_in_the_directory() {
        let member = ProcessMember { bit: 1 };
        let kept = (0..800).filter(|line| member.access(1 << 40 | line, false).is_some());
        assert_eq!(kept.count(), 100);
    }
}
