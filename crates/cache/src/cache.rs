//! Simulated set-associative cache.
//!
//! Input: keys of lines, and the owner of each fill. Output: hits, victims, and per owner the number of lines it holds, misses,
//! loses and evicts. A cache has no link to other caches. The caller looks a line up with [`Cache::touch`]; after a miss it
//! inserts the line with [`Cache::fill`].
//!
//! Replacement policies: LRU; tree-PLRU; static re-reference interval prediction with two bits and promotion to zero on a hit
//! (Jaleel et al., ISCA 2010, section 4); random. Way masks limit where an owner fills, not where it hits, as Intel CAT does.

use crate::geometry::{CacheError, Geometry, Replacement};

/// Number of bits of the line number in a key.
pub const LINE_BITS: u32 = 44;
/// Mask of the line number in a key.
const LINE_MASK: u64 = (1 << LINE_BITS) - 1;
/// Number of owners that a key can distinguish.
pub const OWNERS: usize = 1 << 12;
/// Limit on the associativity, because a way mask has one bit per way.
pub const MOST_WAYS: u32 = 64;
/// Number of low bits in a stored word that are not part of the key: two flags and six bits for the way.
const WORD_BITS: u32 = 8;
/// Position of the way in a stored word.
const WAY_SHIFT: u32 = 2;
/// Flag of a dirty line.
const DIRTY: u64 = 1;
/// Flag of a line that a prefetcher brought and that has not been used.
const PREFETCHED: u64 = 2;
/// Stored word of an empty way, without the number of the way.
const EMPTY: u64 = !0 << WORD_BITS;
/// Two-bit re-reference prediction of a use in the distant future.
const DISTANT: u64 = 3;
/// Two-bit re-reference prediction of a line that was just filled.
const LONG: u64 = 2;

/// Key of a cache line in the address space of its owner: the line number in the low 44 bits, the owner above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LineKey(u64);

impl LineKey {
    /// Returns the key of the line with number `line` (address / 64) of `owner`. Bits beyond a 50-bit address space are dropped.
    #[must_use]
    pub const fn new(owner: u16, line: u64) -> Self {
        Self((owner as u64 & (OWNERS as u64 - 1)) << LINE_BITS | line & LINE_MASK)
    }

    #[must_use]
    pub const fn owner(self) -> usize {
        (self.0 >> LINE_BITS) as usize
    }

    #[must_use]
    pub const fn line(self) -> u64 {
        self.0 & LINE_MASK
    }

    /// Returns the key of the same owner's line that is `lines` lines further.
    #[must_use]
    pub const fn offset(self, lines: i64) -> Self {
        Self(self.0 & !LINE_MASK | self.0.wrapping_add_signed(lines) & LINE_MASK)
    }
}

/// Line that a fill evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim {
    pub key: LineKey,
    pub dirty: bool,
}

/// Counts of one owner's hits, misses, lines and evictions in a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerTally {
    pub hits: u64,
    pub misses: u64,
    /// Number of lines that the owner currently holds.
    pub lines: u64,
    /// Number of first hits on lines that a prefetcher brought.
    pub prefetch_hits: u64,
}

/// Result of looking a line up with [`Cache::touch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    Miss,
    Hit,
    /// The access writes to a clean line that is present. Copies in other caches become invalid.
    ///
    /// ```
    /// use countersteer_cache::cache::Lookup;
    /// use countersteer_cache::{Cache, Geometry, LineKey, Replacement};
    ///
    /// // 32 KiB in 8 ways: 512 lines.
    /// let mut cache = Cache::new(Geometry::of_bytes(32768.0, 8), Replacement::Lru)?;
    /// let mut misses = 0;
    /// for line in (0..512).chain(0..512) {
    ///     let key = LineKey::new(0, line);
    ///     if cache.touch(key, false) == Lookup::Miss {
    ///         cache.fill(key, false, false);
    ///         misses += 1;
    ///     }
    /// }
    /// assert_eq!(misses, 512);
    /// # Ok::<(), countersteer_cache::CacheError>(())
    /// ```
    Upgrade,
}

#[derive(Clone, Debug)]
pub struct Cache {
    geometry: Geometry,
    replacement: Replacement,
    /// Mask for the set's index if the number of sets is a power of two; otherwise `None`.
    mask: Option<u64>,
    /// True if pages are at random physical addresses, as those of several address spaces are.
    scattered: bool,
    /// Stored words by set: in MRU order under LRU, by way under other policies.
    words: Vec<u64>,
    /// Replacement state by set: the bits of the tree, or two bits per way.
    state: Vec<u128>,
    /// State of the random number generator.
    random: u64,
    /// Way mask of each owner; owners beyond the end may use all ways.
    masks: Vec<u64>,
    /// Counts of each owner.
    tallies: Vec<OwnerTally>,
    /// Number of evictions by victim, then by the owner that evicted it; counted only if owners share the cache.
    evictions: Vec<Vec<u64>>,
}

impl Cache {
    /// Creates an empty cache.
    ///
    /// # Errors
    /// Fails if the cache has no sets, no ways, or more than 64 ways.
    pub fn new(geometry: Geometry, replacement: Replacement) -> Result<Self, CacheError> {
        let Geometry { sets, ways } = geometry;
        if sets == 0 || ways == 0 || ways > MOST_WAYS {
            let most = MOST_WAYS;
            return Err(CacheError::Geometry { sets, ways, most });
        }
        let words = (0..geometry.lines()).map(|at| EMPTY | (at % u64::from(ways)) << WAY_SHIFT);
        let states = match replacement {
            Replacement::Lru | Replacement::Random => 0,
            Replacement::TreePlru | Replacement::Srrip => sets as usize,
        };
        Ok(Self {
            geometry,
            replacement,
            mask: sets.is_power_of_two().then(|| u64::from(sets) - 1),
            scattered: false,
            words: words.collect(),
            state: vec![
                if replacement == Replacement::Srrip {
                    !0
                } else {
                    0
                };
                states
            ],
            random: 0x9e37_79b9_7f4a_7c15,
            masks: Vec::new(),
            tallies: Vec::new(),
            evictions: Vec::new(),
        })
    }

    /// Returns the cache with sets indexed by randomly placed pages instead of virtual addresses.
    #[must_use]
    pub fn scattered(mut self) -> Self {
        self.scattered = true;
        self
    }

    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Restricts the fills of an owner to the ways in `mask`. Ways that the cache does not have are ignored; an empty mask means
    /// all ways.
    pub fn set_mask(&mut self, owner: u16, mask: u64) {
        let all = self.all_ways();
        let owner = usize::from(owner);
        if self.masks.len() <= owner {
            self.masks.resize(owner + 1, all);
        }
        self.masks[owner] = if mask & all == 0 { all } else { mask & all };
    }

    fn all_ways(&self) -> u64 {
        !0 >> (MOST_WAYS - self.geometry.ways)
    }

    /// Returns the counts of an owner so far.
    #[must_use]
    pub fn tally(&self, owner: usize) -> OwnerTally {
        self.tallies.get(owner).copied().unwrap_or_default()
    }

    /// Returns the number of `victim`'s lines that fills by the owner `by` evicted; both may be the same owner.
    #[must_use]
    pub fn evictions(&self, victim: usize, by: usize) -> u64 {
        self.evictions
            .get(victim)
            .and_then(|row| row.get(by))
            .copied()
            .unwrap_or_default()
    }

    #[inline]
    fn set(&self, key: LineKey) -> usize {
        let line = if self.scattered {
            // The high bits of this product depend on every bit of the page number, so they are used as the physical page.
            let page = (key.0 >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24;
            page << 6 | key.0 & 63
        } else {
            key.line()
        };
        match self.mask {
            Some(mask) => (line & mask) as usize,
            None => (line % u64::from(self.geometry.sets)) as usize,
        }
    }

    #[inline]
    fn row(&self, set: usize) -> std::ops::Range<usize> {
        let ways = self.geometry.ways as usize;
        set * ways..(set + 1) * ways
    }

    #[inline]
    fn tally_mut(&mut self, owner: usize) -> &mut OwnerTally {
        if self.tallies.len() <= owner {
            self.tallies.resize(owner + 1, OwnerTally::default());
        }
        &mut self.tallies[owner]
    }

    /// Looks a line up, and counts the access as a hit or miss of the line's owner. A write makes the line dirty.
    #[inline]
    pub fn touch(&mut self, key: LineKey, write: bool) -> Lookup {
        let found = self.find(key, write);
        let tally = self.tally_mut(key.owner());
        match found {
            Lookup::Miss => tally.misses += 1,
            Lookup::Hit | Lookup::Upgrade => tally.hits += 1,
        }
        found
    }

    #[inline]
    fn find(&mut self, key: LineKey, write: bool) -> Lookup {
        let set = self.set(key);
        let range = self.row(set);
        let row = &mut self.words[range];
        let wanted = key.0 << WORD_BITS;
        let Some(at) = row.iter().position(|word| word ^ wanted < 1 << WORD_BITS) else {
            return Lookup::Miss;
        };
        let word = row[at];
        let upgrade = write && word & DIRTY == 0;
        let used = word & !PREFETCHED | u64::from(write);
        row[at] = used;
        if self.replacement == Replacement::Lru {
            row.copy_within(0..at, 1);
            row[0] = used;
        } else {
            self.promote(set, at);
        }
        if word & PREFETCHED != 0 {
            self.tally_mut(key.owner()).prefetch_hits += 1;
        }
        if upgrade {
            Lookup::Upgrade
        } else {
            Lookup::Hit
        }
    }

    /// Updates the replacement state of a set for a use of the line in a way.
    fn promote(&mut self, set: usize, way: usize) {
        match self.replacement {
            Replacement::Lru | Replacement::Random => {}
            Replacement::TreePlru => {
                let tree = &mut self.state[set];
                let mut node = 1;
                let mut half = self.geometry.ways.next_power_of_two() as usize / 2;
                while half > 0 {
                    let right = way & half != 0;
                    // The bit points to the half that was not used last.
                    *tree = *tree & !(1 << node) | u128::from(!right) << node;
                    node = 2 * node + usize::from(right);
                    half /= 2;
                }
            }
            Replacement::Srrip => self.predict(set, way, 0),
        }
    }

    fn predict(&mut self, set: usize, way: usize, interval: u64) {
        let state = &mut self.state[set];
        *state = *state & !(3 << (2 * way)) | u128::from(interval) << (2 * way);
    }

    /// Inserts a line that is absent. Returns the line that it evicts; `None` if there was an empty way.
    pub fn fill(&mut self, key: LineKey, dirty: bool, prefetched: bool) -> Option<Victim> {
        let owner = key.owner();
        let set = self.set(key);
        let range = self.row(set);
        let allowed = self
            .masks
            .get(owner)
            .copied()
            .unwrap_or_else(|| self.all_ways());
        let at = self.place(set, allowed);
        let row = &mut self.words[range];
        let old = row[at];
        let flags = u64::from(dirty) | (u64::from(prefetched) << 1);
        let word = key.0 << WORD_BITS | old & 63 << WAY_SHIFT | flags;
        row[at] = word;
        match self.replacement {
            Replacement::Lru => {
                row.copy_within(0..at, 1);
                row[0] = word;
            }
            Replacement::Srrip => self.predict(set, at, LONG),
            Replacement::TreePlru | Replacement::Random => self.promote(set, at),
        }
        self.tally_mut(owner).lines += 1;
        self.victim(old, Some(owner))
    }

    /// Counts the eviction of the line in a stored word, and returns the line. `None` for an empty way.
    fn victim(&mut self, word: u64, by: Option<usize>) -> Option<Victim> {
        if word >= EMPTY {
            return None;
        }
        let key = LineKey(word >> WORD_BITS);
        let owner = key.owner();
        self.tally_mut(owner).lines -= 1;
        if let Some(by) = by {
            if self.evictions.len() <= owner {
                self.evictions.resize(owner + 1, Vec::new());
            }
            let row = &mut self.evictions[owner];
            if row.len() <= by {
                row.resize(by + 1, 0);
            }
            row[by] += 1;
        }
        let dirty = word & DIRTY != 0;
        Some(Victim { key, dirty })
    }

    /// Returns the index in a set's row at which the next line is filled.
    fn place(&mut self, set: usize, allowed: u64) -> usize {
        let range = self.row(set);
        let row = &self.words[range];
        let may = |word: u64| allowed >> (word >> WAY_SHIFT & 63) & 1 != 0;
        if self.replacement == Replacement::Lru {
            return row
                .iter()
                .rposition(|word| may(*word))
                .unwrap_or(row.len() - 1);
        }
        if let Some(empty) = row.iter().position(|word| *word >= EMPTY && may(*word)) {
            return empty;
        }
        match self.replacement {
            Replacement::TreePlru => self.by_tree(set, allowed),
            Replacement::Srrip => self.by_prediction(set, allowed),
            Replacement::Random | Replacement::Lru => self.by_chance(allowed),
        }
    }

    /// Returns the way to which the bits of the tree lead. A half without an allowed way is never entered.
    fn by_tree(&self, set: usize, allowed: u64) -> usize {
        let tree = self.state[set];
        let (mut node, mut first) = (1_usize, 0_usize);
        let mut half = self.geometry.ways.next_power_of_two() as usize / 2;
        while half > 0 {
            let some = |from: usize| allowed >> from & (!0 >> (64 - half)) != 0;
            let right = tree >> node & 1 != 0;
            let right = if right {
                some(first + half)
            } else {
                !some(first)
            };
            first += half * usize::from(right);
            node = 2 * node + usize::from(right);
            half /= 2;
        }
        first
    }

    /// Returns the first allowed way with a predicted use in the distant future. All predictions age until there is one.
    fn by_prediction(&mut self, set: usize, allowed: u64) -> usize {
        let ways = self.geometry.ways as usize;
        let state = self.state[set];
        let predicted = |way: usize| (state >> (2 * way)) as u64 & 3;
        let candidates = (0..ways).filter(|way| allowed >> way & 1 != 0);
        // Finds the first way with the largest prediction.
        let (way, most) = candidates.map(|way| (way, predicted(way))).fold(
            (0, None),
            |(at, most), (way, value)| match most {
                Some(most) if value <= most => (at, Some(most)),
                _ => (way, Some(value)),
            },
        );
        let older = DISTANT - most.unwrap_or(DISTANT);
        if older > 0 {
            for other in 0..ways {
                let value = (predicted(other) + older).min(DISTANT);
                self.predict(set, other, value);
            }
        }
        way
    }

    fn by_chance(&mut self, allowed: u64) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let nth = (self.random >> 32) % u64::from(allowed.count_ones());
        let mut rest = allowed;
        (0..nth).for_each(|_| rest &= rest - 1);
        rest.trailing_zeros() as usize
    }

    /// True if the line is present. The look-up is not counted and does not change the replacement state.
    #[must_use]
    pub fn contains(&self, key: LineKey) -> bool {
        let row = &self.words[self.row(self.set(key))];
        row.iter().any(|word| word >> WORD_BITS == key.0)
    }

    fn word_mut(&mut self, key: LineKey) -> Option<&mut u64> {
        let range = self.row(self.set(key));
        let mut row = self.words[range].iter_mut();
        row.find(|word| **word >> WORD_BITS == key.0)
    }

    /// Makes a line dirty without changing the replacement state. Returns true if the line was present.
    pub fn mark_dirty(&mut self, key: LineKey) -> bool {
        self.word_mut(key).map(|word| *word |= DIRTY).is_some()
    }

    /// Makes a line clean without changing the replacement state. Returns true if the line was dirty.
    pub fn clean(&mut self, key: LineKey) -> bool {
        let word = self.word_mut(key).filter(|word| **word & DIRTY != 0);
        word.map(|word| *word &= !DIRTY).is_some()
    }

    /// Removes a line and returns it; `None` if it was absent.
    pub fn remove(&mut self, key: LineKey) -> Option<Victim> {
        let wanted = key.0 << WORD_BITS;
        let set = self.set(key);
        let range = self.row(set);
        let row = &mut self.words[range];
        let at = row.iter().position(|word| word ^ wanted < 1 << WORD_BITS)?;
        let word = row[at];
        let empty = EMPTY | word & 63 << WAY_SHIFT;
        if self.replacement == Replacement::Lru {
            row.copy_within(at + 1.., at);
            let last = row.len() - 1;
            row[last] = empty;
        } else {
            row[at] = empty;
        }
        self.victim(word, None)
    }

    /// Removes all lines; the counts are kept.
    pub fn clear(&mut self) {
        for at in 0..self.words.len() {
            let old = self.words[at];
            let _ = self.victim(old, None);
            self.words[at] = EMPTY | old & 63 << WAY_SHIFT;
        }
    }
}
