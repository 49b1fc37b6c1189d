//! The tables of a record, each with its columns: what is written is what is read.
//!
//! Input: a [`Record`], or batches read from a file. Output: batches, or the record's rows. A new table is a pair of
//! functions and a row in [`TABLES`].

use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use arrow_schema::ArrowError;
use countersteer_core::engine::ThreadEventKind;
use countersteer_core::sample::{Counts, EVENTS, Sample};
use countersteer_core::told::{PHASES, Phase, Told};
use countersteer_core::topology::Topology;
use countersteer_core::units::{CoreTypeId, CpuId, Nanos, ThreadId};

use super::Record;
use super::collector::Words;
use super::columns::{BatchBuilder, Columns, maybe};
use super::rows::{
    AdmissionRow, DecisionRow, EventRow, MetricRow, ReadingRow, SampleRow, ShareRow, SpanRow, StepRow, ThreadRow,
    ToldRow, VirtualRow,
};

/// Rows per batch: large enough to compress well, small enough not to double the memory of a long run.
const BATCH_ROWS: usize = 1 << 18;

type Batch = Result<RecordBatch, ArrowError>;

/// A table of a record.
pub(super) struct Table {
    /// Its name; the file is `<name>.parquet`.
    pub(super) name: &'static str,
    /// Rows in a record.
    pub(super) rows: fn(&Record) -> usize,
    /// A range of rows as a batch.
    pub(super) encode: fn(&Record, &Topology, std::ops::Range<usize>) -> Batch,
    /// A record may be without it: earlier versions did not write it.
    pub(super) optional: bool,
    /// Adds a batch to a record.
    pub(super) decode: fn(&mut Record, &mut Words, &RecordBatch) -> Result<(), String>,
}

/// Every table.
pub(super) static TABLES: &[Table] = &[
    Table { name: "steps", rows: |r| r.steps.len(), encode: encode_steps, decode: decode_steps, optional: false },
    Table {
        name: "threads",
        rows: |r| r.threads.len(),
        encode: encode_threads,
        decode: decode_threads,
        optional: false,
    },
    Table { name: "events", rows: |r| r.events.len(), encode: encode_events, decode: decode_events, optional: false },
    Table {
        name: "samples",
        rows: |r| r.samples.len(),
        encode: encode_samples,
        decode: decode_samples,
        optional: false,
    },
    Table {
        name: "metrics",
        rows: |r| r.metrics.len(),
        encode: encode_metrics,
        decode: decode_metrics,
        optional: false,
    },
    Table {
        name: "decisions",
        rows: |r| r.decisions.len(),
        encode: encode_decisions,
        decode: decode_decisions,
        optional: false,
    },
    Table { name: "shares", rows: |r| r.shares.len(), encode: encode_shares, decode: decode_shares, optional: true },
    Table { name: "spans", rows: |r| r.spans.len(), encode: encode_spans, decode: decode_spans, optional: false },
    Table {
        name: "programs",
        rows: |r| r.manifest.outcome.programs.len(),
        encode: encode_programs,
        decode: skip,
        optional: false,
    },
    Table {
        name: "profiles",
        rows: |r| r.manifest.profiles.len(),
        encode: encode_profiles,
        decode: decode_profiles,
        optional: false,
    },
    Table {
        name: "readings",
        rows: |r| r.readings.len(),
        encode: encode_readings,
        decode: decode_readings,
        optional: true,
    },
    Table {
        name: "virtuals",
        rows: |r| r.virtuals.len(),
        encode: encode_virtuals,
        decode: decode_virtuals,
        optional: true,
    },
    Table { name: "told", rows: |r| r.told.len(), encode: encode_told, decode: decode_told, optional: true },
];

impl Table {
    /// All rows in batches; an empty table has one empty batch, for its schema.
    pub(super) fn batches<'a>(
        &'a self,
        record: &'a Record,
        topology: &'a Topology,
    ) -> impl Iterator<Item = Batch> + 'a {
        let rows = (self.rows)(record);
        let starts = (0..rows.max(1)).step_by(BATCH_ROWS);
        starts.map(move |start| (self.encode)(record, topology, start..(start + BATCH_ROWS).min(rows)))
    }
}

fn encode_steps(record: &Record, _: &Topology, range: std::ops::Range<usize>) -> Batch {
    let first = record.first_step + range.start as u32;
    let rows = &record.steps[range];
    let admission = |r: &'_ StepRow| r.admission.as_ref().map(|a| Arc::clone(&a.metric));
    let metrics: Vec<Option<Arc<str>>> = rows.iter().map(admission).collect();
    // (value, group) is stored as (group, value), like all pairs.
    let swapped: Vec<Vec<(Arc<str>, f64)>> = (rows.iter())
        .map(|r| r.admission.iter().flat_map(|a| &a.rows).map(|(v, g)| (Arc::clone(g), *v)).collect())
        .collect();
    BatchBuilder::default()
        .u32("step", (first..).take(rows.len()))
        .u64("at_ns", rows.iter().map(|r| r.at_ns))
        .bool("finished", rows.iter().map(|r| r.finished))
        .bool("decided", rows.iter().map(|r| r.decided))
        .u32("changed", rows.iter().map(|r| r.changed))
        .u32("gone", rows.iter().map(|r| r.gone))
        .u32("refused", rows.iter().map(|r| r.refused))
        .u32("unheeded", rows.iter().map(|r| r.unheeded))
        .maybe_text("admission_metric", metrics.iter().map(Option::as_deref))
        .pairs("admission", "group", "least", swapped.iter().map(Vec::as_slice))
        .build(rows.len())
}

fn decode_steps(record: &mut Record, words: &mut Words, batch: &RecordBatch) -> Result<(), String> {
    let c = Columns(batch);
    let (at, finished, decided) = (c.u64("at_ns")?, c.bool("finished")?, c.bool("decided")?);
    let (changed, gone, refused) = (c.u32("changed")?, c.u32("gone")?, c.u32("refused")?);
    let (metric, admission) = (c.text("admission_metric")?, c.pairs("admission")?);
    let unheeded = c.newer_u32("unheeded")?;
    for i in 0..batch.num_rows() {
        let table = metric.is_valid(i).then(|| AdmissionRow {
            metric: words.text(metric.value(i)),
            rows: admission.row(i, |w| words.text(w)).into_iter().map(|(group, least)| (least, group)).collect(),
        });
        record.steps.push(StepRow {
            at_ns: at.value(i),
            finished: finished.value(i),
            decided: decided.value(i),
            changed: changed.value(i),
            gone: gone.value(i),
            refused: refused.value(i),
            unheeded: unheeded.map_or(0, |column| column.value(i)),
            admission: table,
        });
    }
    Ok(())
}

fn encode_threads(record: &Record, _: &Topology, range: std::ops::Range<usize>) -> Batch {
    let rows = &record.threads[range];
    BatchBuilder::default()
        .u32("step", rows.iter().map(|r| r.step))
        .u64("at_ns", rows.iter().map(|r| r.at_ns))
        .u32("thread", rows.iter().map(|r| r.thread))
        .u32("program", rows.iter().map(|r| r.program))
        .text("name", rows.iter().map(|r| &r.name))
        .u32("cpu", rows.iter().map(|r| r.cpu))
        .bool("runnable", rows.iter().map(|r| r.runnable))
        .i8("nice", rows.iter().map(|r| r.nice))
        .text("allowed", rows.iter().map(|r| r.allowed.to_string()))
        .build(rows.len())
}

fn decode_threads(record: &mut Record, words: &mut Words, batch: &RecordBatch) -> Result<(), String> {
    let c = Columns(batch);
    let (step, at, thread, program) = (c.u32("step")?, c.u64("at_ns")?, c.u32("thread")?, c.u32("program")?);
    let (name, cpu, runnable) = (c.text("name")?, c.u32("cpu")?, c.bool("runnable")?);
    let (nice, allowed) = (c.i8("nice")?, c.text("allowed")?);
    for i in 0..batch.num_rows() {
        record.threads.push(ThreadRow {
            step: step.value(i),
            at_ns: at.value(i),
            thread: thread.value(i),
            program: program.value(i),
            name: words.text(name.value(i)),
            cpu: cpu.value(i),
            runnable: runnable.value(i),
            nice: nice.value(i),
            allowed: cpu_list(words, allowed.value(i))?,
        });
    }
    Ok(())
}

fn encode_told(record: &Record, _: &Topology, range: std::ops::Range<usize>) -> Batch {
    let rows = &record.told[range];
    BatchBuilder::default()
        .u32("step", rows.iter().map(|r| r.step))
        .u64("at_ns", rows.iter().map(|r| r.at_ns))
        .u32("thread", rows.iter().map(|r| r.thread))
        .i8("priority", rows.iter().map(|r| r.told.priority))
        .u32("qos_permille", rows.iter().map(|r| r.told.qos_permille.into()))
        .text("phase", rows.iter().map(|r| r.told.phase.name()))
        .u32("workers", rows.iter().map(|r| r.told.workers))
        .build(rows.len())
}

fn decode_told(record: &mut Record, _: &mut Words, batch: &RecordBatch) -> Result<(), String> {
    let c = Columns(batch);
    let (step, at, thread, priority) = (c.u32("step")?, c.u64("at_ns")?, c.u32("thread")?, c.i8("priority")?);
    let (qos, phase, workers) = (c.u32("qos_permille")?, c.text("phase")?, c.u32("workers")?);
    for i in 0..batch.num_rows() {
        let known = PHASES.iter().find(|p| p.name() == phase.value(i));
        let phase: Phase = *known.ok_or_else(|| format!("phase `{}` is unknown", phase.value(i)))?;
        let told = Told::of(priority.value(i).into(), qos.value(i), phase as u32, workers.value(i));
        record.told.push(ToldRow { step: step.value(i), at_ns: at.value(i), thread: thread.value(i), told });
    }
    Ok(())
}

fn cpu_list(words: &mut Words, list: &str) -> Result<Arc<countersteer_core::cpuset::CpuSet>, String> {
    words.set(list).ok_or_else(|| format!("`{list}` is no CPU list"))
}

const fn moved(kind: ThreadEventKind) -> (Option<u32>, Option<u32>) {
    match kind {
        ThreadEventKind::Migrate { from, to } => (Some(from.0), Some(to.0)),
        _ => (None, None),
    }
}

fn encode_events(record: &Record, _: &Topology, range: std::ops::Range<usize>) -> Batch {
    let rows = &record.events[range];
    BatchBuilder::default()
        .u32("step", rows.iter().map(|r| r.step))
        .u64("at_ns", rows.iter().map(|r| r.at_ns))
        .u32("thread", rows.iter().map(|r| r.thread))
        .text("kind", rows.iter().map(|r| r.kind.name()))
        .maybe_u32("from_cpu", rows.iter().map(|r| moved(r.kind).0))
        .maybe_u32("to_cpu", rows.iter().map(|r| moved(r.kind).1))
        .build(rows.len())
}

fn decode_events(record: &mut Record, _: &mut Words, batch: &RecordBatch) -> Result<(), String> {
    let c = Columns(batch);
    let (step, at, thread, kind) = (c.u32("step")?, c.u64("at_ns")?, c.u32("thread")?, c.text("kind")?);
    let (from, to) = (c.u32("from_cpu")?, c.u32("to_cpu")?);
    for i in 0..batch.num_rows() {
        let kind = match (kind.value(i), maybe(from, i), maybe(to, i)) {
            ("new", ..) => ThreadEventKind::New,
            ("exec", ..) => ThreadEventKind::Exec,
            ("exit", ..) => ThreadEventKind::Exit,
            ("wake", ..) => ThreadEventKind::Wake,
            ("sleep", ..) => ThreadEventKind::Sleep,
            ("phase", ..) => ThreadEventKind::Phase,
            ("migrate", Some(from), Some(to)) => ThreadEventKind::Migrate { from: CpuId(from), to: CpuId(to) },
            (other, ..) => return Err(format!("event kind `{other}` is unknown or lacks its CPUs")),
        };
        record.events.push(EventRow { step: step.value(i), at_ns: at.value(i), thread: thread.value(i), kind });
    }
    Ok(())
}

fn encode_samples(record: &Record, topology: &Topology, range: std::ops::Range<usize>) -> Batch {
    let rows = &record.samples[range];
    let type_name = |r: &SampleRow| topology.core_types.get(r.sample.core_type.index()).map_or("", |t| t.name.as_str());
    let mut batch = BatchBuilder::default()
        .u32("step", rows.iter().map(|r| r.step))
        .u64("at_ns", rows.iter().map(|r| r.sample.at.0))
        .u32("thread", rows.iter().map(|r| r.sample.thread.0))
        .u32("cpu", rows.iter().map(|r| r.sample.cpu.0))
        .u32("core_type_id", rows.iter().map(|r| r.sample.core_type.0))
        .text("core_type", rows.iter().map(type_name))
        .u32("set", rows.iter().map(|r| r.sample.set))
        .u64("enabled_ns", rows.iter().map(|r| r.sample.enabled.0))
        .u64("running_ns", rows.iter().map(|r| r.sample.running.0));
    for def in &EVENTS {
        batch = batch.maybe_f64(def.name, rows.iter().map(|r| r.sample.counts.get(def.event)));
    }
    batch.build(rows.len())
}

fn decode_samples(record: &mut Record, _: &mut Words, batch: &RecordBatch) -> Result<(), String> {
    let c = Columns(batch);
    let (step, at, thread, cpu) = (c.u32("step")?, c.u64("at_ns")?, c.u32("thread")?, c.u32("cpu")?);
    let (core_type, set) = (c.u32("core_type_id")?, c.u32("set")?);
    let (enabled, running) = (c.u64("enabled_ns")?, c.u64("running_ns")?);
    // An event that a newer version counts and this record lacks is unavailable, not an error.
    let events: Vec<_> = EVENTS.iter().filter_map(|d| Some((d.event, c.f64(d.name).ok()?))).collect();
    for i in 0..batch.num_rows() {
        let mut counts = Counts::default();
        for (event, column) in &events {
            if let Some(value) = maybe(column, i) {
                counts.set(*event, value);
            }
        }
        let sample = Sample {
            thread: ThreadId(thread.value(i)),
            cpu: CpuId(cpu.value(i)),
            core_type: CoreTypeId(core_type.value(i)),
            at: Nanos(at.value(i)),
            set: set.value(i),
            enabled: Nanos(enabled.value(i)),
            running: Nanos(running.value(i)),
            counts,
        };
        record.samples.push(SampleRow { step: step.value(i), sample });
    }
    Ok(())
}

/// Columns of the metrics table that are no metric.
const METRIC_KEYS: usize = 3;

fn encode_metrics(record: &Record, _: &Topology, range: std::ops::Range<usize>) -> Batch {
    let rows = &record.metrics[range];
    let mut batch = BatchBuilder::default()
        .u32("step", rows.iter().map(|r| r.step))
        .u64("at_ns", rows.iter().map(|r| r.at_ns))
        .u32("thread", rows.iter().map(|r| r.thread));
    for (column, name) in record.metric_names.iter().enumerate() {
        batch = batch.maybe_f64(name, rows.iter().map(|r| r.values.get(column).copied().flatten()));
    }
    batch.build(rows.len())
}

fn decode_metrics(record: &mut Record, _: &mut Words, batch: &RecordBatch) -> Result<(), String> {
    let c = Columns(batch);
    let (step, at, thread) = (c.u32("step")?, c.u64("at_ns")?, c.u32("thread")?);
    let schema = batch.schema();
    let names = schema.fields().iter().skip(METRIC_KEYS).map(|f| f.name().as_str());
    record.metric_names = names.map(Arc::from).collect();
    let columns: Vec<_> = record.metric_names.iter().map(|n| c.f64(n)).collect::<Result<_, _>>()?;
    for i in 0..batch.num_rows() {
        let values = columns.iter().map(|column| maybe(column, i)).collect();
        record.metrics.push(MetricRow { step: step.value(i), at_ns: at.value(i), thread: thread.value(i), values });
    }
    Ok(())
}

fn encode_decisions(record: &Record, _: &Topology, range: std::ops::Range<usize>) -> Batch {
    let rows = &record.decisions[range];
    BatchBuilder::default()
        .u32("step", rows.iter().map(|r| r.step))
        .u64("at_ns", rows.iter().map(|r| r.at_ns))
        .u32("thread", rows.iter().map(|r| r.thread))
        .text("target", rows.iter().map(|r| &r.target))
        .text("target_cpus", rows.iter().map(|r| r.target_cpus.to_string()))
        .maybe_u32("weight", rows.iter().map(|r| r.weight))
        .maybe_u32("clamp_least", rows.iter().map(|r| r.clamp.map(|c| c.0)))
        .maybe_u32("clamp_most", rows.iter().map(|r| r.clamp.map(|c| c.1)))
        .text("rule", rows.iter().map(|r| &r.rule))
        .pairs("seen", "metric", "value", rows.iter().map(|r| r.seen.as_slice()))
        .pairs("alternatives", "group", "value", rows.iter().map(|r| r.alternatives.as_slice()))
        .text("unit", rows.iter().map(|r| &r.unit))
        .build(rows.len())
}

fn decode_decisions(record: &mut Record, words: &mut Words, batch: &RecordBatch) -> Result<(), String> {
    let c = Columns(batch);
    let (step, at, thread) = (c.u32("step")?, c.u64("at_ns")?, c.u32("thread")?);
    let (target, cpus, weight) = (c.text("target")?, c.text("target_cpus")?, c.u32("weight")?);
    let (rule, unit) = (c.text("rule")?, c.text("unit")?);
    let (least, most) = (c.newer_u32("clamp_least")?, c.newer_u32("clamp_most")?);
    let (seen, alternatives) = (c.pairs("seen")?, c.pairs("alternatives")?);
    for i in 0..batch.num_rows() {
        record.decisions.push(DecisionRow {
            step: step.value(i),
            at_ns: at.value(i),
            thread: thread.value(i),
            target: words.text(target.value(i)),
            target_cpus: cpu_list(words, cpus.value(i))?,
            weight: maybe(weight, i),
            clamp: least.and_then(|c| maybe(c, i)).zip(most.and_then(|c| maybe(c, i))),
            rule: words.text(rule.value(i)),
            seen: seen.row(i, |w| words.text(w)),
            alternatives: alternatives.row(i, |w| words.text(w)),
            unit: words.text(unit.value(i)),
        });
    }
    Ok(())
}

fn encode_shares(record: &Record, _: &Topology, range: std::ops::Range<usize>) -> Batch {
    let rows = &record.shares[range];
    BatchBuilder::default()
        .u32("step", rows.iter().map(|r| r.step))
        .u64("at_ns", rows.iter().map(|r| r.at_ns))
        .text("class", rows.iter().map(|r| &r.class))
        .text("members", rows.iter().map(|r| &r.members))
        .text("llc", rows.iter().map(|r| &r.llc))
        .maybe_u32("first", rows.iter().map(|r| r.first))
        .maybe_u32("ways", rows.iter().map(|r| r.ways))
        .maybe_u32("bandwidth", rows.iter().map(|r| r.bandwidth))
        .build(rows.len())
}

fn decode_shares(record: &mut Record, words: &mut Words, batch: &RecordBatch) -> Result<(), String> {
    let c = Columns(batch);
    let (step, at, class) = (c.u32("step")?, c.u64("at_ns")?, c.text("class")?);
    let (members, llc, first) = (c.text("members")?, c.text("llc")?, c.u32("first")?);
    let (ways, bandwidth) = (c.u32("ways")?, c.u32("bandwidth")?);
    for i in 0..batch.num_rows() {
        record.shares.push(ShareRow {
            step: step.value(i),
            at_ns: at.value(i),
            class: words.text(class.value(i)),
            members: words.text(members.value(i)),
            llc: words.text(llc.value(i)),
            first: maybe(first, i),
            ways: maybe(ways, i),
            bandwidth: maybe(bandwidth, i),
        });
    }
    Ok(())
}

fn encode_spans(record: &Record, _: &Topology, range: std::ops::Range<usize>) -> Batch {
    let rows = &record.spans[range];
    BatchBuilder::default()
        .u32("step", rows.iter().map(|r| r.step))
        .u32("thread", rows.iter().map(|r| r.thread))
        .u32("cpu", rows.iter().map(|r| r.cpu))
        .u64("start_ns", rows.iter().map(|r| r.start_ns))
        .u64("end_ns", rows.iter().map(|r| r.end_ns))
        .build(rows.len())
}

fn decode_spans(record: &mut Record, _: &mut Words, batch: &RecordBatch) -> Result<(), String> {
    let c = Columns(batch);
    let (step, thread, cpu) = (c.u32("step")?, c.u32("thread")?, c.u32("cpu")?);
    let (start, end) = (c.u64("start_ns")?, c.u64("end_ns")?);
    record.spans.extend((0..batch.num_rows()).map(|i| SpanRow {
        step: step.value(i),
        thread: thread.value(i),
        cpu: cpu.value(i),
        start_ns: start.value(i),
        end_ns: end.value(i),
    }));
    Ok(())
}

fn encode_programs(record: &Record, _: &Topology, range: std::ops::Range<usize>) -> Batch {
    let score = record.score();
    let (scores, outcomes) = (&score.programs[range.clone()], &record.manifest.outcome.programs[range]);
    BatchBuilder::default()
        .text("name", scores.iter().map(|p| &p.name))
        .u32("runs", scores.iter().map(|p| p.runs as u32))
        .f64("completion_s", scores.iter().map(|p| p.completion_s))
        .f64("alone_fast_s", scores.iter().map(|p| p.alone_fast_s))
        .f64("alone_slow_s", scores.iter().map(|p| p.alone_slow_s))
        .f64("slowdown", scores.iter().map(|p| p.slowdown))
        .f64("ipc", scores.iter().map(|p| p.ipc))
        .f64("instructions", outcomes.iter().map(|p| p.instructions))
        .f64("cycles", outcomes.iter().map(|p| p.cycles))
        .build(scores.len())
}

/// The table of programs is there for queries; the manifest holds what it is computed from.
fn skip(_: &mut Record, _: &mut Words, _: &RecordBatch) -> Result<(), String> {
    Ok(())
}

fn encode_profiles(record: &Record, _: &Topology, range: std::ops::Range<usize>) -> Batch {
    let rows: Vec<_> = record.manifest.profiles.iter().skip(range.start).take(range.len()).collect();
    BatchBuilder::default()
        .text("file", rows.iter().map(|r| r.0))
        .text("text", rows.iter().map(|r| r.1))
        .build(rows.len())
}

fn decode_profiles(record: &mut Record, _: &mut Words, batch: &RecordBatch) -> Result<(), String> {
    let c = Columns(batch);
    let (file, text) = (c.text("file")?, c.text("text")?);
    let rows = (0..batch.num_rows()).map(|i| (file.value(i).to_owned(), text.value(i).to_owned()));
    record.manifest.profiles.extend(rows);
    Ok(())
}

/// Columns of the readings table that are neither counts nor metrics.
const READING_KEYS: usize = 12;

fn encode_readings(record: &Record, _: &Topology, range: std::ops::Range<usize>) -> Batch {
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
        batch = batch.maybe_u64(name, rows.iter().map(|r| r.counts.get(column).copied().flatten()));
    }
    for (column, name) in record.reading_metrics.iter().enumerate() {
        batch = batch.maybe_f64(name, rows.iter().map(|r| r.metrics.get(column).copied().flatten()));
    }
    batch.build(rows.len())
}

fn decode_readings(record: &mut Record, words: &mut Words, batch: &RecordBatch) -> Result<(), String> {
    let c = Columns(batch);
    let (step, at, start) = (c.u32("step")?, c.u64("at_ns")?, c.u64("start_ns")?);
    let (pid, thread, name, cpu) = (c.u32("pid")?, c.u32("thread")?, c.text("name")?, c.u32("cpu")?);
    let (core_type, set, last) = (c.text("core_type")?, c.u32("set")?, c.bool("last")?);
    let (enabled, running) = (c.u64("enabled_ns")?, c.u64("running_ns")?);
    let schema = batch.schema();
    let names = || schema.fields().iter().skip(READING_KEYS).map(|f| f.name().as_str());
    // Counts are whole numbers, metrics are not.
    record.reading_counts = names().filter(|n| c.u64(n).is_ok()).map(Arc::from).collect();
    record.reading_metrics = names().filter(|n| c.f64(n).is_ok()).map(Arc::from).collect();
    let counts: Vec<_> = record.reading_counts.iter().map(|n| c.u64(n)).collect::<Result<_, _>>()?;
    let metrics: Vec<_> = record.reading_metrics.iter().map(|n| c.f64(n)).collect::<Result<_, _>>()?;
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

fn encode_virtuals(record: &Record, _: &Topology, range: std::ops::Range<usize>) -> Batch {
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

fn decode_virtuals(record: &mut Record, words: &mut Words, batch: &RecordBatch) -> Result<(), String> {
    let c = Columns(batch);
    let (step, at, thread, cpu) = (c.u32("step")?, c.u64("at_ns")?, c.u32("thread")?, c.u32("cpu")?);
    let (scope, place, name) = (c.text("scope")?, c.text("place")?, c.text("name")?);
    let (unit, value) = (c.text("unit")?, c.f64("value")?);
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

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: &str = include_str!("../../../../machines/core2-quad.toml");

    #[test]
    fn every_kind_of_event_is_read_as_it_was_written() {
        let manifest =
            super::super::Manifest::new(("m", MACHINE), ("w", ""), "linux", 0, Nanos(1), [], Default::default());
        let mut record = Record::new(manifest);
        let migrate = ThreadEventKind::Migrate { from: CpuId(1), to: CpuId(2) };
        use ThreadEventKind::{Exec, Exit, New, Phase, Sleep, Wake};
        let kinds = [New, Exec, Exit, Wake, Sleep, migrate, Phase];
        record.events.extend(kinds.map(|kind| EventRow { step: 1, at_ns: 2, thread: 3, kind }));
        let batch = encode_events(&record, &record.topology().unwrap(), 0..kinds.len()).unwrap();
        let written = std::mem::take(&mut record.events);
        decode_events(&mut record, &mut Words::default(), &batch).unwrap();
        assert_eq!(record.events, written);
    }

    #[test]
    fn tables_of_earlier_versions_are_read_without_what_they_lack() {
        let manifest =
            super::super::Manifest::new(("m", MACHINE), ("w", ""), "linux", 0, Nanos(1), [], Default::default());
        let mut record = Record::new(manifest);
        record.steps.push(StepRow { unheeded: 3, ..StepRow::default() });
        let mut words = Words::default();
        let batch = encode_steps(&record, &record.topology().unwrap(), 0..1).unwrap();
        let old: Vec<usize> =
            (0..batch.num_columns()).filter(|c| batch.schema().field(*c).name() != "unheeded").collect();
        let old = batch.project(&old).unwrap();
        decode_steps(&mut record, &mut words, &batch).unwrap();
        decode_steps(&mut record, &mut words, &old).unwrap();
        assert_eq!(record.steps.iter().map(|s| s.unheeded).collect::<Vec<_>>(), [3, 3, 0]);
        let decisions = encode_decisions(&record, &record.topology().unwrap(), 0..0).unwrap();
        let old: Vec<usize> = (0..decisions.num_columns())
            .filter(|c| !decisions.schema().field(*c).name().starts_with("clamp"))
            .collect();
        decode_decisions(&mut record, &mut words, &decisions.project(&old).unwrap()).unwrap();
    }
}
