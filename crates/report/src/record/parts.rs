//! Record in progress: each table is an Arrow IPC stream, and all become Parquet tables at the end.
//!
//! Input: rows, block by block. Output: a folder that is a valid record at any time and after any end of the run. The manifest
//! marks it as unfinished, and `parts/` has the streams. A block is appended to them and costs as much at any time of a run.
//! Columns may be added during a run, such as a metric or an event; the table then continues in another stream with all columns.
//! [`RecordParts::finish`] leaves the folder as [`Record::save`] would have written it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchReader, new_null_array};
use arrow_schema::{ArrowError, Field, Schema, SchemaRef};
use countersteer_model::topology::Topology;

use super::files::{
    PARQUET, check_place, file_name, new_file, put, read_batches, write_batches, write_manifest,
};
use super::reading::RecordReading;
use super::streamed::{self, TableStream};
use super::tables::{RecordTable, TABLES};
use super::{Manifest, Record};
use crate::error::ReportError;
use countersteer_files::write::temporary_folder;

const FOLDER: &str = "parts";

/// Folder of a record in progress.
pub(super) struct RecordParts {
    dir: PathBuf,
    topology: Arc<Topology>,
    /// Record without rows, with the manifest and the present columns.
    empty: Record,
    /// Streams in the order of [`TABLES`].
    tables: Vec<TableParts>,
}

/// Streams of a table. The last one is being written.
#[derive(Default)]
struct TableParts {
    last: Option<TableStream>,
    count: u32,
}

impl RecordParts {
    /// Starts a record in a folder; `empty` holds its manifest and columns. An existing record is replaced.
    pub(super) fn begin(dir: &Path, empty: Record) -> Result<Self, ReportError> {
        let replaces = check_place(dir)?;
        let topology = empty.topology()?;
        let temporary = temporary_folder(dir).map_err(|e| ReportError::write(dir, e))?;
        let parts = temporary.path().join(FOLDER);
        let manifest = Manifest {
            unfinished: true,
            ..empty.manifest.clone()
        };
        fs::create_dir(&parts).map_err(|e| ReportError::write(dir, e))?;
        write_manifest(&manifest, temporary.path())?;
        put(temporary, dir, replaces)?;
        Ok(Self {
            dir: dir.into(),
            topology,
            empty,
            tables: TABLES.iter().map(|_| TableParts::default()).collect(),
        })
    }

    /// Appends rows, so that they are visible to readers of the record and outlive this process.
    pub(super) fn add(&mut self, mut rows: Record) -> Result<(), ReportError> {
        let folder = self.dir.join(FOLDER);
        // Steps are the first table, so that rows of all later tables refer to existing steps.
        for (table, parts) in TABLES.iter().zip(&mut self.tables) {
            if table.at_end || (table.rows)(&rows) == 0 {
                continue;
            }
            for batch in table.batches(&rows, &self.topology) {
                let appended = parts.append(table, &folder, batch?);
                appended.map_err(|error| error.cut_short(&self.dir))?;
            }
        }
        drop(rows.take_rows());
        self.empty = rows;
        Ok(())
    }

    /// Waits until all rows are on the disk, so that they outlive the system.
    pub(super) fn sync(&self) -> Result<(), ReportError> {
        let mut streams = self.tables.iter().filter_map(|parts| parts.last.as_ref());
        streams
            .try_for_each(TableStream::sync)
            .map_err(|e| ReportError::write(&self.dir.join(FOLDER), e).cut_short(&self.dir))
    }

    /// Converts the streams to one Parquet file per table. The folder then equals the result of [`Record::save`].
    pub(super) fn finish(mut self, mut manifest: Manifest) -> Result<(), ReportError> {
        self.empty.manifest.clone_from(&manifest);
        let converted = self
            .convert(&mut manifest)
            .and_then(|()| write_manifest(&manifest, &self.dir));
        if let Err(error) = converted {
            for table in TABLES {
                let _ = fs::remove_file(self.dir.join(file_name(table)));
            }
            return Err(error.cut_short(&self.dir));
        }
        let parts = self.dir.join(FOLDER);
        fs::remove_dir_all(&parts).map_err(|e| ReportError::write(&parts, e))
    }

    fn convert(&self, manifest: &mut Manifest) -> Result<(), ReportError> {
        for table in TABLES {
            let files = files(&self.dir, table)?;
            let path = self.dir.join(file_name(table));
            let Some(last) = files.last() else {
                if !table.optional {
                    self.empty
                        .write_table(table, &self.topology, new_file(&path)?, &path)?;
                    let rows = (table.rows)(&self.empty) as u64;
                    manifest.tables.insert(table.name.into(), rows);
                }
                continue;
            };
            let schema = read_batches(last)?.0.schema();
            let mut rows = 0;
            let batches = files.iter().flat_map(|file| all_batches(file, &schema));
            let counted = batches
                .inspect(|b| rows += b.as_ref().map_or(0, |b: &RecordBatch| b.num_rows() as u64));
            write_batches(counted, new_file(&path)?, &path)?;
            manifest.tables.insert(table.name.into(), rows);
        }
        Ok(())
    }
}

impl TableParts {
    /// Appends a batch to the last stream, or to a new one if it has columns that the last one lacks.
    fn append(
        &mut self,
        table: &RecordTable,
        folder: &Path,
        batch: RecordBatch,
    ) -> Result<(), ReportError> {
        let path = |number: u32| {
            folder.join(format!(
                "{}.{number:06}.{}",
                table.name,
                streamed::EXTENSION
            ))
        };
        let columns = batch.schema();
        let schema = self
            .last
            .as_ref()
            .map_or_else(|| columns.clone(), |last| united(last.schema(), &columns));
        let encode = |e: ArrowError| ReportError::Encode {
            table: table.name,
            why: e.to_string(),
        };
        let batch = widened(&batch, &schema).map_err(encode)?;
        if let Some(last) = self.last.as_mut().filter(|last| *last.schema() == schema) {
            let appended = last.append(&batch);
            return appended.map_err(|e| ReportError::write(&path(self.count - 1), e));
        }
        let path = path(self.count);
        let created = TableStream::create(&path, &batch);
        self.last = Some(created.map_err(|e| ReportError::write(&path, e))?);
        self.count += 1;
        Ok(())
    }
}

/// Iterates over the batches of a file, with all columns of a schema.
fn all_batches(
    file: &Path,
    schema: &SchemaRef,
) -> Box<dyn Iterator<Item = Result<RecordBatch, ReportError>>> {
    let path = file.to_owned();
    let schema = Arc::clone(schema);
    match read_batches(file) {
        Ok((batches, _)) => Box::new(batches.map(move |batch| {
            let wide = batch.and_then(|batch| widened(&batch, &schema));
            wide.map_err(|e| ReportError::damaged(&path, e))
        })),
        Err(error) => Box::new(std::iter::once(Err(error))),
    }
}

/// Returns the columns of a stream if they include those of a batch; else the batch's columns, followed by the others of the
/// stream.
fn united(stream: &SchemaRef, batch: &SchemaRef) -> SchemaRef {
    let lacks =
        |schema: &SchemaRef, field: &Arc<Field>| !schema.fields().iter().any(|own| own == field);
    if !batch.fields().iter().any(|field| lacks(stream, field)) {
        return Arc::clone(stream);
    }
    let others = stream.fields().iter().filter(|field| lacks(batch, field));
    let fields: Vec<Arc<Field>> = batch.fields().iter().chain(others).cloned().collect();
    Arc::new(Schema::new(fields))
}

/// Returns a batch with all columns of a schema. Missing columns are filled with nulls.
fn widened(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let own = batch.schema();
    let rows = batch.num_rows();
    let column = |field: &Arc<Field>| {
        let known = own.fields().iter().position(|own| own == field);
        known.map_or_else(
            || new_null_array(field.data_type(), rows),
            |known| Arc::clone(batch.column(known)),
        )
    };
    RecordBatch::try_new(
        Arc::clone(schema),
        schema.fields().iter().map(column).collect(),
    )
}

/// Returns the paths of a table's parts, in order. Parts by earlier versions are Parquet files.
pub(super) fn files(dir: &Path, table: &RecordTable) -> Result<Vec<PathBuf>, ReportError> {
    let folder = dir.join(FOLDER);
    let entries = fs::read_dir(&folder).map_err(|e| ReportError::read(&folder, e))?;
    let own = |path: &PathBuf| {
        let name = path
            .file_name()
            .and_then(|n| n.to_str())
            .unwrap_or_default();
        let part = name
            .strip_prefix(table.name)
            .and_then(|n| n.strip_prefix('.')?.split_once('.'));
        part.is_some_and(|(number, extension)| {
            [streamed::EXTENSION, PARQUET].contains(&extension)
                && number.bytes().all(|b| b.is_ascii_digit())
        })
    };
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(own)
        .collect();
    files.sort();
    Ok(files)
}

/// Reads an unfinished record up to its last write.
pub(super) fn load(dir: &Path, reading: &mut RecordReading<'_>) -> Result<(), ReportError> {
    for table in TABLES.iter().filter(|t| reading.needed.reads(t.name)) {
        let files = files(dir, table)?;
        reading.table(
            table,
            &files.iter().map(PathBuf::as_path).collect::<Vec<_>>(),
        )?;
    }
    let record = &mut reading.record;
    record.manifest.outcome.elapsed_s = record.end().as_secs_f64();
    Ok(())
}

#[cfg(test)]
mod tests;
