//! Table of countable events by portable name, with their sources on every backend.
//!
//! Command lines, metrics, machine files, records, `perf_event`, virtual counters and the simulator all refer to the rows of
//! this table ([`EVENTS`]). A backend that cannot count an event omits it from a sample; it never reports zero.

mod own;
mod table;

use std::fmt;

pub use table::{EVENTS, Event};

/// Row of the event table: an event with its names, unit and source.
#[derive(Clone, Copy, Debug)]
pub struct EventDef {
    pub event: Event,
    /// Portable name of the event in records and on command lines.
    pub name: &'static str,
    /// Other names of the event, including those of perf and PMCTrack; `-` and `_` are equivalent in all names.
    pub aliases: &'static [&'static str],
    /// Unit of a count; empty for plain counts.
    pub unit: &'static str,
    /// Source of the event's counts on real machines.
    pub source: EventOrigin,
    pub prose: &'static str,
}

/// Source of an event's counts on a real machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventOrigin {
    /// Generic event of the kernel, which has the same meaning on every processor (`perf_event_open(2)`).
    Kernel {
        /// Event type: `PERF_TYPE_HARDWARE`, `PERF_TYPE_SOFTWARE` or `PERF_TYPE_HW_CACHE`.
        kind: u32,
        config: u64,
        /// True if the event occurs in kernel mode, so that counting user mode only would show zero.
        in_kernel: bool,
    },
    /// Event with processor-specific codes, one per group of PMUs.
    Processor(&'static [ProcessorEvent]),
    /// Virtual counter that is read per thread.
    Virtual {
        /// Name of the virtual counter.
        counter: &'static str,
        /// Number of events per unit of the virtual counter.
        factor: u64,
    },
    /// Count that programs report on their hint page.
    Program,
    /// Count that exists only in the simulator.
    Simulator,
}

/// Encoding of an event on one or several PMUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessorEvent {
    /// Names of PMUs (`cpu_core`) or of their models (`skylake`, `zen`) with this encoding. Empty for every PMU whose own list
    /// contains `terms`.
    pub pmus: &'static [&'static str],
    /// Name of the event in the PMU's own list (`l2d_cache_refill`), or terms (`event=0x24,umask=0x3f`).
    pub terms: &'static str,
}

const HARDWARE: u32 = 0;
const SOFTWARE: u32 = 1;
const CACHE: u32 = 3;

impl EventOrigin {
    const fn hardware(config: u64) -> Self {
        let in_kernel = false;
        Self::Kernel {
            kind: HARDWARE,
            config,
            in_kernel,
        }
    }

    const fn software(config: u64, in_kernel: bool) -> Self {
        Self::Kernel {
            kind: SOFTWARE,
            config,
            in_kernel,
        }
    }

    /// Returns the source that counts reads of a cache: misses, or all accesses. `cache` is the kernel's number of the cache.
    const fn cache(cache: u64, misses: bool) -> Self {
        let in_kernel = false;
        Self::Kernel {
            kind: CACHE,
            config: cache | (misses as u64) << 16,
            in_kernel,
        }
    }
}

impl EventDef {
    /// Returns type and config for `perf_event_open`; `None` if they depend on the processor or `perf_event` does not count the
    /// event.
    #[must_use]
    pub const fn perf(&self) -> Option<(u32, u64)> {
        match self.source {
            EventOrigin::Kernel { kind, config, .. } => Some((kind, config)),
            _ => None,
        }
    }

    /// True if `perf_event` counts this event on at least one processor.
    #[must_use]
    pub const fn is_counted(&self) -> bool {
        matches!(
            self.source,
            EventOrigin::Kernel { .. } | EventOrigin::Processor(_)
        )
    }

    /// True if the kernel counts this event in software.
    #[must_use]
    pub const fn is_software(&self) -> bool {
        matches!(self.source, EventOrigin::Kernel { kind: SOFTWARE, .. })
    }

    /// True if the event occurs in kernel mode, so that counting user mode only would show zero.
    #[must_use]
    pub const fn is_in_kernel(&self) -> bool {
        matches!(
            self.source,
            EventOrigin::Kernel {
                in_kernel: true,
                ..
            }
        )
    }

    /// Returns the row of an event, given its name or an alias in any spelling. `None` if the name is unknown.
    #[must_use]
    pub fn by_name(name: &str) -> Option<&'static Self> {
        let exact = EVENTS.iter().find(|row| row.name == name);
        let exact = exact.or_else(|| own::by_name(name));
        exact.or_else(|| {
            let name = name.replace('-', "_").to_ascii_lowercase();
            EVENTS
                .iter()
                .find(|row| row.name == name || row.aliases.contains(&name.as_str()))
        })
    }
}

impl Event {
    #[must_use]
    pub fn def(self) -> &'static EventDef {
        let row = self as usize;
        EVENTS
            .get(row)
            .unwrap_or_else(|| own::def(row - EVENTS.len()))
    }

    /// Returns the event of a portable name, of an alias, or of a string passed to [`Self::named`] before. `None` if the name is
    /// unknown.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        EventDef::by_name(name).map(|row| row.event)
    }

    /// Returns the event of a name, or of a string that encodes it on some processor. Such a string is a raw code (`r01c2`), a
    /// PMU with terms (`cpu/event=0x2e,umask=0x41/`), or a vendor's name, which contains a dot (`uops_retired.slots`). `None`
    /// for any other string, and if the process has already named as many such strings as [`Self::OWN`] has slots.
    #[must_use]
    pub fn named(text: &str) -> Option<Self> {
        let row = EventDef::by_name(text).or_else(|| own::named(text));
        row.map(|row| row.event)
    }

    /// True for a processor-specific event outside the table, identified by the string that encodes it.
    #[must_use]
    pub const fn is_own(self) -> bool {
        self as usize >= EVENTS.len()
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
    fn rows_stand_in_the_order_of_the_enum_and_names_are_unique() {
        let mut names = Vec::new();
        for (i, row) in EVENTS.iter().enumerate() {
            assert_eq!(row.event as usize, i);
            assert_eq!(Event::by_name(row.name), Some(row.event));
            names.extend(row.aliases.iter().copied().chain([row.name]));
        }
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn names_are_found_however_they_are_spelt() {
        assert_eq!(Event::by_name("LLC-misses"), Some(Event::LlcMisses));
        assert_eq!(Event::by_name("instr"), Some(Event::Instructions));
        assert_eq!(Event::by_name("nothing"), None);
    }
}
