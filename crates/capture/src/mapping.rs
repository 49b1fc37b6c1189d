//! Shared file mappings.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::slice;

use crate::layout::PAGE;

/// Words of a file in memory.
pub struct MappedWords {
    words: NonNull<u64>,
    len: usize,
}

impl MappedWords {
    /// Maps the first `bytes` of `file`.
    pub fn new(file: &File, bytes: usize) -> io::Result<Self> {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a fresh mapping chosen by the kernel overlaps no memory in use; the result is checked below.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                access,
                flags,
                file.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(address.cast::<u64>()) {
            Some(words) if address != libc::MAP_FAILED => {
                // Without this, the first access to a large file may fill a cache page of 2 MiB: 2 ms for each forked process.
                // SAFETY: the mapping is this one; the advice changes no contents.
                unsafe { libc::madvise(address, bytes, libc::MADV_RANDOM) };
                Ok(Self {
                    words,
                    len: bytes / 8,
                })
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Allocates disk space for some words; without it, a later write would kill the process.
    pub fn reserve(&self, words: Range<usize>) -> io::Result<()> {
        let (from, to) = (words.start * 8 / PAGE * PAGE, self.len.min(words.end) * 8);
        // SAFETY: the pages are the mapping's own.
        let failed = unsafe {
            let start = self.words.as_ptr().cast::<u8>().add(from);
            libc::madvise(start.cast(), to - from, libc::MADV_POPULATE_WRITE) != 0
        };
        // Kernels before 5.14 do not support this.
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EFAULT) if failed => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }

    pub fn as_ptr(&self) -> *mut u64 {
        self.words.as_ptr()
    }

    pub fn words(&mut self) -> &mut [u64] {
        // SAFETY: the mapping has `len` words, lives as long as self, and only its thread writes to it.
        unsafe { slice::from_raw_parts_mut(self.words.as_ptr(), self.len) }
    }
}

impl Drop for MappedWords {
    fn drop(&mut self) {
        // SAFETY: address and length are those of the mapping, and nothing borrows from self any more.
        unsafe { libc::munmap(self.words.as_ptr().cast::<c_void>(), self.len * 8) };
    }
}
