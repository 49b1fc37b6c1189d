//! Readings as comma-separated values.

use std::fmt::Write;

use super::{Row, VirtualValue, Writer};

pub(super) fn head(writer: &Writer<'_>) -> String {
    let mut line = "time_s,start_s,pid,tid,name,cpu,core_type,set,enabled_ns,running_ns,last,scaled".to_owned();
    for column in writer.plan.columns() {
        let _ = write!(line, ",{}", quoted(&column.name));
    }
    for metric in writer.metrics {
        let _ = write!(line, ",{}", quoted(&metric.name));
    }
    for name in writer.virtuals {
        let _ = write!(line, ",{}", quoted(name));
    }
    line + "\n"
}

/// A row of its own: only time, place and the value's column are filled.
pub(super) fn value(writer: &Writer<'_>, at_s: f64, value: &VirtualValue<'_>, into: &mut String) {
    let maybe = |n: Option<u32>| n.map_or_else(String::new, |n| n.to_string());
    let _ = write!(into, "{at_s:.9},,,{},{},{},,,,,,", maybe(value.tid), quoted(value.place), maybe(value.cpu));
    let counted = writer.plan.columns().len() + writer.metrics.len();
    into.extend(std::iter::repeat_n(',', counted));
    for name in writer.virtuals {
        let _ = if *name == value.name { write!(into, ",{}", value.value) } else { write!(into, ",") };
    }
    into.push('\n');
}

pub(super) fn line(writer: &Writer<'_>, row: &Row<'_>, into: &mut String) {
    let maybe = |n: Option<u32>| n.map_or_else(String::new, |n| n.to_string());
    let r = row.reading;
    let _ =
        write!(into, "{:.9},{:.9},{},{},{}", row.end_s, row.start_s, maybe(row.pid), maybe(row.tid), quoted(row.name));
    let _ = write!(into, ",{},{},{}", maybe(r.cpu.map(|c| c.0)), quoted(row.core_type), r.set);
    let scaled = writer.scale && r.share() > 0.0 && r.share() < 1.0;
    let _ = write!(into, ",{},{},{},{scaled}", r.enabled.0, r.running.0, r.last);
    for count in &row.counts {
        let _ = match count.map(|c| writer.shown(row, c)) {
            Some((value, _)) => write!(into, ",{}", value.round()),
            None => write!(into, ","),
        };
    }
    for value in &row.metrics {
        let _ = match value {
            Some(value) => write!(into, ",{value}"),
            None => write!(into, ","),
        };
    }
    into.extend(std::iter::repeat_n(',', writer.virtuals.len()));
    into.push('\n');
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}
