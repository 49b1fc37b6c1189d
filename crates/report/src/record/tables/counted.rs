//! Tables of what was counted, and of what programs do: samples and metrics, readings, virtual counters, profiles.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use countersteer_model::events::Event;
use countersteer_model::sample::{EventSet, Row, Sample};
use countersteer_model::topology::Topology;
use countersteer_model::units::{CoreTypeId, CpuId, Nanos, ThreadId};

use super::Batch;
use crate::record::Record;
use crate::record::collector::Words;
use crate::record::columns::{BatchBuilder, Columns, maybe};
use crate::record::rows::{MetricRow, ReadingRow, VirtualRow};

pub(super) fn encode_samples(
    record: &Record,
    topology: &Topology,
    range: std::ops::Range<usize>,
) -> Batch {
    let rows = || record.samples.range(range.clone());
    let type_name = |r: Row<'_>| {
        topology
            .core_types
            .get(r.core_type.index())
            .map_or("", |t| t.name.as_str())
    };
    let steps = &record.samples.steps[range.clone()];
    let mut batch = BatchBuilder::default()
        .u32("step", steps.iter().copied())
        .u64("at_ns", rows().map(|r| r.end.0))
        .u32("thread", rows().map(|r| r.thread().unwrap_or_default().0))
        .u32("cpu", rows().map(|r| r.cpu.unwrap_or_default().0))
        .u32("core_type_id", rows().map(|r| r.core_type.0))
        .text("core_type", rows().map(type_name))
        .u32("set", rows().map(|r| r.set))
        .u32("sets", rows().map(|r| r.sets()))
        .u64("enabled_ns", rows().map(|r| r.enabled.0))
        .u64("running_ns", rows().map(|r| r.running.0));
    // An event that no sample of the record has gets no column.
    for event in record.samples.samples.events() {
        batch = batch.maybe_f64(event.def().name, rows().map(|r| r.counts.get(event)));
    }
    batch.build(range.len())
}

pub(super) fn decode_samples(
    record: &mut Record,
    _: &mut Words,
    batch: &RecordBatch,
) -> Result<(), String> {
    let c = Columns(batch);
    let step = c.u32("step")?;
    let at = c.u64("at_ns")?;
    let thread = c.u32("thread")?;
    let cpu = c.u32("cpu")?;
    let core_type = c.u32("core_type_id")?;
    let set = c.u32("set")?;
    // Records of earlier versions do not say of how many: they were taken as if there were one.
    let sets = c.newer_u32("sets")?;
    let enabled = c.u64("enabled_ns")?;
    let running = c.u64("running_ns")?;
    // An event that this version does not know is left out; one that a record lacks is unavailable, not an error.
    let fields = batch.schema();
    let events: Vec<_> = fields
        .fields()
        .iter()
        .filter_map(|field| Some((Event::named(field.name())?, c.f64(field.name()).ok()?)))
        .collect();
    // All columns are places of one event set, however many samples have each.
    let mut compiled: BTreeMap<u32, Arc<EventSet>> = BTreeMap::new();
    for i in 0..batch.num_rows() {
        let sets = sets.map_or(1, |sets| sets.value(i));
        let all = compiled.entry(sets).or_insert_with(|| {
            let events = events.iter().map(|(event, _)| Some(*event));
            Arc::new(EventSet::new(events, sets))
        });
        let counted = || events.iter().map(|(_, column)| maybe(column, i));
        let end = Nanos(at.value(i));
        let running = Nanos(running.value(i));
        let core_type = CoreTypeId(core_type.value(i));
        let thread = ThreadId(thread.value(i));
        let enabled = Nanos(enabled.value(i));
        let sample = Sample {
            set: set.value(i),
            start: end.since(enabled),
            enabled,
            present: EventSet::present(counted()),
            ..Sample::of_thread(thread, CpuId(cpu.value(i)), core_type, end, running)
        };
        let values = counted().map(Option::unwrap_or_default);
        record.samples.steps.push(step.value(i));
        record.samples.samples.push_by(sample, all, values);
    }
    Ok(())
}

/// Columns of the metrics table that are no metric.
const METRIC_KEYS: usize = 3;

pub(super) fn encode_metrics(
    record: &Record,
    _: &Topology,
    range: std::ops::Range<usize>,
) -> Batch {
    let rows = &record.metrics[range];
    let mut batch = BatchBuilder::default()
        .u32("step", rows.iter().map(|r| r.step))
        .u64("at_ns", rows.iter().map(|r| r.at_ns))
        .u32("thread", rows.iter().map(|r| r.thread));
    for (column, name) in record.metric_names.iter().enumerate() {
        batch = batch.maybe_f64(
            name,
            rows.iter().map(|r| r.values.get(column).copied().flatten()),
        );
    }
    batch.build(rows.len())
}

pub(super) fn decode_metrics(
    record: &mut Record,
    _: &mut Words,
    batch: &RecordBatch,
) -> Result<(), String> {
    let c = Columns(batch);
    let step = c.u32("step")?;
    let at = c.u64("at_ns")?;
    let thread = c.u32("thread")?;
    let schema = batch.schema();
    let names = schema
        .fields()
        .iter()
        .skip(METRIC_KEYS)
        .map(|f| f.name().as_str());
    record.metric_names = names.map(Arc::from).collect();
    let columns: Vec<_> = record
        .metric_names
        .iter()
        .map(|n| c.f64(n))
        .collect::<Result<_, _>>()?;
    for i in 0..batch.num_rows() {
        let values = columns.iter().map(|column| maybe(column, i)).collect();
        record.metrics.push(MetricRow {
            step: step.value(i),
            at_ns: at.value(i),
            thread: thread.value(i),
            values,
        });
    }
    Ok(())
}

pub(super) fn encode_profiles(
    record: &Record,
    _: &Topology,
    range: std::ops::Range<usize>,
) -> Batch {
    let rows: Vec<_> = record
        .manifest
        .profiles
        .iter()
        .skip(range.start)
        .take(range.len())
        .collect();
    BatchBuilder::default()
        .text("file", rows.iter().map(|r| r.0))
        .text("text", rows.iter().map(|r| r.1))
        .build(rows.len())
}

pub(super) fn decode_profiles(
    record: &mut Record,
    _: &mut Words,
    batch: &RecordBatch,
) -> Result<(), String> {
    let c = Columns(batch);
    let file = c.text("file")?;
    let text = c.text("text")?;
    let rows = (0..batch.num_rows()).map(|i| (file.value(i).to_owned(), text.value(i).to_owned()));
    record.manifest.profiles.extend(rows);
    Ok(())
}

/// Columns of the readings table that are neither counts nor metrics.
const READING_KEYS: usize = 12;

pub(super) fn encode_readings(
    record: &Record,
    _: &Topology,
    range: std::ops::Range<usize>,
) -> Batch {
    let rows = &record.readings[range];
    let mut batch = BatchBuilder::default()
        .u32("step", rows.iter().map(|r| r.step))
        .u64("at_ns", rows.iter().map(|r| r.at_ns))
        .u64("start_ns", rows.iter().map(|r| r.start_ns))
        .maybe_u32("pid", rows.iter().map(|r| r.pid))
        .maybe_u32("thread", rows.iter().map(|r| r.thread))
        .text("name", rows.iter().map(|r| &r.name))
        .maybe_u32("cpu", rows.iter().map(|r| r.cpu))
        .text("core_type", rows.iter().map(|r| &r.core_type))
        .u32("set", rows.iter().map(|r| r.set))
        .u64("enabled_ns", rows.iter().map(|r| r.enabled_ns))
        .u64("running_ns", rows.iter().map(|r| r.running_ns))
        .bool("last", rows.iter().map(|r| r.last));
    for (column, name) in record.reading_counts.iter().enumerate() {
        batch = batch.maybe_u64(
            name,
            rows.iter().map(|r| r.counts.get(column).copied().flatten()),
        );
    }
    for (column, name) in record.reading_metrics.iter().enumerate() {
        batch = batch.maybe_f64(
            name,
            rows.iter()
                .map(|r| r.metrics.get(column).copied().flatten()),
        );
    }
    batch.build(rows.len())
}

pub(super) fn decode_readings(
    record: &mut Record,
    words: &mut Words,
    batch: &RecordBatch,
) -> Result<(), String> {
    let c = Columns(batch);
    let step = c.u32("step")?;
    let at = c.u64("at_ns")?;
    let start = c.u64("start_ns")?;
    let pid = c.u32("pid")?;
    let thread = c.u32("thread")?;
    let name = c.text("name")?;
    let cpu = c.u32("cpu")?;
    let core_type = c.text("core_type")?;
    let set = c.u32("set")?;
    let last = c.bool("last")?;
    let enabled = c.u64("enabled_ns")?;
    let running = c.u64("running_ns")?;
    let schema = batch.schema();
    let names = || {
        schema
            .fields()
            .iter()
            .skip(READING_KEYS)
            .map(|f| f.name().as_str())
    };
    // Counts are whole numbers, metrics are not.
    record.reading_counts = names()
        .filter(|n| c.u64(n).is_ok())
        .map(Arc::from)
        .collect();
    record.reading_metrics = names()
        .filter(|n| c.f64(n).is_ok())
        .map(Arc::from)
        .collect();
    let counts: Vec<_> = record
        .reading_counts
        .iter()
        .map(|n| c.u64(n))
        .collect::<Result<_, _>>()?;
    let metrics: Vec<_> = record
        .reading_metrics
        .iter()
        .map(|n| c.f64(n))
        .collect::<Result<_, _>>()?;
    for i in 0..batch.num_rows() {
        record.readings.push(ReadingRow {
            step: step.value(i),
            at_ns: at.value(i),
            start_ns: start.value(i),
            pid: maybe(pid, i),
            thread: maybe(thread, i),
            name: words.text(name.value(i)),
            cpu: maybe(cpu, i),
            core_type: words.text(core_type.value(i)),
            set: set.value(i),
            enabled_ns: enabled.value(i),
            running_ns: running.value(i),
            last: last.value(i),
            counts: counts.iter().map(|column| maybe(column, i)).collect(),
            metrics: metrics.iter().map(|column| maybe(column, i)).collect(),
        });
    }
    Ok(())
}

pub(super) fn encode_virtuals(
    record: &Record,
    _: &Topology,
    range: std::ops::Range<usize>,
) -> Batch {
    let rows = &record.virtuals[range];
    BatchBuilder::default()
        .u32("step", rows.iter().map(|r| r.step))
        .u64("at_ns", rows.iter().map(|r| r.at_ns))
        .text("scope", rows.iter().map(|r| &r.scope))
        .text("place", rows.iter().map(|r| &r.place))
        .maybe_u32("thread", rows.iter().map(|r| r.thread))
        .maybe_u32("cpu", rows.iter().map(|r| r.cpu))
        .text("name", rows.iter().map(|r| &r.name))
        .text("unit", rows.iter().map(|r| &r.unit))
        .f64("value", rows.iter().map(|r| r.value))
        .build(rows.len())
}

pub(super) fn decode_virtuals(
    record: &mut Record,
    words: &mut Words,
    batch: &RecordBatch,
) -> Result<(), String> {
    let c = Columns(batch);
    let step = c.u32("step")?;
    let at = c.u64("at_ns")?;
    let thread = c.u32("thread")?;
    let cpu = c.u32("cpu")?;
    let scope = c.text("scope")?;
    let place = c.text("place")?;
    let name = c.text("name")?;
    let unit = c.text("unit")?;
    let value = c.f64("value")?;
    for i in 0..batch.num_rows() {
        record.virtuals.push(VirtualRow {
            step: step.value(i),
            at_ns: at.value(i),
            scope: words.text(scope.value(i)),
            place: words.text(place.value(i)),
            thread: maybe(thread, i),
            cpu: maybe(cpu, i),
            name: words.text(name.value(i)),
            unit: words.text(unit.value(i)),
            value: value.value(i),
        });
    }
    Ok(())
}
