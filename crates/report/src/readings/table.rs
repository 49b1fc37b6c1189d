//! Samples as a table: columns have fixed widths, so that rows can be printed as they arrive. A value that is too wide shifts
//! the rest of its row.

use std::fmt::Display;
use std::io::Write;

use countersteer_model::counters::{Per, PlannedEvent};
use countersteer_model::printable::printable;
use countersteer_model::units::Nanos;

use super::{ReadingOptions, SampleLine, VirtualValue, Writer, seconds};
use crate::format;

/// Width of the time column in characters.
const TIME: usize = 10;
/// Minimum width of a column of counts; a wider head widens it.
const COUNT: usize = 13;
/// Minimum width of a column of metrics.
const METRIC: usize = 10;
/// Width of the column with the fraction of time counted, without the percent sign.
const COUNTED: usize = 6;
/// Minimum width of a column in narrow tables; a wider head widens it.
const NARROW: usize = 8;
/// Width of the gap between key columns.
const GAP: usize = 1;
/// Width of the gap between columns of counts.
const WIDE_GAP: usize = 2;
/// Text in place of values that were not counted.
const NOTHING: &str = "-";

/// Layout of a table, common to all its lines. Widths of columns include the gaps before them.
pub(super) struct TableLayout {
    /// Key columns, each with its head and width.
    keys: Vec<(KeyColumn, &'static str, usize)>,
    /// Columns of counts.
    counts: Vec<ReadingColumn>,
    /// Columns of metrics, each with its head and width.
    metrics: Vec<(ColumnHead, usize)>,
    /// True if heads have two lines, so that columns are no wider than their contents.
    narrow: bool,
    /// Width of all key columns together.
    keyed: usize,
    /// Width of a line.
    width: usize,
}

/// Column that identifies a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyColumn {
    Pid,
    Tid,
    Name,
    Cpu,
    CoreType,
    Set,
}

/// Head of a column: the upper line, empty if there is only one, and the lower line.
struct ColumnHead {
    upper: String,
    lower: String,
}

struct ReadingColumn {
    head: ColumnHead,
    width: usize,
    unit: ColumnUnit,
}

#[derive(Clone, Copy, Debug)]
enum ColumnUnit {
    /// Time in milliseconds.
    Time,
    /// Plain count.
    Number,
    /// Count multiplied by this factor, in the event's unit.
    Scaled(f64),
}

impl ColumnHead {
    /// Creates the head of a column from its title. If the title is wider than a column and `parted` is true, it is split into
    /// two lines where the result is narrowest.
    fn of(title: String, parted: bool) -> Self {
        let ends = title.char_indices().filter(|(_, c)| "_/".contains(*c));
        let parts = ends.map(|(at, _)| title.split_at(at + 1));
        let narrowest = parts.min_by_key(|(upper, lower)| upper.len().max(lower.len()));
        match narrowest {
            Some((upper, lower)) if parted && title.len() > NARROW => Self {
                upper: upper.into(),
                lower: lower.into(),
            },
            _ => Self {
                upper: String::new(),
                lower: title,
            },
        }
    }

    fn chars(&self) -> usize {
        self.upper.chars().count().max(self.lower.chars().count())
    }
}

impl TableLayout {
    /// Creates the layout of a table: the wide one, or the narrow one if the wide one does not fit the terminal.
    pub(super) fn new(form: &ReadingOptions<'_>, columns: &[&PlannedEvent]) -> Self {
        let wide = Self::laid_out(form, columns, false);
        let fits = form.room.is_none_or(|room| wide.width <= room);
        if fits {
            wide
        } else {
            Self::laid_out(form, columns, true)
        }
    }

    fn laid_out(form: &ReadingOptions<'_>, columns: &[&PlannedEvent], narrow: bool) -> Self {
        let keys = [
            (
                KeyColumn::Pid,
                "pid",
                7,
                form.per == Per::Process || (form.per == Per::Thread && !narrow),
            ),
            (KeyColumn::Tid, "tid", 7, form.per == Per::Thread),
            (KeyColumn::Name, "name", 15, form.per != Per::Cpu),
            (KeyColumn::Cpu, "cpu", 5, form.per == Per::Cpu),
            (KeyColumn::CoreType, "core_type", 9, form.is_hybrid()),
            (KeyColumn::Set, "set", 4, form.rotates()),
        ];
        let shown = keys.into_iter().filter(|key| key.3);
        let keys: Vec<_> = shown
            .map(|(key, head, width, _)| (key, head, GAP + width))
            .collect();
        let columns = if form.only_metrics { &[] } else { columns };
        let counts: Vec<ReadingColumn> = columns
            .iter()
            .map(|column| ReadingColumn::of(column, narrow))
            .collect();
        let metric = |name: &str| {
            let head = ColumnHead::of(name.to_owned(), narrow);
            let width = wide(METRIC, &head, narrow);
            (head, width)
        };
        let metrics: Vec<(ColumnHead, usize)> =
            form.metrics.iter().map(|m| metric(&m.name)).collect();
        let keyed: usize = keys.iter().map(|key| key.2).sum();
        let width = TIME
            + keyed
            + counts.iter().map(|column| column.width).sum::<usize>()
            + metrics.iter().map(|metric| metric.1).sum::<usize>()
            + last_gap(narrow)
            + COUNTED
            + "%".len();
        Self {
            keys,
            counts,
            metrics,
            narrow,
            keyed,
            width,
        }
    }
}

impl ReadingColumn {
    fn of(event: &PlannedEvent, narrow: bool) -> Self {
        let name = &event.name;
        let unit = event.unit.as_str();
        let (title, unit) = match unit {
            "" => (name.clone(), ColumnUnit::Number),
            "ns" => (format!("{name}/ms"), ColumnUnit::Time),
            _ => (format!("{name}/{unit}"), ColumnUnit::Scaled(event.scale)),
        };
        let head = ColumnHead::of(title, narrow);
        Self {
            width: wide(COUNT, &head, narrow),
            head,
            unit,
        }
    }
}

/// Returns the width of the gap before the fraction of time counted.
const fn last_gap(narrow: bool) -> usize {
    if narrow { GAP } else { WIDE_GAP }
}

/// Returns the width of a column with the gap before it, given the minimum width of its values.
fn wide(least: usize, head: &ColumnHead, narrow: bool) -> usize {
    if narrow {
        GAP + least.min(NARROW).max(head.chars())
    } else {
        WIDE_GAP + least.max(head.chars())
    }
}

pub(super) fn head(writer: &Writer<'_>, into: &mut Vec<u8>) {
    let layout = &writer.layout;
    let of_counts = layout
        .counts
        .iter()
        .map(|column| (&column.head, column.width));
    let of_metrics = layout.metrics.iter().map(|(head, width)| (head, *width));
    let heads: Vec<(&ColumnHead, usize)> = of_counts.chain(of_metrics).collect();
    if layout.narrow {
        let _ = write!(into, "{:1$}", "", TIME + layout.keyed);
        for (head, width) in &heads {
            let _ = write!(into, "{:>width$}", head.upper);
        }
        into.push(b'\n');
    }
    let _ = write!(into, "{:>TIME$}", "time_s");
    for (key, head, width) in &layout.keys {
        let _ = match key {
            KeyColumn::Name => write!(into, " {head:<0$}", width - GAP),
            _ => write!(into, "{head:>width$}"),
        };
    }
    for (head, width) in heads {
        let _ = write!(into, "{:>width$}", head.lower);
    }
    let _ = writeln!(into, "{:1$}counted", "", last_gap(layout.narrow));
}

pub(super) fn line(writer: &Writer<'_>, row: &SampleLine<'_>, into: &mut Vec<u8>) {
    let layout = &writer.layout;
    let _ = write!(into, "{:>TIME$}", decimal::<4>(row.end.0, 100_000));
    for (key, _, width) in &layout.keys {
        match key {
            KeyColumn::Pid => cell(*width, row.pid, into),
            KeyColumn::Tid => cell(*width, row.tid, into),
            KeyColumn::Name => {
                let room = width - GAP;
                let _ = write!(into, " {:<room$.room$}", printable(row.name));
            }
            KeyColumn::Cpu => cell(*width, row.sample.cpu.map(|cpu| cpu.0), into),
            KeyColumn::CoreType => cell(*width, Some(row.core_type), into),
            KeyColumn::Set => cell(*width, Some(row.sample.set), into),
        }
    }
    for (column, count) in layout.counts.iter().zip(row.counts()) {
        let text = count.map(|count| column.unit.text(count, row.part));
        cell(column.width, text, into);
    }
    for ((_, width), value) in layout.metrics.iter().zip(row.metrics) {
        cell(*width, value.map(|value| format::number(value, 4)), into);
    }
    let percent = (row.sample.share() * 100.0).round();
    cell(last_gap(layout.narrow) + COUNTED, Some(percent), into);
    into.extend_from_slice(b"%\n");
}

/// Writes a value right-aligned in its column, after the gap.
fn cell(width: usize, value: Option<impl Display>, into: &mut Vec<u8>) {
    let room = width - GAP;
    let _ = match value {
        Some(value) => write!(into, " {:>room$}", value.to_string()),
        None => write!(into, " {NOTHING:>room$}"),
    };
}

/// Formats `value / unit` as a decimal number with `PLACES` digits, where `unit` is the size of the last digit; the result is
/// rounded.
fn decimal<const PLACES: usize>(value: u64, unit: u64) -> String {
    let steps = value / unit + u64::from(value % unit >= unit.div_ceil(2));
    let one = const { 10u64.pow(PLACES as u32) };
    format!("{}.{:0PLACES$}", steps / one, steps % one)
}

impl ColumnUnit {
    /// Formats a count. An extrapolated count is marked by `~`.
    fn text(self, count: u64, part: Option<f64>) -> String {
        let (mark, value) = part.map_or(("", count as f64), |part| ("~", count as f64 / part));
        match self {
            Self::Time if part.is_none() => decimal::<3>(count, 1_000),
            Self::Number if part.is_none() => format::count(count),
            Self::Time => format!("{mark}{:.3}", value / 1e6),
            Self::Number => format!("{mark}{}", format::count(value.round() as u64)),
            Self::Scaled(scale) => format!("{mark}{:.4}", value * scale),
        }
    }
}

/// Writes a line for a virtual counter between the rows, because its subject does not fit the key columns.
pub(super) fn value(at: Nanos, value: &VirtualValue<'_>, into: &mut Vec<u8>) {
    let tid = value.tid.map_or_else(String::new, |t| t.to_string());
    let number = format::number(value.value, 4);
    let (
        at_s,
        VirtualValue {
            place, name, unit, ..
        },
    ) = (seconds(at), value);
    let _ = writeln!(
        into,
        "{at_s:>10.4} {:>7} {tid:>7} {:<15} {name} {number} {unit}",
        "",
        printable(place)
    );
}
