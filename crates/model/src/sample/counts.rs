//! Counts of a row by event: the event set of the values, and a view for look-ups by event.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use super::{Event, Sample};

const _: () = assert!(Event::ALL.len() <= u64::BITS as usize);

/// Event set of a row's values, with a table for constant-time look-up of an event's position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSet {
    /// Event at each position; `None` for an event that is not in the event table.
    events: Vec<Option<Event>>,
    /// Position of each event of the event table, or [`Self::NOWHERE`].
    places: [u8; Event::ALL.len()],
    /// Number of multiplexed event sets, including this one; 1 without multiplexing.
    sets: u32,
}

impl EventSet {
    /// Limit on the number of values of a row, one bit each in `present`.
    pub const MOST: usize = u64::BITS as usize;
    /// Position of events that the set does not have.
    const NOWHERE: u8 = u8::MAX;

    /// Creates an event set with these events; `sets` is the number of multiplexed event sets.
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

    /// Returns a bit mask with one bit per value, set if the value is present.
    #[must_use]
    pub fn present(values: impl IntoIterator<Item = Option<f64>>) -> u64 {
        let values = values.into_iter().take(Self::MOST).enumerate();
        values.fold(0, |bits, (place, value)| {
            bits | u64::from(value.is_some()) << place
        })
    }

    /// Returns the event set for rows whose values have positions but no events.
    pub(super) fn unnamed() -> &'static Arc<Self> {
        static UNNAMED: LazyLock<Arc<EventSet>> = LazyLock::new(|| Arc::new(EventSet::new([], 1)));
        &UNNAMED
    }

    /// Returns a copy of the event set with one more event at the end.
    pub(super) fn with(&self, event: Event) -> Self {
        Self::new(self.events.iter().copied().chain([Some(event)]), self.sets)
    }

    /// True if the set has these events in this order and the same number of multiplexed sets.
    pub(super) fn is(&self, events: impl Iterator<Item = Event>, sets: u32) -> bool {
        self.sets == sets && self.events.iter().copied().eq(events.map(Some))
    }

    /// Returns the event at each position; `None` for an event that is not in the event table.
    #[must_use]
    pub fn events(&self) -> &[Option<Event>] {
        &self.events
    }

    pub(super) const fn len(&self) -> usize {
        self.events.len()
    }

    /// Returns the position of an event's value; `None` if the set does not have the event.
    #[inline]
    pub(super) const fn place(&self, event: Event) -> Option<usize> {
        match self.places[event as usize] {
            Self::NOWHERE => None,
            place => Some(place as usize),
        }
    }
}

/// Values of a row by event; an unavailable value is `None`, never zero.
#[derive(Clone, Copy)]
pub struct Counts<'a> {
    pub(super) set: &'a Arc<EventSet>,
    pub(super) present: u64,
    pub(super) values: &'a [f64],
}

impl<'a> Counts<'a> {
    /// Returns the value of an event; `None` if it was not counted.
    #[must_use]
    #[inline]
    pub fn get(&self, event: Event) -> Option<f64> {
        self.at(self.set.place(event)?)
    }

    /// Returns the value at a position of the event set; `None` if the event was not counted.
    #[must_use]
    #[inline]
    pub fn at(&self, place: usize) -> Option<f64> {
        let counted = place < EventSet::MOST && self.present >> place & 1 == 1;
        self.values.get(place).copied().filter(|_| counted)
    }

    /// Returns `numerator / denominator`; `None` if one of the two was not counted or the
    /// denominator is not positive.
    #[must_use]
    pub fn ratio(&self, numerator: Event, denominator: Event) -> Option<f64> {
        let below = self.get(denominator).filter(|d| *d > 0.0)?;
        Some(self.get(numerator)? / below)
    }

    /// Iterates over the counted events and their values, in the order of the event set.
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

    /// Returns all values by position. The value of an event that was not counted is meaningless.
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
pub struct SampleRow<'a> {
    pub(super) sample: &'a Sample,
    pub counts: Counts<'a>,
}

impl SampleRow<'_> {
    /// Returns the number of multiplexed event sets; 1 without multiplexing.
    #[must_use]
    pub fn sets(&self) -> u32 {
        self.counts.set.sets
    }
}

impl Deref for SampleRow<'_> {
    type Target = Sample;

    fn deref(&self) -> &Sample {
        self.sample
    }
}

impl PartialEq for SampleRow<'_> {
    fn eq(&self, other: &Self) -> bool {
        // Two rows are equal even if their event sets list the events in different orders.
        let head = |row: &Self| Sample {
            present: 0,
            ..*row.sample
        };
        head(self) == head(other) && self.sets() == other.sets() && self.counts == other.counts
    }
}
