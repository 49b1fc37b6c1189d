//! Tables of a record, with their conversion to batches and back.
//!
//! Input: a [`Record`], or batches read from a file. Output: batches, or the record's rows. A new table is a type of rows with
//! its columns in [`super::rows`] and a row in [`TABLES`]. This module contains functions for tables that need more than that.

mod counted;
mod ended;

use std::ops::Range;

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use countersteer_model::topology::Topology;

use super::Record;
use super::columns::{BatchBuilder, ColumnSet, ColumnStorage};
use super::kinds::U32;
use super::rows::StepRow;
use super::words::Words;
use crate::error::ReportError;

/// Number of rows per batch: large enough to compress well, small enough not to double the memory of a long run.
const BATCH_ROWS: usize = 1 << 18;

type Batch = Result<RecordBatch, ArrowError>;

/// Table of a record: its name, and functions for its rows.
pub(super) struct RecordTable {
    /// Name of the table; its file is `<name>.parquet`.
    pub(super) name: &'static str,
    pub(super) rows: fn(&Record) -> usize,
    /// Encodes a range of the table's rows as a batch.
    pub(super) encode: fn(&Record, &Topology, Range<usize>) -> Batch,
    /// True if records of earlier versions lack the table.
    pub(super) optional: bool,
    /// True if the table's rows come from the manifest, which is complete only at the end of a run.
    pub(super) at_end: bool,
    /// Adds the rows of a batch to a record.
    pub(super) decode: fn(&mut Record, &mut Words, &RecordBatch) -> Result<(), String>,
    /// Moves the table's rows from the second record to the end of the first.
    pub(super) append: fn(&mut Record, &mut Record),
    /// Returns the steps of the rows from an index on; empty if the rows belong to no steps.
    pub(super) steps: fn(&Record, usize) -> Vec<u32>,
    /// Removes the table's rows of all steps except the first ones; the number of steps is the second argument.
    pub(super) keep_steps: fn(&mut Record, u32),
    /// Removes the first rows of the table; their number is the second argument.
    pub(super) forget: fn(&mut Record, usize),
}

/// Defines a table whose rows are a field of the record, belong to steps, and have all their columns from `columns!`.
macro_rules! rows {
    ($rows:ident) => {
        RecordTable {
            name: stringify!($rows),
            rows: |record| record.$rows.len(),
            encode: |record, _, range| encode(&record.$rows[range]),
            optional: false,
            at_end: false,
            decode: |record, words, batch| decode(&mut record.$rows, words, batch),
            append: |record, more| record.$rows.append(&mut more.$rows),
            steps: |record, from| record.$rows[from..].iter().map(|row| row.step).collect(),
            keep_steps: |record, steps| record.$rows.retain(|row| row.step < steps),
            forget: |record, rows| drop(record.$rows.drain(..rows)),
        }
    };
}

pub(super) static TABLES: &[RecordTable] = &[
    RecordTable {
        name: "steps",
        rows: |r| r.steps.len(),
        encode: |r, _, range| encode_steps(r, range),
        optional: false,
        at_end: false,
        decode: |r, words, batch| decode(&mut r.steps, words, batch),
        append: |r, more| r.steps.append(&mut more.steps),
        steps: |_, _| Vec::new(),
        keep_steps: |_, _| (),
        forget: |_, _| (),
    },
    rows!(threads),
    rows!(events),
    RecordTable {
        name: "samples",
        rows: |r| r.samples.len(),
        encode: counted::encode_samples,
        optional: false,
        at_end: false,
        decode: counted::decode_samples,
        append: |r, more| r.samples.append(&mut more.samples),
        steps: |r, from| r.samples.steps[from..].to_vec(),
        keep_steps: |r, steps| r.samples.keep_steps(steps),
        forget: |r, rows| r.samples.retain(|index, _| index >= rows),
    },
    RecordTable {
        encode: counted::encode_metrics,
        decode: counted::decode_metrics,
        ..rows!(metrics)
    },
    rows!(decisions),
    RecordTable {
        optional: true,
        ..rows!(shares)
    },
    RecordTable {
        optional: true,
        ..rows!(clocks)
    },
    rows!(spans),
    RecordTable {
        name: "programs",
        rows: |r| r.manifest.outcome.programs.len(),
        encode: ended::encode_programs,
        optional: false,
        at_end: true,
        // The table exists for queries; its values are stored in the manifest.
        decode: |_, _, _| Ok(()),
        append: |_, _| (),
        steps: |_, _| Vec::new(),
        keep_steps: |_, _| (),
        forget: |_, _| (),
    },
    RecordTable {
        name: "profiles",
        rows: |r| r.manifest.profiles.len(),
        encode: ended::encode_profiles,
        optional: false,
        at_end: true,
        decode: ended::decode_profiles,
        append: |_, _| (),
        steps: |_, _| Vec::new(),
        keep_steps: |_, _| (),
        forget: |_, _| (),
    },
    RecordTable {
        encode: counted::encode_readings,
        optional: true,
        decode: counted::decode_readings,
        ..rows!(readings)
    },
    RecordTable {
        optional: true,
        ..rows!(virtuals)
    },
    RecordTable {
        name: "identities",
        optional: true,
        ..rows!(programs)
    },
    RecordTable {
        name: "told",
        optional: true,
        ..rows!(hints)
    },
];

fn encode<R>(rows: &[R]) -> Batch
where
    R: for<'a> ColumnSet<Given<'a> = &'a R>,
{
    let mut batch = BatchBuilder::default();
    R::write(rows.iter(), &mut batch);
    batch.build(rows.len())
}

fn decode<R: ColumnSet>(
    rows: &mut Vec<R>,
    words: &mut Words,
    batch: &RecordBatch,
) -> Result<(), String> {
    let reader = R::reader(batch)?;
    for row in 0..batch.num_rows() {
        rows.push(reader(row, words)?);
    }
    Ok(())
}

fn encode_steps(record: &Record, range: Range<usize>) -> Batch {
    let first = record.first_step + range.start as u32;
    let rows = &record.steps[range];
    let mut batch = BatchBuilder::default();
    U32.write("step", (first..).take(rows.len()), &mut batch);
    StepRow::write(rows.iter(), &mut batch);
    batch.build(rows.len())
}

impl RecordTable {
    /// Iterates over all rows of the table in batches. An empty table has one empty batch, which defines the columns.
    pub(super) fn batches<'a>(
        &'a self,
        record: &'a Record,
        topology: &'a Topology,
    ) -> impl Iterator<Item = Result<RecordBatch, ReportError>> + 'a {
        let rows = (self.rows)(record);
        let starts = (0..rows.max(1)).step_by(BATCH_ROWS);
        let failed = |e: ArrowError| ReportError::Encode {
            table: self.name,
            why: e.to_string(),
        };
        starts.map(move |start| {
            let range = start..(start + BATCH_ROWS).min(rows);
            (self.encode)(record, topology, range).map_err(failed)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use countersteer_model::cpuset::CpuSet;
    use countersteer_model::engine::ThreadEventKind;
    use countersteer_model::units::CpuId;

    use super::*;
    use crate::record::rows::{DecisionRow, EventRow, SpanRow};

    /// Returns the batch without the columns that records of earlier versions lack.
    fn older(batch: &RecordBatch, lack: impl Fn(&str) -> bool) -> RecordBatch {
        let names = batch.schema();
        let kept = (0..batch.num_columns()).filter(|c| !lack(names.field(*c).name()));
        batch.project(&kept.collect::<Vec<_>>()).unwrap()
    }

    fn read<R: ColumnSet>(batch: &RecordBatch) -> Result<Vec<R>, String> {
        let mut rows = Vec::new();
        decode(&mut rows, &mut Words::default(), batch).map(|()| rows)
    }

    #[test]
    fn every_kind_of_event_is_read_as_it_was_written() {
        let migrate = ThreadEventKind::Migrate {
            from: CpuId(1),
            to: CpuId(2),
        };
        use ThreadEventKind::{Exec, Exit, New, Phase, Sleep, Wake};
        let rows = [New, Exec, Exit, Wake, Sleep, migrate, Phase].map(|kind| EventRow {
            step: 1,
            at_ns: 2,
            thread: 3,
            kind,
        });
        assert_eq!(read::<EventRow>(&encode(&rows).unwrap()).unwrap(), rows);
    }

    #[test]
    fn tables_of_earlier_versions_are_read_without_what_they_lack() {
        let steps = [StepRow {
            unsupported: 3,
            ..StepRow::default()
        }];
        let batch = encode(&steps).unwrap();
        assert_eq!(read::<StepRow>(&batch).unwrap(), steps);
        let old = read::<StepRow>(&older(&batch, |name| name == "unheeded")).unwrap();
        assert_eq!(old, [StepRow::default()]);
        let decisions = [DecisionRow {
            clamp_least: Some(1),
            clamp_most: Some(2),
            target_cpus: Arc::new(CpuSet::first(1)),
            ..DecisionRow::default()
        }];
        let batch = encode(&decisions).unwrap();
        assert_eq!(read::<DecisionRow>(&batch).unwrap(), decisions);
        let old = read::<DecisionRow>(&older(&batch, |name| name.starts_with("clamp"))).unwrap();
        assert_eq!((old[0].clamp_least, old[0].clamp_most), (None, None));
    }

    #[test]
    fn a_missing_or_mistyped_column_is_reported_by_its_name() {
        let mut batch = BatchBuilder::default();
        U32.write("step", std::iter::once(1), &mut batch);
        U32.write("at_ns", std::iter::once(1), &mut batch);
        let batch = batch.build(1).unwrap();
        assert_eq!(
            read::<SpanRow>(&batch).unwrap_err(),
            "column `thread` is missing"
        );
        assert_eq!(
            read::<EventRow>(&batch).unwrap_err(),
            "column `at_ns` is UInt32, which it must not be"
        );
    }
}
