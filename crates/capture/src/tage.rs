//! Reference predictor for conditional branches: a small TAGE (Seznec and Michaud 2006).
//!
//! Input: branch address and outcome. Output: true if the prediction was wrong. The predictor has a bimodal table of 16 Ki
//! counters and six tagged tables of 4 Ki entries. Their histories have 5 to 190 outcomes. This is close to Golden Cove's
//! history (194 taken branches). It takes 112 KiB as stored here. A table's index and tag come from a multiplication per word of
//! its history instead of folded registers.
//!
//! Branches that went the same way [`BIASED`] times in a row are predicted to do so again. They stay out of the tables and the
//! history, where they would only displace others (Gope and Lipasti 2014).

/// History lengths of the tagged tables, shortest first.
const HISTORIES: [u32; TABLES] = [5, 11, 22, 45, 92, 190];
const TABLES: usize = 6;
/// Words of the history.
const WORDS: usize = 3;
/// log2 of the entries of a tagged table.
const TAGGED_BITS: u32 = 12;
/// Outcomes in a row after which a branch counts as biased.
const BIASED: u8 = 120;
/// Entries of the table of biases.
const BIASES: usize = 1 << 14;
/// Entries of the bimodal table.
const BIMODAL: usize = 1 << 14;
/// Failed allocations between two agings of the usefulness counters.
const AGING: u32 = 1 << 10;

#[derive(Clone, Copy, Default)]
struct TageEntry {
    tag: u16,
    /// -4 to 3, stored with an offset of 4.
    counter: i8,
    /// 0 to 3.
    useful: u8,
}

/// TAGE predictor with its history.
pub struct Tage {
    /// Twice the number of equal outcomes in a row, plus the outcome.
    biases: Box<[u8; BIASES]>,
    bimodal: Box<[i8; BIMODAL]>,
    tagged: Box<[TageEntry; TABLES << TAGGED_BITS]>,
    /// Latest outcome in bit 0 of the first word.
    history: [u64; WORDS],
    until_aging: u32,
}

impl Tage {
    pub fn new() -> Self {
        Self {
            biases: Box::new([0; BIASES]),
            bimodal: Box::new([0; BIMODAL]),
            tagged: Box::new([TageEntry::default(); TABLES << TAGGED_BITS]),
            history: [0; WORDS],
            until_aging: AGING,
        }
    }

    /// Returns the last 64 outcomes, latest in bit 0.
    #[inline]
    pub fn history(&self) -> u64 {
        self.history[0]
    }

    /// Adds an outcome that needs no prediction, such as that of an indirect jump, to the history.
    #[inline]
    pub fn remember(&mut self, outcome: bool) {
        let mut carry = u64::from(outcome);
        for word in &mut self.history {
            let next = *word >> 63;
            *word = *word << 1 | carry;
            carry = next;
        }
    }

    /// Predicts and learns. Returns true if the prediction was wrong.
    #[inline]
    pub fn resolve(&mut self, pc: u64, taken: bool) -> bool {
        let run = &mut self.biases[(pc ^ pc >> 14) as usize % BIASES];
        let before = *run;
        if before & 1 == u8::from(taken) {
            if before >= 2 * BIASED {
                return false;
            }
            *run = before + 2;
            return self.search(pc, taken);
        }
        *run = u8::from(taken);
        self.search(pc, taken) | (before >= 2 * BIASED)
    }

    /// Predicts and learns without the bias filter.
    #[inline(never)]
    fn search(&mut self, pc: u64, taken: bool) -> bool {
        let mixed = self.mixed(pc);
        let base = (pc ^ pc >> 14) as usize % BIMODAL;
        let mut hits = 0u32;
        for (table, mixed) in mixed.iter().enumerate() {
            hits |= u32::from(self.tagged[index(table, *mixed)].tag == tag(*mixed)) << table;
        }
        let simple = self.bimodal[base] >= 0;
        self.remember(taken);
        let predicted = if hits == 0 {
            self.bimodal[base] = step(self.bimodal[base], taken, -2, 1);
            simple
        } else {
            let provider = hits.ilog2() as usize % TABLES;
            self.train(index(provider, mixed[provider]), base, simple, taken)
        };
        if predicted != taken {
            self.allocate(&mixed, (32 - hits.leading_zeros()) as usize, taken);
        }
        predicted != taken
    }

    /// Returns a hash of address and history for each table.
    #[inline(always)]
    fn mixed(&self, pc: u64) -> [u64; TABLES] {
        let history = &self.history;
        [
            hash::<{ HISTORIES[0] }>(pc, history),
            hash::<{ HISTORIES[1] }>(pc, history),
            hash::<{ HISTORIES[2] }>(pc, history),
            hash::<{ HISTORIES[3] }>(pc, history),
            hash::<{ HISTORIES[4] }>(pc, history),
            hash::<{ HISTORIES[5] }>(pc, history),
        ]
    }

    /// Trains the providing entry and returns its prediction. For weak new entries, the bimodal table decides.
    #[inline(always)]
    fn train(&mut self, at: usize, base: usize, simple: bool, taken: bool) -> bool {
        let entry = &mut self.tagged[at];
        let own = entry.counter >= 0;
        let fresh = entry.useful == 0 && (entry.counter == 0 || entry.counter == -1);
        if own != simple {
            entry.useful = if own == taken {
                (entry.useful + 1).min(3)
            } else {
                entry.useful.saturating_sub(1)
            };
        }
        entry.counter = step(entry.counter, taken, -4, 3);
        self.bimodal[base] = step(self.bimodal[base], taken, -2, 1);
        if fresh { simple } else { own }
    }

    /// Allocates an entry in a table with longer history after a misprediction.
    #[inline(never)]
    fn allocate(&mut self, mixed: &[u64; TABLES], from: usize, taken: bool) {
        for (table, mixed) in mixed.iter().enumerate().skip(from) {
            let entry = &mut self.tagged[index(table, *mixed)];
            if entry.useful == 0 {
                *entry = TageEntry {
                    tag: tag(*mixed),
                    counter: if taken { 0 } else { -1 },
                    useful: 0,
                };
                return;
            }
            entry.useful -= 1;
        }
        self.until_aging -= 1;
        if self.until_aging == 0 {
            self.until_aging = AGING;
            self.tagged.iter_mut().for_each(|e| e.useful /= 2);
        }
    }
}

/// Returns a hash of an address and the last `LENGTH` outcomes. The length is a constant, so that no loop remains.
#[inline(always)]
fn hash<const LENGTH: u32>(pc: u64, history: &[u64; WORDS]) -> u64 {
    let mut mixed = pc;
    let mut left = LENGTH;
    for word in history {
        if left > 0 {
            let seen = word & (u64::MAX >> (64 - left.min(64)));
            mixed = (mixed ^ seen).wrapping_mul(0xd6e8_feb8_6659_fd93);
            mixed ^= mixed >> 29;
            left = left.saturating_sub(64);
        }
    }
    mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[inline(always)]
fn index(table: usize, mixed: u64) -> usize {
    (table << TAGGED_BITS | (mixed >> (64 - TAGGED_BITS)) as usize) % (TABLES << TAGGED_BITS)
}

/// Tag 0 marks an empty entry.
#[inline(always)]
fn tag(mixed: u64) -> u16 {
    (mixed >> 32) as u16 & 0x0fff | 0x1000
}

#[inline]
fn step(counter: i8, up: bool, least: i8, most: i8) -> i8 {
    if up {
        (counter + 1).min(most)
    } else {
        (counter - 1).max(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the mispredictions among the last `count` of twice as many branches.
    fn wrong(count: usize, mut branch: impl FnMut(usize) -> (u64, bool)) -> usize {
        let mut tage = Tage::new();
        (0..2 * count)
            .filter(|i| {
                let (pc, taken) = branch(*i);
                tage.resolve(pc, taken) && *i >= count
            })
            .count()
    }

    #[test]
    fn a_loop_of_fixed_length_is_learnt() {
        assert_eq!(wrong(10_000, |i| (0x400100, i % 8 != 7)), 0);
        assert!(wrong(10_000, |i| (0x400100, i % 40 != 39)) < 100);
    }

    #[test]
    fn a_branch_that_follows_another_is_learnt() {
        let mut state = 1u64;
        let mut last = false;
        let wrong = wrong(20_000, |i| {
            if i % 2 == 0 {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                last = state >> 63 == 1;
                (0x1000, last)
            } else {
                (0x1010, last)
            }
        });
        assert!(
            (4_000..6_500).contains(&wrong),
            "half of the first, none of the second: {wrong}"
        );
    }

    #[test]
    fn a_biased_coin_costs_about_its_bias() {
        let mut state = 7u64;
        let wrong = wrong(100_000, |_| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (0x2000, !(state >> 40).is_multiple_of(10))
        });
        assert!((9_000..16_000).contains(&wrong), "{wrong}");
    }
}
