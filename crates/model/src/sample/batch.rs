//! Batch of samples: one head per row, and the values of all rows in one array.
//!
//! A source writes thousands of rows without allocation, and clears the batch for the next period. Values are floating point,
//! which represents integers up to 2^53 exactly: more than the cycles of a CPU in twenty days.

use std::fmt;
use std::sync::Arc;

use super::{Counts, Event, EventSet, Sample, SampleRow};
use crate::units::{Nanos, ThreadId};

/// Batch of samples: rows with their values.
#[derive(Clone, Default)]
pub struct Samples {
    rows: Vec<Sample>,
    /// Position of each row's values in the array.
    spans: Vec<RowSpan>,
    values: Vec<f64>,
    /// Event sets of the rows; those that the source numbers itself come first.
    sets: Vec<Arc<EventSet>>,
}

/// Position and event set of a row's values.
#[derive(Clone, Copy)]
struct RowSpan {
    first: usize,
    values: u32,
    /// Index in `sets`, or [`UNNAMED`].
    set: u32,
}

/// Index of an event set that is unknown: the values of the row have positions but no events.
const UNNAMED: u32 = u32::MAX;

impl Samples {
    /// Creates an empty batch for a source that numbers its event sets in this order.
    #[must_use]
    pub const fn by_sets(sets: Vec<Arc<EventSet>>) -> Self {
        Self {
            rows: Vec::new(),
            spans: Vec::new(),
            values: Vec::new(),
            sets,
        }
    }

    /// Creates a batch with one row, which is added as by [`Self::add`].
    #[must_use]
    pub fn of(sample: Sample, sets: u32, counts: &[(Event, f64)]) -> Self {
        let mut samples = Self::default();
        samples.add(sample, sets, counts);
        samples
    }

    /// Removes all rows and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.spans.clear();
        self.values.clear();
    }

    /// Returns all rows in a batch and leaves this batch empty.
    #[must_use]
    pub fn take(&mut self) -> Self {
        let empty = Self::by_sets(self.sets.clone());
        std::mem::replace(self, empty)
    }

    #[must_use]
    pub const fn len(&self) -> usize {
        self.rows.len()
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds a row. The source's number in the sample determines the event set of the values.
    #[inline]
    pub fn push(&mut self, sample: Sample, values: impl IntoIterator<Item = f64>) {
        let known = (sample.set as usize) < self.sets.len();
        let set = if known { sample.set } else { UNNAMED };
        self.put(sample, set, values);
    }

    /// Adds a row with one value per event of an event set.
    #[inline]
    pub fn push_by(
        &mut self,
        sample: Sample,
        set: &Arc<EventSet>,
        values: impl IntoIterator<Item = f64>,
    ) {
        let row = self.number(set);
        self.put(sample, row, values);
    }

    /// Adds a row with the counts of these events; `sets` is the number of multiplexed event sets.
    pub fn add(&mut self, sample: Sample, sets: u32, counts: &[(Event, f64)]) {
        let events = || counts.iter().map(|(event, _)| *event);
        let known = self.sets.iter().position(|set| set.is(events(), sets));
        let row = known.unwrap_or_else(|| {
            self.sets
                .push(Arc::new(EventSet::new(events().map(Some), sets)));
            self.sets.len() - 1
        });
        let values = counts.iter().map(|(_, value)| *value);
        let present = EventSet::present(values.clone().map(Some));
        self.put(Sample { present, ..sample }, row as u32, values);
    }

    /// Adds a row with a new head and the counts of a row from another batch.
    pub fn push_with(&mut self, sample: Sample, counts: Counts<'_>) {
        self.push_by(sample, counts.set, counts.values.iter().copied());
    }

    /// Adds a copy of a row from another batch.
    pub fn push_row(&mut self, row: SampleRow<'_>) {
        self.push_with(*row, row.counts);
    }

    #[inline]
    fn put(&mut self, sample: Sample, set: u32, values: impl IntoIterator<Item = f64>) {
        let first = self.values.len();
        self.values.extend(values);
        self.spans.push(RowSpan {
            first,
            values: (self.values.len() - first) as u32,
            set,
        });
        self.rows.push(sample);
    }

    /// Returns the index of an event set; adds the set if it is missing.
    fn number(&mut self, set: &Arc<EventSet>) -> u32 {
        let same = |known: &Arc<EventSet>| Arc::ptr_eq(known, set);
        let known = self.sets.iter().position(same);
        let known = known.or_else(|| self.sets.iter().position(|known| known == set));
        let row = known.unwrap_or_else(|| {
            self.sets.push(Arc::clone(set));
            self.sets.len() - 1
        });
        row as u32
    }

    /// Adds copies of all rows of another batch.
    pub fn append(&mut self, other: &Self) {
        other.iter().for_each(|row| self.push_row(row));
    }

    /// Returns the heads of all rows.
    #[must_use]
    pub fn rows(&self) -> &[Sample] {
        &self.rows
    }

    /// Returns the heads of all rows, mutable.
    pub fn rows_mut(&mut self) -> &mut [Sample] {
        &mut self.rows
    }

    /// Returns the values of a row, one per event of its event set. A value is meaningless if its bit in `present` is not
    /// set.
    #[must_use]
    #[inline]
    pub fn values(&self, row: usize) -> &[f64] {
        self.spans
            .get(row)
            .map_or(&[], |span| &self.values[span.range()])
    }

    /// Returns a value of a row, given its position in the event set; `None` if the event was not counted.
    #[must_use]
    pub fn value(&self, row: usize, event: usize) -> Option<f64> {
        self.row(row)?.counts.at(event)
    }

    /// Returns the row with an index; `None` if there is none.
    #[must_use]
    #[inline]
    pub fn row(&self, row: usize) -> Option<SampleRow<'_>> {
        let sample = self.rows.get(row)?;
        let span = self.spans.get(row)?;
        let counts = Counts {
            set: self
                .sets
                .get(span.set as usize)
                .unwrap_or_else(|| EventSet::unnamed()),
            present: sample.present,
            values: &self.values[span.range()],
        };
        Some(SampleRow { sample, counts })
    }

    /// Iterates over the rows in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = SampleRow<'_>> {
        (0..self.len()).filter_map(|row| self.row(row))
    }

    /// Iterates over the rows of threads, each with its thread.
    pub fn of_threads(&self) -> impl DoubleEndedIterator<Item = (ThreadId, SampleRow<'_>)> {
        self.iter().filter_map(|row| Some((row.thread()?, row)))
    }

    /// Returns the events that were counted in at least one row, in the order of the event table.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        let mut present = vec![0; self.sets.len()];
        for (row, span) in self.rows.iter().zip(&self.spans) {
            if let Some(bits) = present.get_mut(span.set as usize) {
                *bits |= row.present;
            }
        }
        let has = |event: &Event| {
            let mut all = self.sets.iter().zip(&present);
            all.any(|(set, bits)| {
                set.place(*event)
                    .is_some_and(|place| bits >> place & 1 == 1)
            })
        };
        Event::ALL.iter().copied().filter(has).collect()
    }

    /// Sets the value of an event in a row. Does nothing if the row already has [`EventSet::MOST`] values and the event is
    /// not among them.
    pub fn set(&mut self, row: usize, event: Event, value: f64) {
        let Some(SampleRow { counts, .. }) = self.row(row) else {
            return;
        };
        let place = counts.set.place(event);
        let more = place.is_none().then(|| Arc::new(counts.set.with(event)));
        let place = place.unwrap_or(counts.set.len());
        if place >= EventSet::MOST {
            return;
        }
        if let Some(set) = more {
            // The values of another row follow directly, so the values of this row are moved to the end of the array.
            let set = self.number(&set);
            let span = &mut self.spans[row];
            let first = self.values.len();
            self.values.extend_from_within(span.range());
            self.values.resize(first + place + 1, 0.0);
            *span = RowSpan {
                first,
                values: place as u32 + 1,
                set,
            };
        }
        let first = self.spans[row].first;
        self.values[first + place] = value;
        self.rows[row].present |= 1 << place;
    }

    /// Adds the times and values of another row to a row. A value that was counted in only one of the two is marked as not
    /// counted.
    pub(crate) fn add_row(&mut self, row: usize, other: SampleRow<'_>) {
        let Some(mine) = self.rows.get_mut(row) else {
            return;
        };
        if other.end > mine.end && mine.cpu.is_some() {
            mine.cpu = other.cpu;
        }
        mine.start = mine.start.min(other.start);
        mine.end = mine.end.max(other.end);
        mine.enabled += other.enabled;
        mine.running += other.running;
        mine.present &= other.present;
        mine.last |= other.last;
        let sums = &mut self.values[self.spans[row].range()];
        let more = other.counts.values.iter();
        sums.iter_mut().zip(more).for_each(|(sum, v)| *sum += v);
    }

    /// Returns the indices of the rows, sorted by thread, then by end. Rows of no thread come first.
    #[must_use]
    pub fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.sort_by_key(|row| Self::key(&self.rows[*row]));
        order
    }

    fn key(row: &Sample) -> (Option<ThreadId>, Nanos) {
        (row.thread(), row.end)
    }

    /// Sorts the rows by thread, then by end. Rows of no thread come first.
    pub fn sort(&mut self) {
        if self.rows.is_sorted_by_key(Self::key) {
            return;
        }
        let order = self.order();
        self.rows = order.iter().map(|row| self.rows[*row]).collect();
        self.spans = order.iter().map(|row| self.spans[*row]).collect();
    }

    /// Removes the rows for which `keep` returns false.
    pub fn retain(&mut self, keep: impl Fn(&Sample) -> bool) {
        let mut rows = self.rows.iter();
        self.spans.retain(|_| rows.next().is_some_and(&keep));
        self.rows.retain(keep);
        // Values of removed rows stay in the array until they are more than three quarters of it.
        let left: usize = self.spans.iter().map(|span| span.values as usize).sum();
        if self.values.len() > 4 * left {
            let all = std::mem::take(&mut self.values);
            for span in &mut self.spans {
                let first = self.values.len();
                self.values.extend_from_slice(&all[span.range()]);
                span.first = first;
            }
        }
    }

    /// Removes all rows except the first `rows`.
    pub fn truncate(&mut self, rows: usize) {
        self.rows.truncate(rows);
        self.spans.truncate(rows);
    }
}

impl RowSpan {
    const fn range(self) -> std::ops::Range<usize> {
        self.first..self.first + self.values as usize
    }
}

impl FromIterator<Samples> for Samples {
    fn from_iter<I: IntoIterator<Item = Self>>(batches: I) -> Self {
        let mut all = Self::default();
        let batches = batches.into_iter();
        batches.for_each(|batch| all.append(&batch));
        all
    }
}

impl PartialEq for Samples {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl fmt::Debug for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{CoreTypeId, CpuId};

    fn head(thread: u32, end: u64) -> Sample {
        Sample::of_thread(
            ThreadId(thread),
            CpuId(0),
            CoreTypeId(0),
            Nanos(end),
            Nanos(1),
        )
    }

    fn counted(samples: &Samples) -> Vec<Vec<(Event, f64)>> {
        samples.iter().map(|r| r.counts.iter().collect()).collect()
    }

    const PLAIN: [(Event, f64); 2] = [(Event::Cycles, 2.0), (Event::Instructions, 1.0)];

    #[test]
    fn events_are_found_by_the_set_of_their_row() {
        let set = |events: &[Event]| {
            let events = events.iter().map(|event| Some(*event));
            Arc::new(EventSet::new(events.chain([None]), 2))
        };
        let sets = vec![set(&[Event::Cycles]), set(&[Event::Loads, Event::Cycles])];
        let mut samples = Samples::by_sets(sets);
        for set in [0, 1, 2] {
            let present = 0b10 | u64::from(set == 0);
            let row = Sample {
                set,
                present,
                ..head(1, 1)
            };
            samples.push(row, [5.0, 7.0]);
        }
        let cycles: Vec<Option<f64>> = samples
            .iter()
            .map(|row| row.counts.get(Event::Cycles))
            .collect();
        assert_eq!(cycles, [Some(5.0), Some(7.0), None], "the third has no set");
        let loads = samples.row(1).unwrap().counts;
        assert_eq!(
            (loads.get(Event::Loads), loads.at(1)),
            (None, Some(7.0)),
            "the first was not counted"
        );
        assert_eq!(samples.events(), [Event::Cycles]);
        let whose: Vec<u32> = samples.iter().map(|row| row.sets()).collect();
        assert_eq!(whose, [2, 2, 1]);
    }

    #[test]
    fn an_event_that_comes_later_changes_its_row_alone() {
        let mut samples: Samples = [1, 2]
            .map(|t| Samples::of(head(t, 1), 1, &PLAIN))
            .into_iter()
            .collect();
        samples.set(0, Event::Work, 9.0);
        samples.set(0, Event::Cycles, 3.0);
        samples.set(0, Event::Work, 8.0);
        samples.set(2, Event::Work, 8.0);
        let changed = vec![
            (Event::Cycles, 3.0),
            (Event::Instructions, 1.0),
            (Event::Work, 8.0),
        ];
        assert_eq!(counted(&samples), [changed, PLAIN.to_vec()]);
        samples.push_row(samples.clone().row(0).unwrap());
        assert_eq!(samples.row(0), samples.row(2));
        assert_ne!(samples.row(0), samples.row(1));
    }

    #[test]
    fn rows_are_put_in_order_and_dropped_with_their_values() {
        let mut samples = Samples::default();
        for (thread, end) in [(2, 5), (1, 9), (1, 3)] {
            samples.add(head(thread, end), 1, &[(Event::Work, end as f64)]);
        }
        let work = |samples: &Samples| -> Vec<f64> {
            let rows = samples.iter();
            rows.filter_map(|r| r.counts.get(Event::Work)).collect()
        };
        samples.sort();
        assert_eq!(work(&samples), [3.0, 9.0, 5.0]);
        samples.retain(|row| row.end != Nanos(9));
        assert_eq!(work(&samples), [3.0, 5.0]);
        samples.truncate(1);
        assert_eq!((work(&samples), samples.len()), (vec![3.0], 1));
        assert_eq!(work(&samples.take()), [3.0]);
        assert!(samples.is_empty());
    }

    #[test]
    fn a_row_has_at_most_as_many_values_as_it_can_mark() {
        let sets = vec![Arc::new(EventSet::new([None; EventSet::MOST], 1))];
        let mut samples = Samples::by_sets(sets);
        samples.push(head(1, 1), [0.0; EventSet::MOST]);
        samples.set(0, Event::Work, 1.0);
        assert_eq!(samples.row(0).unwrap().counts.get(Event::Work), None);
    }

    #[test]
    fn a_ratio_needs_both_sides() {
        let ratio = |counts: &[(Event, f64)]| {
            let samples = Samples::of(head(1, 1), 1, counts);
            samples
                .row(0)
                .and_then(|row| row.counts.ratio(Event::Instructions, Event::Cycles))
        };
        assert_eq!(ratio(&PLAIN[1..]), None);
        assert_eq!(ratio(&PLAIN), Some(0.5));
        assert_eq!(ratio(&[(Event::Cycles, 0.0), PLAIN[1]]), None);
    }
}
