//! Where the counts of a set's events come from.

use countersteer_core::units::CpuId;
use countersteer_host::counters::{OfScheduler, Resolved};

use crate::generated::follow::{shared, types};

/// Where an event's count is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// Whoever switches threads knows it.
    Scheduler(OfScheduler),
    /// A counter: which of those that the set needs.
    Counter(u32),
}

/// A set's events.
#[derive(Clone, Debug)]
pub(super) struct Set(Vec<Source>);

/// All sets.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub sets: Vec<Set>,
    /// By class and set.
    pub counters: Vec<Counters>,
    /// Likewise: where the count of each of the set's events is.
    columns: Vec<Vec<Column>>,
}

/// Where the count of an event is in rows of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Scheduler(OfScheduler),
    Place(usize),
    /// It is not counted there.
    Nowhere,
}

/// Counters of a set on a class of CPUs, which may lack some.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// By place: which of the set's events that need a counter.
    pub events: Vec<u32>,
    /// The place of one that knows how long the set counted. Those of the kernel itself do not.
    pub timed: Option<usize>,
}

impl Counters {
    /// Where an event is counted.
    pub fn place_of(&self, event: u32) -> Option<usize> {
        self.events.iter().position(|e| *e == event)
    }
}

/// The counters of these events on a CPU.
fn counters(counted: &[Resolved], cpu: CpuId) -> Counters {
    let mut counters = Counters::default();
    for (event, resolved) in (0..).zip(counted) {
        let Some(encoding) = resolved.on(cpu) else { continue };
        if !encoding.software && counters.timed.is_none() {
            counters.timed = Some(counters.events.len());
        }
        counters.events.push(event);
    }
    counters
}

impl Set {
    fn of(events: &[Resolved]) -> Self {
        let mut next = 0;
        let source = |event: &Resolved| match OfScheduler::of(event) {
            Some(known) => Source::Scheduler(known),
            None => {
                next += 1;
                Source::Counter(next - 1)
            }
        };
        Self(events.iter().map(source).collect())
    }

    fn counters(&self) -> usize {
        self.0.iter().filter(|source| matches!(source, Source::Counter(_))).count()
    }

    /// A bit per event, where these places have counters.
    pub fn present(&self, counters: &Counters) -> u64 {
        let has = |source: &Source| match source {
            Source::Scheduler(_) => true,
            Source::Counter(event) => counters.place_of(*event).is_some(),
        };
        self.0.iter().enumerate().filter(|(_, source)| has(source)).fold(0, |bits, (nth, _)| bits | 1 << (nth % 64))
    }
}

impl Layout {
    /// Of these sets, if there is room for them.
    pub fn of(sets: &[Vec<Resolved>]) -> Result<Self, String> {
        let sets: Vec<Set> = sets.iter().map(|set| Set::of(set)).collect();
        let layout = Self { sets, counters: Vec::new(), columns: Vec::new() };
        let (have, most) = (layout.places(), shared::MAX_EVENTS as usize);
        if have > most {
            return Err(format!("{have} events in a set, of {most} at most"));
        }
        Ok(layout)
    }

    /// Adds the kinds of a class of CPUs, of which this is one.
    pub fn add_class(&mut self, counted: &[Vec<Resolved>], cpu: CpuId) {
        for (set, counted) in self.sets.iter().zip(counted) {
            let counters = counters(counted, cpu);
            let column = |source: &Source| match source {
                Source::Scheduler(of) => Column::Scheduler(*of),
                Source::Counter(event) => counters.place_of(*event).map_or(Column::Nowhere, Column::Place),
            };
            self.columns.push(set.0.iter().map(column).collect());
            self.counters.push(counters);
        }
    }

    /// Of a kind's row: enabled and running time, then what each event has counted.
    pub fn counts(&self, kind: usize, row: &types::row, into: &mut Vec<u64>) {
        let timed = self.counters[kind].timed.is_some();
        let running = if timed { row.running_ns.min(row.time_ns) } else { row.time_ns };
        let count = |column: &Column| match *column {
            Column::Scheduler(OfScheduler::Clock) => row.time_ns,
            Column::Scheduler(OfScheduler::Switches) => row.switches,
            Column::Scheduler(OfScheduler::Migrations) => row.migrations,
            Column::Place(place) => row.counts[place],
            Column::Nowhere => 0,
        };
        into.clear();
        into.extend_from_slice(&[row.time_ns, running]);
        for column in &self.columns[kind] {
            into.push(count(column));
        }
    }

    /// Places for events in the largest set.
    pub fn places(&self) -> usize {
        self.sets.iter().map(Set::counters).max().unwrap_or(0)
    }

    /// The events that need counters, by set and place.
    pub fn counted(&self, sets: &[Vec<Resolved>]) -> Vec<Vec<Resolved>> {
        let needs = |set: &Vec<Resolved>| set.iter().filter(|e| OfScheduler::of(e).is_none()).cloned().collect();
        sets.iter().map(needs).collect()
    }
}

#[cfg(test)]
mod tests {
    use countersteer_core::counters::{PlannedEvent, Space};
    use countersteer_core::cpuset::CpuSet;
    use countersteer_host::counters::Encoding;

    use super::*;

    /// An event of the kernel itself by its config, or of PMUs on these CPUs.
    fn event(software: Option<u64>, pmus: &[u32]) -> Resolved {
        let planned = PlannedEvent { name: "event".into(), unit: String::new(), scale: 1.0, event: None };
        let encoding = |cpu: Option<&u32>| Encoding {
            pmu: cpu.map_or("software".into(), |cpu| format!("pmu{cpu}")),
            cpus: cpu.map(|cpu| CpuSet::from_iter([CpuId(*cpu)])),
            kind: 1,
            config: [software.unwrap_or(9), 0, 0, 0],
            software: cpu.is_none(),
            system: false,
        };
        let encodings =
            if software.is_some() { vec![encoding(None)] } else { pmus.iter().map(Some).map(encoding).collect() };
        let space = Space { user: true, kernel: true };
        Resolved { planned, encodings, space, in_kernel: false, every: None }
    }

    #[test]
    fn counts_come_from_where_they_are() {
        let clock = event(Some(1), &[]);
        let faults = event(Some(2), &[]);
        let (everywhere, there) = (event(None, &[0, 1]), event(None, &[1]));
        let switches = event(Some(3), &[]);
        let sets = vec![vec![clock, faults, there, everywhere, switches]];
        let mut layout = Layout::of(&sets).unwrap();
        let counted = layout.counted(&sets);
        assert_eq!((layout.places(), counted[0].len()), (3, 3));
        (0..2).for_each(|cpu| layout.add_class(&counted, CpuId(cpu)));
        // The first CPU has one event less; the kernel's own does not know how long it counted.
        assert_eq!((&layout.counters[0].events[..], layout.counters[0].timed), (&[0, 2][..], Some(1)));
        assert_eq!((&layout.counters[1].events[..], layout.counters[1].timed), (&[0, 1, 2][..], Some(1)));
        assert_eq!(layout.sets[0].present(&layout.counters[0]), 0b11011);
        let row = types::row {
            time_ns: 100,
            running_ns: 90,
            switches: 3,
            counts: [5, 6, 0, 0, 0, 0, 0, 0],
            ..types::row::default()
        };
        let mut counts = vec![8];
        layout.counts(0, &row, &mut counts);
        assert_eq!(counts, [100, 90, 100, 5, 0, 6, 3]);
    }

    #[test]
    fn more_events_than_there_are_places_for_are_refused() {
        let sets = vec![vec![event(None, &[0]); 9]];
        assert_eq!(Layout::of(&sets).err().as_deref(), Some("9 events in a set, of 8 at most"));
    }
}
