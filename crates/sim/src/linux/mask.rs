//! CPU sets for inner loops: fixed width, access by word, and scans that wrap around.
//!
//! Input: a [`CpuSet`]. Output: membership, intersections and the next member in wrapping order, without allocation.

use countersteer_model::cpuset::CpuSet;

/// Set of CPUs, stored in a fixed number of words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mask {
    words: Vec<u64>,
}

impl Mask {
    /// Returns the empty set of a machine with `cpus` CPUs.
    pub(super) fn none(cpus: usize) -> Self {
        Self {
            words: vec![0; cpus.div_ceil(64)],
        }
    }

    /// Replaces the members by those of `set` below `cpus`.
    pub(super) fn assign(&mut self, set: &CpuSet, cpus: usize) {
        self.words.clear();
        self.words.resize(cpus.div_ceil(64), 0);
        for cpu in set.iter().filter(|c| c.index() < cpus) {
            self.set(cpu.index());
        }
    }

    pub(super) fn set(&mut self, cpu: usize) {
        self.words[cpu / 64] |= 1 << (cpu % 64);
    }

    pub(super) fn clear(&mut self, cpu: usize) {
        self.words[cpu / 64] &= !(1 << (cpu % 64));
    }

    pub(super) fn has(&self, cpu: usize) -> bool {
        self.words[cpu / 64] >> (cpu % 64) & 1 == 1
    }

    pub(super) fn count(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.words.iter().all(|w| *w == 0)
    }

    /// True if `other` contains every member of `self`.
    pub(super) fn within(&self, other: &Self) -> bool {
        self.words
            .iter()
            .zip(&other.words)
            .all(|(a, b)| a & !b == 0)
    }

    pub(super) fn intersects(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(i, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                (rest != 0).then(|| {
                    let bit = rest.trailing_zeros() as usize;
                    rest &= rest - 1;
                    i * 64 + bit
                })
            })
        })
    }

    /// Iterates over the common members of `self` and `other` in ascending order.
    pub(super) fn common<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = usize> + 'a {
        self.common_from(other, 0)
    }

    /// Iterates over the common members at or after `from` in ascending order.
    pub(super) fn common_from<'a>(
        &'a self,
        other: &'a Self,
        from: usize,
    ) -> impl Iterator<Item = usize> + 'a {
        let mut at = from;
        std::iter::from_fn(move || {
            let found = self.next_common(other, at)?;
            at = found + 1;
            Some(found)
        })
    }

    /// Returns the lowest common member of `self` and `other` at or after `from`; `None` if there is none.
    pub(super) fn next_common(&self, other: &Self, from: usize) -> Option<usize> {
        let first = from / 64;
        for i in first..self.words.len() {
            let mut word = self.words[i] & other.words[i];
            if i == first {
                word &= u64::MAX << (from % 64);
            }
            if word != 0 {
                return Some(i * 64 + word.trailing_zeros() as usize);
            }
        }
        None
    }

    /// Returns the lowest common member at or after `from`, or else the lowest one; `None` if there is none.
    pub(super) fn next_common_wrapping(&self, other: &Self, from: usize) -> Option<usize> {
        let from = if from >= self.words.len() * 64 {
            0
        } else {
            from
        };
        self.next_common(other, from)
            .or_else(|| self.next_common(other, 0))
    }

    /// Returns the lowest member at or after `from`, or else the lowest one; `None` if the set is empty.
    pub(super) fn next_wrapping(&self, from: usize) -> Option<usize> {
        self.next_common_wrapping(self, from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_wrap_around() {
        let mut a = Mask::none(130);
        let mut b = Mask::none(130);
        for cpu in [1, 64, 129] {
            a.set(cpu);
            b.set(cpu);
        }
        b.set(70);
        assert_eq!(a.next_common_wrapping(&b, 65), Some(129));
        assert_eq!(a.next_common_wrapping(&b, 130), Some(1));
        assert_eq!(b.next_wrapping(65), Some(70));
        assert_eq!(b.iter().collect::<Vec<_>>(), [1, 64, 70, 129]);
        assert!(a.within(&b) && !b.within(&a));
    }
}
