//! Readings for people: columns of fixed width, so that rows can be printed as they come.

use std::fmt::Write;

use countersteer_core::counters::{Per, PlannedEvent};

use super::{Row, VirtualValue, Writer};

/// Width of the time's column.
const TIME: usize = 10;
/// Width of a count's column, unless its head is wider.
const COUNT: usize = 13;
/// Width of a metric's.
const METRIC: usize = 10;
/// Between columns of numbers.
const GAP: &str = "  ";

/// What all lines of a table have in common.
pub(super) struct Layout<'a> {
    /// Width of each that is shown, what it says of a row, and its head.
    keys: Vec<(usize, Tell, &'static str)>,
    counts: Vec<(&'a PlannedEvent, usize)>,
    metrics: Vec<usize>,
}

/// Says something of a row, in so many characters.
type Tell = fn(&Row<'_>, usize, &mut String);

impl<'a> Layout<'a> {
    pub(super) fn new(writer: &Writer<'a>) -> Self {
        let keys: [(usize, Tell, &'static str, bool); 6] = [
            (7, |r, width, into| number(r.pid, width, into), "pid", matches!(writer.per, Per::Thread | Per::Process)),
            (7, |r, width, into| number(r.tid, width, into), "tid", writer.per == Per::Thread),
            (15, |r, width, into| left(r.name, width, into), NAME, writer.per != Per::Cpu),
            (5, |r, width, into| number(r.reading.cpu.map(|c| c.0), width, into), "cpu", writer.per == Per::Cpu),
            (9, |r, width, into| right(r.core_type, width, into), "core_type", writer.is_hybrid()),
            (4, |r, width, into| number(Some(r.reading.set), width, into), "set", writer.rotates()),
        ];
        let columns = if writer.only_metrics { Vec::new() } else { writer.plan.columns() };
        let count = |column: &'a PlannedEvent| (column, COUNT.max(title(column).chars().count()));
        Self {
            keys: keys.into_iter().filter(|key| key.3).map(|(width, tell, name, _)| (width, tell, name)).collect(),
            counts: columns.into_iter().map(count).collect(),
            metrics: writer.metrics.iter().map(|metric| METRIC.max(metric.name.chars().count())).collect(),
        }
    }
}

/// The one key whose column is filled from the left.
const NAME: &str = "name";

pub(super) fn head(writer: &Writer<'_>) -> String {
    let layout = Layout::new(writer);
    let mut line = String::new();
    right("time_s", TIME, &mut line);
    for (width, _, name) in &layout.keys {
        line.push(' ');
        if *name == NAME { left(name, *width, &mut line) } else { right(name, *width, &mut line) }
    }
    for (column, width) in &layout.counts {
        line += GAP;
        right(&title(column), *width, &mut line);
    }
    for (metric, width) in writer.metrics.iter().zip(&layout.metrics) {
        line += GAP;
        right(&metric.name, *width, &mut line);
    }
    line + "  counted\n"
}

fn title(column: &PlannedEvent) -> String {
    match column.unit.as_str() {
        "" => column.name.clone(),
        "ns" => format!("{}/ms", column.name),
        unit => format!("{}/{unit}", column.name),
    }
}

/// Rows may be many and come a hundred times a second: numbers are put down as the integers that they are, without a detour by
/// way of the exact decimals of a fraction.
pub(super) fn line(writer: &Writer<'_>, layout: &Layout<'_>, row: &Row<'_>, into: &mut String) {
    let time = row.reading.end.since(writer.origin).0;
    Number::fixed(time, 100_000, 4).right(TIME, into);
    for (width, tell, _) in &layout.keys {
        into.push(' ');
        tell(row, *width, into);
    }
    for ((column, width), count) in layout.counts.iter().zip(&row.counts) {
        into.push_str(GAP);
        match count {
            Some(count) => cell(writer, row, column, *count, *width, into),
            None => right("-", *width, into),
        }
    }
    for (width, value) in layout.metrics.iter().zip(&row.metrics) {
        into.push_str(GAP);
        match value {
            Some(value) => right(&crate::format::number(*value, 4), *width, into),
            None => right("-", *width, into),
        }
    }
    into.push_str(GAP);
    number(Some((row.reading.share() * 100.0).round() as u32), 6, into);
    into.push_str("%\n");
}

/// Digits of a number with what stands between them.
struct Number {
    /// Filled from the end, blank before that.
    letters: [u8; 32],
    first: usize,
}

impl Number {
    const fn empty() -> Self {
        Self { letters: [b' '; 32], first: 32 }
    }

    const fn before(&mut self, letter: u8) {
        self.first -= 1;
        self.letters[self.first] = letter;
    }

    /// A whole number, with a comma after so many digits each; 0 for none.
    fn whole(mut self, value: u64, group: usize) -> Self {
        let mut digits = itoa::Buffer::new();
        for (nth, digit) in digits.format(value).bytes().rev().enumerate() {
            if group > 0 && nth > 0 && nth % group == 0 {
                self.before(b',');
            }
            self.before(digit);
        }
        self
    }

    /// So many `units` as a decimal of the last of `decimals` places, rounded.
    fn fixed(value: u64, units: u64, decimals: u32) -> Self {
        let mut rounded = (value + units / 2) / units;
        let mut number = Self::empty();
        for _ in 0..decimals {
            number.before(b'0' + (rounded % 10) as u8);
            rounded /= 10;
        }
        number.before(b'.');
        number.whole(rounded, 0)
    }

    fn right(&self, width: usize, into: &mut String) {
        let first = self.letters.len().saturating_sub(width);
        blank(width.saturating_sub(self.letters.len()), into);
        into.push_str(std::str::from_utf8(&self.letters[self.first.min(first)..]).unwrap_or_default());
    }
}

fn number(number: Option<u32>, width: usize, into: &mut String) {
    match number {
        Some(number) => Number::empty().whole(number.into(), 0).right(width, into),
        None => right("-", width, into),
    }
}

/// Characters of a text, most of which are plain.
fn length(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().count() }
}

fn right(text: &str, width: usize, into: &mut String) {
    blank(width.saturating_sub(length(text)), into);
    into.push_str(text);
}

fn blank(mut width: usize, into: &mut String) {
    const BLANK: &str = "                ";
    while width > 0 {
        let part = width.min(BLANK.len());
        into.push_str(&BLANK[..part]);
        width -= part;
    }
}

/// Cut off where it is too long.
fn left(text: &str, width: usize, into: &mut String) {
    let length = length(text);
    let end =
        if length > width { text.char_indices().nth(width).map_or(text.len(), |(end, _)| end) } else { text.len() };
    into.push_str(&text[..end]);
    blank(width.saturating_sub(length), into);
}

/// A line between the rows: values of virtual counters are about all kinds of places.
pub(super) fn value(at_s: f64, value: &VirtualValue<'_>, into: &mut String) {
    let tid = value.tid.map_or_else(String::new, |t| t.to_string());
    let number = crate::format::number(value.value, 4);
    let _ =
        writeln!(into, "{at_s:>10.4} {:>7} {tid:>7} {:<15} {} {number} {}", "", value.place, value.name, value.unit);
}

fn cell(writer: &Writer<'_>, row: &Row<'_>, column: &PlannedEvent, count: u64, width: usize, into: &mut String) {
    let (value, estimate) = writer.shown(row, count);
    match column.unit.as_str() {
        "ns" if !estimate => return Number::fixed(count, 1_000, 3).right(width, into),
        "" if !estimate => return Number::empty().whole(count, 3).right(width, into),
        _ => {}
    }
    let mark = if estimate { "~" } else { "" };
    let text = match column.unit.as_str() {
        "ns" => format!("{mark}{:.3}", value / 1e6),
        "" => format!("{mark}{}", crate::format::count(value.round() as u64)),
        _ => format!("{mark}{:.4}", value * column.scale),
    };
    right(&text, width, into);
}
