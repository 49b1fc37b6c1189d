//! Small map from addresses to the instruction that touched them last, cleared in constant time between captures.

/// Slots; more than twice the accesses of a capture, so probes stay short.
const SLOTS: usize = 1 << 14;

/// Map that forgets everything when its epoch changes.
pub struct Memo {
    slots: Box<[(u64, u32, u32)]>,
    epoch: u32,
}

impl Memo {
    pub fn new() -> Self {
        Self {
            slots: vec![(0, 0, 0); SLOTS].into_boxed_slice(),
            epoch: 1,
        }
    }

    pub fn clear(&mut self) {
        self.epoch += 1;
    }

    fn slot(&self, key: u64) -> usize {
        let mut at = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50) as usize;
        // A full table would probe forever; after a few slots the oldest entry may be replaced.
        for _ in 0..16 {
            let (found, _, epoch) = self.slots[at];
            if epoch != self.epoch || found == key {
                break;
            }
            at = (at + 1) % SLOTS;
        }
        at
    }

    pub fn get(&self, key: u64) -> Option<u32> {
        let (found, value, epoch) = self.slots[self.slot(key)];
        (epoch == self.epoch && found == key).then_some(value)
    }

    /// Sets the value of `key`.
    pub fn set(&mut self, key: u64, value: u32) {
        let at = self.slot(key);
        self.slots[at] = (key, value, self.epoch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_kept_until_cleared() {
        let mut memo = Memo::new();
        (0..5000u64).for_each(|k| memo.set(k * 8, k as u32));
        assert!(
            (0..5000u64)
                .filter(|k| memo.get(k * 8) == Some(*k as u32))
                .count()
                > 4990
        );
        memo.clear();
        assert_eq!(memo.get(8), None);
    }
}
