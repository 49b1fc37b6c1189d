//! The files that the recording grows in, mapped shared.
//!
//! Input: counts. Output: `control` and one `.raw` file per thread in the scratch directory (`layout`). The kernel keeps
//! what was written to a shared mapping when the process dies, so nothing ever needs to be flushed.

use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;
use std::slice;

use crate::layout::{self, MAX_WINDOWS, PAGE, header, record};
use crate::shared::Control;

const HEADER_WORDS: usize = PAGE / 8;

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

    fn words(&mut self) -> &mut [u64] {
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

pub struct ThreadFile {
    mapping: Mapping,
    live: usize,
    window_length: u64,
}

impl ThreadFile {
    /// Creates the next file of the recording.
    pub fn create(directory: &Path, control: &Control) -> io::Result<Self> {
        let ordinal = control.next_thread();
        let path = directory.join(format!("{ordinal:06}.{}", layout::THREAD_SUFFIX));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        file.set_len(layout::THREAD_BYTES as u64)?;
        let mut this = Self {
            mapping: Mapping::new(&file, layout::THREAD_BYTES)?,
            live: HEADER_WORDS,
            window_length: layout::FIRST_WINDOW,
        };
        let words = this.mapping.words();
        words[header::VERSION] = layout::VERSION;
        words[header::ORDINAL] = ordinal;
        words[header::PID] = u64::from(std::process::id());
        words[header::WINDOW_LENGTH] = layout::FIRST_WINDOW;
        words[header::START] = control.instructions();
        // Last, so that a file with the magic word is whole.
        words[header::MAGIC] = layout::THREAD_MAGIC;
        Ok(this)
    }

    /// Number of the thread in the recording.
    pub fn ordinal(&mut self) -> u64 {
        self.mapping.words()[header::ORDINAL]
    }

    /// The record of the current window.
    #[inline]
    pub fn record(&mut self) -> &mut [u64; record::WORDS] {
        // SAFETY: `live` is the start of a whole record: the file holds MAX_WINDOWS of them after the header, and `advance`
        // keeps it there. The borrow of self keeps it unique.
        unsafe { &mut *self.mapping.as_ptr().add(self.live).cast() }
    }

    /// Instructions that make a window complete.
    pub fn window_length(&self) -> u64 {
        self.window_length
    }

    /// Completes the current window and begins the next.
    pub fn advance(&mut self) {
        let words = self.mapping.words();
        let complete = words[header::WINDOWS] as usize + 1;
        if complete == MAX_WINDOWS {
            self.halve();
            return;
        }
        words[header::WINDOWS] = complete as u64;
        self.live = HEADER_WORDS + complete * record::WORDS;
    }

    /// Merges pairs of windows, so that half of the file is free again.
    fn halve(&mut self) {
        let words = self.mapping.words();
        let records = &mut words[HEADER_WORDS..];
        for pair in 0..MAX_WINDOWS / 2 {
            let (head, tail) = records.split_at_mut((2 * pair + 1) * record::WORDS);
            layout::add_record(
                &mut head[2 * pair * record::WORDS..],
                &tail[..record::WORDS],
            );
            records.copy_within(
                2 * pair * record::WORDS..(2 * pair + 1) * record::WORDS,
                pair * record::WORDS,
            );
        }
        records[MAX_WINDOWS / 2 * record::WORDS..].fill(0);
        self.window_length *= 2;
        words[header::WINDOW_LENGTH] = self.window_length;
        words[header::WINDOWS] = MAX_WINDOWS as u64 / 2;
        self.live = HEADER_WORDS + MAX_WINDOWS / 2 * record::WORDS;
    }

    /// Notes how the thread ended.
    pub fn end(&mut self, how: u64) {
        self.mapping.words()[header::ENDED] = how;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_merges_pairs_and_loses_nothing() {
        let directory =
            std::env::temp_dir().join(format!("steer-output-test-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let control = Control::create_for_test(&directory);
        let mut file = ThreadFile::create(&directory, &control).unwrap();
        for window in 0..3 * MAX_WINDOWS as u64 {
            file.record()[record::INSTRUCTIONS] += window;
            file.record()[record::STAMP] = window;
            file.advance();
        }
        let words = file.mapping.words();
        let complete = words[header::WINDOWS] as usize;
        assert!(complete < MAX_WINDOWS && words[header::WINDOW_LENGTH] > layout::FIRST_WINDOW);
        let sum: u64 = (0..complete)
            .map(|w| words[HEADER_WORDS + w * record::WORDS + record::INSTRUCTIONS])
            .sum();
        assert_eq!(sum, (0..3 * MAX_WINDOWS as u64).sum::<u64>());
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
