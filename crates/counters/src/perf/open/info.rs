//! Description of an open group: its CPU, its set, and the index of each of its events in the set.

use countersteer_model::units::CpuId;

/// Description of an open group, by which its times and values are interpreted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupInfo {
    /// Index of the tree of threads that the group counts; 0 if there are no trees.
    pub(crate) tree: u32,
    /// CPU on which the group counts.
    pub(crate) cpu: CpuId,
    /// Index of the event set.
    pub(crate) set: u32,
    /// Index in the set of each member.
    pub(crate) places: MemberPlaces,
    /// True if the group's running time is the time that the thread ran on the CPU.
    pub(crate) clock: bool,
    /// True if the group's running time is the time that the set counted.
    pub(crate) counts: bool,
    /// True if the first member's value is replaced by the group's running time.
    pub(crate) timed: bool,
}

/// Assignment of a group's members to the events of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemberPlaces {
    members: Vec<Option<usize>>,
    width: usize,
    whole: bool,
}

impl MemberPlaces {
    /// Returns the assignment: for each member, the index of the event that it counts in a set of `width`
    /// events. `None` for members that count none.
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

    /// Returns the bit mask of the set's events that the members count.
    pub(crate) fn present(&self) -> u64 {
        self.members
            .iter()
            .flatten()
            .fold(0, |bits, place| bits | 1u64 << (place % 64))
    }

    /// Returns the values of the members in the order of the set's events, with zero for events of other
    /// groups. `into` is a buffer.
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
