//! The meaning of an open group's times and values: its CPU, its set, and the place of each value in the set.

use countersteer_model::units::CpuId;

/// What a group's times and values mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupInfo {
    /// Whose tree; 0 where there are no trees.
    pub(crate) tree: u32,
    pub(crate) cpu: CpuId,
    pub(crate) set: u32,
    pub(crate) places: Places,
    /// Its running time is the time that the thread ran there.
    pub(crate) clock: bool,
    /// Its running time is the time that the set counted.
    pub(crate) counts: bool,
    /// Its running time is the first member's value.
    pub(crate) timed: bool,
}

/// Which events of a set the members of a group count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    members: Vec<Option<usize>>,
    width: usize,
    whole: bool,
}

impl Places {
    /// By member, the event that it counts, of a set of so many.
    pub(crate) fn new(members: Vec<Option<usize>>, width: usize) -> Self {
        let whole = members.iter().copied().eq((0..width).map(Some));
        Self {
            members,
            width,
            whole,
        }
    }

    pub(crate) const fn members(&self) -> usize {
        self.members.len()
    }

    /// A bit per event that is counted.
    pub(crate) fn present(&self) -> u64 {
        self.members
            .iter()
            .flatten()
            .fold(0, |bits, place| bits | 1u64 << (place % 64))
    }

    /// The members' values in the order of the set's events; zero where another group counts.
    pub(crate) fn in_set<'a>(&self, values: &'a [u64], into: &'a mut Vec<u64>) -> &'a [u64] {
        if self.whole {
            return values;
        }
        into.clear();
        into.resize(self.width, 0);
        for (place, value) in self.members.iter().zip(values) {
            if let Some(slot) = place.and_then(|place| into.get_mut(place)) {
                *slot = *value;
            }
        }
        into
    }
}
