//! File of hint pages of a steered program, as the engine sees it.
//!
//! Input: a process. Output: the hints of its threads. Advice is written to the same file.
//!
//! The contents are not trusted. The file is read and written by system calls and never mapped, so that no program can make an
//! engine fault. It is written only if it is certainly a page file: an anonymous file of the program's own user, whose size is
//! sealed. No other file is opened, and not even its size is read. It might be a file of another user, which an engine that
//! runs as root could write. It might also be in a file system that the program itself provides and that never answers.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{Ordering, fence};

use countersteer_model::hint::Hint;
use countersteer_sysfs::procfs::PROC;
use nix::fcntl::{FcntlArg, Flock, FlockArg, SealFlag, fcntl};
use nix::sys::stat::lstat;

use crate::hint_page::layout::{
    self, FIRST, HEAD, HINT_SEQ, HintAdvice, LENGTH, SAID_SEQ, SLOT, TRIES,
};

/// Returns the mount id of an open file of this process.
fn mount_of(file: &File) -> Option<u64> {
    PROC.mount_of(file.as_raw_fd())
}

/// Returns the mount id of all anonymous files; `None` if it cannot be determined.
fn nameless() -> Option<u64> {
    static MOUNT: OnceLock<Option<u64>> = OnceLock::new();
    *MOUNT.get_or_init(|| mount_of(&crate::hint_page::file().ok()?))
}

/// Returns an `O_PATH` handle of a file, for queries but not for reading. `None` if the file is not anonymous.
fn handle(path: &Path) -> Option<File> {
    // `O_PATH` does not really open the file: opening or querying a file of another kind may have side effects.
    let handle = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(path)
        .ok()?;
    (mount_of(&handle)? == nameless()?).then_some(handle)
}

/// Open page file of a program.
pub(super) struct ProgramPages {
    path: PathBuf,
    identity: (u64, u64),
    file: File,
    /// Lock on the file, held while this engine writes advice; `None` if it does not.
    lock: Option<Flock<File>>,
    /// PID of the process in its own namespace.
    pid: u32,
    /// Contents of the slots, read three times. A half of a slot is consistent if it has the same even number in the first and
    /// the last read.
    reads: [Vec<u8>; 3],
}

impl ProgramPages {
    /// Returns the pages of a process; `None` if it has none or they may not be read. Only the usual descriptor is tried, or
    /// with `anywhere` all descriptors that pages may have, which takes longer.
    pub(super) fn find(pid: u32, anywhere: bool) -> Option<Self> {
        let tries = if anywhere { TRIES } else { 1 };
        (FIRST..FIRST + tries).find_map(|n| {
            let path = PROC.descriptor(pid, n);
            // All programs are searched repeatedly and few have pages, so a cheap system call comes first.
            lstat(path.as_path()).ok()?;
            Self::open(pid, PROC.owner(pid)?, path)
        })
    }

    pub(super) fn open(pid: u32, owner: u32, path: PathBuf) -> Option<Self> {
        let handle = handle(&path)?;
        let found = handle.metadata().ok()?;
        if !found.is_file()
            || found.nlink() > 0
            || found.uid() != owner
            || found.len() != LENGTH as u64
        {
            return None;
        }
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let same = PROC.own_descriptor(handle.as_raw_fd());
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(same)
            .ok()?;
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        let sealed = SealFlag::from_bits_retain(fcntl(&file, FcntlArg::F_GET_SEALS).ok()?);
        if !sealed.contains(seals) || sealed.contains(SealFlag::F_SEAL_WRITE) {
            return None;
        }
        let (pid, _) = PROC.identity(pid)?;
        let identity = (found.dev(), found.ino());
        let mut shared = Self {
            path,
            identity,
            file,
            lock: None,
            pid,
            reads: Default::default(),
        };
        shared.read().then_some(shared)
    }

    /// True if the process still has the file open. False if it has ended or executes another program.
    pub(super) fn is_there(&self) -> bool {
        let found = handle(&self.path).and_then(|handle| handle.metadata().ok());
        found.is_some_and(|m| (m.dev(), m.ino()) == self.identity)
    }

    /// Reads all slots. Returns false if the file is no valid page file any more.
    pub(super) fn read(&mut self) -> bool {
        let mut head = [0; size_of::<layout::PageHead>()];
        if self.file.read_exact_at(&mut head, 0).is_err() {
            return false;
        }
        let Some(used) = layout::used_of(&head, self.pid) else {
            return false;
        };
        self.reads.iter_mut().all(|bytes| {
            bytes.resize(used * SLOT, 0);
            let read = self.file.read_exact_at(bytes, HEAD as u64).is_ok();
            fence(Ordering::SeqCst);
            read
        })
    }

    /// Iterates over the threads that have a slot: TID in the thread's own namespace, start time, and index of the slot.
    pub(super) fn owners(&self) -> impl Iterator<Item = ((u32, u64), usize)> + '_ {
        let owners = self.reads[1].chunks_exact(SLOT).map(layout::owner_of);
        owners
            .enumerate()
            .filter(|(_, (tid, _))| *tid != 0 && *tid != layout::TAKEN)
            .map(|(row, owner)| (owner, row))
    }

    fn slot(&self, nth: usize, row: usize) -> Option<&[u8]> {
        self.reads[nth].get(row * SLOT..(row + 1) * SLOT)
    }

    /// Returns the hint in a slot; `None` while the program is writing it.
    pub(super) fn hint(&self, row: usize) -> Option<Hint> {
        let first = self.slot(0, row)?;
        let between = self.slot(1, row)?;
        let last = self.slot(2, row)?;
        let seq = layout::word(first, HINT_SEQ);
        let whole = seq.is_multiple_of(2)
            && seq == layout::word(last, HINT_SEQ)
            && layout::owner_of(first) == layout::owner_of(last);
        whole.then(|| layout::hint_of(between))
    }

    /// Returns the work reported by the thread of a slot; 0 if it never reported any.
    pub(super) fn work(&self, row: usize) -> u64 {
        self.slot(1, row).map_or(0, layout::work_of)
    }

    /// Writes advice to a slot; `None` clears it. Returns true on success.
    pub(super) fn say(&mut self, row: usize, advice: Option<&HintAdvice>) -> bool {
        if self.lock.is_none() {
            // Only one of several engines may write. A program that takes the lock itself only loses its own advice.
            let copy = self.file.try_clone().ok();
            self.lock =
                copy.and_then(|file| Flock::lock(file, FlockArg::LockExclusiveNonblock).ok());
        }
        self.lock.is_some() && self.write(row, advice).is_ok()
    }

    fn write(&self, row: usize, advice: Option<&HintAdvice>) -> io::Result<()> {
        let at = (HEAD + row * SLOT + SAID_SEQ) as u64;
        let mut seq = [0; 4];
        self.file.read_exact_at(&mut seq, at)?;
        let odd = u32::from_ne_bytes(seq) | 1;
        self.file.write_all_at(&odd.to_ne_bytes(), at)?;
        fence(Ordering::SeqCst);
        self.file.write_all_at(&layout::bytes_of(advice), at + 4)?;
        fence(Ordering::SeqCst);
        self.file
            .write_all_at(&odd.wrapping_add(1).to_ne_bytes(), at)
    }
}
