//! LRU caches of all associativities for many numbers of sets, simulated in one pass.
//!
//! Input: lines in order of access. Output: for each number of sets, a histogram of the accessed line's depth in the recency
//! order of its set. A cache of `w` ways misses the accesses at depth `w` or beyond. The result is exact for LRU.
//!
//! Method: all-associativity simulation over power-of-two set counts (Hill and Smith, 1989), from the fewest sets to the most. A
//! line that is the MRU line of its set is also the MRU line in every cache with more sets. These caches are then skipped,
//! because their order does not change.

/// Highest associativity that is simulated.
pub const DEEPEST: usize = 32;
/// Value of an empty entry.
const NONE: u64 = u64::MAX;

/// Caches with one number of sets and all associativities.
#[derive(Clone, Debug)]
struct Tier {
    mask: u64,
    /// Lines of each set, most recently used first.
    lines: Box<[[u64; DEEPEST]]>,
    /// Number of accesses by depth; the last entry counts misses in caches of every associativity.
    depths: [u64; DEEPEST + 1],
}

impl Tier {
    fn new(sets: usize) -> Self {
        Self {
            mask: sets as u64 - 1,
            lines: vec![[NONE; DEEPEST]; sets].into_boxed_slice(),
            depths: [0; DEEPEST + 1],
        }
    }

    /// Moves a line to the front of its set. Returns the depth at which it was, or [`DEEPEST`] if it was absent.
    #[inline]
    fn touch(&mut self, line: u64) -> usize {
        let row = &mut self.lines[(line & self.mask) as usize];
        if row[0] == line {
            return 0;
        }
        let mut carried = row[0];
        row[0] = line;
        let mut at = 1;
        while at < DEEPEST {
            let here = row[at];
            row[at] = carried;
            if here == line {
                return at;
            }
            carried = here;
            at += 1;
        }
        DEEPEST
    }
}

/// Caches with 2^`least` to 2^`most` sets, and 1 to 32 ways.
#[derive(Clone, Debug)]
pub struct Forest {
    least: u32,
    tiers: Vec<Tier>,
    accesses: u64,
}

impl Forest {
    /// Creates empty caches.
    ///
    /// # Panics
    /// Panics if `least` is larger than `most`, or if `most` is larger than 24.
    #[must_use]
    pub fn new(least: u32, most: u32) -> Self {
        assert!(least <= most && most <= 24, "2^{least} to 2^{most} sets");
        Self {
            least,
            tiers: (least..=most).map(|log| Tier::new(1 << log)).collect(),
            accesses: 0,
        }
    }

    /// Accesses a line in all caches of the forest.
    #[inline]
    pub fn touch(&mut self, line: u64) {
        self.accesses += 1;
        for tier in &mut self.tiers {
            let depth = tier.touch(line);
            if depth == 0 {
                return;
            }
            tier.depths[depth] += 1;
        }
    }

    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Returns the number of misses of the cache with `sets` sets and `ways` ways; `None` if it is not simulated.
    #[must_use]
    pub fn misses(&self, sets: u64, ways: u32) -> Option<u64> {
        let log = sets.is_power_of_two().then(|| sets.trailing_zeros())?;
        let tier = self.tiers.get(log.checked_sub(self.least)? as usize)?;
        let ways = ways as usize;
        (1..=DEEPEST)
            .contains(&ways)
            .then(|| tier.depths[ways..].iter().sum())
    }

    /// Sets all counts to zero, but keeps the lines in the caches.
    pub fn reset_counts(&mut self) {
        self.accesses = 0;
        self.tiers
            .iter_mut()
            .for_each(|tier| tier.depths = [0; DEEPEST + 1]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Lookup;
    use crate::{Cache, Geometry, LineKey, Replacement};
    use rand::{RngExt, SeedableRng};

    #[test]
    fn every_cache_of_the_forest_misses_as_if_it_were_simulated_alone() {
        let mut rng = rand_pcg::Pcg64::seed_from_u64(4);
        let lines: Vec<u64> = (0..40_000_u64)
            .map(|n| match rng.random_range(0..4_u32) {
                0 => n / 7 % 900,
                1 => rng.random_range(0..64),
                2 => n * 8 % 4096,
                _ => rng.random_range(0..5000),
            })
            .collect();
        let mut forest = Forest::new(0, 8);
        lines.iter().for_each(|line| forest.touch(*line));
        for (sets, ways) in [
            (1, 1),
            (1, 32),
            (2, 8),
            (8, 4),
            (64, 3),
            (256, 16),
            (32, 32),
        ] {
            let mut cache = Cache::new(Geometry { sets, ways }, Replacement::Lru).unwrap();
            let mut misses = 0;
            for line in &lines {
                let key = LineKey::new(0, *line);
                if cache.touch(key, false) == Lookup::Miss {
                    misses += 1;
                    let _ = cache.fill(key, false, false);
                }
            }
            assert_eq!(
                forest.misses(u64::from(sets), ways),
                Some(misses),
                "{sets} sets, {ways} ways"
            );
        }
        assert_eq!(forest.misses(512, 1), None);
        assert_eq!(forest.misses(3, 1), None);
    }
}
