//! Tables with one column per event or metric: samples, metrics, readings.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use countersteer_model::events::Event;
use countersteer_model::sample::{EventSet, Sample, SampleRow};
use countersteer_model::topology::Topology;
use countersteer_model::units::{CoreTypeId, CpuId, Nanos, ThreadId};

use super::Batch;
use crate::record::Record;
use crate::record::columns::{
    BatchBuilder, ColumnSet, ColumnStorage, RowReader, RowValues, columns,
};
use crate::record::kinds::{ColumnKind, F64, Maybe, Newer, QueryText, U32, U64, maybe};
use crate::record::rows::{ReadingRow, RecordedMetrics};
use crate::record::words::Words;

/// Sample that is to be written, with its step.
struct Written<'a> {
    step: u32,
    row: SampleRow<'a>,
    topology: &'a Topology,
}

impl<'a> Written<'a> {
    fn core_type(&self) -> &'a str {
        let core_type = self.topology.core_types.get(self.row.core_type.index());
        core_type.map_or("", |t| &t.name)
    }
}

/// Head of a sample that was read, without its counts.
struct SampleHead {
    step: u32,
    sets: u32,
    sample: Sample,
}

// The other columns are named after the events.
columns! { |s: Written<'a>| -> SampleHead {
    step: U32 => s.step,
    at_ns: U64 => s.row.end.0,
    thread: U32 => s.row.thread().unwrap_or_default().0,
    cpu: U32 => s.row.cpu.unwrap_or_default().0,
    core_type_id: U32 => s.row.core_type.0,
    core_type: QueryText => s.core_type(),
    set: U32 => s.row.set,
    // Older records do not contain the number of event sets; they are read as if there were one.
    sets: Newer(U32, 1) => s.row.sets(),
    enabled_ns: U64 => s.row.enabled.0,
    running_ns: U64 => s.row.running.0,
} => {
    let (end, enabled) = (Nanos(at_ns), Nanos(enabled_ns));
    let core_type = CoreTypeId(core_type_id);
    let sample = Sample {
        set,
        start: end.since(enabled),
        enabled,
        ..Sample::of_thread(ThreadId(thread), CpuId(cpu), core_type, end, Nanos(running_ns))
    };
    SampleHead { step, sets, sample }
} }

pub(super) fn encode_samples(record: &Record, topology: &Topology, range: Range<usize>) -> Batch {
    let rows = || record.samples.range(range.clone());
    let steps = record.samples.steps[range.clone()].iter();
    let written = steps.zip(rows()).map(|(step, row)| Written {
        step: *step,
        row,
        topology,
    });
    let mut batch = BatchBuilder::default();
    SampleHead::write(written, &mut batch);
    // Only events that at least one sample of the record has get a column.
    for event in record.samples.samples.events() {
        let counts = rows().map(|row| row.counts.get(event));
        Maybe(F64).write(event.def().name, counts, &mut batch);
    }
    batch.build(range.len())
}

pub(super) fn decode_samples(
    record: &mut Record,
    words: &mut Words,
    batch: &RecordBatch,
) -> Result<(), String> {
    let head = SampleHead::reader(batch)?;
    // A column of an unknown event is ignored. An event without a column is unavailable, which is no
    // error.
    let fields = batch.schema();
    let events: Vec<_> = fields
        .fields()
        .iter()
        .filter_map(|f| Some((Event::named(f.name())?, F64.find(f.name(), batch).ok()?)))
        .collect();
    // All columns are positions of one event set, even if a sample does not have all of the events.
    let mut compiled: BTreeMap<u32, Arc<EventSet>> = BTreeMap::new();
    for row in 0..batch.num_rows() {
        let SampleHead { step, sets, sample } = head(row, words)?;
        let all = compiled.entry(sets).or_insert_with(|| {
            let events = events.iter().map(|(event, _)| Some(*event));
            Arc::new(EventSet::new(events, sets))
        });
        let counted = || events.iter().map(|(_, column)| maybe(column, row));
        let present = EventSet::present(counted());
        let values = counted().map(Option::unwrap_or_default);
        record.samples.steps.push(step);
        let samples = &mut record.samples.samples;
        samples.push_by(Sample { present, ..sample }, all, values);
    }
    Ok(())
}

pub(super) fn encode_metrics(record: &Record, _: &Topology, range: Range<usize>) -> Batch {
    let rows = &record.metrics[range];
    let mut batch = BatchBuilder::default();
    RecordedMetrics::write(rows.iter(), &mut batch);
    F64.write_each(&record.metric_names, rows, |r| &r.values, &mut batch);
    batch.build(rows.len())
}

pub(super) fn decode_metrics(
    record: &mut Record,
    words: &mut Words,
    batch: &RecordBatch,
) -> Result<(), String> {
    let metric = RecordedMetrics::reader(batch)?;
    record.metric_names = names_after("thread", batch).collect();
    let values = F64.find_each(&record.metric_names, batch)?;
    for row in 0..batch.num_rows() {
        record.metrics.push(RecordedMetrics {
            values: values.iter().map(|column| maybe(column, row)).collect(),
            ..metric(row, words)?
        });
    }
    Ok(())
}

pub(super) fn encode_readings(record: &Record, _: &Topology, range: Range<usize>) -> Batch {
    let rows = &record.readings[range];
    let mut batch = BatchBuilder::default();
    ReadingRow::write(rows.iter(), &mut batch);
    U64.write_each(&record.reading_counts, rows, |r| &r.counts, &mut batch);
    F64.write_each(&record.reading_metrics, rows, |r| &r.metrics, &mut batch);
    batch.build(rows.len())
}

pub(super) fn decode_readings(
    record: &mut Record,
    words: &mut Words,
    batch: &RecordBatch,
) -> Result<(), String> {
    let reading = ReadingRow::reader(batch)?;
    // Columns of integers are counts, columns of floating-point numbers are metrics.
    let names = || names_after("last", batch);
    record.reading_counts = names().filter(|n| U64.find(n, batch).is_ok()).collect();
    record.reading_metrics = names().filter(|n| F64.find(n, batch).is_ok()).collect();
    let counts = U64.find_each(&record.reading_counts, batch)?;
    let metrics = F64.find_each(&record.reading_metrics, batch)?;
    for row in 0..batch.num_rows() {
        record.readings.push(ReadingRow {
            counts: counts.iter().map(|column| maybe(column, row)).collect(),
            metrics: metrics.iter().map(|column| maybe(column, row)).collect(),
            ..reading(row, words)?
        });
    }
    Ok(())
}

/// Iterates over the names of the columns after the column `last`.
fn names_after(last: &str, batch: &RecordBatch) -> impl Iterator<Item = Arc<str>> {
    let fields = batch.schema_ref().fields().iter();
    let after = fields.skip_while(move |f| f.name() != last).skip(1);
    after.map(|f| Arc::from(f.name().as_str()))
}
