//! Samples: what one thread did to the counters of one core type in one interval.
//!
//! Output of every source (perf_event, resctrl, a simulated PMU); input of [`crate::metric`].

use std::fmt;

pub use crate::events::{EVENTS, Event, EventDef};
use crate::units::{CoreTypeId, CpuId, Nanos, ThreadId};

/// A set of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events(u64);

const _: () = assert!(Event::ALL.len() <= u64::BITS as usize);

impl Events {
    /// Adds the events that are available in a sample.
    pub const fn add(&mut self, counts: &Counts) {
        self.0 |= counts.present.0;
    }

    #[must_use]
    pub const fn has(self, event: Event) -> bool {
        self.0 >> event as u32 & 1 == 1
    }

    const fn insert(&mut self, event: Event) {
        self.0 |= 1 << event as u32;
    }

    /// Events of the set that stand before this one in the table.
    const fn before(self, event: Event) -> usize {
        (self.0 & ((1 << event as u32) - 1)).count_ones() as usize
    }

    const fn len(self) -> usize {
        self.0.count_ones() as usize
    }
}

/// Values by event; `None` is unavailable, never zero.
///
/// Holds the values of at most [`Counts::MOST`] events, one beside the other: samples stay small, of which thousands are moved
/// about each period.
#[derive(Clone, Copy, Default)]
pub struct Counts {
    present: Events,
    /// Values of the events that are available, in the order of the table.
    values: [f64; Self::MOST],
}

impl Counts {
    /// Events that one sample can hold. Event sets for policies are no larger.
    pub const MOST: usize = 24;

    /// The value of an event.
    #[must_use]
    pub const fn get(&self, event: Event) -> Option<f64> {
        if self.present.has(event) {
            Some(self.values[self.present.before(event)])
        } else {
            None
        }
    }

    /// Sets the value of an event. What is one event too many stays unavailable.
    pub fn set(&mut self, event: Event, value: f64) {
        let place = self.present.before(event);
        if !self.present.has(event) {
            let held = self.present.len();
            if held == Self::MOST {
                return;
            }
            self.values.copy_within(place..held, place + 1);
            self.present.insert(event);
        }
        self.values[place] = value;
    }

    /// The events that are available, with their values, in the order of the table.
    pub fn iter(&self) -> impl Iterator<Item = (Event, f64)> {
        let present = self.present;
        let all = Event::ALL.iter().copied();
        all.filter(move |event| present.has(*event))
            .zip(self.values)
    }

    /// `numerator / denominator`, when both are there and the denominator is positive.
    #[must_use]
    pub fn ratio(&self, numerator: Event, denominator: Event) -> Option<f64> {
        let below = self.get(denominator).filter(|d| *d > 0.0)?;
        Some(self.get(numerator)? / below)
    }
}

impl PartialEq for Counts {
    fn eq(&self, other: &Self) -> bool {
        self.present == other.present && self.iter().eq(other.iter())
    }
}

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.iter().map(|(event, value)| (event.def().name, value));
        f.debug_map().entries(named).finish()
    }
}

/// One thread's counts over one interval on one core type.
///
/// A thread that changed core type within a period yields one sample for each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Whose.
    pub thread: ThreadId,
    /// The CPU it last ran on within the interval.
    pub cpu: CpuId,
    /// The type of that CPU.
    pub core_type: CoreTypeId,
    /// End of the interval.
    pub at: Nanos,
    /// Which event set was counting.
    pub set: u32,
    /// Of how many that take turns; 1 where one counts all the time.
    pub sets: u32,
    /// Time the set was enabled for the thread while it ran on this core type.
    pub enabled: Nanos,
    /// Time it was really counting; less than `enabled` when others took the counters.
    pub running: Nanos,
    /// The counts, never scaled.
    pub counts: Counts,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_kept_in_whatever_order_they_come() {
        let mut counts = Counts::default();
        let events = Event::ALL;
        let order = |i: usize| events[i * 7 % Counts::MOST];
        (0..Counts::MOST).for_each(|i| counts.set(order(i), i as f64));
        counts.set(order(3), 30.0);
        assert!((0..Counts::MOST).all(|i| {
            let wanted = if i == 3 { 30.0 } else { i as f64 };
            counts.get(order(i)) == Some(wanted)
        }));
        let surplus = events[Counts::MOST];
        counts.set(surplus, 1.0);
        assert_eq!((counts.get(surplus), counts.iter().count()), (None, 24));
    }

    #[test]
    fn a_ratio_needs_both_sides() {
        let mut counts = Counts::default();
        counts.set(Event::Instructions, 10.0);
        assert_eq!(counts.ratio(Event::Instructions, Event::Cycles), None);
        counts.set(Event::Cycles, 5.0);
        assert_eq!(counts.ratio(Event::Instructions, Event::Cycles), Some(2.0));
    }
}
