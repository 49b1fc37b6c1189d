//! LRU stack as a bitmap over time: one bit per past touch that is still the last touch of its line.
//!
//! Input: pushes and removals. Output: the number of set bits above the removed one, which is the stack distance. Counts are
//! kept for each full block of 512 bits, group of 32 blocks and region of 32 groups. Incomplete ones are counted from their
//! parts. Sums run over whole blocks and groups with a mask instead of an early exit. A few vector instructions cost less than
//! one mispredicted loop exit.

/// Words of 64 bits per block.
const WORDS: usize = 8;
/// Bits per block.
const BLOCK_BITS: usize = 64 * WORDS;
/// Blocks per group, and groups per region.
const FAN: usize = 32;
/// Bits per region, the coarsest count.
#[cfg(test)]
const REGION_BITS: usize = BLOCK_BITS * FAN * FAN;
/// Smallest number of positions, so that compaction is rare for small programs.
const LEAST: usize = 1 << 16;

/// Bitmap over time with hierarchical counts.
pub struct Stamps {
    bits: Vec<[u64; WORDS]>,
    blocks: Vec<[u16; FAN]>,
    groups: Vec<[u32; FAN]>,
    regions: Vec<u32>,
    top: usize,
    capacity: usize,
}

impl Stamps {
    /// Creates an empty bitmap with room for at least `capacity` positions.
    pub fn new(capacity: usize) -> Self {
        let blocks = capacity.max(LEAST).div_ceil(BLOCK_BITS);
        let groups = blocks.div_ceil(FAN);
        let regions = groups.div_ceil(FAN);
        Self {
            bits: vec![[0; WORDS]; blocks],
            blocks: vec![[0; FAN]; groups],
            groups: vec![[0; FAN]; regions],
            regions: vec![0; regions],
            top: 0,
            capacity: blocks * BLOCK_BITS,
        }
    }

    /// True if the next push needs a compaction first.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.top == self.capacity
    }

    #[inline(always)]
    pub fn top(&self) -> usize {
        self.top
    }

    #[inline(always)]
    pub fn push(&mut self) {
        self.bits[self.top / BLOCK_BITS][self.top / 64 % WORDS] |= 1 << (self.top % 64);
        self.top += 1;
        if self.top.is_multiple_of(BLOCK_BITS) {
            self.seal();
        }
    }

    /// Stores the count of the block just filled, and of the group and region that it completes.
    #[inline(never)]
    fn seal(&mut self) {
        let block = self.top / BLOCK_BITS - 1;
        let group = block / FAN;
        let region = block / (FAN * FAN);
        self.blocks[group][block % FAN] =
            self.bits[block].iter().map(|w| w.count_ones()).sum::<u32>() as u16;
        if (block + 1).is_multiple_of(FAN) {
            self.groups[region][group % FAN] =
                self.blocks[group].iter().map(|c| u32::from(*c)).sum();
            if (group + 1).is_multiple_of(FAN) {
                self.regions[region] = self.groups[region].iter().sum();
            }
        }
    }

    /// Clears a position and returns the number of set positions above it. Must not be called when full.
    #[inline(always)]
    pub fn remove(&mut self, at: usize) -> u64 {
        let block = at / BLOCK_BITS;
        let open = self.top / BLOCK_BITS;
        let words = &mut self.bits[block];
        let word = at / 64 % WORDS;
        let found = words[word];
        let bit = 1u64 << (at % 64);
        words[word] = found & !bit;
        let mut sum = (found & !(bit | (bit - 1))).count_ones();
        for (above, bits) in words.iter().enumerate() {
            // A mask is used because a condition would compile to a chain of jumps.
            sum += (bits & u64::from(above > word).wrapping_neg()).count_ones();
        }
        if block == open {
            return u64::from(sum);
        }
        sum += self.bits[open].iter().map(|w| w.count_ones()).sum::<u32>();
        u64::from(sum) + self.remove_block(block, open)
    }

    /// Updates the counts of full blocks for a removal. Returns the sum over the full blocks above the position.
    #[inline(always)]
    fn remove_block(&mut self, block: usize, open: usize) -> u64 {
        let group = block / FAN;
        let open_group = open / FAN;
        let counts = &mut self.blocks[group];
        counts[block % FAN] -= 1;
        let mut sum = 0;
        for (above, count) in counts.iter().enumerate() {
            sum += if above > block % FAN {
                u32::from(*count)
            } else {
                0
            };
        }
        if group == open_group {
            return u64::from(sum);
        }
        // The open group does not exist yet if the next push begins it.
        sum += self
            .blocks
            .get(open_group)
            .map_or(0, |g| g.iter().map(|c| u32::from(*c)).sum::<u32>());
        u64::from(sum) + self.remove_group(group, open_group)
    }

    #[inline(always)]
    fn remove_group(&mut self, group: usize, open: usize) -> u64 {
        let region = group / FAN;
        let open_region = open / FAN;
        let counts = &mut self.groups[region];
        counts[group % FAN] -= 1;
        let mut sum = 0;
        for (above, count) in counts.iter().enumerate() {
            sum += if above > group % FAN { *count } else { 0 };
        }
        if region == open_region {
            return u64::from(sum);
        }
        self.regions[region] -= 1;
        sum += self
            .groups
            .get(open_region)
            .map_or(0, |g| g.iter().sum::<u32>());
        sum += self.regions[region + 1..open_region].iter().sum::<u32>();
        u64::from(sum)
    }

    /// Returns the number of set positions from `at` up.
    pub fn count_from(&self, at: usize) -> u64 {
        let ones = |words: &[u64]| words.iter().map(|w| u64::from(w.count_ones())).sum::<u64>();
        let open = self.top / BLOCK_BITS;
        let block = at / BLOCK_BITS;
        let Some(words) = self.bits.get(block) else {
            return 0;
        };
        let word = at / 64 % WORDS;
        let mut sum = u64::from((words[word] >> (at % 64)).count_ones()) + ones(&words[word + 1..]);
        let mut block = block + 1;
        // Whole blocks up to the next group, whole groups up to the next region, and so on down again.
        while block < open {
            let (group, region) = (block / FAN, block / (FAN * FAN));
            if block.is_multiple_of(FAN * FAN) && region < open / (FAN * FAN) {
                sum += u64::from(self.regions[region]);
                block += FAN * FAN;
            } else if block.is_multiple_of(FAN) && group < open / FAN {
                sum += u64::from(self.groups[region][group % FAN]);
                block += FAN;
            } else {
                sum += u64::from(self.blocks[group][block % FAN]);
                block += 1;
            }
        }
        if block == open {
            sum += self.bits.get(open).map_or(0, |words| ones(words));
        }
        sum
    }

    /// Returns the new number of every set position after a compaction.
    pub fn ranks(&self) -> Ranks {
        let mut below = Vec::with_capacity(self.bits.len() * WORDS);
        let mut sum = 0u32;
        for word in self.bits.as_flattened() {
            below.push(sum);
            sum += word.count_ones();
        }
        Ranks {
            bits: self.bits.as_flattened().to_vec(),
            below,
        }
    }

    /// Removes the unset positions, and leaves room for three times as many pushes as there are set positions.
    pub fn compact(&mut self) {
        let live = self
            .bits
            .as_flattened()
            .iter()
            .map(|w| w.count_ones() as usize)
            .sum::<usize>();
        *self = Self::new((live * 4).next_power_of_two());
        for _ in 0..live {
            self.push();
        }
    }
}

/// Renumbering by a compaction.
pub struct Ranks {
    bits: Vec<u64>,
    below: Vec<u32>,
}

impl Ranks {
    /// Returns the new number of a set position, or of the first set one after it.
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
        while stamps.top() + 1 < stamps.capacity {
            set.push(stamps.top());
            stamps.push();
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            if state >> 62 == 0 {
                let victim = (state >> 20) as usize % set.len();
                assert_eq!(stamps.count_from(set[victim]), (set.len() - victim) as u64);
                let at = set.remove(victim);
                assert_eq!(stamps.remove(at), (set.len() - victim) as u64);
            }
        }
        stamps.compact();
        assert_eq!(stamps.top(), set.len());
    }

    #[test]
    fn compaction_keeps_the_order() {
        let mut stamps = Stamps::new(0);
        let all: Vec<usize> = (0..60_000).collect();
        all.iter().for_each(|_| stamps.push());
        let kept: Vec<usize> = all.iter().copied().filter(|a| a % 7 == 3).collect();
        all.iter().filter(|a| *a % 7 != 3).for_each(|a| {
            stamps.remove(*a);
        });
        let ranks = stamps.ranks();
        assert!(
            kept.iter()
                .enumerate()
                .all(|(rank, at)| ranks.of(*at) == rank)
        );
        stamps.compact();
        assert_eq!(stamps.remove(0), kept.len() as u64 - 1);
    }

    #[test]
    fn counts_reach_across_regions() {
        let mut stamps = Stamps::new(3 * REGION_BITS + 7);
        for _ in 0..2 * REGION_BITS + 5 {
            stamps.push();
        }
        assert_eq!(stamps.count_from(7), 2 * REGION_BITS as u64 - 2);
        assert_eq!(stamps.count_from(2 * REGION_BITS + 5), 0);
        assert_eq!(stamps.remove(0), 2 * REGION_BITS as u64 + 4);
        assert_eq!(stamps.remove(REGION_BITS - 1), REGION_BITS as u64 + 5);
        assert_eq!(stamps.remove(REGION_BITS), REGION_BITS as u64 + 4);
    }
}
