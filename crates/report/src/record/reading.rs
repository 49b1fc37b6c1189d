//! Reading of a record's tables, in whole or in part.
//!
//! Input: the files of a table, and the [`Reduction`] of a reader. Output: the rows in a [`Record`]. A reader may need few rows of
//! a long record. It reduces each table while it is read, so that memory does not grow with the length of the run.

use std::path::Path;

use arrow_array::RecordBatch;

use super::files::{check_memory, guarded, read_batches};
use super::tables::RecordTable;
use super::words::Words;
use super::{Manifest, Record};
use crate::error::ReportError;

/// Number of rows up to which a table is kept as it is.
const SHORT: usize = 1 << 20;

/// Rows of a record that a reader needs.
///
/// A table is reduced repeatedly while it is read. Reducing must not depend on when this happens: a table, and its reduced
/// beginning together with its remaining rows, must be reduced to the same rows.
pub(crate) trait Reduction {
    /// True if the reader needs rows of this table. Tables whose rows belong to steps need the table `steps`.
    fn reads(&self, table: &str) -> bool;

    /// Removes the rows of a table that the reader does not need, and keeps the order of the others.
    fn reduce(&self, table: &str, record: &mut Record);

    /// Number of rows up to which a table is not reduced.
    fn short(&self) -> usize {
        SHORT
    }
}

/// Reduction that keeps all rows.
pub(super) struct Whole;

impl Reduction for Whole {
    fn reads(&self, _: &str) -> bool {
        true
    }

    fn reduce(&self, _: &str, _: &mut Record) {}

    fn short(&self) -> usize {
        usize::MAX
    }
}

/// Record that is being read.
pub(super) struct RecordReading<'a> {
    pub(super) record: Record,
    pub(super) needed: &'a dyn Reduction,
    words: Words,
}

/// Progress in a table.
pub(super) struct TableProgress {
    /// Step of the last row read.
    last: u32,
    /// Number of rows at which the table is reduced next.
    full: usize,
}

impl Default for TableProgress {
    fn default() -> Self {
        Self {
            last: 0,
            full: usize::MAX,
        }
    }
}

impl TableProgress {
    pub(super) const fn last(&self) -> u32 {
        self.last
    }
}

impl<'a> RecordReading<'a> {
    pub(super) fn new(manifest: Manifest, needed: &'a dyn Reduction) -> Self {
        Self {
            record: Record::new(manifest),
            needed,
            words: Words::default(),
        }
    }

    /// Adds the rows of a table, which is in these files, to the record. Returns the number of rows in the files.
    pub(super) fn table(
        &mut self,
        table: &RecordTable,
        files: &[&Path],
    ) -> Result<u64, ReportError> {
        let mut progress = TableProgress {
            full: self.needed.short(),
            ..TableProgress::default()
        };
        let mut rows = 0;
        for path in files {
            rows += guarded(path, || self.file(table, path, &mut progress))?;
        }
        Ok(rows)
    }

    fn file(
        &mut self,
        table: &RecordTable,
        path: &Path,
        progress: &mut TableProgress,
    ) -> Result<u64, ReportError> {
        let damaged = |e: &dyn std::fmt::Display| ReportError::damaged(path, e);
        let (reader, whole) = read_batches(path)?;
        if progress.full == usize::MAX {
            check_memory(path, whole)?;
        }
        let schema = reader.schema();
        let mut rows = 0;
        for batch in reader {
            let batch = batch.map_err(|e| damaged(&e))?;
            rows += batch.num_rows() as u64;
            self.batch(table, &batch, progress)
                .map_err(|e| damaged(&e))?;
        }
        if rows == 0 {
            // A table without rows still defines the names of its columns.
            let empty = RecordBatch::new_empty(schema);
            self.batch(table, &empty, progress)
                .map_err(|e| damaged(&e))?;
        }
        Ok(rows)
    }

    pub(super) fn batch(
        &mut self,
        table: &RecordTable,
        batch: &RecordBatch,
        progress: &mut TableProgress,
    ) -> Result<(), String> {
        let before = (table.rows)(&self.record);
        (table.decode)(&mut self.record, &mut self.words, batch)?;
        self.check_steps(table, before, progress)?;
        if !table.at_end && (table.rows)(&self.record) > progress.full {
            self.needed.reduce(table.name, &mut self.record);
            progress.full = self.needed.short().max(2 * (table.rows)(&self.record));
        }
        Ok(())
    }

    /// Checks that the rows from an index on refer to existing observations in ascending order, on which all readers rely.
    /// In a stream, the rows of earlier steps may have been dropped.
    fn check_steps(
        &mut self,
        table: &RecordTable,
        from: usize,
        progress: &mut TableProgress,
    ) -> Result<(), String> {
        // Rows of the manifest are not added but replaced.
        if table.at_end {
            return Ok(());
        }
        let mut column = (table.steps)(&self.record, from);
        let steps = self.record.steps.len() as u32;
        if self.record.manifest.unfinished && column.last().is_some_and(|last| *last >= steps) {
            // A running session may have added rows since the steps were read. Rows of later steps are dropped.
            (table.keep_steps)(&mut self.record, steps);
            column.retain(|step| *step < steps);
        }
        let (Some(first), Some(last)) = (column.first(), column.last()) else {
            return Ok(());
        };
        if *first < progress.last || !column.is_sorted() || *last >= steps {
            return Err("column `step` is out of order or names no observation".into());
        }
        progress.last = *last;
        Ok(())
    }
}
