//! Tables of a record's folder, read step by step.
//!
//! Input: the folder of a record. Output: a [`Record`] with the rows of the current step and of some later ones.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use super::Record;
use super::files::{BatchReader, file_name, guarded, read_batches, read_manifest};
use super::parts;
use super::reading::{RecordReading, TableProgress, Whole};
use super::tables::{RecordTable, TABLES};
use crate::error::ReportError;

/// Tables that are read before the first step. All others of [`FLOWS`] grow with the run.
const WHOLE: [&str; 5] = ["steps", "shares", "clocks", "profiles", "identities"];
/// Tables that are read step by step.
const FLOWS: [&str; 6] = ["threads", "events", "samples", "decisions", "spans", "told"];
/// Number of rows that are dropped at once.
const DROPPED: usize = 1 << 16;

/// Index of the first row of each table that was not yet shown to the policy.
#[derive(Default)]
pub(super) struct Cursors {
    pub(super) threads: usize,
    pub(super) programs: usize,
    pub(super) hints: usize,
    pub(super) events: usize,
    pub(super) samples: usize,
    pub(super) spans: usize,
    pub(super) decisions: usize,
}

impl Cursors {
    /// Returns the cursor of a table that is read as a stream.
    fn of(&mut self, table: &str) -> Option<&mut usize> {
        match table {
            "threads" => Some(&mut self.threads),
            "told" => Some(&mut self.hints),
            "events" => Some(&mut self.events),
            "samples" => Some(&mut self.samples),
            "spans" => Some(&mut self.spans),
            "decisions" => Some(&mut self.decisions),
            _ => None,
        }
    }
}

pub(super) struct RecordStream {
    reading: RecordReading<'static>,
    flows: Vec<TableFlow>,
}

/// Table of which a part has been read.
struct TableFlow {
    table: &'static RecordTable,
    files: VecDeque<PathBuf>,
    open: Option<(PathBuf, BatchReader)>,
    progress: TableProgress,
    /// Number of rows according to the manifest; `None` if the record is unfinished.
    expected: Option<u64>,
    rows: u64,
    /// Path that errors name.
    path: PathBuf,
}

impl RecordStream {
    pub(super) fn open(dir: &Path) -> Result<Self, ReportError> {
        let manifest = read_manifest(dir)?;
        let unfinished = manifest.unfinished;
        let counts = manifest.tables.clone();
        let mut reading = RecordReading::new(manifest, &Whole);
        let mut flows = Vec::new();
        for table in TABLES {
            let path = dir.join(file_name(table));
            let files = if unfinished {
                parts::files(dir, table)?
            } else if table.optional && !counts.contains_key(table.name) {
                Vec::new()
            } else {
                vec![path.clone()]
            };
            let expected = counts.get(table.name).copied().unwrap_or(0);
            if WHOLE.contains(&table.name) {
                let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
                let rows = reading.table(table, &files)?;
                if !unfinished {
                    check_rows(&path, rows, expected)?;
                }
            } else if FLOWS.contains(&table.name) {
                flows.push(TableFlow {
                    table,
                    files: files.into(),
                    open: None,
                    progress: TableProgress::default(),
                    expected: (!unfinished).then_some(expected),
                    rows: 0,
                    path,
                });
            }
        }
        Ok(Self { reading, flows })
    }

    pub(super) fn record(&self) -> &Record {
        &self.reading.record
    }

    /// Reads all rows of a step. Rows before the cursors may be dropped, which moves the cursors.
    pub(super) fn fill(&mut self, step: usize, cursors: &mut Cursors) -> Result<(), ReportError> {
        for flow in &mut self.flows {
            if let Some(cursor) = cursors.of(flow.table.name).filter(|rows| **rows >= DROPPED) {
                (flow.table.forget)(&mut self.reading.record, *cursor);
                *cursor = 0;
            }
            while flow.progress.last() as usize <= step && flow.advance(&mut self.reading)? {}
        }
        Ok(())
    }
}

impl TableFlow {
    /// Reads the next batch of rows. Returns false at the end of the table.
    fn advance(&mut self, reading: &mut RecordReading<'_>) -> Result<bool, ReportError> {
        if self.open.is_none() {
            let Some(path) = self.files.pop_front() else {
                return self.end();
            };
            let (reader, _) = guarded(&path, || read_batches(&path))?;
            let empty = arrow_array::RecordBatch::new_empty(reader.schema());
            let added = reading.batch(self.table, &empty, &mut self.progress);
            added.map_err(|why| ReportError::damaged(&path, why))?;
            self.open = Some((path, reader));
        }
        let Some((path, reader)) = &mut self.open else {
            return Ok(false);
        };
        let (table, progress) = (self.table, &mut self.progress);
        let rows = guarded(path, || {
            let Some(batch) = reader.next() else {
                return Ok(None);
            };
            let batch = batch.map_err(|e| ReportError::damaged(path, e))?;
            let added = reading.batch(table, &batch, progress);
            added.map_err(|why| ReportError::damaged(path, why))?;
            Ok(Some(batch.num_rows() as u64))
        })?;
        match rows {
            Some(rows) => self.rows += rows,
            None => self.open = None,
        }
        Ok(true)
    }

    fn end(&self) -> Result<bool, ReportError> {
        let expected = self.expected.unwrap_or(self.rows);
        check_rows(&self.path, self.rows, expected).map(|()| false)
    }
}

/// Checks the number of rows of a table.
pub(super) fn check_rows(path: &Path, rows: u64, expected: u64) -> Result<(), ReportError> {
    if rows == expected {
        return Ok(());
    }
    Err(ReportError::damaged(
        path,
        format!("it has {rows} rows, the manifest says {expected}"),
    ))
}
