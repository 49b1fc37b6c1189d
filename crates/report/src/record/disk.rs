//! Records on disk: a folder with a manifest and one Parquet file per table.
//!
//! Input: a [`Record`] or the path of its folder. Output: the folder or the record. A folder gets its final name only after
//! it is completely written.

use std::fs::File;
use std::path::Path;

use arrow_array::RecordBatch;
use countersteer_model::topology::Topology;

use super::files::{
    check_place, file_name, new_file, put, read_manifest, replace_file, write_batches,
    write_manifest,
};
use super::reading::{RecordReading, Reduction, Whole};
use super::stream::check_rows;
use super::tables::{RecordTable, TABLES};
use super::{Manifest, Record};
use crate::error::ReportError;
use countersteer_files::write::temporary_folder;

impl Record {
    /// Writes the record as a folder. An existing record is replaced once the new one is complete. A record whose run was cut short
    /// becomes a complete one that ends there.
    ///
    /// # Errors
    /// Fails if the path is occupied by other files, or if the folder cannot be written; no partial folder is left behind.
    pub fn save(&self, dir: &Path) -> Result<(), ReportError> {
        let replaces = check_place(dir)?;
        let temporary = temporary_folder(dir).map_err(|e| ReportError::write(dir, e))?;
        self.write_into(temporary.path())?;
        put(temporary, dir, replaces)
    }

    fn write_into(&self, dir: &Path) -> Result<(), ReportError> {
        let topology = self.topology()?;
        let mut manifest = Manifest {
            unfinished: false,
            ..self.manifest.clone()
        };
        let tables = || TABLES.iter().filter(|t| !t.optional || (t.rows)(self) > 0);
        manifest.tables = tables()
            .map(|t| (t.name.to_owned(), (t.rows)(self) as u64))
            .collect();
        for table in tables() {
            let path = dir.join(file_name(table));
            self.write_table(table, &topology, new_file(&path)?, &path)?;
        }
        write_manifest(&manifest, dir)
    }

    /// Writes all rows of a table to a file; `path` is the file's name in errors.
    pub(super) fn write_table(
        &self,
        table: &RecordTable,
        topology: &Topology,
        file: File,
        path: &Path,
    ) -> Result<(), ReportError> {
        write_batches(table.batches(self, topology), file, path)
    }

    /// Returns a table of this record as batches with the columns of its file; `None` if there is no table of that name.
    ///
    /// # Errors
    /// Fails if the machine inside the record cannot be parsed, or if a row cannot be encoded.
    pub fn batches(&self, name: &str) -> Result<Option<Vec<RecordBatch>>, ReportError> {
        let Some(table) = TABLES.iter().find(|table| table.name == name) else {
            return Ok(None);
        };
        let topology = self.topology()?;
        let batches: Result<_, _> = table.batches(self, &topology).collect();
        batches.map(Some)
    }

    /// Iterates over the names of all tables that a record may contain.
    pub fn table_names() -> impl Iterator<Item = &'static str> {
        TABLES.iter().map(|table| table.name)
    }

    /// Reads a record from its folder.
    ///
    /// # Errors
    /// Fails if the folder is no record, is from a later version, or is damaged.
    pub fn load(dir: &Path) -> Result<Self, ReportError> {
        Self::load_reduced(dir, &Whole)
    }

    /// Reads the rows of a record that a reader needs.
    pub(crate) fn load_reduced(dir: &Path, needed: &dyn Reduction) -> Result<Self, ReportError> {
        let manifest = read_manifest(dir)?;
        let counts = (!manifest.unfinished).then(|| manifest.tables.clone());
        let mut reading = RecordReading::new(manifest, needed);
        match &counts {
            None => super::parts::load(dir, &mut reading)?,
            Some(counts) => {
                let is_there = |t: &&RecordTable| !t.optional || counts.contains_key(t.name);
                for table in TABLES
                    .iter()
                    .filter(is_there)
                    .filter(|t| needed.reads(t.name))
                {
                    let path = dir.join(file_name(table));
                    let rows = reading.table(table, &[&path])?;
                    let expected = counts.get(table.name).copied().unwrap_or(0);
                    check_rows(&path, rows, expected)?;
                }
            }
        }
        Ok(reading.record)
    }
}

/// Writes a batch to a Parquet file, which is replaced completely or not at all.
///
/// # Errors
/// Fails without disk space, permission or folder.
pub fn write_table(path: &Path, batch: &RecordBatch) -> Result<(), ReportError> {
    replace_file(std::iter::once(Ok(batch.clone())), path)
}
