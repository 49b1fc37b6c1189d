//! Counts of a row by event: the event set that its values go by, and a view that finds them.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use super::{Event, Sample};

const _: () = assert!(Event::ALL.len() <= u64::BITS as usize);

/// Which events the values of a row are of, compiled so that an event's place is found at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSet {
    /// By place; none where no portable event is counted.
    events: Vec<Option<Event>>,
    /// By event, its place.
    places: [u8; Event::ALL.len()],
    /// Event sets that are multiplexed, this one included; 1 where one counts all the time.
    sets: u32,
}

impl EventSet {
    /// Values that a row can mark as counted.
    pub const MOST: usize = u64::BITS as usize;
    const NOWHERE: u8 = u8::MAX;

    /// A set of these events, one of so many that are multiplexed.
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

    /// A bit per place of these values: it is there.
    #[must_use]
    pub fn present(values: impl IntoIterator<Item = Option<f64>>) -> u64 {
        let values = values.into_iter().take(Self::MOST).enumerate();
        values.fold(0, |bits, (place, value)| {
            bits | u64::from(value.is_some()) << place
        })
    }

    /// Of rows whose values are known by their places only.
    pub(super) fn unnamed() -> &'static Arc<Self> {
        static UNNAMED: LazyLock<Arc<EventSet>> = LazyLock::new(|| Arc::new(EventSet::new([], 1)));
        &UNNAMED
    }

    /// The same with one more event at its end.
    pub(super) fn with(&self, event: Event) -> Self {
        Self::new(self.events.iter().copied().chain([Some(event)]), self.sets)
    }

    /// The same events in the same places.
    pub(super) fn is(&self, events: impl Iterator<Item = Event>, sets: u32) -> bool {
        self.sets == sets && self.events.iter().copied().eq(events.map(Some))
    }

    /// By place, the event; none where no portable event is counted.
    #[must_use]
    pub fn events(&self) -> &[Option<Event>] {
        &self.events
    }

    pub(super) const fn len(&self) -> usize {
        self.events.len()
    }

    /// The place of an event's value.
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
    /// The value of an event.
    #[must_use]
    #[inline]
    pub fn get(&self, event: Event) -> Option<f64> {
        self.at(self.set.place(event)?)
    }

    /// The value in a place of the event set.
    #[must_use]
    #[inline]
    pub fn at(&self, place: usize) -> Option<f64> {
        let counted = place < EventSet::MOST && self.present >> place & 1 == 1;
        self.values.get(place).copied().filter(|_| counted)
    }

    /// `numerator / denominator`, when both are there and the denominator is positive.
    #[must_use]
    pub fn ratio(&self, numerator: Event, denominator: Event) -> Option<f64> {
        let below = self.get(denominator).filter(|d| *d > 0.0)?;
        Some(self.get(numerator)? / below)
    }

    /// The events that are available, with their values, in the order of the event set.
    pub fn iter(&self) -> impl Iterator<Item = (Event, f64)> + use<'a> {
        let counts = *self;
        let events = counts.set.events.iter().enumerate();
        events.filter_map(move |(place, event)| {
            let event = event.filter(|e| counts.set.place(*e) == Some(place))?;
            Some((event, counts.at(place)?))
        })
    }

    /// Which events the values are of.
    #[must_use]
    pub const fn event_set(&self) -> &'a Arc<EventSet> {
        self.set
    }

    /// All values by place, meaningless where nothing was counted.
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

/// A row of [`super::Samples`]: a sample with its counts.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    pub(super) sample: &'a Sample,
    pub counts: Counts<'a>,
}

impl Row<'_> {
    /// Event sets that are multiplexed; 1 where one counts all the time.
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
        // Which place an event has is of no account.
        let head = |row: &Self| Sample {
            present: 0,
            ..*row.sample
        };
        head(self) == head(other) && self.sets() == other.sets() && self.counts == other.counts
    }
}
