//! Files of a record's folder: the manifest, and one Parquet file per table.
//!
//! Input: batches, or the path of a file. Output: the file, or rows. This module does not depend on the tables of a
//! record.

use std::fs::{self, File};
use std::path::Path;

use arrow_array::{RecordBatch, RecordBatchReader};
use countersteer_files::caught::caught;
use countersteer_files::read;
use countersteer_files::write::temporary_file;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use serde::Deserialize;
use tempfile::TempDir;

use super::bounded;
use super::streamed;
use super::tables::RecordTable;
use super::{Manifest, SCHEMA};
use crate::atomic::write_atomically;
use crate::error::ReportError;

const MANIFEST: &str = "manifest.json";
/// Extension of a Parquet file.
pub(super) const PARQUET: &str = "parquet";
/// Prefix that the schema identifiers of all versions share.
const FAMILY: &str = "countersteer.record/";

/// Writes a manifest to a folder. An existing manifest is replaced completely or not at all.
pub(super) fn write_manifest(manifest: &Manifest, dir: &Path) -> Result<(), ReportError> {
    let text = serde_json::to_string_pretty(manifest).map_err(|e| ReportError::Encode {
        table: "manifest",
        why: e.to_string(),
    })?;
    write_atomically(&dir.join(MANIFEST), (text + "\n").as_bytes())
}

/// Creates a file; fails if it exists.
pub(super) fn new_file(path: &Path) -> Result<File, ReportError> {
    File::create_new(path).map_err(|e| ReportError::write(path, e))
}

/// Writes batches to a file. At least one batch is needed, because it defines the columns.
pub(super) fn write_batches(
    batches: impl Iterator<Item = Result<RecordBatch, ReportError>>,
    file: File,
    path: &Path,
) -> Result<(), ReportError> {
    let write = |e: parquet::errors::ParquetError| ReportError::write(path, io_error(e));
    let mut batches = batches.peekable();
    let schema = match batches.peek() {
        Some(Ok(batch)) => batch.schema(),
        _ => std::sync::Arc::new(arrow_schema::Schema::empty()),
    };
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .build();
    let mut writer = ArrowWriter::try_new(&file, schema, Some(properties)).map_err(write)?;
    for batch in batches {
        writer.write(&batch?).map_err(write)?;
    }
    writer.close().map_err(write)?;
    file.sync_all().map_err(|e| ReportError::write(path, e))
}

/// Writes batches to a file, which is replaced completely or not at all. After a failure, no temporary file is left on the disk.
pub(super) fn replace_file(
    batches: impl Iterator<Item = Result<RecordBatch, ReportError>>,
    path: &Path,
) -> Result<(), ReportError> {
    let write = |e| ReportError::write(path, e);
    let new = temporary_file(path).map_err(write)?;
    let file = new.as_file().try_clone().map_err(write)?;
    write_batches(batches, file, path)?;
    new.persist(path).map(drop).map_err(|e| write(e.error))
}

/// Reader of the batches of a file.
pub(super) type BatchReader = Box<dyn RecordBatchReader + Send>;

/// Opens a Parquet file or a stream within limits. Returns a reader of its batches, and the memory that all rows take, in bytes.
pub(super) fn read_batches(path: &Path) -> Result<(BatchReader, u64), ReportError> {
    let file = match read::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(ReportError::damaged(path, "the file is missing"));
        }
        Err(e) => return Err(ReportError::read(path, e)),
    };
    if path.extension().is_some_and(|e| e == streamed::EXTENSION) {
        let (reader, all_bytes) =
            streamed::open(file).map_err(|e| ReportError::damaged(path, e))?;
        return Ok((Box::new(reader), all_bytes));
    }
    let copy = file.try_clone().map_err(|e| ReportError::read(path, e))?;
    let builder =
        ParquetRecordBatchReaderBuilder::try_new(copy).map_err(|e| unreadable(path, e))?;
    let bounds = bounded::check(&file, builder.metadata()).map_err(|why| refused(path, why))?;
    let reader = builder.with_batch_size(bounds.batch_rows).build();
    let reader = reader.map_err(|e| ReportError::damaged(path, e))?;
    Ok((Box::new(reader), bounds.all_bytes))
}

/// Tells a file that the system does not read from a damaged one.
fn unreadable(path: &Path, why: ParquetError) -> ReportError {
    let code = match &why {
        ParquetError::External(cause) => cause
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::raw_os_error),
        _ => None,
    };
    match code {
        Some(code) => ReportError::read(path, std::io::Error::from_raw_os_error(code)),
        None => ReportError::damaged(path, why),
    }
}

/// Checks that the free memory suffices for all rows of a file, as [`read_batches`] states it.
pub(super) fn check_memory(path: &Path, whole: u64) -> Result<(), ReportError> {
    bounded::fits(whole).map_err(|why| refused(path, why))
}

fn refused(path: &Path, why: String) -> ReportError {
    ReportError::read(path, read::refused(why))
}

pub(super) fn file_name(table: &RecordTable) -> String {
    format!("{}.{PARQUET}", table.name)
}

/// Returns true if `dir` is a record that will be replaced, false if it is free. Fails if it is occupied by anything
/// else.
pub(super) fn check_place(dir: &Path) -> Result<bool, ReportError> {
    let taken = || ReportError::Taken { path: dir.into() };
    match fs::symlink_metadata(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        // The path is a target for writing, so a failure to inspect it is reported as a write error.
        Err(e) => Err(ReportError::write(dir, e)),
        Ok(meta) if !meta.is_dir() => Err(taken()),
        Ok(_) => {
            let empty = fs::read_dir(dir)
                .map_err(|e| ReportError::read(dir, e))?
                .next()
                .is_none();
            let ours = read_schema(dir).is_ok_and(|schema| schema.starts_with(FAMILY));
            if empty || ours {
                Ok(true)
            } else {
                Err(taken())
            }
        }
    }
}

/// Moves a folder to its final path. If this fails, the folder is removed.
pub(super) fn put(temporary: TempDir, dir: &Path, replaces: bool) -> Result<(), ReportError> {
    let write = |e| ReportError::write(dir, e);
    if !replaces {
        fs::rename(temporary.path(), dir).map_err(write)?;
        let _ = temporary.keep();
        return Ok(());
    }
    // The folder has a record at every moment, where the file system can exchange two names.
    let (from, exchange) = (temporary.path().to_owned(), RenameFlags::RENAME_EXCHANGE);
    if renameat2(AT_FDCWD, &from, AT_FDCWD, dir, exchange).is_ok() {
        return temporary.close().map_err(|e| ReportError::write(&from, e));
    }
    let old = temporary.path().with_extension("old");
    fs::rename(dir, &old).map_err(write)?;
    if let Err(e) = fs::rename(temporary.path(), dir) {
        // If the new record cannot be moved, the old one is moved back.
        let _ = fs::rename(&old, dir);
        return Err(write(e));
    }
    let _ = temporary.keep();
    fs::remove_dir_all(&old).map_err(|e| ReportError::write(&old, e))
}

fn io_error(error: parquet::errors::ParquetError) -> std::io::Error {
    match error {
        parquet::errors::ParquetError::External(inner) => {
            match inner.downcast::<std::io::Error>() {
                Ok(io) => *io,
                Err(other) => std::io::Error::other(other),
            }
        }
        other => std::io::Error::other(other.to_string()),
    }
}

/// Returns the schema identifier in the manifest of a folder.
fn read_schema(dir: &Path) -> Result<String, ReportError> {
    #[derive(Deserialize)]
    struct Head {
        schema: String,
    }
    let foreign = |why: String| ReportError::Foreign {
        path: dir.into(),
        why,
    };
    if !dir.exists() {
        return Err(ReportError::Absent { path: dir.into() });
    }
    if !dir.is_dir() {
        return Err(foreign("it is a file".into()));
    }
    let path = dir.join(MANIFEST);
    let text = match manifest_text(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(foreign(format!("it has no {MANIFEST}")));
        }
        Err(e) => return Err(ReportError::read(&path, e)),
    };
    match serde_json::from_str::<Head>(&text) {
        Ok(head) => Ok(head.schema),
        Err(e) if e.is_eof() => Err(ReportError::damaged(&path, "the file ends too early")),
        Err(e) => Err(foreign(format!("its {MANIFEST} has no schema ({e})"))),
    }
}

/// Returns the manifest of a record. Fails for other folders, and for records of other versions.
pub(super) fn read_manifest(dir: &Path) -> Result<Manifest, ReportError> {
    let schema = read_schema(dir)?;
    if !schema.starts_with(FAMILY) {
        return Err(ReportError::Foreign {
            path: dir.into(),
            why: format!("its schema is `{schema}`"),
        });
    }
    if schema != SCHEMA {
        return Err(ReportError::Newer {
            path: dir.into(),
            schema,
            reads: SCHEMA,
        });
    }
    let path = dir.join(MANIFEST);
    let text = manifest_text(&path).map_err(|e| ReportError::read(&path, e))?;
    serde_json::from_str(&text).map_err(|e| ReportError::damaged(&path, e))
}

fn manifest_text(path: &Path) -> std::io::Result<String> {
    read::text_of(read::bytes(path, read::MOST_MANIFEST)?)
}

/// Runs `read` and converts panics to errors, because the Parquet reader panics on some damaged files. The caller
/// discards the rows read so far.
pub(super) fn guarded<T>(
    path: &Path,
    read: impl FnOnce() -> Result<T, ReportError>,
) -> Result<T, ReportError> {
    caught(read).unwrap_or_else(|_| {
        Err(ReportError::damaged(
            path,
            "its pages contradict each other",
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_panics_tells_of_a_damaged_file() {
        let fallen: Result<u64, _> = guarded(Path::new("run.rec/events.parquet"), || {
            let none: [u64; 0] = [];
            Ok(none
                .iter()
                .copied()
                .max()
                .expect("offset + len out of bounds"))
        });
        let message = fallen.unwrap_err().to_string();
        assert!(message.contains("events.parquet"), "{message}");
        assert_eq!(guarded(Path::new("a"), || Ok(7)).unwrap(), 7);
    }
}
