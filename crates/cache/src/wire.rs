//! Event stream of one thread as 32-bit words: the format of instrumented programs and of trace files.
//!
//! Input: fetches, loads and stores of lines, with the instructions between them. Output: words; and the decoded events.
//!
//! A word contains, from the lowest bit:
//!
//! - Two bits of kind (fetch, load, store, other).
//! - Four bits: number of instructions since the previous event (15: the next word contains it).
//! - For accesses, two bits that select one of four bases, and 24 bits of signed distance of the line from that base. The base
//!   is then set to the line.
//!
//! A line that is far from all bases is preceded by a word of kind 3. That word sets one base to the value of the two words
//! that follow. Bases are zero at the start of a block, so that each block can be decoded alone.

use std::sync::Arc;

use crate::private::AccessKind;

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireKind {
    Access(AccessKind),
    /// A branch was mispredicted.
    Mispredicted,
}

/// Decoded event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireEvent {
    /// Number of instructions since the previous event.
    pub gap: u32,
    /// Kind of the event.
    pub what: WireKind,
    /// Line of an access; zero for other events.
    pub line: u64,
}

const KIND_BITS: u32 = 2;
const OTHER: u32 = 3;
const GAP_BITS: u32 = 4;
const GAP_FOLLOWS: u32 = (1 << GAP_BITS) - 1;
const BASE_SHIFT: u32 = KIND_BITS + GAP_BITS;
const BASES: usize = 4;
const DISTANCE_SHIFT: u32 = 8;
const REACH: i64 = 1 << 23;
/// Value of a word of kind [`OTHER`], above [`DISTANCE_SHIFT`], that sets a base.
const SET_BASE: u32 = 0;
/// Value of such a word that reports a misprediction.
const MISPREDICTED: u32 = 1;

/// Encoder of events as words.
#[derive(Clone, Debug, Default)]
pub struct Encoder {
    bases: [u64; BASES],
    /// Index of the base that is replaced next.
    next: usize,
    /// Words of the current block.
    words: Vec<u32>,
}

impl Encoder {
    /// Returns the words of the current block.
    #[must_use]
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Starts a new block: removes the words and sets all bases to zero.
    pub fn clear(&mut self) {
        self.words.clear();
        self.bases = [0; BASES];
        self.next = 0;
    }

    fn head(&mut self, kind: u32, gap: u32, rest: u32) {
        let short = gap.min(GAP_FOLLOWS);
        self.words.push(kind | short << KIND_BITS | rest);
        if short == GAP_FOLLOWS {
            self.words.push(gap);
        }
    }

    /// Adds an access to a line, `gap` instructions after the previous event.
    #[inline]
    pub fn access(&mut self, gap: u32, access: AccessKind, line: u64) {
        let distance = |base: &u64| line.wrapping_sub(*base).cast_signed();
        let near = |base: &u64| (-REACH..REACH).contains(&distance(base));
        let base = self.bases.iter().position(near);
        let base = base.unwrap_or_else(|| self.set_base(line));
        let far = distance(&self.bases[base]) as u32;
        self.bases[base] = line;
        let kind = access as u32;
        self.head(
            kind,
            gap,
            (base as u32) << BASE_SHIFT | far << DISTANCE_SHIFT,
        );
    }

    #[cold]
    fn set_base(&mut self, line: u64) -> usize {
        let base = self.next;
        self.next = (base + 1) % BASES;
        self.bases[base] = line;
        let word = OTHER | (base as u32) << BASE_SHIFT | SET_BASE << DISTANCE_SHIFT;
        self.words.extend([word, line as u32, (line >> 32) as u32]);
        base
    }

    /// Adds a misprediction, `gap` instructions after the previous event.
    pub fn mispredicted(&mut self, gap: u32) {
        self.head(OTHER, gap, MISPREDICTED << DISTANCE_SHIFT);
    }
}

/// Error: words that come from no encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("word {at} of the block: {why}")]
pub struct WireError {
    pub at: usize,
    pub why: &'static str,
}

/// Decoder of a block's events.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    words: &'a [u32],
    at: usize,
    bases: [u64; BASES],
}

/// Position of a decoder in a block, at which decoding can be resumed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Position {
    at: usize,
    bases: [u64; BASES],
}

impl<'a> Decoder<'a> {
    #[must_use]
    pub fn new(words: &'a [u32]) -> Self {
        Self::resume(words, Position::default())
    }

    /// Creates a decoder that resumes at a position of the same block.
    #[must_use]
    pub fn resume(words: &'a [u32], position: Position) -> Self {
        Self {
            words,
            at: position.at,
            bases: position.bases,
        }
    }

    #[must_use]
    pub fn position(&self) -> Position {
        Position {
            at: self.at,
            bases: self.bases,
        }
    }

    #[cold]
    fn cut<T>(&self) -> Result<T, WireError> {
        let at = self.at;
        let why = "the block ends in the middle of an event";
        Err(WireError { at, why })
    }

    #[inline]
    fn word(&mut self) -> Result<u32, WireError> {
        match self.words.get(self.at) {
            Some(word) => {
                self.at += 1;
                Ok(*word)
            }
            None => self.cut(),
        }
    }

    /// Returns the next event; `None` at the end of the block.
    ///
    /// # Errors
    /// Fails if the words come from no encoder.
    #[inline]
    pub fn next_event(&mut self) -> Result<Option<WireEvent>, WireError> {
        loop {
            let Some(word) = self.words.get(self.at).copied() else {
                return Ok(None);
            };
            self.at += 1;
            let base = (word >> BASE_SHIFT) as usize % BASES;
            let kind = word & OTHER;
            if kind == OTHER && word >> DISTANCE_SHIFT == SET_BASE {
                let low = self.word()?;
                let high = self.word()?;
                self.bases[base] = u64::from(high) << 32 | u64::from(low);
                continue;
            }
            let mut gap = word >> KIND_BITS & GAP_FOLLOWS;
            if gap == GAP_FOLLOWS {
                gap = self.word()?;
            }
            if kind == OTHER {
                if word >> DISTANCE_SHIFT != MISPREDICTED {
                    let (at, why) = (self.at - 1, "an event of an unknown kind");
                    return Err(WireError { at, why });
                }
                let what = WireKind::Mispredicted;
                return Ok(Some(WireEvent { gap, what, line: 0 }));
            }
            let distance = i64::from(word.cast_signed() >> DISTANCE_SHIFT);
            let line = self.bases[base].wrapping_add_signed(distance);
            self.bases[base] = line;
            let access = match kind {
                0 => AccessKind::Fetch,
                1 => AccessKind::Load,
                _ => AccessKind::Store,
            };
            let what = WireKind::Access(access);
            return Ok(Some(WireEvent { gap, what, line }));
        }
    }
}

/// Filter of accesses that have no effect in an LRU cache of at least `sets` sets. These are repeated accesses to the line used
/// last in its set of a direct-mapped cache (Puzak, 1985). A store is omitted only after a store.
#[derive(Clone, Debug)]
pub struct Filter {
    /// Last line of each set, and true if it was stored to.
    last: Vec<(u64, bool)>,
}

impl Filter {
    /// Creates a filter of `sets` sets, a power of two; with zero, all accesses pass.
    #[must_use]
    pub fn new(sets: usize) -> Self {
        Self {
            last: vec![
                (u64::MAX, false);
                if sets == 0 {
                    0
                } else {
                    sets.next_power_of_two()
                }
            ],
        }
    }

    /// True if an access passes the filter. Updates the filter.
    #[inline]
    pub fn passes(&mut self, line: u64, store: bool) -> bool {
        let sets = self.last.len();
        let Some(last) = self.last.get_mut(line as usize & sets.wrapping_sub(1)) else {
            return true;
        };
        if last.0 == line && (last.1 || !store) {
            return false;
        }
        *last = (line, store || last.0 == line && last.1);
        true
    }
}

/// Head of a block of events. The blocks of a thread together are its run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockHead {
    /// Number of the thread in the recording, from 1.
    pub thread: u32,
    /// PID of the thread's process.
    pub pid: u32,
    /// Number of words that encode the block's events.
    pub words: u32,
    /// Number of instructions in the block, including those after the last event.
    pub instructions: u32,
    /// Number of loads, including those that the filter omitted.
    pub loads: u32,
    /// Number of stores, including those that the filter omitted.
    pub stores: u32,
    /// Combination of the flags [`ENTERS_KERNEL`] and [`ENDS`].
    pub flags: u32,
    /// Number of instructions in the whole recording when the block was complete.
    pub stamp: u64,
}

/// Number of sets of the filter for programs that are simulated while they run. No modelled L1 has fewer sets.
pub const LIVE_FILTER_SETS: u32 = 8;
/// Flag: the thread enters the kernel at the end of the block.
pub const ENTERS_KERNEL: u32 = 1;
/// Flag: the thread ends with the block.
pub const ENDS: u32 = 2;
/// Limit on the number of words in a block.
pub const MOST_WORDS: u32 = 1 << 22;
/// Number of words of a head in the stream.
pub const HEAD_WORDS: usize = 10;
/// First word of a head (`CSBK`).
const HEAD_MAGIC: u32 = 0x4353_424b;

impl BlockHead {
    #[must_use]
    pub fn pack(&self) -> [u32; HEAD_WORDS] {
        [
            HEAD_MAGIC,
            self.thread,
            self.pid,
            self.words,
            self.instructions,
            self.loads,
            self.stores,
            self.flags,
            self.stamp as u32,
            (self.stamp >> 32) as u32,
        ]
    }

    /// Decodes a head; `None` if the words are no valid head.
    #[must_use]
    pub fn unpack(words: &[u32; HEAD_WORDS]) -> Option<Self> {
        let [
            magic,
            thread,
            pid,
            words,
            instructions,
            loads,
            stores,
            flags,
            low,
            high,
        ] = *words;
        (magic == HEAD_MAGIC && words <= MOST_WORDS).then_some(Self {
            thread,
            pid,
            words,
            instructions,
            loads,
            stores,
            flags,
            stamp: u64::from(high) << 32 | u64::from(low),
        })
    }
}

/// Converts bytes to words, in this machine's byte order.
#[must_use]
pub fn words(bytes: &[u8]) -> Arc<[u32]> {
    let words = bytes.as_chunks::<4>().0;
    words.iter().map(|b| u32::from_ne_bytes(*b)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(words: &[u32]) -> Vec<WireEvent> {
        let mut decoder = Decoder::new(words);
        std::iter::from_fn(|| decoder.next_event().unwrap()).collect()
    }

    #[test]
    fn events_come_back_as_they_were() {
        let mut encoder = Encoder::default();
        let accesses = [AccessKind::Fetch, AccessKind::Load, AccessKind::Store];
        let lines = [
            0,
            1,
            0x1_ffff_ffff,
            7,
            0x1_ffff_ffff - (1 << 23),
            u64::MAX,
            1 << 57,
            5,
            3 << 40,
        ];
        let mut events = Vec::new();
        for (n, line) in lines.iter().cycle().take(1000).enumerate() {
            let gap = [0, 3, 14, 15, 16, u32::MAX][n % 6];
            let event = if n % 7 == 0 {
                encoder.mispredicted(gap);
                WireEvent {
                    gap,
                    what: WireKind::Mispredicted,
                    line: 0,
                }
            } else {
                encoder.access(gap, accesses[n % 3], *line);
                WireEvent {
                    gap,
                    what: WireKind::Access(accesses[n % 3]),
                    line: *line,
                }
            };
            events.push(event);
        }
        assert_eq!(decoded(encoder.words()), events);
        // The first half is decoded now, the second half later.
        let mut decoder = Decoder::new(encoder.words());
        for event in &events[..500] {
            assert_eq!(decoder.next_event(), Ok(Some(*event)));
        }
        let mut decoder = Decoder::resume(encoder.words(), decoder.position());
        assert_eq!(decoder.next_event(), Ok(Some(events[500])));
    }

    #[test]
    fn near_accesses_take_a_word_each() {
        let mut encoder = Encoder::default();
        (0..1000).for_each(|n| {
            encoder.access(
                3,
                AccessKind::Load,
                [0x7fff_0000, 0x5555_0000][n % 2] + n as u64,
            )
        });
        assert_eq!(encoder.words().len(), 1006);
    }

    #[test]
    fn a_block_that_is_cut_is_an_error() {
        let mut encoder = Encoder::default();
        encoder.access(20, AccessKind::Load, 1 << 40);
        // Three words set a base completely, so a cut after them is a valid end.
        for length in [1, 2, 4] {
            assert!(
                Decoder::new(&encoder.words()[..length])
                    .next_event()
                    .is_err(),
                "{length}"
            );
        }
    }

    #[test]
    fn the_filter_lets_first_stores_pass() {
        let mut filter = Filter::new(2);
        assert!(filter.passes(4, false));
        assert!(!filter.passes(4, false));
        assert!(filter.passes(5, false), "another set");
        assert!(filter.passes(4, true));
        assert!(!filter.passes(4, true) && !filter.passes(4, false));
        assert!(filter.passes(6, false) && filter.passes(4, true));
        let mut all = Filter::new(0);
        assert!(all.passes(1, false) && all.passes(1, false));
    }
}
