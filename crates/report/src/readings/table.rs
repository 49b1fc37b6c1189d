//! Readings for people: columns of fixed width, so that rows can be printed as they come.

use std::io::Write;

use countersteer_core::counters::{Per, PlannedEvent};
use countersteer_core::units::Nanos;

use super::number::Number;
use super::{Form, Row, VirtualValue, Writer, seconds};

/// Width of the time's column.
const TIME: usize = 10;
/// Width of a count's column, unless its head is wider.
const COUNT: usize = 13;
/// Width of a metric's.
const METRIC: usize = 10;
/// Between keys, and between columns of counts.
const GAP: usize = 1;
const WIDE_GAP: usize = 2;
/// What stands where nothing was counted.
const NOTHING: &str = "-";

/// What all lines of a table have in common. Widths are those of columns with the gaps before them.
pub(super) struct Layout<'a> {
    /// Of each key that is shown: what it says of a row, and its head.
    keys: Vec<(usize, Tell, &'static str)>,
    counts: Vec<(usize, &'a PlannedEvent)>,
    metrics: Vec<usize>,
}

/// Says something of a row, in so many characters.
type Tell = fn(&Row<'_>, usize, &mut Vec<u8>);

impl<'a> Layout<'a> {
    pub(super) fn new(form: &Form<'a>, columns: &[&'a PlannedEvent]) -> Self {
        let keys: [(usize, Tell, &'static str, bool); 6] = [
            (7, |r, width, into| number(r.pid, width, into), "pid", matches!(form.per, Per::Thread | Per::Process)),
            (7, |r, width, into| number(r.tid, width, into), "tid", form.per == Per::Thread),
            (15, |r, width, into| left(r.name, width, into), NAME, form.per != Per::Cpu),
            (5, |r, width, into| number(r.reading.cpu.map(|c| c.0), width, into), "cpu", form.per == Per::Cpu),
            (9, |r, width, into| right(r.core_type, width, into), "core_type", form.is_hybrid()),
            (4, |r, width, into| number(Some(r.reading.set), width, into), "set", form.rotates()),
        ];
        let columns = if form.only_metrics { &[] } else { columns };
        let wide = |least: usize, head: &str| WIDE_GAP + least.max(head.chars().count());
        Self {
            keys: keys
                .into_iter()
                .filter(|key| key.3)
                .map(|(width, tell, name, _)| (GAP + width, tell, name))
                .collect(),
            counts: columns.iter().map(|column| (wide(COUNT, &title(column)), *column)).collect(),
            metrics: form.metrics.iter().map(|metric| wide(METRIC, &metric.name)).collect(),
        }
    }
}

/// The one key whose column is filled from the left.
const NAME: &str = "name";

pub(super) fn head(writer: &Writer<'_>, into: &mut Vec<u8>) {
    let layout = &writer.layout;
    right("time_s", TIME, into);
    for (width, _, name) in &layout.keys {
        if *name == NAME { left(name, *width, into) } else { right(name, *width, into) }
    }
    for (width, column) in &layout.counts {
        right(&title(column), *width, into);
    }
    for (metric, width) in writer.form.metrics.iter().zip(&layout.metrics) {
        right(&metric.name, *width, into);
    }
    into.extend_from_slice(b"  counted\n");
}

fn title(column: &PlannedEvent) -> String {
    match column.unit.as_str() {
        "" => column.name.clone(),
        "ns" => format!("{}/ms", column.name),
        unit => format!("{}/{unit}", column.name),
    }
}

pub(super) fn line(writer: &Writer<'_>, row: &Row<'_>, into: &mut Vec<u8>) {
    let layout = &writer.layout;
    Number::fixed(row.end.0, 100_000, 4).right(0, TIME, into);
    for (width, tell, _) in &layout.keys {
        tell(row, *width, into);
    }
    for ((width, column), count) in layout.counts.iter().zip(&row.counts) {
        match count {
            Some(count) => cell(row.part, column, *count, *width, into),
            None => right(NOTHING, *width, into),
        }
    }
    for (width, value) in layout.metrics.iter().zip(&row.metrics) {
        match value {
            Some(value) => right(&crate::format::number(*value, 4), *width, into),
            None => right(NOTHING, *width, into),
        }
    }
    number(Some((row.reading.share() * 100.0).round() as u32), WIDE_GAP + 6, into);
    into.extend_from_slice(b"%\n");
}

fn number(number: Option<u32>, width: usize, into: &mut Vec<u8>) {
    match number {
        Some(number) => Number::whole(number.into()).right(GAP, width, into),
        None => right(NOTHING, width, into),
    }
}

/// Characters of a text, most of which are plain.
fn length(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().count() }
}

fn blank(width: usize, into: &mut Vec<u8>) {
    into.resize(into.len() + width, b' ');
}

/// At the right end of so many characters, the first of which is blank, or of as many as it takes.
fn right(text: &str, width: usize, into: &mut Vec<u8>) {
    blank(width.saturating_sub(length(text)).max(GAP), into);
    into.extend_from_slice(text.as_bytes());
}

/// Behind the gap; cut off where it is too long.
fn left(text: &str, width: usize, into: &mut Vec<u8>) {
    blank(GAP, into);
    let (length, width) = (length(text), width - GAP);
    let end =
        if length > width { text.char_indices().nth(width).map_or(text.len(), |(end, _)| end) } else { text.len() };
    into.extend_from_slice(&text.as_bytes()[..end]);
    blank(width.saturating_sub(length), into);
}

/// A line between the rows: values of virtual counters are about all kinds of places.
pub(super) fn value(at: Nanos, value: &VirtualValue<'_>, into: &mut Vec<u8>) {
    let tid = value.tid.map_or_else(String::new, |t| t.to_string());
    let number = crate::format::number(value.value, 4);
    let (at_s, VirtualValue { place, name, unit, .. }) = (seconds(at), value);
    let _ = writeln!(into, "{at_s:>10.4} {:>7} {tid:>7} {place:<15} {name} {number} {unit}", "");
}

fn cell(part: Option<f64>, column: &PlannedEvent, count: u64, width: usize, into: &mut Vec<u8>) {
    match (column.unit.as_str(), part) {
        ("ns", None) => return Number::fixed(count, 1_000, 3).right(GAP, width, into),
        ("", None) => return Number::grouped(count).right(GAP, width, into),
        _ => {}
    }
    let (mark, value) = part.map_or(("", count as f64), |part| ("~", count as f64 / part));
    let text = match column.unit.as_str() {
        "ns" => format!("{mark}{:.3}", value / 1e6),
        "" => format!("{mark}{}", crate::format::count(value.round() as u64)),
        _ => format!("{mark}{:.4}", value * column.scale),
    };
    right(&text, width, into);
}
