//! Reference predictor for targets of indirect jumps and calls: a small ITTAGE (Seznec 2011).
//!
//! Input: branch address, history of outcomes, target. Output: true if the prediction was wrong. Three tables use no, a short
//! and a long history. The matching table with the longest history predicts; a misprediction allocates an entry in the next
//! longer one. Dispatch jumps of interpreters are predicted by earlier dispatches.

/// History lengths of the tables, shortest first.
const HISTORIES: [u32; 3] = [0, 10, 40];
const ENTRIES: usize = 1 << 11;
/// Confidence at which an entry survives its first misprediction.
const SURE: u8 = 3;

#[derive(Clone, Copy, Default)]
struct TargetEntry {
    tag: u32,
    confidence: u8,
    target: u64,
}

pub struct BranchTargets {
    tables: Box<[[TargetEntry; ENTRIES]; HISTORIES.len()]>,
}

impl BranchTargets {
    pub fn new() -> Self {
        Self {
            tables: Box::new([[TargetEntry::default(); ENTRIES]; HISTORIES.len()]),
        }
    }

    /// Predicts and learns. Returns true if the prediction was wrong.
    pub fn resolve(&mut self, pc: u64, history: u64, target: u64) -> bool {
        let places = HISTORIES.map(|length| {
            let seen = history & ((1 << length) - 1);
            let mixed =
                (pc ^ seen.wrapping_mul(0xd6e8_feb8_6659_fd93)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            // Tag 0 marks an empty entry.
            ((mixed >> 53) as usize % ENTRIES, (mixed >> 20) as u32 | 1)
        });
        let known = |table: &usize| self.tables[*table][places[*table].0].tag == places[*table].1;
        let provider = (0..HISTORIES.len()).rev().find(known);
        let wrong = match provider {
            Some(table) => {
                let entry = &mut self.tables[table][places[table].0];
                let right = entry.target == target;
                if right {
                    entry.confidence = (entry.confidence + 1).min(SURE);
                } else if entry.confidence == 0 {
                    entry.target = target;
                } else {
                    entry.confidence -= 1;
                }
                !right
            }
            None => true,
        };
        let longer = provider.map_or(0, |table| table + 1);
        if wrong && longer < HISTORIES.len() {
            let (slot, tag) = places[longer];
            self.tables[longer][slot] = TargetEntry {
                tag,
                confidence: 0,
                target,
            };
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_sequence_of_targets_is_learnt_by_its_history() {
        let mut targets = BranchTargets::new();
        let mut history = 0u64;
        let program = [3u64, 1, 4, 1, 5, 9, 2, 6];
        let mut wrong = 0;
        for step in 0..4_000 {
            let target = 0x1000 + program[step % program.len()] * 64;
            let missed = targets.resolve(0x400, history, target);
            wrong += usize::from(missed && step >= 1_000);
            history = history << 4 | target >> 6 & 0xf;
        }
        assert!(wrong < 30, "{wrong}");
    }
}
