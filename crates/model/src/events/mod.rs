//! Countable events by portable name, with their sources on every backend.
//!
//! One table ([`EVENTS`]). Command lines, metrics, machine files, records, `perf_event`, the virtual counters and the simulator
//! all refer to its rows. A backend that cannot count an event leaves it out of a sample; it never counts zero.

mod own;
mod table;

use std::fmt;

pub use table::{EVENTS, Event};

/// Row of the event table.
#[derive(Clone, Copy, Debug)]
pub struct EventDef {
    pub event: Event,
    /// Portable name in records and command lines.
    pub name: &'static str,
    /// Other names, including those of perf and PMCTrack; `-` and `_` are equivalent in all.
    pub aliases: &'static [&'static str],
    /// Unit of a count; empty for plain counts.
    pub unit: &'static str,
    /// Source on real machines.
    pub source: Source,
    pub prose: &'static str,
}

/// Source of an event on a real machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Generic event of the kernel with one meaning on every processor (`perf_event_open(2)`).
    Kernel {
        /// `PERF_TYPE_HARDWARE`, `PERF_TYPE_SOFTWARE` or `PERF_TYPE_HW_CACHE`.
        kind: u32,
        config: u64,
        /// True if it happens in the kernel: counting user mode only would show zero.
        in_kernel: bool,
    },
    /// Event with processor-specific codes.
    Processor(&'static [ProcessorEvent]),
    /// Virtual counter of threads.
    Virtual {
        /// Name of the virtual counter.
        counter: &'static str,
        /// Number of events per unit of the virtual counter.
        factor: u64,
    },
    /// Reported by programs on their hint page.
    Program,
    /// Known to the simulator only.
    Simulator,
}

/// Encoding of an event on the PMUs of some processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessorEvent {
    /// Names of PMUs (`cpu_core`) or of their models (`skylake`, `zen`); empty for any PMU that names the event itself.
    pub pmus: &'static [&'static str],
    /// Name from the PMU's own list (`l2d_cache_refill`), or terms (`event=0x24,umask=0x3f`).
    pub terms: &'static str,
}

const HARDWARE: u32 = 0;
const SOFTWARE: u32 = 1;
const CACHE: u32 = 3;

impl Source {
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

    /// Returns the event of reads of a cache, given the kernel's number of the cache: misses, or all accesses.
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
    /// Returns type and config for `perf_event_open`; `None` if they depend on the processor.
    #[must_use]
    pub const fn perf(&self) -> Option<(u32, u64)> {
        match self.source {
            Source::Kernel { kind, config, .. } => Some((kind, config)),
            _ => None,
        }
    }

    /// True if `perf_event` counts it on some processor.
    #[must_use]
    pub const fn is_counted(&self) -> bool {
        matches!(self.source, Source::Kernel { .. } | Source::Processor(_))
    }

    /// True if it takes a counter of the core's PMU.
    #[must_use]
    pub const fn takes_counter(&self) -> bool {
        self.is_counted() && !self.is_software()
    }

    /// True if the kernel counts it without hardware.
    #[must_use]
    pub const fn is_software(&self) -> bool {
        matches!(self.source, Source::Kernel { kind: SOFTWARE, .. })
    }

    /// True if it happens in the kernel, so that counting user mode only would show zero.
    #[must_use]
    pub const fn is_in_kernel(&self) -> bool {
        matches!(
            self.source,
            Source::Kernel {
                in_kernel: true,
                ..
            }
        )
    }

    /// Returns the row of a name, in any spelling.
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

    /// Returns the event of a portable name, one of its aliases, or a string that [`Self::named`] has seen.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        EventDef::by_name(name).map(|row| row.event)
    }

    /// Returns the event of a name, or of a string that encodes it on some processor. Such a string is a raw code (`r01c2`), a
    /// PMU with terms (`cpu/event=0x2e,umask=0x41/`), or a vendor's name, which contains a dot (`uops_retired.slots`). `None` if
    /// it is neither, or if the process has named more than [`Self::OWN`] such strings.
    #[must_use]
    pub fn named(text: &str) -> Option<Self> {
        let row = EventDef::by_name(text).or_else(|| own::named(text));
        row.map(|row| row.event)
    }

    /// True for a processor's event outside the table, known by the string that encodes it.
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
