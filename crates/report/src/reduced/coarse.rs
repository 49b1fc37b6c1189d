//! Rows for charts: of each interval that is shorter than a pixel, one row with the sums or the last state.
//!
//! Input: a table of a record. Output: the table with at most one row for each thread, place and interval. See
//! [`Reduction`](crate::record::Reduction) for the rule that all functions obey.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use countersteer_model::sample::Event;
use countersteer_model::units::ThreadId;

use super::moment::{self, ExplainedMoment};
use crate::record::{DecisionRow, ReadingRow, Record, SpanRow, VirtualRow};

/// Number of intervals of a timeline: a multiple of the number of its bins on wide and on narrow screens, 600 and 240.
const TIMELINE: u64 = 4800;
/// Number of intervals of a chart of counts or occupancy: a multiple of their number of bins, 300 and 120.
const CURVES: u64 = 2400;

/// Number of rows of a table above which intervals become longer.
const MOST: usize = 1 << 20;

/// Interval of a run that has `count` of them.
fn interval(at_ns: u64, end_ns: u64, count: u64) -> u64 {
    // A time at the border of two intervals is the end of the first one.
    let position = u128::from(at_ns.saturating_sub(1)) * u128::from(count);
    (position / u128::from(end_ns.max(1))) as u64
}

/// Returns the time in ns at which an interval starts.
fn start_of(interval: u64, end_ns: u64, count: u64) -> u64 {
    (u128::from(interval) * u128::from(end_ns)).div_ceil(u128::from(count)) as u64
}

/// Keeps whole observations: those that explain a moment, and if the places of threads are drawn from observations, some of each
/// interval. The names of all threads stay known.
pub(super) fn threads(record: &mut Record, moments: &[ExplainedMoment], are_drawn: bool) {
    let states = moment::states(record, moments);
    let rows = record.threads.iter().enumerate();
    let kept = rows.filter(|(index, _)| states.contains(*index));
    let steps: BTreeSet<u32> = kept.map(|(_, row)| row.step).collect();
    // Powers of two: what a larger one selects, a smaller one has selected before.
    let all = record.steps.len();
    let mut each = all.div_ceil(TIMELINE as usize).next_power_of_two();
    let drawn = |each: usize| {
        let rows = record.threads.iter();
        rows.filter(|row| (row.step as usize).is_multiple_of(each))
            .count()
    };
    while each < all && drawn(each) > MOST {
        each *= 2;
    }
    let is_kept =
        |step: u32| steps.contains(&step) || (are_drawn && (step as usize).is_multiple_of(each));
    record.drop_threads(|row| is_kept(row.step));
}

/// Keeps the first row of each thread, and those at which its program or its name changes.
pub(super) fn names(record: &mut Record) {
    let mut known: BTreeMap<u32, (u32, Arc<str>)> = BTreeMap::new();
    record.threads.retain(|row| {
        let now = (row.program, Arc::clone(&row.name));
        known.insert(row.thread, now.clone()) != Some(now)
    });
}

/// Keeps the last occupancy of each thread in each interval.
pub(super) fn samples(record: &mut Record, moments: &[ExplainedMoment], end_ns: u64) {
    let samples = &record.samples.samples;
    let mut last: BTreeMap<(ThreadId, u64), usize> = BTreeMap::new();
    for index in 0..samples.len() {
        let Some(row) = samples.row(index) else {
            continue;
        };
        let is_known = row.cpu.is_some() && row.counts.get(Event::LlcOccupancyBytes).is_some();
        if let Some(thread) = row.thread().filter(|_| is_known) {
            last.insert((thread, interval(row.end.0, end_ns, CURVES)), index);
        }
    }
    let last: BTreeSet<usize> = last.into_values().collect();
    moment::samples(record, moments, |index, _| last.contains(&index));
}

/// Keeps, of each thread and rule, the decision that a report would show first.
pub(super) fn decisions(record: &mut Record) {
    let middle = record.end().0 / 2;
    let mut best: BTreeMap<(u32, Arc<str>), usize> = BTreeMap::new();
    let order = |row: &DecisionRow| crate::html::order(row, middle);
    for (index, row) in record.decisions.iter().enumerate() {
        let known = best
            .entry((row.thread, Arc::clone(&row.rule)))
            .or_insert(index);
        if order(row) < order(&record.decisions[*known]) {
            *known = index;
        }
    }
    let best: BTreeSet<usize> = best.into_values().collect();
    let mut index = 0..;
    record
        .decisions
        .retain(|_| index.next().is_some_and(|row| best.contains(&row)));
}

/// Joins the run intervals of each thread on each CPU that are in the same interval of the timeline.
pub(super) fn spans(record: &mut Record, end_ns: u64) {
    let mut joined: BTreeMap<(u64, u32, u32), (u32, u64)> = BTreeMap::new();
    for row in &record.spans {
        let mut start_ns = row.start_ns;
        while start_ns < row.end_ns {
            let within = interval(start_ns + 1, end_ns, TIMELINE);
            let stop_ns = start_of(within + 1, end_ns, TIMELINE).clamp(start_ns + 1, row.end_ns);
            let own = joined.entry((within, row.thread, row.cpu)).or_default();
            own.0 = own.0.max(row.step);
            own.1 += stop_ns - start_ns;
            start_ns = stop_ns;
        }
    }
    let row = |((within, thread, cpu), (step, length_ns)): ((u64, u32, u32), (u32, u64))| {
        // The joined interval ends where its part of the timeline ends, so that the end of the run stays known.
        let limit_ns = start_of(within + 1, end_ns, TIMELINE);
        SpanRow {
            step,
            thread,
            cpu,
            start_ns: limit_ns - length_ns.min(limit_ns),
            end_ns: limit_ns,
        }
    };
    record.spans = joined.into_iter().map(row).collect();
    record.spans.sort_by_key(|row| row.step);
}

/// Adds up the counts of each owner in each interval.
pub(super) fn readings(record: &mut Record, end_ns: u64) {
    let key = |row: &ReadingRow| {
        let owner = (
            row.pid,
            row.thread,
            row.cpu,
            Arc::clone(&row.core_type),
            row.set,
        );
        let name = owner.1.or(owner.0).is_none().then(|| Arc::clone(&row.name));
        (owner, name, row.counts.len(), row.metrics.len())
    };
    join(&mut record.readings, end_ns, |row| row.at_ns, key, add);
    record.readings.sort_by_key(|row| row.step);
}

/// Joins the rows with the same key in each interval. Intervals are as short as the number of rows allows.
fn join<R, K: Ord>(
    rows: &mut Vec<R>,
    end_ns: u64,
    at_ns: impl Fn(&R) -> u64,
    key: impl Fn(&R) -> K,
    add: impl Fn(&mut R, R),
) {
    let mut count = CURVES;
    loop {
        let mut joined: BTreeMap<(u64, K), R> = BTreeMap::new();
        for row in std::mem::take(rows) {
            match joined.entry((interval(at_ns(&row), end_ns, count), key(&row))) {
                Entry::Occupied(sum) => add(sum.into_mut(), row),
                Entry::Vacant(first) => drop(first.insert(row)),
            }
        }
        rows.extend(joined.into_values());
        // Longer intervals consist of whole shorter ones.
        if rows.len() <= MOST || !count.is_multiple_of(2) {
            break;
        }
        count /= 2;
    }
}

fn add(sum: &mut ReadingRow, row: ReadingRow) {
    let (a, b) = (sum.running_ns as f64, row.running_ns as f64);
    let mean = |x: f64, y: f64| {
        if a + b > 0.0 {
            (x * a + y * b) / (a + b)
        } else {
            (x + y) / 2.0
        }
    };
    for (sum, more) in sum.counts.iter_mut().zip(&row.counts) {
        *sum = match (*sum, *more) {
            (Some(x), Some(y)) => Some(x.saturating_add(y)),
            (x, y) => x.or(y),
        };
    }
    for (sum, more) in sum.metrics.iter_mut().zip(&row.metrics) {
        *sum = match (*sum, *more) {
            (Some(x), Some(y)) => Some(mean(x, y)),
            (x, y) => x.or(y),
        };
    }
    (sum.step, sum.at_ns, sum.name) = (row.step, row.at_ns, row.name);
    sum.start_ns = sum.start_ns.min(row.start_ns);
    sum.enabled_ns += row.enabled_ns;
    sum.running_ns += row.running_ns;
    sum.last |= row.last;
}

/// Keeps the last value of each virtual counter in each interval.
pub(super) fn virtuals(record: &mut Record, end_ns: u64) {
    let key = |row: &VirtualRow| {
        let place = (
            Arc::clone(&row.scope),
            Arc::clone(&row.place),
            row.thread,
            row.cpu,
        );
        (place, Arc::clone(&row.name))
    };
    join(
        &mut record.virtuals,
        end_ns,
        |row| row.at_ns,
        key,
        |last, row| *last = row,
    );
    record.virtuals.sort_by_key(|row| row.step);
}
