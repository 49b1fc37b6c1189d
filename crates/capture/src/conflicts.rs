//! Misses of a set-associative cache, for all associativities at once.
//!
//! Input: touched lines. Output: the depth of each line in the LRU order of its set. A cache with this number of sets and more
//! ways than the depth hits.

use countersteer_model::profile::{CONFLICT_SETS, CONFLICT_WAYS};

use crate::near::NO_LINE;

const SETS: usize = CONFLICT_SETS as usize;

/// The sets, each in LRU order.
pub struct Conflicts {
    sets: Box<[[u64; CONFLICT_WAYS]; SETS]>,
}

impl Conflicts {
    pub fn new() -> Self {
        Self {
            sets: Box::new([[NO_LINE; CONFLICT_WAYS]; SETS]),
        }
    }

    /// Touches a line. Returns its depth, or [`CONFLICT_WAYS`] if it was absent.
    #[inline]
    pub fn touch(&mut self, line: u64) -> usize {
        let set = &mut self.sets[line as usize % SETS];
        let depth = set.iter().position(|l| *l == line).unwrap_or(CONFLICT_WAYS);
        let last = depth.min(CONFLICT_WAYS - 1);
        set.copy_within(..last, 1);
        set[0] = line;
        depth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_one_set_push_each_other_out() {
        let mut conflicts = Conflicts::new();
        let loops = |conflicts: &mut Conflicts| -> Vec<usize> {
            (0..9).map(|i| conflicts.touch(i * SETS as u64)).collect()
        };
        assert_eq!(loops(&mut conflicts), [CONFLICT_WAYS; 9]);
        assert_eq!(loops(&mut conflicts), [8; 9], "nine lines need nine ways");
        assert_eq!(conflicts.touch(1), CONFLICT_WAYS);
    }
}
