//! Counts of a row by event: the event set of its values, and a view that finds them.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use super::{Event, Sample};

const _: () = assert!(Event::ALL.len() <= u64::BITS as usize);

/// Event set of a row's values, compiled for a constant-time look-up of an event's position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSet {
    /// Events by position; `None` for an event that is not portable.
    events: Vec<Option<Event>>,
    /// Positions by event.
    places: [u8; Event::ALL.len()],
    /// Number of multiplexed event sets, including this one; 1 if one counts all the time.
    sets: u32,
}

impl EventSet {
    /// Largest number of values that a row can mark as counted.
    pub const MOST: usize = u64::BITS as usize;
    const NOWHERE: u8 = u8::MAX;

    /// Creates a set of these events, one of `sets` multiplexed ones.
    #[must_use]
    pub fn new(events: impl IntoIterator<Item = Option<Event>>, sets: u32) -> Self {
        let events: Vec<Option<Event>> = events.into_iter().collect();
        let mut places = [Self::NOWHERE; Event::ALL.len()];
        for (place, event) in events.iter().enumerate().take(Self::MOST) {
            if let Some(event) = event {
                places[*event as usize] = place as u8;
            }
        }
        Self {
            events,
            places,
            sets,
        }
    }

    /// Returns a bit for each of these values: set if it is present.
    #[must_use]
    pub fn present(values: impl IntoIterator<Item = Option<f64>>) -> u64 {
        let values = values.into_iter().take(Self::MOST).enumerate();
        values.fold(0, |bits, (place, value)| {
            bits | u64::from(value.is_some()) << place
        })
    }

    /// Returns the event set of rows whose values are known by their positions only.
    pub(super) fn unnamed() -> &'static Arc<Self> {
        static UNNAMED: LazyLock<Arc<EventSet>> = LazyLock::new(|| Arc::new(EventSet::new([], 1)));
        &UNNAMED
    }

    /// Returns the set with one more event at its end.
    pub(super) fn with(&self, event: Event) -> Self {
        Self::new(self.events.iter().copied().chain([Some(event)]), self.sets)
    }

    /// True if the set has the same events in the same positions.
    pub(super) fn is(&self, events: impl Iterator<Item = Event>, sets: u32) -> bool {
        self.sets == sets && self.events.iter().copied().eq(events.map(Some))
    }

    /// Returns the events by position; `None` for an event that is not portable.
    #[must_use]
    pub fn events(&self) -> &[Option<Event>] {
        &self.events
    }

    pub(super) const fn len(&self) -> usize {
        self.events.len()
    }

    /// Returns the position of an event's value.
    #[inline]
    pub(super) const fn place(&self, event: Event) -> Option<usize> {
        match self.places[event as usize] {
            Self::NOWHERE => None,
            place => Some(place as usize),
        }
    }
}

/// Values of a row by event; `None` is unavailable, never zero.
#[derive(Clone, Copy)]
pub struct Counts<'a> {
    pub(super) set: &'a Arc<EventSet>,
    pub(super) present: u64,
    pub(super) values: &'a [f64],
}

impl<'a> Counts<'a> {
    /// Returns the value of an event.
    #[must_use]
    #[inline]
    pub fn get(&self, event: Event) -> Option<f64> {
        self.at(self.set.place(event)?)
    }

    /// Returns the value at a position of the event set.
    #[must_use]
    #[inline]
    pub fn at(&self, place: usize) -> Option<f64> {
        let counted = place < EventSet::MOST && self.present >> place & 1 == 1;
        self.values.get(place).copied().filter(|_| counted)
    }

    /// Returns `numerator / denominator` if both are present and the denominator is positive.
    #[must_use]
    pub fn ratio(&self, numerator: Event, denominator: Event) -> Option<f64> {
        let below = self.get(denominator).filter(|d| *d > 0.0)?;
        Some(self.get(numerator)? / below)
    }

    /// Returns the available events with their values, in the order of the event set.
    pub fn iter(&self) -> impl Iterator<Item = (Event, f64)> + use<'a> {
        let counts = *self;
        let events = counts.set.events.iter().enumerate();
        events.filter_map(move |(place, event)| {
            let event = event.filter(|e| counts.set.place(*e) == Some(place))?;
            Some((event, counts.at(place)?))
        })
    }

    /// Returns the event set of the values.
    #[must_use]
    pub const fn event_set(&self) -> &'a Arc<EventSet> {
        self.set
    }

    /// Returns all values by position, meaningless for those not counted.
    #[must_use]
    pub const fn values(&self) -> &'a [f64] {
        self.values
    }
}

impl PartialEq for Counts<'_> {
    fn eq(&self, other: &Self) -> bool {
        let all = Event::ALL.iter();
        all.copied().all(|e| self.get(e) == other.get(e))
    }
}

impl fmt::Debug for Counts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.iter().map(|(event, value)| (event.def().name, value));
        f.debug_map().entries(named).finish()
    }
}

/// Row of [`super::Samples`]: a sample with its counts.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    pub(super) sample: &'a Sample,
    pub counts: Counts<'a>,
}

impl Row<'_> {
    /// Returns the number of multiplexed event sets; 1 if one counts all the time.
    #[must_use]
    pub fn sets(&self) -> u32 {
        self.counts.set.sets
    }
}

impl Deref for Row<'_> {
    type Target = Sample;

    fn deref(&self) -> &Sample {
        self.sample
    }
}

impl PartialEq for Row<'_> {
    fn eq(&self, other: &Self) -> bool {
        // The positions of events do not matter for equality.
        let head = |row: &Self| Sample {
            present: 0,
            ..*row.sample
        };
        head(self) == head(other) && self.sets() == other.sets() && self.counts == other.counts
    }
}
