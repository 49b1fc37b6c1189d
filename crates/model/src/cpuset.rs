//! Sets of CPUs, in the kernel's list notation (`0-3,8`).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::units::CpuId;

/// Largest accepted CPU number. Linux supports at most 8,192 CPUs.
pub const MAX_CPU: u32 = 65_535;

/// Set of CPUs, one bit per CPU.
///
/// ```
/// use countersteer_model::cpuset::CpuSet;
/// use countersteer_model::units::CpuId;
///
/// let mut allowed: CpuSet = "0-3,8".parse()?;
/// assert_eq!(allowed.len(), 5);
/// allowed.remove(CpuId(2));
/// assert_eq!(allowed.to_string(), "0-1,3,8");
/// assert!("3-1".parse::<CpuSet>().is_err());
/// # Ok::<(), countersteer_model::cpuset::BadCpuList>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuSet {
    words: Vec<u64>,
}

/// Error: a text is no CPU list, such as `0-3,8`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no CPU list; write one like `0-3,8` with numbers up to {MAX_CPU}")]
pub struct BadCpuList(pub String);

impl CpuSet {
    /// Returns the set of the CPUs `0 .. count`.
    #[must_use]
    pub fn first(count: u32) -> Self {
        (0..count).map(CpuId).collect()
    }

    /// Returns the set of CPUs from a bit mask in 64-bit words; bit 0 of the first word is CPU 0.
    #[must_use]
    pub fn from_words(mut words: Vec<u64>) -> Self {
        while words.last() == Some(&0) {
            words.pop();
        }
        Self { words }
    }

    /// Returns the set as a bit mask in 64-bit words; bit 0 of the first word is CPU 0.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Adds a CPU.
    pub fn insert(&mut self, cpu: CpuId) {
        let word = cpu.index() / 64;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (cpu.index() % 64);
    }

    /// Removes a CPU.
    pub fn remove(&mut self, cpu: CpuId) {
        if let Some(word) = self.words.get_mut(cpu.index() / 64) {
            *word &= !(1 << (cpu.index() % 64));
        }
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }

    /// True if `cpu` is in the set.
    #[must_use]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.words
            .get(cpu.index() / 64)
            .is_some_and(|w| w >> (cpu.index() % 64) & 1 == 1)
    }

    /// Returns the number of CPUs in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// True if the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|w| *w == 0)
    }

    /// Iterates over the CPUs of the set in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.words.iter().enumerate().flat_map(|(i, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                (rest != 0).then(|| {
                    let bit = rest.trailing_zeros();
                    rest &= rest - 1;
                    CpuId::from_index(i * 64 + bit as usize)
                })
            })
        })
    }

    /// Returns the CPU with the lowest number; `None` if the set is empty.
    #[must_use]
    pub fn lowest(&self) -> Option<CpuId> {
        self.iter().next()
    }

    /// Returns the CPUs that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut words: Vec<u64> = self
            .words
            .iter()
            .zip(&other.words)
            .map(|(a, b)| a & b)
            .collect();
        while words.last() == Some(&0) {
            words.pop();
        }
        Self { words }
    }

    /// True if at least one CPU is in both sets.
    #[must_use]
    pub fn intersects(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// True if every CPU of this set is in `other`.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.words
            .iter()
            .enumerate()
            .all(|(i, w)| w & !other.words.get(i).copied().unwrap_or(0) == 0)
    }
}

impl FromIterator<CpuId> for CpuSet {
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> Self {
        let mut set = Self::default();
        for cpu in cpus {
            set.insert(cpu);
        }
        set
    }
}

impl FromStr for CpuSet {
    type Err = BadCpuList;

    fn from_str(list: &str) -> Result<Self, BadCpuList> {
        let bad = || BadCpuList(list.to_owned());
        let number = |s: &str| {
            s.trim()
                .parse::<u32>()
                .ok()
                .filter(|n| *n <= MAX_CPU)
                .ok_or_else(bad)
        };
        let mut set = Self::default();
        for part in list.trim().split(',').filter(|p| !p.trim().is_empty()) {
            let (low, high) = match part.split_once('-') {
                Some((low, high)) => (number(low)?, number(high)?),
                None => (number(part)?, number(part)?),
            };
            if low > high {
                return Err(bad());
            }
            (low..=high).for_each(|cpu| set.insert(CpuId(cpu)));
        }
        Ok(set)
    }
}

impl TryFrom<String> for CpuSet {
    type Error = BadCpuList;
    fn try_from(list: String) -> Result<Self, BadCpuList> {
        list.parse()
    }
}

impl From<CpuSet> for String {
    fn from(set: CpuSet) -> Self {
        set.to_string()
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut members = self.iter().map(|c| c.0).peekable();
        let mut comma = "";
        while let Some(low) = members.next() {
            let mut high = low;
            while members.next_if_eq(&(high + 1)).is_some() {
                high += 1;
            }
            if low == high {
                write!(f, "{comma}{low}")?
            } else {
                write!(f, "{comma}{low}-{high}")?
            }
            comma = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

impl schemars::JsonSchema for CpuSet {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "CpuSet".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "pattern": "^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$",
            "description": "CPUs in the kernel's list notation: 0-3,8",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_survive_a_round_trip() {
        for list in ["", "0", "0-3", "0-3,8", "1,3,5,64-130"] {
            assert_eq!(list.parse::<CpuSet>().unwrap().to_string(), list);
        }
        assert_eq!(" 0-1\n".parse::<CpuSet>().unwrap().len(), 2);
    }

    #[test]
    fn nonsense_is_refused() {
        for list in ["3-1", "a", "0-99999999", "-1", "1-2-3"] {
            assert!(list.parse::<CpuSet>().is_err(), "{list}");
        }
    }

    #[test]
    fn equal_sets_compare_equal_whatever_was_removed() {
        let mut set: CpuSet = "0,100".parse().unwrap();
        set.remove(CpuId(100));
        assert_eq!(set, CpuSet::first(1));
        assert!(set.is_subset(&CpuSet::first(2)));
    }
}
