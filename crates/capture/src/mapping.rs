//! Files mapped shared.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::slice;

/// A file's words in memory.
pub struct Mapping {
    words: NonNull<u64>,
    len: usize,
}

impl Mapping {
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
            Some(words) if address != libc::MAP_FAILED => Ok(Self {
                words,
                len: bytes / 8,
            }),
            _ => Err(io::Error::last_os_error()),
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

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: address and length are those of the mapping, and nothing borrows from self any more.
        unsafe { libc::munmap(self.words.as_ptr().cast::<c_void>(), self.len * 8) };
    }
}
