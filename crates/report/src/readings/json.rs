//! Samples as JSON lines: one object per sample, without the values that were not counted.

use countersteer_model::units::Nanos;
use serde::Serialize;
use serde::ser::SerializeMap;

use super::{SampleLine, VirtualValue, Writer, seconds};

#[derive(Serialize)]
struct JsonLine<'a> {
    kind: &'static str,
    time_s: f64,
    start_s: f64,
    pid: Option<u32>,
    tid: Option<u32>,
    name: &'a str,
    cpu: Option<u32>,
    core_type: &'a str,
    set: u32,
    enabled_ns: u64,
    running_ns: u64,
    last: bool,
    counts: JsonCounts<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scaled: Option<JsonCounts<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<Metrics<'a>>,
}

struct Metrics<'a> {
    writer: &'a Writer<'a>,
    row: &'a SampleLine<'a>,
}

impl Serialize for Metrics<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (metric, value) in self.writer.form.metrics.iter().zip(self.row.metrics) {
            if let Some(value) = value {
                map.serialize_entry(&metric.name, value)?;
            }
        }
        map.end()
    }
}

struct JsonCounts<'a> {
    writer: &'a Writer<'a>,
    row: &'a SampleLine<'a>,
    /// Fraction of the time that was counted, by which counts are extrapolated; `None` without
    /// extrapolation.
    part: Option<f64>,
}

impl Serialize for JsonCounts<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (column, count) in self.writer.columns.iter().zip(self.row.counts()) {
            let Some(count) = count else { continue };
            match self.part {
                Some(part) => map.serialize_entry(&column.name, &(count as f64 / part))?,
                None => map.serialize_entry(&column.name, &count)?,
            }
        }
        map.end()
    }
}

#[derive(Serialize)]
struct JsonValue<'a> {
    kind: &'static str,
    time_s: f64,
    name: &'a str,
    unit: &'a str,
    place: &'a str,
    tid: Option<u32>,
    cpu: Option<u32>,
    value: f64,
}

pub(super) fn value(at: Nanos, value: &VirtualValue<'_>, into: &mut Vec<u8>) {
    let VirtualValue {
        name,
        unit,
        place,
        tid,
        cpu,
        value,
    } = *value;
    put(
        &JsonValue {
            kind: "value",
            time_s: seconds(at),
            name,
            unit,
            place,
            tid,
            cpu,
            value,
        },
        into,
    );
}

pub(super) fn line(writer: &Writer<'_>, row: &SampleLine<'_>, into: &mut Vec<u8>) {
    let r = row.sample;
    let line = JsonLine {
        kind: "reading",
        time_s: seconds(row.end),
        start_s: seconds(row.start),
        pid: row.pid,
        tid: row.tid,
        name: row.name,
        cpu: r.cpu.map(|c| c.0),
        core_type: row.core_type,
        set: r.set,
        enabled_ns: r.enabled.0,
        running_ns: r.running.0,
        last: r.last,
        counts: JsonCounts {
            writer,
            row,
            part: None,
        },
        scaled: row.part.map(|part| JsonCounts {
            writer,
            row,
            part: Some(part),
        }),
        metrics: (!writer.form.metrics.is_empty()).then_some(Metrics { writer, row }),
    };
    put(&line, into);
}

/// Writes an object as a line. Encoding cannot fail, because maps have text keys and numbers are finite;
/// writing to memory cannot fail either.
fn put(line: &impl Serialize, into: &mut Vec<u8>) {
    let _ = serde_json::to_writer(&mut *into, line);
    into.push(b'\n');
}
