//! Sources of the counts of a set's events.

use std::mem::offset_of;
use std::ops::Range;

use countersteer_counters::{OfScheduler, Resolved};
use countersteer_model::units::CpuId;

use crate::generated::follow::{shared, types};

/// Source of an event's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CountSource {
    /// Context switches themselves: no counter is needed.
    Scheduler(OfScheduler),
    /// Counter, by its number among those that the set needs.
    Counter(u32),
}

#[derive(Clone, Debug)]
pub(super) struct Set(Vec<CountSource>);

#[derive(Clone, Debug)]
pub(super) struct FollowLayout {
    pub sets: Vec<Set>,
    pub counters: Vec<ClassCounters>,
    columns: Vec<CountColumns>,
}

#[derive(Clone, Debug)]
struct CountColumns {
    /// By event of the set: the field of a row that holds its count, if it is counted there.
    fields: Vec<Option<usize>>,
    /// Range of its counts among those of all kinds, with times.
    span: Range<usize>,
}

/// Number of times before the counts of events: enabled, running.
const TIMES: usize = 2;

/// Counters of a set on a class of CPUs, which may lack some.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClassCounters {
    /// Event by place, numbered among the set's events that need a counter.
    pub events: Vec<u32>,
    /// True if the counter in the first place measures how long the set counted. Software counters do not.
    pub timed: bool,
}

impl ClassCounters {
    /// Place of an event's counter; `None` if there is none.
    pub fn place_of(&self, event: u32) -> Option<usize> {
        self.events.iter().position(|e| *e == event)
    }
}

/// Counters of these events on a CPU.
fn counters(counted: &[Resolved], cpu: CpuId) -> ClassCounters {
    let mut counters = ClassCounters::default();
    for (event, resolved) in (0..).zip(counted) {
        let Some(encoding) = resolved.on(cpu) else {
            continue;
        };
        if encoding.software || counters.timed {
            counters.events.push(event);
        } else {
            counters.timed = true;
            counters.events.insert(0, event);
        }
    }
    counters
}

impl Set {
    fn of(events: &[Resolved]) -> Self {
        let mut next = 0;
        let source = |event: &Resolved| match OfScheduler::of(event) {
            Some(known) => CountSource::Scheduler(known),
            None => {
                next += 1;
                CountSource::Counter(next - 1)
            }
        };
        Self(events.iter().map(source).collect())
    }

    fn counters(&self) -> usize {
        self.0
            .iter()
            .filter(|source| matches!(source, CountSource::Counter(_)))
            .count()
    }

    /// Bit mask of the events that have counts with these counters.
    pub fn present(&self, counters: &ClassCounters) -> u64 {
        let has = |source: &CountSource| match source {
            CountSource::Scheduler(_) => true,
            CountSource::Counter(event) => counters.place_of(*event).is_some(),
        };
        self.0
            .iter()
            .enumerate()
            .filter(|(_, source)| has(source))
            .fold(0, |bits, (nth, _)| bits | 1 << (nth % 64))
    }
}

impl FollowLayout {
    /// Layout of these sets, if there is room for them.
    pub fn of(sets: &[Vec<Resolved>]) -> Result<Self, String> {
        let sets: Vec<Set> = sets.iter().map(|set| Set::of(set)).collect();
        let layout = Self {
            sets,
            counters: Vec::new(),
            columns: Vec::new(),
        };
        let have = layout.places();
        let most = shared::MAX_EVENTS as usize;
        if have > most {
            return Err(format!("{have} events in a set, of {most} at most"));
        }
        Ok(layout)
    }

    /// Adds the kinds of a class of CPUs that contains `cpu`.
    pub fn add_class(&mut self, counted: &[Vec<Resolved>], cpu: CpuId) {
        for (set, counted) in self.sets.iter().zip(counted) {
            let counters = counters(counted, cpu);
            let field = |source: &CountSource| match source {
                CountSource::Scheduler(OfScheduler::Clock) => Some(offset_of!(types::row, time_ns)),
                CountSource::Scheduler(OfScheduler::Switches) => {
                    Some(offset_of!(types::row, switches))
                }
                CountSource::Scheduler(OfScheduler::Migrations) => {
                    Some(offset_of!(types::row, migrations))
                }
                CountSource::Counter(event) => counters
                    .place_of(*event)
                    .map(|place| offset_of!(types::row, counts) + 8 * place),
            };
            let fields = set.0.iter().map(field).collect();
            let first = self.width();
            self.columns.push(CountColumns {
                fields,
                span: first..first + TIMES + set.0.len(),
            });
            self.counters.push(counters);
        }
    }

    /// Counts of a row of this kind, which `read` reads by field: enabled and running time, then the count of each event.
    #[inline]
    pub fn counts(&self, kind: usize, read: impl Fn(usize) -> u64, into: &mut [u64]) {
        let [enabled, running, values @ ..] = into else {
            return;
        };
        *enabled = read(offset_of!(types::row, time_ns));
        *running = if self.counters[kind].timed {
            read(offset_of!(types::row, running_ns)).min(*enabled)
        } else {
            *enabled
        };
        for (value, field) in values.iter_mut().zip(&self.columns[kind].fields) {
            *value = field.map_or(0, &read);
        }
    }

    /// Range of this kind's counts among those of all kinds.
    #[inline]
    pub fn span(&self, kind: usize) -> Range<usize> {
        self.columns[kind].span.clone()
    }

    /// Number of counts of all kinds.
    pub fn width(&self) -> usize {
        self.columns.last().map_or(0, |last| last.span.end)
    }

    /// Places for events in the largest set.
    pub fn places(&self) -> usize {
        self.sets.iter().map(Set::counters).max().unwrap_or(0)
    }

    /// True if any of these events measures how long it counted.
    pub fn is_timed(sets: &[Vec<Resolved>]) -> bool {
        let knows = |event: &Resolved| event.encodings.iter().any(|encoding| !encoding.software);
        sets.iter().flatten().any(knows)
    }

    /// Events that need counters, by set and place.
    pub fn counted(&self, sets: &[Vec<Resolved>]) -> Vec<Vec<Resolved>> {
        let needs = |set: &Vec<Resolved>| {
            set.iter()
                .filter(|e| OfScheduler::of(e).is_none())
                .cloned()
                .collect()
        };
        sets.iter().map(needs).collect()
    }
}

#[cfg(test)]
mod tests {
    use countersteer_counters::Encoding;
    use countersteer_model::counters::{PlannedEvent, Space};
    use countersteer_model::cpuset::CpuSet;

    use super::*;

    /// Software event by its config, or event of PMUs on these CPUs.
    fn event(software: Option<u64>, pmus: &[u32]) -> Resolved {
        let planned = PlannedEvent {
            name: "event".into(),
            unit: String::new(),
            scale: 1.0,
            event: None,
        };
        let encoding = |cpu: Option<&u32>| Encoding {
            pmu: cpu.map_or("software".into(), |cpu| format!("pmu{cpu}")),
            cpus: cpu.map(|cpu| CpuSet::from_iter([CpuId(*cpu)])),
            kind: 1,
            config: [software.unwrap_or(9), 0, 0, 0],
            software: cpu.is_none(),
            system: false,
        };
        let encodings = if software.is_some() {
            vec![encoding(None)]
        } else {
            pmus.iter().map(Some).map(encoding).collect()
        };
        let space = Space {
            user: true,
            kernel: true,
        };
        Resolved {
            planned,
            encodings,
            space,
            in_kernel: false,
            every: None,
        }
    }

    #[test]
    fn counts_come_from_where_they_are() {
        let clock = event(Some(1), &[]);
        let faults = event(Some(2), &[]);
        let everywhere = event(None, &[0, 1]);
        let there = event(None, &[1]);
        let switches = event(Some(3), &[]);
        let sets = vec![vec![clock, faults, there, everywhere, switches]];
        let mut layout = FollowLayout::of(&sets).unwrap();
        let counted = layout.counted(&sets);
        assert_eq!((layout.places(), counted[0].len()), (3, 3));
        (0..2).for_each(|cpu| layout.add_class(&counted, CpuId(cpu)));
        // The first CPU has one event less. The software event, which does not measure how long it counted, comes after one
        // that does.
        assert_eq!(
            (&layout.counters[0].events[..], layout.counters[0].timed),
            (&[2, 0][..], true)
        );
        assert_eq!(
            (&layout.counters[1].events[..], layout.counters[1].timed),
            (&[1, 0, 2][..], true)
        );
        assert_eq!(layout.sets[0].present(&layout.counters[0]), 0b11011);
        let row: [u64; 6] = [100, 90, 3, 2, 6, 5];
        assert_eq!(
            (layout.span(0), layout.span(1), layout.width()),
            (0..7, 7..14, 14)
        );
        let mut counts = [8; 7];
        layout.counts(0, |field| row[field / 8], &mut counts);
        assert_eq!(counts, [100, 90, 100, 5, 0, 6, 3]);
    }

    #[test]
    fn more_events_than_there_are_places_for_are_refused() {
        let sets = vec![vec![event(None, &[0]); 9]];
        assert_eq!(
            FollowLayout::of(&sets).err().as_deref(),
            Some("9 events in a set, of 8 at most")
        );
    }
}
