//! Files of a recording, mapped shared.
//!
//! Input: counts. Output: `control` and one `.raw` file per thread in the scratch directory (`layout`). The kernel keeps the
//! contents of a shared mapping when the process dies, so no flush is needed.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use crate::layout::{self, ENDED_PROCESS, MAX_WINDOWS, PAGE, header, record};
use crate::mapping::MappedWords;
use crate::shared::WindowControl;

const HEADER_WORDS: usize = PAGE / 8;

pub struct ThreadFile {
    mapping: MappedWords,
    live: usize,
    window_length: u64,
    /// Number of windows that fit, as far as is known.
    most: usize,
}

impl ThreadFile {
    /// Creates the next file of the recording.
    pub fn create(directory: &Path, control: &WindowControl) -> io::Result<Self> {
        let ordinal = control.next_thread();
        let path = directory.join(format!("{ordinal:06}.{}", layout::THREAD_SUFFIX));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        file.set_len(layout::THREAD_BYTES as u64)?;
        let mut this = Self {
            mapping: MappedWords::new(&file, layout::THREAD_BYTES)?,
            live: HEADER_WORDS,
            window_length: layout::FIRST_WINDOW,
            most: MAX_WINDOWS,
        };
        this.mapping.reserve(0..HEADER_WORDS + record::WORDS)?;
        let words = this.mapping.words();
        words[header::VERSION] = layout::VERSION;
        words[header::ORDINAL] = ordinal;
        words[header::PID] = u64::from(std::process::id());
        words[header::WINDOW_LENGTH] = layout::FIRST_WINDOW;
        words[header::START] = control.instructions();
        words[header::IN_CALL] = 1;
        // Written last, so that a file with the magic word is complete.
        words[header::MAGIC] = layout::THREAD_MAGIC;
        Ok(this)
    }

    /// Number of the thread in the recording.
    pub fn ordinal(&mut self) -> u64 {
        self.mapping.words()[header::ORDINAL]
    }

    /// Returns the record of the current window.
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

    /// Completes the current window and begins the next. If the disk is full, windows get longer instead of more numerous.
    pub fn advance(&mut self) {
        let complete = self.mapping.words()[header::WINDOWS] as usize + 1;
        let next = HEADER_WORDS + complete * record::WORDS;
        if complete < self.most && self.mapping.reserve(next..next + record::WORDS).is_err() {
            self.most = complete;
        }
        if complete >= self.most {
            self.halve(complete);
            return;
        }
        self.mapping.words()[header::WINDOWS] = complete as u64;
        self.live = next;
    }

    /// Merges pairs of complete windows, so that half of the file is free again. A last window without a partner continues.
    fn halve(&mut self, complete: usize) {
        let words = self.mapping.words();
        let records = &mut words[HEADER_WORDS..HEADER_WORDS + complete * record::WORDS];
        let pairs = complete / 2;
        for pair in 0..pairs {
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
        if complete % 2 == 1 {
            records.copy_within((complete - 1) * record::WORDS.., pairs * record::WORDS);
        }
        records[complete.div_ceil(2) * record::WORDS..].fill(0);
        self.window_length = self.window_length.saturating_mul(2);
        words[header::WINDOW_LENGTH] = self.window_length;
        words[header::WINDOWS] = pairs as u64;
        self.live = HEADER_WORDS + pairs * record::WORDS;
    }

    /// Returns the flag that the thread does not count as runnable (`header::IN_CALL`); true in a new file.
    pub fn in_call(&self) -> &AtomicU64 {
        // SAFETY: the header has the word, and the mapping lives as long as self and is aligned.
        unsafe { AtomicU64::from_ptr(self.mapping.as_ptr().add(header::IN_CALL)) }
    }

    /// Records how the thread ended. The end of the whole process is not revised.
    pub fn end(&mut self, how: u64) {
        let ended = &mut self.mapping.words()[header::ENDED];
        if *ended != ENDED_PROCESS {
            *ended = how;
        }
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
        let control = WindowControl::create_for_test(&directory);
        // Only this number of windows fits.
        for most in [MAX_WINDOWS, 7, 2, 1] {
            let mut file = ThreadFile::create(&directory, &control).unwrap();
            file.most = most;
            for window in 0..3 * MAX_WINDOWS as u64 {
                file.record()[record::INSTRUCTIONS] += window;
                file.record()[record::STAMP] = window;
                file.advance();
            }
            let words = file.mapping.words();
            let complete = words[header::WINDOWS] as usize;
            assert!(complete < most && words[header::WINDOW_LENGTH] > layout::FIRST_WINDOW);
            let sum: u64 = (0..=complete)
                .map(|w| words[HEADER_WORDS + w * record::WORDS + record::INSTRUCTIONS])
                .sum();
            assert_eq!(sum, (0..3 * MAX_WINDOWS as u64).sum::<u64>(), "{most}");
            let used = HEADER_WORDS + most * record::WORDS;
            assert!(words[used..].iter().all(|word| *word == 0), "{most}");
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
