//! Meaning of an open group's times and values: its CPU, its set, and the place of each value in the set.

use countersteer_model::units::CpuId;

/// Meaning of a group's times and values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupInfo {
    /// Tree of its threads; 0 without trees.
    pub(crate) tree: u32,
    pub(crate) cpu: CpuId,
    pub(crate) set: u32,
    pub(crate) places: Places,
    /// True if its running time is the time that the thread ran there.
    pub(crate) clock: bool,
    /// True if its running time is the time that the set counted.
    pub(crate) counts: bool,
    /// True if its running time is the first member's value.
    pub(crate) timed: bool,
}

/// Events of a set that the members of a group count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    members: Vec<Option<usize>>,
    width: usize,
    whole: bool,
}

impl Places {
    /// Places by member: the event that it counts, of a set of `width` events.
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

    /// Bit mask of the events that are counted.
    pub(crate) fn present(&self) -> u64 {
        self.members
            .iter()
            .flatten()
            .fold(0, |bits, place| bits | 1u64 << (place % 64))
    }

    /// Values of the members in the order of the set's events; zero for events of other groups.
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
