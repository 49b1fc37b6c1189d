//! Table of the hint pages of this process, one per thread.
//!
//! Input: threads that open and close pages. Output: their slots in the file that an engine finds.
//!
//! The file is mapped once and never unmapped. A slot that is used after it was closed may belong to another thread, but is
//! always valid memory. A child process gets empty memory instead, so that its hints reach no engine. It creates a file of
//! its own when it opens a page.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::PageError;
use super::layout::{
    FIRST, HEAD, HintSlot, LENGTH, MAGIC, NAME, PageHead, SLOT, SLOTS, TAKEN, TRIES, VERSION,
};

pub(super) struct HintTable {
    base: *mut u8,
    /// Descriptor of the file, which stays open so that engines find it.
    fd: c_int,
    /// Identity (device, inode) of the file. The program may have closed the descriptor and opened another file with the same
    /// number.
    file: (u64, u64),
}

static TABLE: AtomicPtr<HintTable> = AtomicPtr::new(ptr::null_mut());

/// PID of the process in which a thread is creating the table; 0 if no thread is. A standard lock or a plain flag would not
/// work: a forked child does not have that thread, and would wait for it forever.
static MAKING: AtomicU32 = AtomicU32::new(0);

/// Returns the identity (device, inode) of a descriptor's file; `None` if the descriptor is closed.
fn identity(fd: BorrowedFd<'_>) -> Option<(u64, u64)> {
    nix::sys::stat::fstat(fd).ok().map(|s| (s.st_dev, s.st_ino))
}

extern "C" fn forked() {
    let table = TABLE.swap(ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: the pointer is null, or refers to a table that is never freed.
    let Some(table) = (unsafe { table.as_ref() }) else {
        return;
    };
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
    );
    // SAFETY: this replaces the table's own mapping, which is accessed only through atomics.
    unsafe { libc::mmap(table.base.cast(), LENGTH, protection, flags, -1, 0) };
    // SAFETY: the number is that of a descriptor, which may be closed by now; it is only queried.
    let fd = unsafe { BorrowedFd::borrow_raw(table.fd) };
    if identity(fd) == Some(table.file) {
        // SAFETY: this is the descriptor that the table opened, and nothing else uses it.
        drop(unsafe { OwnedFd::from_raw_fd(table.fd) });
    }
}

/// Creates an anonymous file for pages.
pub(crate) fn file() -> nix::Result<File> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    // Kernels before 6.3 do not support this flag; later kernels may be configured to allow only files with it.
    let no_exec = flags | MFdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL);
    match memfd_create(NAME, no_exec) {
        Err(Errno::EINVAL) => memfd_create(NAME, flags),
        made => made,
    }
    .map(File::from)
}

impl HintTable {
    /// Returns the table of the process, which is created at the first call.
    pub(super) fn of_process() -> Result<&'static Self, PageError> {
        // SAFETY: the pointer is null, or refers to a table that is never freed.
        if let Some(table) = unsafe { TABLE.load(Ordering::Acquire).as_ref() } {
            return Ok(table);
        }
        let own = std::process::id();
        while MAKING.swap(own, Ordering::AcqRel) == own {
            std::thread::yield_now();
        }
        let table = Self::first();
        MAKING.store(0, Ordering::Release);
        table
    }

    /// Creates the table, unless another thread has created it. Only one thread at a time calls this.
    fn first() -> Result<&'static Self, PageError> {
        static WATCHED: AtomicBool = AtomicBool::new(false);
        // SAFETY: the pointer is null, or refers to a table that is never freed.
        if let Some(table) = unsafe { TABLE.load(Ordering::Acquire).as_ref() } {
            return Ok(table);
        }
        // A child that is forked between the two lines registers the handler once more; running it twice has no further
        // effect.
        if !WATCHED.load(Ordering::Acquire) {
            // SAFETY: the handler lives as long as the library, and calls only functions that are allowed in a forked child.
            unsafe { libc::pthread_atfork(None, None, Some(forked)) };
            WATCHED.store(true, Ordering::Release);
        }
        let table: &'static Self = Box::leak(Box::new(Self::make()?));
        TABLE.store(ptr::from_ref(table).cast_mut(), Ordering::Release);
        Ok(table)
    }

    fn make() -> Result<Self, PageError> {
        let failed = |what| {
            move |errno: Errno| PageError::System {
                what,
                source: errno.into(),
            }
        };
        let file = file().map_err(failed("making a file without a name (memfd_create)"))?;
        file.set_len(LENGTH as u64)
            .map_err(|source| PageError::System {
                what: "making room for pages",
                source,
            })?;
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).map_err(failed("sealing pages"))?;
        let identity = identity(file.as_fd()).unwrap_or_default();
        let base = map(&file).map_err(failed("mapping pages"))?;
        // SAFETY: the mapping begins with a head, all fields of which are atomics.
        let head = unsafe { &*base.cast::<PageHead>() };
        head.version.store(VERSION, Ordering::Relaxed);
        head.slot_bytes.store(SLOT as u32, Ordering::Relaxed);
        head.slots.store(SLOTS as u32, Ordering::Relaxed);
        head.pid.store(std::process::id(), Ordering::Relaxed);
        head.magic.store(MAGIC, Ordering::Release);
        // From here on, engines may find the file.
        let fd = match fcntl(&file, FcntlArg::F_DUPFD_CLOEXEC(FIRST)) {
            Ok(fd) if fd < FIRST + TRIES => {
                return Ok(Self {
                    base,
                    fd,
                    file: identity,
                });
            }
            Ok(fd) => Some(fd),
            Err(_) => None,
        };
        // SAFETY: the descriptor was just opened; the mapping was created here, and nothing refers to it.
        unsafe {
            drop(fd.map(|fd| OwnedFd::from_raw_fd(fd)));
            libc::munmap(base.cast(), LENGTH);
        }
        Err(PageError::Descriptor)
    }

    fn head(&self) -> &PageHead {
        // SAFETY: the mapping is never unmapped, and all fields of a head are atomics.
        unsafe { &*self.base.cast::<PageHead>() }
    }

    fn slots(&self) -> &'static [HintSlot] {
        // SAFETY: this number of slots follows the head. All are atomics, aligned (4096 is a multiple of 128), and never
        // unmapped.
        unsafe { std::slice::from_raw_parts(self.base.add(HEAD).cast::<HintSlot>(), SLOTS) }
    }

    /// Takes a free slot for the thread with this TID and start time. Fails if no slot is free.
    pub(super) fn take(&self, tid: u32, started: u64) -> Result<&'static HintSlot, PageError> {
        let free = |slot: &HintSlot| {
            let tid = &slot.program.tid;
            tid.load(Ordering::Relaxed) == 0
                && tid
                    .compare_exchange(0, TAKEN, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
        };
        let position = || self.slots().iter().position(free);
        let row = position().or_else(|| {
            self.reclaim();
            position()
        });
        let row = row.ok_or(PageError::Full)?;
        let slot = &self.slots()[row];
        slot.program.tell(&Default::default());
        slot.program.work.store(0, Ordering::Relaxed);
        slot.engine.wipe();
        slot.program.started.store(started, Ordering::Relaxed);
        slot.program.tid.store(tid, Ordering::Release);
        self.head()
            .used
            .fetch_max(row as u32 + 1, Ordering::Release);
        Ok(slot)
    }

    /// Frees the slots of threads that ended without closing their pages.
    fn reclaim(&self) {
        let own = std::process::id();
        for slot in self.slots() {
            let tid = slot.program.tid.load(Ordering::Relaxed);
            // SAFETY: this is a plain system call; signal 0 only checks that the thread exists.
            let gone = || unsafe { libc::syscall(libc::SYS_tgkill, own, tid, 0) } < 0 && Errno::last() == Errno::ESRCH;
            if tid != TAKEN && gone() {
                let _ =
                    slot.program
                        .tid
                        .compare_exchange(tid, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }
}

fn map(file: &File) -> nix::Result<*mut u8> {
    use std::os::fd::AsRawFd;
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: this creates a new mapping at an address that the kernel chooses; no existing mapping is affected.
    let base: *mut c_void = unsafe {
        libc::mmap(
            ptr::null_mut(),
            LENGTH,
            protection,
            flags,
            file.as_raw_fd(),
            0,
        )
    };
    if base == libc::MAP_FAILED {
        Err(Errno::last())
    } else {
        Ok(base.cast())
    }
}
