//! Readings for people: columns of fixed width, so that rows can be printed as they come.

use std::fmt::Write;

use countersteer_core::counters::{Per, PlannedEvent};

use super::{Row, VirtualValue, Writer};

/// Width of a count's column, unless its head is wider.
const COUNT: usize = 13;
/// Width of a metric's.
const METRIC: usize = 10;

pub(super) fn head(writer: &Writer<'_>) -> String {
    let mut line = format!("{:>10}", "time_s");
    for (width, _, name, wanted) in keys(writer) {
        if wanted {
            let _ = if name == "name" { write!(line, " {name:<15}") } else { write!(line, " {name:>width$}") };
        }
    }
    for column in counts(writer) {
        let head = title(column);
        let _ = write!(line, "  {head:>COUNT$}");
    }
    for metric in writer.metrics {
        let _ = write!(line, "  {:>METRIC$}", metric.name);
    }
    line + "  counted\n"
}

fn counts<'a>(writer: &Writer<'a>) -> Vec<&'a PlannedEvent> {
    if writer.only_metrics { Vec::new() } else { writer.plan.columns() }
}

fn title(column: &PlannedEvent) -> String {
    match column.unit.as_str() {
        "" => column.name.clone(),
        "ns" => format!("{}/ms", column.name),
        unit => format!("{}/{unit}", column.name),
    }
}

type Key = (usize, fn(&Row<'_>) -> String, &'static str, bool);

fn keys(writer: &Writer<'_>) -> [Key; 6] {
    [
        (7, |r| or_dash(r.pid), "pid", matches!(writer.per, Per::Thread | Per::Process)),
        (7, |r| or_dash(r.tid), "tid", writer.per == Per::Thread),
        (15, |r| r.name.to_owned(), "name", writer.per != Per::Cpu),
        (5, |r| or_dash(r.reading.cpu.map(|c| c.0)), "cpu", writer.per == Per::Cpu),
        (9, |r| r.core_type.to_owned(), "core_type", writer.is_hybrid()),
        (4, |r| r.reading.set.to_string(), "set", writer.rotates()),
    ]
}

fn or_dash(number: Option<u32>) -> String {
    number.map_or_else(|| "-".into(), |n| n.to_string())
}

pub(super) fn line(writer: &Writer<'_>, row: &Row<'_>, into: &mut String) {
    let _ = write!(into, "{:>10.4}", row.end_s);
    for (width, text, name, wanted) in keys(writer) {
        if wanted {
            let text = text(row);
            let _ = if name == "name" { write!(into, " {text:<15.15}") } else { write!(into, " {text:>width$}") };
        }
    }
    for (column, count) in counts(writer).iter().zip(&row.counts) {
        let width = COUNT.max(title(column).chars().count());
        let text = count.map_or_else(|| "-".into(), |count| cell(writer, row, column, count));
        let _ = write!(into, "  {text:>width$}");
    }
    for (metric, value) in writer.metrics.iter().zip(&row.metrics) {
        let width = METRIC.max(metric.name.chars().count());
        let text = value.map_or_else(|| "-".into(), |v| crate::format::number(v, 4));
        let _ = write!(into, "  {text:>width$}");
    }
    let _ = writeln!(into, "  {:>6.0}%", row.reading.share() * 100.0);
}

/// A line between the rows: values of virtual counters are about all kinds of places.
pub(super) fn value(at_s: f64, value: &VirtualValue<'_>, into: &mut String) {
    let tid = value.tid.map_or_else(String::new, |t| t.to_string());
    let number = crate::format::number(value.value, 4);
    let _ =
        writeln!(into, "{at_s:>10.4} {:>7} {tid:>7} {:<15} {} {number} {}", "", value.place, value.name, value.unit);
}

fn cell(writer: &Writer<'_>, row: &Row<'_>, column: &PlannedEvent, count: u64) -> String {
    let (value, estimate) = writer.shown(row, count);
    let mark = if estimate { "~" } else { "" };
    match column.unit.as_str() {
        "ns" => format!("{mark}{:.3}", value / 1e6),
        "" => format!("{mark}{}", crate::format::count(value.round() as u64)),
        _ => format!("{mark}{:.4}", value * column.scale),
    }
}
