//! Samples: what one thread did to the counters of one core type in one interval.
//!
//! Output of every source (perf_event, resctrl, a simulated PMU); input of [`crate::metric`].

use std::fmt;

use crate::units::{CoreTypeId, CpuId, Nanos, ThreadId};

/// A countable event by its portable name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Event {
    Instructions,
    Cycles,
    L2Misses,
    LlcReferences,
    LlcMisses,
    Branches,
    BranchMisses,
    EnergyNj,
    LlcOccupancyBytes,
    SfTrue,
    Work,
}

/// How an event comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A counter of the core's PMU.
    Hardware,
    /// Something else read together with the counters.
    Virtual,
}

/// A row of the event table.
#[derive(Clone, Copy, Debug)]
pub struct EventDef {
    /// The event.
    pub event: Event,
    /// Its portable name; records and command lines use it.
    pub name: &'static str,
    /// Counter or not.
    pub kind: EventKind,
    /// What is counted.
    pub prose: &'static str,
}

/// Every event, in the order of [`Event`].
pub const EVENTS: [EventDef; 11] = {
    use EventKind::{Hardware, Virtual};
    const fn row(
        event: Event,
        name: &'static str,
        kind: EventKind,
        prose: &'static str,
    ) -> EventDef {
        EventDef {
            event,
            name,
            kind,
            prose,
        }
    }
    [
        row(
            Event::Instructions,
            "instructions",
            Hardware,
            "instructions retired",
        ),
        row(
            Event::Cycles,
            "cycles",
            Hardware,
            "core cycles while not halted",
        ),
        row(
            Event::L2Misses,
            "l2_misses",
            Hardware,
            "data accesses that left the core's private caches",
        ),
        row(
            Event::LlcReferences,
            "llc_references",
            Hardware,
            "accesses to the last-level cache",
        ),
        row(
            Event::LlcMisses,
            "llc_misses",
            Hardware,
            "accesses that missed the last-level cache",
        ),
        row(Event::Branches, "branches", Hardware, "branches retired"),
        row(
            Event::BranchMisses,
            "branch_misses",
            Hardware,
            "mispredicted branches",
        ),
        row(
            Event::EnergyNj,
            "energy_nj",
            Virtual,
            "energy attributed to the thread, nanojoules",
        ),
        row(
            Event::LlcOccupancyBytes,
            "llc_occupancy_bytes",
            Virtual,
            "bytes held in the last-level cache at the sample's end",
        ),
        row(
            Event::SfTrue,
            "sf_true",
            Virtual,
            "true speed-up factor of the current phase; only a simulator knows it",
        ),
        row(
            Event::Work,
            "work",
            Virtual,
            "units of work that the program says are done; in a simulator, instructions",
        ),
    ]
};

/// Values by event; `None` is unavailable, never zero.
#[derive(Clone, Copy, Default, PartialEq)]
pub struct Counts {
    /// A bit per event: available. One word for all keeps samples small, of which thousands are moved about each period.
    present: u32,
    /// Zero where unavailable.
    values: [f64; EVENTS.len()],
}

impl Counts {
    /// The value of an event.
    #[must_use]
    pub const fn get(&self, event: Event) -> Option<f64> {
        if self.present >> event as u32 & 1 == 1 {
            Some(self.values[event as usize])
        } else {
            None
        }
    }

    /// Sets the value of an event.
    pub const fn set(&mut self, event: Event, value: f64) {
        self.present |= 1 << event as u32;
        self.values[event as usize] = value;
    }

    /// `numerator / denominator`, when both are there and the denominator is positive.
    #[must_use]
    pub fn ratio(&self, numerator: Event, denominator: Event) -> Option<f64> {
        let below = self.get(denominator).filter(|d| *d > 0.0)?;
        Some(self.get(numerator)? / below)
    }
}

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(
                EVENTS
                    .iter()
                    .filter_map(|row| Some((row.name, self.get(row.event)?))),
            )
            .finish()
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

impl Event {
    /// Its row.
    #[must_use]
    pub const fn def(self) -> &'static EventDef {
        &EVENTS[self as usize]
    }

    /// The event of a portable name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        EVENTS
            .iter()
            .find(|row| row.name == name)
            .map(|row| row.event)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.def().name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_in_the_order_of_the_enum() {
        for (i, row) in EVENTS.iter().enumerate() {
            assert_eq!(row.event as usize, i);
            assert_eq!(Event::by_name(row.name), Some(row.event));
        }
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
