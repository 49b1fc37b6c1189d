//! Stack distances: the number of distinct other lines accessed between two accesses to a line.
//!
//! Input: lines in order of access. Output: a histogram, from which the misses of fully associative LRU caches of every size
//! follow. Exact mode: a tree of sums over time stamps, compacted when the stamps are used up (Bennett and Kruskal 1975, Olken
//! 1981). Sampled mode: only lines with a hash below a threshold count, each with weight 1 / rate (SHARDS, Waldspurger et al.,
//! FAST 2015). Sampling is suitable for caches of many more lines than 1 / rate.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Hasher for line numbers. No attacker controls them, so protection against collisions is not needed.
#[derive(Clone, Copy, Debug, Default)]
pub struct LineHasher(u64);

impl Hasher for LineHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_u64(u64::from(*b)));
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}

type StackLines = HashMap<u64, u32, BuildHasherDefault<LineHasher>>;

/// Returns the index of the bucket that contains a distance: eight buckets per doubling, and one per distance below 16.
#[must_use]
pub fn bucket(distance: u64) -> usize {
    if distance < 16 {
        return distance as usize;
    }
    let log = distance.ilog2();
    ((log - 2) * 8) as usize + (distance >> (log - 3) & 7) as usize
}

/// Returns the smallest distance in a bucket.
#[must_use]
pub fn bucket_start(bucket: usize) -> u64 {
    if bucket < 16 {
        return bucket as u64;
    }
    let log = bucket as u32 / 8 + 2;
    (8 + bucket as u64 % 8) << (log - 3)
}

const BUCKETS: usize = 64 * 8;

/// Measurement of the stack distances of a stream of lines.
///
/// ```
/// use countersteer_cache::stack::Stack;
///
/// let mut stack = Stack::new(1.0);
/// for line in (0..1000).chain(0..1000) {
///     stack.touch(line);
/// }
/// assert_eq!(stack.footprint_lines(), 1000.0);
/// // Half of the accesses are the first to their line; the others need a cache of 1,000 lines.
/// assert_eq!(stack.miss_ratio(64), 1.0);
/// assert_eq!(stack.miss_ratio(2048), 0.5);
/// ```
#[derive(Clone, Debug)]
pub struct Stack {
    /// Time stamp of the last access to each line.
    last: StackLines,
    /// Tree of sums over the time stamps of last accesses.
    tree: Vec<u32>,
    /// Line by the time stamp of its last access; `u64::MAX` for unused stamps.
    by_time: Vec<u64>,
    /// Next time stamp.
    now: usize,
    /// Threshold: only lines with a smaller hash are sampled.
    threshold: u64,
    /// Sampling rate.
    rate: f64,
    /// Number of sampled accesses by bucket of the distance.
    histogram: Vec<u64>,
    /// Number of sampled first accesses to a line.
    cold: u64,
    /// Number of all accesses.
    accesses: u64,
    /// Number of sampled accesses.
    sampled: u64,
}

impl Stack {
    /// Creates a measurement that samples a fraction `rate` of the lines; 1 samples every line.
    #[must_use]
    pub fn new(rate: f64) -> Self {
        let rate = rate.clamp(1e-6, 1.0);
        Self {
            last: StackLines::default(),
            tree: vec![0; 1 << 16],
            by_time: vec![u64::MAX; 1 << 16],
            now: 0,
            threshold: (rate * f64::from(u32::MAX)) as u64,
            rate,
            histogram: vec![0; BUCKETS],
            cold: 0,
            accesses: 0,
            sampled: 0,
        }
    }

    /// Adds an access to a line.
    #[inline]
    pub fn touch(&mut self, line: u64) {
        self.accesses += 1;
        if self.rate < 1.0 && line.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32 > self.threshold {
            return;
        }
        self.sampled += 1;
        if self.now > 0 && self.by_time[self.now - 1] == line {
            self.histogram[0] += 1;
            return;
        }
        if self.now == self.by_time.len() {
            self.compact();
        }
        let now = self.now;
        self.now += 1;
        match self.last.insert(line, now as u32) {
            None => self.cold += 1,
            Some(before) => {
                let before = before as usize;
                let later = self.last.len() as u64 - self.up_to(before);
                let scaled = (later as f64 / self.rate) as u64;
                self.histogram[bucket(scaled)] += 1;
                self.add(before, false);
                self.by_time[before] = u64::MAX;
            }
        }
        self.by_time[now] = line;
        self.add(now, true);
    }

    fn add(&mut self, at: usize, one: bool) {
        let mut node = at + 1;
        while node <= self.tree.len() {
            let sum = &mut self.tree[node - 1];
            *sum = if one { *sum + 1 } else { *sum - 1 };
            node += node & node.wrapping_neg();
        }
    }

    /// Returns the number of lines whose last access has a time stamp of at most `at`.
    fn up_to(&self, at: usize) -> u64 {
        let mut node = at + 1;
        let mut sum = 0;
        while node > 0 {
            sum += u64::from(self.tree[node - 1]);
            node &= node - 1;
        }
        sum
    }

    /// Assigns contiguous time stamps to the lines, and provides as many unused ones.
    #[cold]
    fn compact(&mut self) {
        let lines: Vec<u64> = self
            .by_time
            .iter()
            .copied()
            .filter(|l| *l != u64::MAX)
            .collect();
        let size = (lines.len() * 2).next_power_of_two().max(1 << 16);
        self.tree.clear();
        self.tree.resize(size, 0);
        for (at, line) in lines.iter().enumerate() {
            self.last.insert(*line, at as u32);
            self.tree[at] = 1;
        }
        for node in 1..=size {
            let above = node + (node & node.wrapping_neg());
            if above <= size {
                self.tree[above - 1] += self.tree[node - 1];
            }
        }
        self.now = lines.len();
        self.by_time = lines;
        self.by_time.resize(size, u64::MAX);
    }

    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Returns the number of distinct lines, extrapolated if lines were sampled.
    #[must_use]
    pub fn footprint_lines(&self) -> f64 {
        self.last.len() as f64 / self.rate
    }

    /// Returns the fraction of accesses that a fully associative cache of `lines` lines misses.
    ///
    /// Within a bucket, which spans an eighth of a doubling, distances are assumed to be uniformly distributed.
    #[must_use]
    pub fn miss_ratio(&self, lines: u64) -> f64 {
        if self.sampled == 0 {
            return 0.0;
        }
        let mut misses = self.cold as f64;
        for (at, count) in self
            .histogram
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
        {
            let (start, end) = (bucket_start(at), bucket_start(at + 1));
            let beyond = end.saturating_sub(lines.max(start)) as f64 / (end - start) as f64;
            misses += *count as f64 * beyond;
        }
        // If there are more or fewer samples than the rate predicts, the difference counts as hits at short distances
        // (SHARDS-adj).
        let expected = self.accesses as f64 * self.rate;
        (misses / expected).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};

    fn slow(lines: &[u64], cache: usize) -> u64 {
        let mut order: Vec<u64> = Vec::new();
        let mut misses = 0;
        for line in lines {
            match order.iter().position(|l| l == line) {
                Some(at) if at < cache => drop(order.remove(at)),
                Some(at) => {
                    misses += 1;
                    order.remove(at);
                }
                None => misses += 1,
            }
            order.insert(0, *line);
        }
        misses
    }

    #[test]
    fn misses_are_those_of_a_list() {
        let mut rng = rand_pcg::Pcg64::seed_from_u64(2);
        let lines: Vec<u64> = (0..20_000_u64)
            .map(|n| {
                if n % 3 == 0 {
                    n / 3 % 300
                } else {
                    rng.random_range(0..120)
                }
            })
            .collect();
        let mut stack = Stack::new(1.0);
        lines.iter().for_each(|line| stack.touch(*line));
        for cache in [1, 2, 7, 15, 16, 18, 64, 112, 256, 288, 320] {
            let exact = slow(&lines, cache) as f64 / lines.len() as f64;
            assert!(
                (stack.miss_ratio(cache as u64) - exact).abs() < 1e-9,
                "{cache}"
            );
        }
        assert_eq!(stack.footprint_lines(), 300.0);
    }

    #[test]
    fn stamps_that_run_out_change_nothing() {
        let mut stack = Stack::new(1.0);
        (0..300_000_u64).for_each(|n| stack.touch(n % 1000));
        assert!((stack.miss_ratio(960) - 1.0).abs() < 1e-9);
        assert!((stack.miss_ratio(1024) - 1000.0 / 300_000.0).abs() < 1e-9);
    }

    #[test]
    fn a_sample_is_near_the_whole() {
        let mut rng = rand_pcg::Pcg64::seed_from_u64(3);
        let (mut exact, mut sampled) = (Stack::new(1.0), Stack::new(0.1));
        for _ in 0..300_000 {
            let span = 1 << rng.random_range(4..16_u32);
            let line = rng.random_range(0..span);
            exact.touch(line);
            sampled.touch(line);
        }
        for lines in [4096, 16_384, 32_768] {
            let error = (exact.miss_ratio(lines) - sampled.miss_ratio(lines)).abs();
            assert!(error < 0.02, "{lines}: {error}");
        }
    }

    #[test]
    fn buckets_are_contiguous() {
        for bucket_number in 0..400 {
            assert_eq!(bucket(bucket_start(bucket_number)), bucket_number);
            assert_eq!(bucket(bucket_start(bucket_number + 1) - 1), bucket_number);
        }
    }
}
