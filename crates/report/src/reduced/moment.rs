//! Rows that explain the CPU of a thread at one time of the run.
//!
//! Input: a table of a record, and the moments that are asked about. Output: the table without the rows that
//! [`why`](crate::why::why) does not read. See [`Reduction`](crate::record::Reduction) for the rule that all functions obey.

use std::collections::{BTreeMap, BTreeSet};

use countersteer_model::engine::ThreadEventKind;
use countersteer_model::sample::SampleRow;

use crate::record::{DecisionRow, Record};

/// Time of the run that is to be explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExplainedMoment {
    pub(super) at_ns: u64,
    /// Thread that is asked about; `None` for every thread.
    pub(super) thread: Option<u32>,
}

impl ExplainedMoment {
    fn is_of(&self, thread: u32) -> bool {
        self.thread.is_none_or(|own| own == thread)
    }
}

/// Indices of rows that are kept.
#[derive(Default)]
pub(super) struct KeptRows(BTreeSet<usize>);

impl KeptRows {
    pub(super) fn contains(&self, row: usize) -> bool {
        self.0.contains(&row)
    }

    fn retain<R>(&self, rows: &mut Vec<R>) {
        let mut index = 0..;
        rows.retain(|_| index.next().is_some_and(|row| self.contains(row)));
    }
}

/// Rows of one thread up to a moment that are needed to see since when it has been in its state.
#[derive(Clone, Copy)]
struct ThreadSeries {
    /// First row of the series of equal states.
    start: usize,
    /// Row before the series. Without it, the series could later seem to reach further back.
    before: Option<usize>,
    last: usize,
}

/// Keeps the last row of each thread up to the moments, and the beginning of the series of rows that are the same.
fn last_series<R>(
    rows: &[R],
    moments: &[ExplainedMoment],
    key: impl Fn(&R) -> (u32, u64),
    same: impl Fn(&R, &R) -> bool,
    kept: &mut KeptRows,
) {
    for moment in moments {
        let mut threads: BTreeMap<u32, ThreadSeries> = BTreeMap::new();
        for (index, row) in rows.iter().enumerate() {
            let (thread, at_ns) = key(row);
            if !moment.is_of(thread) || at_ns > moment.at_ns {
                continue;
            }
            let new = ThreadSeries {
                start: index,
                before: None,
                last: index,
            };
            let series = threads.entry(thread).or_insert(new);
            if !same(&rows[series.last], row) {
                series.before = Some(series.last);
                series.start = index;
            }
            series.last = index;
        }
        for ThreadSeries {
            start,
            before,
            last,
        } in threads.into_values()
        {
            kept.0.extend([start, last]);
            kept.0.extend(before);
        }
    }
}

/// Keeps the last row of each thread up to the moments, and the first one after them.
fn around(
    rows: impl Iterator<Item = (u32, u64)> + Clone,
    moments: &[ExplainedMoment],
    kept: &mut KeptRows,
) {
    for moment in moments {
        let mut before: BTreeMap<u32, usize> = BTreeMap::new();
        let mut after: BTreeMap<u32, usize> = BTreeMap::new();
        for (index, (thread, at_ns)) in rows.clone().enumerate() {
            if !moment.is_of(thread) {
            } else if at_ns <= moment.at_ns {
                before.insert(thread, index);
            } else {
                after.entry(thread).or_insert(index);
            }
        }
        kept.0
            .extend(before.into_values().chain(after.into_values()));
    }
}

/// Returns the rows of the table of threads that are needed: the states at the moments, and the first and last row of each thread.
pub(super) fn states(record: &Record, moments: &[ExplainedMoment]) -> KeptRows {
    let mut kept = KeptRows::default();
    let rows = &record.threads;
    last_series(
        rows,
        moments,
        |row| (row.thread, row.at_ns),
        |a, b| a.cpu == b.cpu,
        &mut kept,
    );
    let mut lives: BTreeMap<u32, [usize; 2]> = BTreeMap::new();
    let asked = |thread| moments.iter().any(|m| m.is_of(thread));
    for (index, row) in rows.iter().enumerate().filter(|(_, row)| asked(row.thread)) {
        lives.entry(row.thread).or_insert([index; 2])[1] = index;
    }
    kept.0.extend(lives.into_values().flatten());
    kept
}

pub(super) fn threads(record: &mut Record, moments: &[ExplainedMoment]) {
    let kept = states(record, moments);
    let mut index = 0..;
    record.drop_threads(|_| index.next().is_some_and(|row| kept.contains(row)));
}

/// Keeps the last migration up to the moments with the starts after it, and the first migration after them.
pub(super) fn events(record: &mut Record, moments: &[ExplainedMoment]) {
    let mut kept = KeptRows::default();
    for moment in moments {
        let mut before: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        let mut after: BTreeMap<u32, usize> = BTreeMap::new();
        for (index, row) in record.events.iter().enumerate() {
            if !moment.is_of(row.thread) {
                continue;
            }
            match row.kind {
                ThreadEventKind::Migrate { .. } if row.at_ns > moment.at_ns => {
                    after.entry(row.thread).or_insert(index);
                }
                ThreadEventKind::Migrate { .. } => {
                    before.insert(row.thread, vec![index]);
                }
                ThreadEventKind::New if row.at_ns <= moment.at_ns => {
                    before.entry(row.thread).or_default().push(index);
                }
                _ => {}
            }
        }
        kept.0
            .extend(before.into_values().flatten().chain(after.into_values()));
    }
    kept.retain(&mut record.events);
}

pub(super) fn metrics(record: &mut Record, moments: &[ExplainedMoment]) {
    let mut kept = KeptRows::default();
    around(
        record.metrics.iter().map(|row| (row.thread, row.at_ns)),
        moments,
        &mut kept,
    );
    kept.retain(&mut record.metrics);
}

/// Keeps the samples around the moments, and those that `also` selects by index.
pub(super) fn samples(
    record: &mut Record,
    moments: &[ExplainedMoment],
    also: impl Fn(usize, &SampleRow<'_>) -> bool,
) {
    let mut kept = KeptRows::default();
    // Samples of CPUs belong to no thread. They share a number that no thread has.
    let of = |row: SampleRow<'_>| (row.thread().map_or(u32::MAX, |t| t.0), row.end.0);
    let samples = &record.samples.samples;
    around(
        (0..samples.len()).filter_map(|row| samples.row(row).map(of)),
        moments,
        &mut kept,
    );
    record
        .samples
        .retain(|index, row| kept.contains(index) || also(index, row));
}

pub(super) fn decisions(record: &mut Record, moments: &[ExplainedMoment]) {
    let mut kept = KeptRows::default();
    let same = |a: &DecisionRow, b: &DecisionRow| (&a.target, &a.rule) == (&b.target, &b.rule);
    let key = |row: &DecisionRow| (row.thread, row.at_ns);
    last_series(&record.decisions, moments, key, same, &mut kept);
    kept.retain(&mut record.decisions);
}

/// Keeps the first run interval of each thread on each CPU, and the last one of the run.
pub(super) fn spans(record: &mut Record) {
    let last = record.spans.iter().map(|row| row.end_ns).max();
    let mut seen = BTreeSet::new();
    record
        .spans
        .retain(|row| seen.insert((row.thread, row.cpu)) || Some(row.end_ns) == last);
}
