//! The earliest of many deadlines, one per CPU.
//!
//! Input: deadlines that are overwritten in place. Output: the earliest deadline and its slot. The deadlines form a tournament
//! tree: reading takes constant time, and writing follows one path to the root. Unlike a heap, the tree needs no stale entries
//! and no search.

pub(super) const NEVER: u64 = u64::MAX;

/// Deadlines, one per slot. Of equal deadlines, the one in the lower slot comes first, which keeps runs reproducible.
pub(super) struct Timers {
    /// Tournament tree: leaves start at `width`, and an inner node holds the minimum of its two children.
    tree: Vec<u64>,
    width: usize,
}

impl Timers {
    pub(super) fn new(slots: usize) -> Self {
        let width = slots.next_power_of_two().max(1);
        Self {
            tree: vec![NEVER; 2 * width],
            width,
        }
    }

    pub(super) fn set(&mut self, slot: usize, at: u64) {
        let mut node = self.width + slot;
        if self.tree[node] == at {
            return;
        }
        self.tree[node] = at;
        while node > 1 {
            node /= 2;
            let min = self.tree[2 * node].min(self.tree[2 * node + 1]);
            if self.tree[node] == min {
                return;
            }
            self.tree[node] = min;
        }
    }

    pub(super) fn earliest(&self) -> u64 {
        self.tree[1]
    }

    /// Returns the slot of the earliest deadline.
    pub(super) fn earliest_slot(&self) -> usize {
        let mut node = 1;
        while node < self.width {
            node = if self.tree[2 * node] <= self.tree[2 * node + 1] {
                2 * node
            } else {
                2 * node + 1
            };
        }
        node - self.width
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_slot_wins_and_ties_go_low() {
        for slots in [1, 2, 3, 17] {
            let mut timers = Timers::new(slots);
            assert_eq!(timers.earliest(), NEVER);
            for slot in 0..slots {
                timers.set(slot, 100 - slot as u64);
            }
            assert_eq!(
                (timers.earliest(), timers.earliest_slot()),
                (101 - slots as u64, slots - 1)
            );
            for slot in 0..slots {
                timers.set(slot, 7);
            }
            assert_eq!((timers.earliest(), timers.earliest_slot()), (7, 0));
        }
    }
}
