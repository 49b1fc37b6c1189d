//! Readings for people: columns of fixed width, so that rows can be printed as they come.
//!
//! A line begins as blanks, and every cell is written where it is to stand; what is too wide moves what is behind it.

use std::cell::RefCell;
use std::io::Write;

use countersteer_core::counters::{Per, PlannedEvent, Reading};
use countersteer_core::printable::printable;
use countersteer_core::units::Nanos;
use rustc_hash::FxHashMap;

use super::number::{MOST, decimal, grouped, in_units, whole};
use super::{Form, Row, VirtualValue, Writer, seconds};

/// Width of the time's column.
const TIME: usize = 10;
/// Width of a count's column, unless its head is wider.
const COUNT: usize = 13;
const METRIC: usize = 10;
/// Width of the share's that was counted, which a sign follows.
const COUNTED: usize = 6;
/// What stands there in a line in which nothing stands yet.
const WHOLE: &[u8] = b"100";
/// Width of a column where there is little room, unless its head is wider.
const NARROW: usize = 8;
/// Between keys, and between columns of counts.
const GAP: usize = 1;
const WIDE_GAP: usize = 2;
/// What stands where nothing was counted.
const NOTHING: &str = "-";

/// What all lines of a table have in common. Widths are those of columns with the gaps before them.
pub(super) struct Layout {
    /// Of each key that is shown: what it is, its head and its width.
    keys: Vec<(Key, &'static str, usize)>,
    counts: Vec<Column>,
    metrics: Vec<(Head, usize)>,
    /// Heads have two lines, so that columns are no wider than what stands in them.
    narrow: bool,
    /// A line in which nothing stands yet.
    blank: Vec<u8>,
    keyed: usize,
    /// Keys of threads as they were written: most come again with the next readings.
    written: RefCell<FxHashMap<u32, Written>>,
}

/// Keys of a row as text that fills their columns.
struct Written {
    pid: u32,
    core_type: u32,
    set: u32,
    name: Box<str>,
    text: Box<[u8]>,
}

/// Threads whose keys are kept, at most: then it is begun anew.
const MOST_WRITTEN: usize = 4096;

impl Written {
    fn is_of(&self, row: &Row<'_>) -> bool {
        let numbers = (Some(self.pid), self.core_type, self.set);
        numbers == (row.pid, row.reading.core_type, row.reading.set) && *self.name == *row.name
    }
}

/// What a row is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Pid,
    Tid,
    Name,
    Cpu,
    CoreType,
    Set,
}

/// A column's head: what stands in the upper line, if there are two, and in the lower one.
struct Head {
    upper: String,
    lower: String,
}

struct Column {
    head: Head,
    width: usize,
    unit: Unit,
}

#[derive(Clone, Copy, Debug)]
enum Unit {
    /// As milliseconds.
    Time,
    Number,
    /// As so many of their unit.
    Scaled(f64),
}

impl Head {
    /// A title in one line, or, where that is wider than what stands below, parted where that makes it narrowest.
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

impl Layout {
    /// As wide as is easily read, or as narrow as it can be where the terminal has no such room.
    pub(super) fn new(form: &Form<'_>, columns: &[&PlannedEvent]) -> Self {
        let wide = Self::laid_out(form, columns, false);
        // A line ends with its line feed.
        let fits = form.room.is_none_or(|room| wide.blank.len() - 1 <= room);
        if fits {
            wide
        } else {
            Self::laid_out(form, columns, true)
        }
    }

    fn laid_out(form: &Form<'_>, columns: &[&PlannedEvent], narrow: bool) -> Self {
        let keys = [
            (
                Key::Pid,
                "pid",
                7,
                form.per == Per::Process || (form.per == Per::Thread && !narrow),
            ),
            (Key::Tid, "tid", 7, form.per == Per::Thread),
            (Key::Name, "name", 15, form.per != Per::Cpu),
            (Key::Cpu, "cpu", 5, form.per == Per::Cpu),
            (Key::CoreType, "core_type", 9, form.is_hybrid()),
            (Key::Set, "set", 4, form.rotates()),
        ];
        let shown = keys.into_iter().filter(|key| key.3);
        let keys: Vec<_> = shown
            .map(|(key, head, width, _)| (key, head, GAP + width))
            .collect();
        let columns = if form.only_metrics { &[] } else { columns };
        let counts: Vec<Column> = columns
            .iter()
            .map(|column| Column::of(column, narrow))
            .collect();
        let metric = |name: &str| {
            let head = Head::of(name.to_owned(), narrow);
            let width = wide(METRIC, &head, narrow);
            (head, width)
        };
        let metrics: Vec<(Head, usize)> = form.metrics.iter().map(|m| metric(&m.name)).collect();
        let width = TIME
            + keys.iter().map(|key| key.2).sum::<usize>()
            + counts.iter().map(|column| column.width).sum::<usize>()
            + metrics.iter().map(|metric| metric.1).sum::<usize>()
            + last_gap(narrow)
            + COUNTED;
        let mut blank = vec![b' '; width];
        blank.truncate(width - WHOLE.len());
        blank.extend_from_slice(WHOLE);
        blank.extend_from_slice(b"%\n");
        let keyed = keys.iter().map(|key| key.2).sum();
        Self {
            keys,
            counts,
            metrics,
            narrow,
            blank,
            keyed,
            written: RefCell::default(),
        }
    }
}

impl Column {
    fn of(event: &PlannedEvent, narrow: bool) -> Self {
        let name = &event.name;
        let unit = event.unit.as_str();
        let (title, unit) = match unit {
            "" => (name.clone(), Unit::Number),
            "ns" => (format!("{name}/ms"), Unit::Time),
            _ => (format!("{name}/{unit}"), Unit::Scaled(event.scale)),
        };
        let head = Head::of(title, narrow);
        Self {
            width: wide(COUNT, &head, narrow),
            head,
            unit,
        }
    }
}

/// The gap before the share that was counted.
const fn last_gap(narrow: bool) -> usize {
    if narrow { GAP } else { WIDE_GAP }
}

/// The width of a column with the gap before it.
fn wide(least: usize, head: &Head, narrow: bool) -> usize {
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
    let heads: Vec<(&Head, usize)> = of_counts.chain(of_metrics).collect();
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
            Key::Name => write!(into, " {head:<0$}", width - GAP),
            _ => write!(into, "{head:>width$}"),
        };
    }
    for (head, width) in heads {
        let _ = write!(into, "{:>width$}", head.lower);
    }
    let _ = writeln!(into, "{:1$}counted", "", last_gap(layout.narrow));
}

pub(super) fn line(writer: &Writer<'_>, row: &Row<'_>, into: &mut Vec<u8>) {
    let layout = &writer.layout;
    let mut line = Line {
        end: into.len(),
        into,
    };
    line.into.extend_from_slice(&layout.blank);
    line.decimal::<4>(TIME, 0, in_units::<100_000>(row.end.0));
    line.keys(layout, row);
    for (column, count) in layout.counts.iter().zip(row.counts()) {
        match count {
            Some(count) => line.count(column, count, row.part),
            None => line.right(column.width, NOTHING),
        }
    }
    for ((_, width), value) in layout.metrics.iter().zip(row.metrics) {
        match value {
            Some(value) => line.right(*width, &crate::format::number(*value, 4)),
            None => line.right(*width, NOTHING),
        }
    }
    if row.reading.running != row.reading.enabled {
        let percent = (row.reading.share() * 100.0).round() as u32;
        let width = last_gap(layout.narrow) + COUNTED;
        line.into[line.end..][..width].fill(b' ');
        line.number(width, Some(percent));
    }
}

/// Of so many digits is each number that is less.
const POWERS: [u64; 20] = {
    let mut powers = [1; 20];
    let mut digits = 1;
    while digits < powers.len() {
        powers[digits] = 10 * powers[digits - 1];
        digits += 1;
    }
    powers
};

/// A line that is being filled, from the left.
struct Line<'a> {
    into: &'a mut Vec<u8>,
    /// Where the last column ends that was filled.
    end: usize,
}

impl Line<'_> {
    /// What the row is of.
    fn keys(&mut self, layout: &Layout, row: &Row<'_>) {
        let first = self.end;
        let end = self.end + layout.keyed;
        let (Some(pid), Some(tid)) = (row.pid, row.tid) else {
            return self.keys_anew(layout, row);
        };
        let mut written = layout.written.borrow_mut();
        if let Some(known) = written.get(&tid).filter(|known| known.is_of(row)) {
            self.into[first..end].copy_from_slice(&known.text);
            self.end = end;
            return;
        }
        self.keys_anew(layout, row);
        // What was too wide comes seldom, and who has ended does not come again.
        if row.reading.last {
            written.remove(&tid);
        } else if self.end == end {
            if written.len() >= MOST_WRITTEN {
                written.clear();
            }
            let Reading { core_type, set, .. } = *row.reading;
            written.insert(
                tid,
                Written {
                    pid,
                    core_type,
                    set,
                    name: row.name.into(),
                    text: self.into[first..end].into(),
                },
            );
        }
    }

    fn keys_anew(&mut self, layout: &Layout, row: &Row<'_>) {
        for (key, _, width) in &layout.keys {
            match key {
                Key::Pid => self.number(*width, row.pid),
                Key::Tid => self.number(*width, row.tid),
                Key::Name => self.left(*width, &printable(row.name)),
                Key::Cpu => self.number(*width, row.reading.cpu.map(|cpu| cpu.0)),
                Key::CoreType => self.right(*width, row.core_type),
                Key::Set => self.number(*width, Some(row.reading.set)),
            }
        }
    }

    /// A decimal of so many places, in units of the last.
    #[inline(always)]
    fn decimal<const PLACES: usize>(&mut self, width: usize, gap: usize, value: u64) {
        self.cell((width, gap), width - gap - 1, value, decimal::<PLACES>);
    }

    /// A whole number with thousands apart.
    #[inline(always)]
    fn grouped(&mut self, width: usize, value: u64) {
        let room = width - GAP;
        self.cell((width, GAP), room - room / 4, value, grouped);
    }

    /// A number at the right end of a column so wide, or wider if it takes that. However it is written, one of so many digits fits.
    #[inline(always)]
    fn cell(
        &mut self,
        (width, gap): (usize, usize),
        digits: usize,
        value: u64,
        write: impl Fn(u64, &mut [u8]) -> usize,
    ) {
        self.end += width;
        if digits < POWERS.len() && value >= POWERS[digits] {
            let mut letters = [b' '; MOST];
            let length = MOST - write(value, &mut letters);
            self.stretch(width, gap + length);
        }
        write(value, &mut self.into[..self.end]);
    }

    /// Makes the column that was reached as wide as that.
    fn stretch(&mut self, width: usize, wanted: usize) {
        let more = wanted.saturating_sub(width);
        if more > 0 {
            self.into
                .splice(self.end..self.end, std::iter::repeat_n(b' ', more));
            self.end += more;
        }
    }

    fn number(&mut self, width: usize, number: Option<u32>) {
        match number {
            Some(number) => self.cell((width, GAP), width - GAP, number.into(), whole),
            None => self.right(width, NOTHING),
        }
    }

    fn count(&mut self, column: &Column, count: u64, part: Option<f64>) {
        match (column.unit, part) {
            (Unit::Time, None) => self.decimal::<3>(column.width, GAP, in_units::<1_000>(count)),
            (Unit::Number, None) => self.grouped(column.width, count),
            (unit, part) => self.right(column.width, &fraction(unit, count, part)),
        }
    }

    /// At the right end of the column, or of as much as it takes.
    fn right(&mut self, width: usize, text: &str) {
        self.end += width;
        self.stretch(width, GAP + length(text));
        // What has more bytes than letters takes more than the blanks that there are.
        let blanks = self.end - length(text)..self.end;
        self.put(blanks, text);
    }

    /// Behind the gap; cut off where it is too long.
    fn left(&mut self, width: usize, text: &str) {
        let first = self.end + GAP;
        let room = width - GAP;
        self.end += width;
        let length = length(text);
        let shown = if length > room {
            text.char_indices()
                .nth(room)
                .map_or(text, |(end, _)| &text[..end])
        } else {
            text
        };
        self.put(first..first + length.min(room), shown);
    }

    /// Puts a text where so many blanks are as it has letters.
    fn put(&mut self, blanks: std::ops::Range<usize>, text: &str) {
        if blanks.len() == text.len() {
            self.into[blanks].copy_from_slice(text.as_bytes());
        } else {
            self.end += text.len() - blanks.len();
            self.into.splice(blanks, text.bytes());
        }
    }
}

/// A count of a unit of its own, or extrapolated and marked as such.
fn fraction(unit: Unit, count: u64, part: Option<f64>) -> String {
    let (mark, value) = part.map_or(("", count as f64), |part| ("~", count as f64 / part));
    match unit {
        Unit::Time => format!("{mark}{:.3}", value / 1e6),
        Unit::Number => format!("{mark}{}", crate::format::count(value.round() as u64)),
        Unit::Scaled(scale) => format!("{mark}{:.4}", value * scale),
    }
}

/// Characters of a text, most of which are plain.
fn length(text: &str) -> usize {
    if text.is_ascii() {
        text.len()
    } else {
        text.chars().count()
    }
}

/// A line between the rows: values of virtual counters are about all kinds of places.
pub(super) fn value(at: Nanos, value: &VirtualValue<'_>, into: &mut Vec<u8>) {
    let tid = value.tid.map_or_else(String::new, |t| t.to_string());
    let number = crate::format::number(value.value, 4);
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
