//! Samples as comma-separated values.

use std::io::Write;

use countersteer_model::printable::printable_lines;
use countersteer_model::units::Nanos;

use super::{SampleLine, VirtualValue, Writer};

pub(super) fn head(writer: &Writer<'_>, into: &mut Vec<u8>) {
    into.extend_from_slice(
        b"time_s,start_s,pid,tid,name,cpu,core_type,set,enabled_ns,running_ns,last,scaled",
    );
    let metrics = writer
        .form
        .metrics
        .iter()
        .map(|metric| metric.name.as_str());
    for name in writer
        .columns
        .iter()
        .map(|column| column.name.as_str())
        .chain(metrics)
    {
        text(name, into);
    }
    writer
        .form
        .virtuals
        .iter()
        .for_each(|name| text(name, into));
    into.push(b'\n');
}

/// Writes a row for a virtual counter, in which only the time, the subject and the value's column
/// are filled.
pub(super) fn value(writer: &Writer<'_>, at: Nanos, value: &VirtualValue<'_>, into: &mut Vec<u8>) {
    time(at, into);
    commas(2, into);
    number(value.tid.map(u64::from), into);
    text(value.place, into);
    number(value.cpu.map(u64::from), into);
    commas(6 + writer.columns.len() + writer.form.metrics.len(), into);
    for name in writer.form.virtuals {
        fraction((*name == value.name).then_some(value.value), into);
    }
    into.push(b'\n');
}

pub(super) fn line(writer: &Writer<'_>, row: &SampleLine<'_>, into: &mut Vec<u8>) {
    let r = row.sample;
    time(row.end, into);
    into.push(b',');
    time(row.start, into);
    number(row.pid.map(u64::from), into);
    number(row.tid.map(u64::from), into);
    text(row.name, into);
    number(r.cpu.map(|cpu| cpu.0.into()), into);
    text(row.core_type, into);
    for value in [r.set.into(), r.enabled.0, r.running.0] {
        number(Some(value), into);
    }
    yes_or_no(r.last, into);
    yes_or_no(row.part.is_some(), into);
    for count in row.counts() {
        match (count, row.part) {
            (Some(count), Some(part)) => fraction(Some((count as f64 / part).round()), into),
            (count, _) => number(count, into),
        }
    }
    row.metrics.iter().for_each(|value| fraction(*value, into));
    commas(writer.form.virtuals.len(), into);
    into.push(b'\n');
}

fn commas(number: usize, into: &mut Vec<u8>) {
    into.resize(into.len() + number, b',');
}

/// Writes a time in seconds with nanosecond resolution.
fn time(at: Nanos, into: &mut Vec<u8>) {
    let _ = write!(into, "{}.{:09}", at.0 / 1_000_000_000, at.0 % 1_000_000_000);
}

/// Writes a comma and a number; only the comma if the number is `None`.
fn number(value: Option<u64>, into: &mut Vec<u8>) {
    into.push(b',');
    if let Some(value) = value {
        let _ = write!(into, "{value}");
    }
}

fn fraction(value: Option<f64>, into: &mut Vec<u8>) {
    into.push(b',');
    if let Some(value) = value {
        let _ = write!(into, "{value}");
    }
}

fn yes_or_no(value: bool, into: &mut Vec<u8>) {
    into.extend_from_slice(if value { b",true" } else { b",false" });
}

fn text(text: &str, into: &mut Vec<u8>) {
    into.push(b',');
    let text = printable_lines(text);
    if text.contains([',', '"', '\n', '\r']) {
        let _ = write!(into, "\"{}\"", text.replace('"', "\"\""));
    } else {
        into.extend_from_slice(text.as_bytes());
    }
}
