//! The LRU stack as a line of time: one bit per past access that is still the last one to its line.
//!
//! Input: pushes and removals. Output: how many bits lie above the removed one, which is the stack distance. Counts are kept
//! per 512, 16 Ki and 512 Ki bits: a removal changes three counters and a query adds up at most 7 + 31 + 31 of them plus
//! the rest of the top level. Short distances, by far the most frequent, touch one or two cache lines.

/// Words of 64 bits per block.
const WORDS: usize = 8;
/// Blocks per group, and groups per region.
const FAN: usize = 32;
/// Bits per region, the coarsest count.
const REGION_BITS: usize = 64 * WORDS * FAN * FAN;
/// Least number of positions, so that compaction is rare for small programs.
const LEAST: usize = 1 << 16;

/// A bitmap over time with hierarchical counts.
pub struct Stamps {
    bits: Vec<u64>,
    blocks: Vec<u16>,
    groups: Vec<u32>,
    regions: Vec<u32>,
    top: usize,
    capacity: usize,
    live: usize,
}

impl Stamps {
    /// No positions used, room for at least `capacity`.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(LEAST);
        let words = capacity.div_ceil(64) + WORDS;
        let blocks = words.div_ceil(WORDS) + FAN;
        let groups = blocks.div_ceil(FAN) + FAN;
        Self {
            bits: vec![0; words],
            blocks: vec![0; blocks],
            groups: vec![0; groups],
            regions: vec![0; capacity.div_ceil(REGION_BITS) + 1],
            top: 0,
            capacity,
            live: 0,
        }
    }

    /// Whether the next push needs a compaction first.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.top == self.capacity
    }

    /// Bits set.
    pub fn live(&self) -> usize {
        self.live
    }

    /// Sets the next position and returns it.
    #[inline]
    pub fn push(&mut self) -> usize {
        let at = self.top;
        self.top += 1;
        self.live += 1;
        let word = at / 64;
        self.bits[word] |= 1 << (at % 64);
        let block = word / WORDS;
        self.blocks[block] += 1;
        self.groups[block / FAN] += 1;
        self.regions[block / (FAN * FAN)] += 1;
        at
    }

    /// Clears a position and returns how many set ones lie above it.
    #[inline]
    pub fn remove(&mut self, at: usize) -> u64 {
        let word = at / 64;
        let shifted = self.bits[word] >> (at % 64);
        self.bits[word] &= !(1 << (at % 64));
        let block = word / WORDS;
        self.blocks[block] -= 1;
        self.groups[block / FAN] -= 1;
        self.regions[block / (FAN * FAN)] -= 1;
        self.live -= 1;
        u64::from(shifted.count_ones() - 1) + self.above_word(word)
    }

    #[inline]
    fn above_word(&self, word: usize) -> u64 {
        let last = self.top.div_ceil(64);
        let block = word / WORDS;
        let block_end = (block + 1) * WORDS;
        let mut sum: u64 = self.bits[word + 1..block_end.min(last).max(word + 1)].iter().map(|w| u64::from(w.count_ones())).sum();
        if block_end < last {
            sum += self.above_block(block, last.div_ceil(WORDS));
        }
        sum
    }

    fn above_block(&self, block: usize, last: usize) -> u64 {
        let group = block / FAN;
        let group_end = (group + 1) * FAN;
        let mut sum: u64 = self.blocks[block + 1..group_end.min(last)].iter().map(|&c| u64::from(c)).sum();
        if group_end < last {
            let last_group = last.div_ceil(FAN);
            let region = group / FAN;
            let region_end = (region + 1) * FAN;
            sum += self.groups[group + 1..region_end.min(last_group)].iter().map(|&c| u64::from(c)).sum::<u64>();
            if region_end < last_group {
                sum += self.regions[region + 1..].iter().map(|&c| u64::from(c)).sum::<u64>();
            }
        }
        sum
    }

    /// Where every set position goes when the unset ones are squeezed out.
    pub fn ranks(&self) -> Ranks {
        let mut below = Vec::with_capacity(self.bits.len());
        let mut sum = 0u32;
        for word in &self.bits {
            below.push(sum);
            sum += word.count_ones();
        }
        Ranks { bits: self.bits.clone(), below }
    }

    /// Squeezes the unset positions out, leaving room for thrice as many pushes as there are set ones.
    pub fn compact(&mut self) {
        let live = self.live;
        *self = Self::new((live * 4).next_power_of_two());
        for _ in 0..live {
            self.push();
        }
    }
}

/// The renumbering of a compaction.
pub struct Ranks {
    bits: Vec<u64>,
    below: Vec<u32>,
}

impl Ranks {
    /// The new number of a set position.
    pub fn of(&self, at: usize) -> usize {
        let word = at / 64;
        let mask = (1u64 << (at % 64)) - 1;
        self.below[word] as usize + (self.bits[word] & mask).count_ones() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removal_counts_the_set_positions_above() {
        let mut stamps = Stamps::new(0);
        let mut state = 12345u64;
        let mut set = Vec::new();
        while !stamps.is_full() {
            set.push(stamps.push());
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            if state >> 62 == 0 {
                let victim = (state >> 20) as usize % set.len();
                let at = set.remove(victim);
                assert_eq!(stamps.remove(at), (set.len() - victim) as u64);
            }
        }
        assert_eq!(stamps.live(), set.len());
    }

    #[test]
    fn compaction_keeps_the_order() {
        let mut stamps = Stamps::new(0);
        let all: Vec<usize> = (0..60_000).map(|_| stamps.push()).collect();
        let kept: Vec<usize> = all.iter().copied().filter(|a| a % 7 == 3).collect();
        all.iter().filter(|a| *a % 7 != 3).for_each(|a| {
            stamps.remove(*a);
        });
        let ranks = stamps.ranks();
        assert!(kept.iter().enumerate().all(|(rank, at)| ranks.of(*at) == rank));
        stamps.compact();
        assert_eq!(stamps.remove(0), kept.len() as u64 - 1);
    }

    #[test]
    fn counts_reach_across_regions() {
        let mut stamps = Stamps::new(3 * REGION_BITS);
        for _ in 0..2 * REGION_BITS + 5 {
            stamps.push();
        }
        assert_eq!(stamps.remove(0), 2 * REGION_BITS as u64 + 4);
        assert_eq!(stamps.remove(REGION_BITS - 1), REGION_BITS as u64 + 5);
        assert_eq!(stamps.remove(REGION_BITS), REGION_BITS as u64 + 4);
    }
}
