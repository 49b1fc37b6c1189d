//! Memory-mapped array of the kernel's programs.
//!
//! Both sides read and write it at any time. An entry with a change counter is read again until it did not change meanwhile.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Structure of integers alone, of which every bit pattern is valid.
///
/// # Safety
/// The type has to be such a structure, laid out as in C.
pub(super) unsafe trait Plain: Copy {}

pub(super) struct FollowTable<T> {
    base: NonNull<u8>,
    bytes: usize,
    entries: usize,
    of: PhantomData<T>,
}

// SAFETY: the mapping belongs to this value alone; nothing in it is tied to a thread.
unsafe impl<T: Plain + Send> Send for FollowTable<T> {}

impl<T: Plain> FollowTable<T> {
    /// Distance of entries in the kernel: a multiple of 8.
    const STRIDE: usize = size_of::<T>().next_multiple_of(8);

    /// Maps the array of this many entries.
    pub fn map(array: &impl AsFd, entries: usize) -> io::Result<Self> {
        let page =
            nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)?.unwrap_or(4096) as usize;
        let bytes = (entries * Self::STRIDE).next_multiple_of(page);
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice; no existing mapping is touched.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                flags,
                array.as_fd().as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self {
            base,
            bytes,
            entries,
            of: PhantomData,
        })
    }

    #[inline]
    fn at(&self, nr: usize) -> *mut T {
        assert!(nr < self.entries, "an entry of the table");
        // SAFETY: within the mapping, as was just checked, and aligned: pages and strides are multiples of 8.
        unsafe { self.base.as_ptr().add(nr * Self::STRIDE).cast() }
    }

    /// Reads an entry, which may be half changed.
    #[inline]
    pub fn read(&self, nr: usize) -> T {
        // SAFETY: mapped memory that holds a plain structure; the kernel may be writing it, so the read is volatile.
        unsafe { self.at(nr).read_volatile() }
    }

    /// Entry to be read field by field; any of them may change meanwhile.
    #[inline]
    pub fn entry(&self, nr: usize) -> TableEntry<'_, T> {
        TableEntry {
            at: self.at(nr),
            of: PhantomData,
        }
    }

    pub fn write(&self, nr: usize, entry: T) {
        // SAFETY: as for reading; the caller knows which other writers there are.
        unsafe { self.at(nr).write_volatile(entry) }
    }

    /// Changes only an integer of 32 bits at an offset of an entry.
    pub fn store(&self, nr: usize, offset: usize, value: u32) {
        assert!(
            offset.is_multiple_of(4) && offset + 4 <= size_of::<T>(),
            "an integer of the entry"
        );
        // SAFETY: aligned and within the entry, as was just checked; the kernel reads it whole.
        unsafe { AtomicU32::from_ptr(self.at(nr).byte_add(offset).cast()) }
            .store(value, Ordering::Release);
    }

    /// Number of changes of an entry: its first field, an integer of 64 bits.
    #[inline]
    pub fn changes(&self, nr: usize) -> u64 {
        // SAFETY: aligned and mapped; the kernel changes it atomically.
        unsafe { AtomicU64::from_ptr(self.at(nr).cast()) }.load(Ordering::Acquire)
    }

    /// Repeats a read that belongs to an entry until the entry did not change meanwhile.
    #[inline]
    pub fn settled<R>(&self, nr: usize, mut read: impl FnMut() -> R) -> (u64, R) {
        loop {
            let before = self.changes(nr);
            let value = read();
            fence(Ordering::Acquire);
            if before & 1 == 0 && self.changes(nr) == before {
                return (before, value);
            }
            std::hint::spin_loop();
        }
    }
}

/// Entry of a table.
pub(super) struct TableEntry<'a, T> {
    at: *const T,
    of: PhantomData<&'a T>,
}

impl<T: Plain> TableEntry<'_, T> {
    /// Integer of 64 bits at an offset.
    #[inline]
    pub fn field(&self, offset: usize) -> u64 {
        assert!(
            offset.is_multiple_of(8) && offset < size_of::<T>(),
            "an integer of the entry"
        );
        // SAFETY: aligned and within the entry, as was just checked; the kernel may be writing it, so the read is volatile.
        unsafe { self.at.byte_add(offset).cast::<u64>().read_volatile() }
    }

    /// Integer of 32 bits at an offset.
    #[inline]
    pub fn half(&self, offset: usize) -> u32 {
        assert!(
            offset.is_multiple_of(4) && offset < size_of::<T>(),
            "an integer of the entry"
        );
        // SAFETY: likewise.
        unsafe { self.at.byte_add(offset).cast::<u32>().read_volatile() }
    }
}

impl<T> Drop for FollowTable<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this address and length, and no reference into it is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
