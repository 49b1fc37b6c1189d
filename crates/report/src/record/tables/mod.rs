//! The tables of a record, each with its columns: what is written is what is read.
//!
//! Input: a [`Record`], or batches read from a file. Output: batches, or the record's rows. A new table is a pair of
//! functions in [`steered`] or [`counted`] and a row in [`TABLES`].

mod counted;
mod steered;

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use countersteer_model::topology::Topology;

use super::Record;
use super::collector::Words;

/// Rows per batch: large enough to compress well, small enough not to double the memory of a long run.
const BATCH_ROWS: usize = 1 << 18;

type Batch = Result<RecordBatch, ArrowError>;

/// A table of a record.
pub(super) struct Table {
    /// Its name; the file is `<name>.parquet`.
    pub(super) name: &'static str,
    pub(super) rows: fn(&Record) -> usize,
    /// A range of rows as a batch.
    pub(super) encode: fn(&Record, &Topology, std::ops::Range<usize>) -> Batch,
    /// A record may be without it: earlier versions did not write it.
    pub(super) optional: bool,
    /// Its rows come from the manifest, which is complete at the end of a run.
    pub(super) at_end: bool,
    /// Adds a batch to a record.
    pub(super) decode: fn(&mut Record, &mut Words, &RecordBatch) -> Result<(), String>,
}

pub(super) static TABLES: &[Table] = &[
    Table {
        name: "steps",
        rows: |r| r.steps.len(),
        encode: steered::encode_steps,
        decode: steered::decode_steps,
        optional: false,
        at_end: false,
    },
    Table {
        name: "threads",
        rows: |r| r.threads.len(),
        encode: steered::encode_threads,
        decode: steered::decode_threads,
        optional: false,
        at_end: false,
    },
    Table {
        name: "events",
        rows: |r| r.events.len(),
        encode: steered::encode_events,
        decode: steered::decode_events,
        optional: false,
        at_end: false,
    },
    Table {
        name: "samples",
        rows: |r| r.samples.len(),
        encode: counted::encode_samples,
        decode: counted::decode_samples,
        optional: false,
        at_end: false,
    },
    Table {
        name: "metrics",
        rows: |r| r.metrics.len(),
        encode: counted::encode_metrics,
        decode: counted::decode_metrics,
        optional: false,
        at_end: false,
    },
    Table {
        name: "decisions",
        rows: |r| r.decisions.len(),
        encode: steered::encode_decisions,
        decode: steered::decode_decisions,
        optional: false,
        at_end: false,
    },
    Table {
        name: "shares",
        rows: |r| r.shares.len(),
        encode: steered::encode_shares,
        decode: steered::decode_shares,
        optional: true,
        at_end: false,
    },
    Table {
        name: "spans",
        rows: |r| r.spans.len(),
        encode: steered::encode_spans,
        decode: steered::decode_spans,
        optional: false,
        at_end: false,
    },
    Table {
        name: "programs",
        rows: |r| r.manifest.outcome.programs.len(),
        encode: steered::encode_programs,
        decode: steered::skip,
        optional: false,
        at_end: true,
    },
    Table {
        name: "profiles",
        rows: |r| r.manifest.profiles.len(),
        encode: counted::encode_profiles,
        decode: counted::decode_profiles,
        optional: false,
        at_end: true,
    },
    Table {
        name: "readings",
        rows: |r| r.readings.len(),
        encode: counted::encode_readings,
        decode: counted::decode_readings,
        optional: true,
        at_end: false,
    },
    Table {
        name: "virtuals",
        rows: |r| r.virtuals.len(),
        encode: counted::encode_virtuals,
        decode: counted::decode_virtuals,
        optional: true,
        at_end: false,
    },
    Table {
        name: "identities",
        rows: |r| r.programs.len(),
        encode: steered::encode_identities,
        decode: steered::decode_identities,
        optional: true,
        at_end: false,
    },
    Table {
        name: "told",
        rows: |r| r.told.len(),
        encode: steered::encode_told,
        decode: steered::decode_told,
        optional: true,
        at_end: false,
    },
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
        starts.map(move |start| {
            (self.encode)(record, topology, start..(start + BATCH_ROWS).min(rows))
        })
    }
}
