//! Readings as JSON lines: an object per reading; what was not counted is absent.

use serde::Serialize;
use serde::ser::SerializeMap;

use super::{Row, VirtualValue, Writer};

#[derive(Serialize)]
struct Line<'a> {
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
    counts: Counts<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scaled: Option<Counts<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<Metrics<'a>>,
}

struct Metrics<'a> {
    writer: &'a Writer<'a>,
    row: &'a Row<'a>,
}

impl Serialize for Metrics<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (metric, value) in self.writer.metrics.iter().zip(&self.row.metrics) {
            if let Some(value) = value {
                map.serialize_entry(&metric.name, value)?;
            }
        }
        map.end()
    }
}

struct Counts<'a> {
    writer: &'a Writer<'a>,
    row: &'a Row<'a>,
    scaled: bool,
}

impl Serialize for Counts<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (column, count) in self.writer.plan.columns().iter().zip(&self.row.counts) {
            let Some(count) = count else { continue };
            if self.scaled {
                map.serialize_entry(&column.name, &self.writer.shown(self.row, *count).0)?;
            } else {
                map.serialize_entry(&column.name, count)?;
            }
        }
        map.end()
    }
}

#[derive(Serialize)]
struct Value<'a> {
    kind: &'static str,
    time_s: f64,
    name: &'a str,
    unit: &'a str,
    place: &'a str,
    tid: Option<u32>,
    cpu: Option<u32>,
    value: f64,
}

pub(super) fn value(time_s: f64, value: &VirtualValue<'_>, into: &mut String) {
    let VirtualValue { name, unit, place, tid, cpu, value } = *value;
    let line = Value { kind: "value", time_s, name, unit, place, tid, cpu, value };
    into.push_str(&serde_json::to_string(&line).unwrap_or_default());
    into.push('\n');
}

pub(super) fn line(writer: &Writer<'_>, row: &Row<'_>, into: &mut String) {
    let r = row.reading;
    let scaled = writer.scale && r.share() > 0.0 && r.share() < 1.0;
    let line = Line {
        kind: "reading",
        time_s: row.end_s,
        start_s: row.start_s,
        pid: row.pid,
        tid: row.tid,
        name: row.name,
        cpu: r.cpu.map(|c| c.0),
        core_type: row.core_type,
        set: r.set,
        enabled_ns: r.enabled.0,
        running_ns: r.running.0,
        last: r.last,
        counts: Counts { writer, row, scaled: false },
        scaled: scaled.then_some(Counts { writer, row, scaled: true }),
        metrics: (!writer.metrics.is_empty()).then_some(Metrics { writer, row }),
    };
    // Maps with text for keys and finite numbers: there is nothing that could not be encoded.
    into.push_str(&serde_json::to_string(&line).unwrap_or_default());
    into.push('\n');
}
