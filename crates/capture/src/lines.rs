//! Per-line data: one word for every line ever touched, in chunks of a page.
//!
//! Input: line numbers. Output: a mutable word per line, zero for new ones. A small direct-mapped table of recent pages avoids
//! most look-ups in the hash map.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Lines per chunk.
const CHUNK: usize = 64;
/// Entries of the table of recent pages.
const RECENT: usize = 256;

/// Multiplicative hash for page numbers.
#[derive(Default)]
pub struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// Sparse array of words, indexed by line number.
pub struct SparseLines {
    words: Vec<u64>,
    /// Page of each chunk.
    numbers: Vec<u64>,
    pages: HashMap<u64, u32, BuildHasherDefault<PageHasher>>,
    recent: Box<[(u64, u32); RECENT]>,
}

impl SparseLines {
    pub fn new() -> Self {
        Self {
            words: Vec::new(),
            numbers: Vec::new(),
            pages: HashMap::default(),
            recent: Box::new([(u64::MAX, 0); RECENT]),
        }
    }

    /// Returns the place of the word of `line`; it never changes.
    #[inline(always)]
    pub fn place(&mut self, line: u64) -> usize {
        let page = line / CHUNK as u64;
        let (known, index) = self.recent[page as usize % RECENT];
        let chunk = if known == page {
            index
        } else {
            self.find(page)
        };
        chunk as usize * CHUNK + line as usize % CHUNK
    }

    /// Returns the word at a place.
    #[inline(always)]
    pub fn word(&mut self, place: usize) -> &mut u64 {
        &mut self.words[place]
    }

    #[cold]
    #[inline(never)]
    fn find(&mut self, page: u64) -> u32 {
        let fresh = (self.words.len() / CHUNK) as u32;
        let chunk = *self.pages.entry(page).or_insert(fresh);
        if chunk == fresh {
            self.words.resize(self.words.len() + CHUNK, 0);
            self.numbers.push(page);
        }
        self.recent[page as usize % RECENT] = (page, chunk);
        chunk
    }

    /// Visits every word that is not zero, with its line.
    pub fn for_each(&mut self, mut visit: impl FnMut(u64, &mut u64)) {
        let (chunks, _) = self.words.as_chunks_mut::<CHUNK>();
        for (chunk, page) in chunks.iter_mut().zip(&self.numbers) {
            for (line, word) in (page * CHUNK as u64..).zip(chunk) {
                if *word != 0 {
                    visit(line, word);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_zero_first_and_kept_afterwards() {
        let mut lines = SparseLines::new();
        for i in 0..10_000u64 {
            let line = i.wrapping_mul(0x1234_5678_9abc) % (1 << 42);
            let place = lines.place(line);
            assert_eq!(*lines.word(place), 0);
            *lines.word(place) = i + 1;
        }
        for i in 0..10_000u64 {
            let place = lines.place(i.wrapping_mul(0x1234_5678_9abc) % (1 << 42));
            assert_eq!(*lines.word(place), i + 1);
        }
        let mut seen = 0;
        lines.for_each(|line, word| {
            let at = *word - 1;
            assert_eq!(line, at.wrapping_mul(0x1234_5678_9abc) % (1 << 42));
            seen += 1;
        });
        assert_eq!(seen, 10_000);
    }
}
