//! A record that is being written: its tables in parts, which are merged at the end.
//!
//! Input: rows, block by block. Output: a folder that is a record at any moment, whatever ends the run: the manifest says that
//! it is unfinished, and `parts/` holds each table in files of so many rows. The last part of a table is written anew with
//! every block, under another name first, so a file is there whole or not at all. [`Parts::finish`] leaves the folder as
//! [`Record::save`] would have written it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersteer_core::topology::Topology;

use super::collector::Words;
use super::disk::{
    check_place, file_name, put, read_batches, read_table, write_batches, write_manifest,
};
use super::tables::{TABLES, Table};
use super::{Manifest, Record};
use crate::atomic::temporary_sibling;
use crate::error::ReportError;

const FOLDER: &str = "parts";
/// Rows after which a part is complete: what is kept in memory, and written again with every block, is less than that.
const PART_ROWS: usize = 1 << 16;

/// The parts of a record.
pub(super) struct Parts {
    dir: PathBuf,
    topology: Arc<Topology>,
    /// Rows of the last part.
    tail: Record,
    /// Number of the last part.
    number: u32,
}

impl Parts {
    /// Begins a record; `empty` has its manifest and columns. A record that is there already is replaced.
    pub(super) fn begin(dir: &Path, empty: Record) -> Result<Self, ReportError> {
        let replaces = check_place(dir)?;
        let topology = empty.topology()?;
        let temporary = temporary_sibling(dir);
        let parts = temporary.join(FOLDER);
        let manifest = Manifest {
            unfinished: true,
            ..empty.manifest.clone()
        };
        let begun = fs::create_dir_all(&parts)
            .map_err(|e| ReportError::write(&temporary, e))
            .and_then(|()| write_manifest(&manifest, &temporary))
            .and_then(|()| put(&temporary, dir, replaces));
        if begun.is_err() {
            // The first error is the one worth telling.
            let _ = fs::remove_dir_all(&temporary);
        }
        begun.map(|()| Self {
            dir: dir.into(),
            topology,
            tail: empty,
            number: 0,
        })
    }

    /// Adds rows; once this returns, whoever reads the record finds them.
    pub(super) fn add(&mut self, mut rows: Record) -> Result<(), ReportError> {
        self.tail.append(&mut rows);
        // Steps come first among the tables: whatever is written after them refers to steps that are there.
        for table in TABLES.iter().filter(|t| (t.rows)(&self.tail) > 0) {
            let path = self
                .dir
                .join(FOLDER)
                .join(format!("{}.{:06}.parquet", table.name, self.number));
            let new = path.with_extension("new");
            let written = self.tail.write_table(table, &self.topology, &new);
            let written = written
                .and_then(|()| fs::rename(&new, &path).map_err(|e| ReportError::write(&path, e)));
            if let Err(error) = written {
                // It only takes space that somebody else misses.
                let _ = fs::remove_file(&new);
                return Err(error.cut_short(&self.dir));
            }
        }
        if self.tail.most_rows() >= PART_ROWS {
            drop(self.tail.take_rows());
            self.number += 1;
        }
        Ok(())
    }

    /// Merges the parts; the folder then is what [`Record::save`] makes.
    pub(super) fn finish(self, mut manifest: Manifest) -> Result<(), ReportError> {
        let merged = self
            .merge(&mut manifest)
            .and_then(|()| write_manifest(&manifest, &self.dir));
        if let Err(error) = merged {
            for table in TABLES {
                let _ = fs::remove_file(self.dir.join(file_name(table)));
            }
            return Err(error.cut_short(&self.dir));
        }
        let parts = self.dir.join(FOLDER);
        fs::remove_dir_all(&parts).map_err(|e| ReportError::write(&parts, e))
    }

    fn merge(&self, manifest: &mut Manifest) -> Result<(), ReportError> {
        for table in TABLES {
            let files = files(&self.dir, table)?;
            let path = self.dir.join(file_name(table));
            if files.is_empty() {
                if !table.optional {
                    self.tail.write_table(table, &self.topology, &path)?;
                    manifest.tables.insert(table.name.into(), 0);
                }
                continue;
            }
            let mut rows = 0;
            let batches = files.iter().flat_map(|file| match read_batches(file) {
                Ok(batches) => batches
                    .map(|b| b.map_err(|e| ReportError::damaged(file, e)))
                    .collect(),
                Err(error) => vec![Err(error)],
            });
            let counted =
                batches.inspect(|b| rows += b.as_ref().map_or(0, |b| b.num_rows() as u64));
            write_batches(counted, &path)?;
            manifest.tables.insert(table.name.into(), rows);
        }
        Ok(())
    }
}

/// The parts of a table, in order.
fn files(dir: &Path, table: &Table) -> Result<Vec<PathBuf>, ReportError> {
    let folder = dir.join(FOLDER);
    let entries = fs::read_dir(&folder).map_err(|e| ReportError::read(&folder, e))?;
    let own = |path: &PathBuf| {
        let name = path
            .file_name()
            .and_then(|n| n.to_str())
            .unwrap_or_default();
        let number = name
            .strip_prefix(table.name)
            .and_then(|n| n.strip_prefix('.')?.strip_suffix(".parquet"));
        number.is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
    };
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(own)
        .collect();
    files.sort();
    Ok(files)
}

/// Reads a record that is unfinished, up to where it came.
pub(super) fn load(dir: &Path, manifest: Manifest) -> Result<Record, ReportError> {
    let mut record = Record::new(manifest);
    let mut words = Words::default();
    for table in TABLES {
        for file in files(dir, table)? {
            read_table(table, &file, &mut record, &mut words)?;
        }
    }
    // A run that goes on may have written more of a table since the steps were read.
    let steps = record.steps.len() as u32;
    record.threads.retain(|r| r.step < steps);
    record.told.retain(|r| r.step < steps);
    record.events.retain(|r| r.step < steps);
    record.samples.retain(|r| r.step < steps);
    record.shares.retain(|r| r.step < steps);
    record.readings.retain(|r| r.step < steps);
    record.virtuals.retain(|r| r.step < steps);
    record.manifest.outcome.elapsed_s = record.end().as_secs_f64();
    Ok(record)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use countersteer_core::units::Nanos;

    use super::*;
    use crate::record::{ReadingRow, StepRow};

    const MACHINE: &str = include_str!("../../../../machines/core2-quad.toml");

    fn empty() -> Record {
        let machine = ("core2-quad", MACHINE);
        let workload = ("w", "");
        let mut record = Record::new(Manifest::new(
            machine,
            workload,
            "linux",
            0,
            Nanos(1),
            [],
            BTreeMap::new(),
        ));
        record.reading_counts = vec!["cycles".into()];
        record.reading_metrics = vec!["ipc".into()];
        record
    }

    /// A step with so many readings.
    fn block(step: u32, rows: u32) -> Record {
        let row = |n: u32| ReadingRow {
            step,
            start_ns: 0,
            at_ns: u64::from(step),
            pid: Some(1),
            thread: Some(n),
            name: "x".into(),
            cpu: None,
            core_type: "".into(),
            set: 0,
            enabled_ns: 5,
            running_ns: 5,
            last: false,
            counts: [Some(u64::from(n))].into(),
            metrics: [None].into(),
        };
        let mut block = empty();
        block.steps.push(StepRow {
            at_ns: u64::from(step),
            ..StepRow::default()
        });
        block.readings.extend((0..rows).map(row));
        block
    }

    fn scratch(name: &str) -> PathBuf {
        let dir =
            std::env::temp_dir().join(format!("countersteer-parts-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        dir
    }

    #[test]
    fn parts_can_be_read_at_any_moment_and_merge_into_what_saving_makes() {
        let dir = scratch("merged");
        let saved = scratch("saved");
        let mut parts = Parts::begin(&dir, empty()).unwrap();
        let mut whole = empty();
        for step in 0..5 {
            parts.add(block(step, 30_000)).unwrap();
            whole.append(&mut block(step, 30_000));
            let seen = Record::load(&dir).unwrap();
            assert!(seen.manifest.unfinished);
            assert_eq!(
                (&seen.steps, &seen.readings),
                (&whole.steps, &whole.readings)
            );
        }
        assert!(
            parts.number > 0 && parts.tail.readings.len() < PART_ROWS,
            "memory does not grow"
        );
        parts.finish(empty().manifest).unwrap();
        whole.save(&saved).unwrap();
        let merged = Record::load(&dir).unwrap();
        let saved_record = Record::load(&saved).unwrap();
        assert_eq!(merged, saved_record);
        assert!(!dir.join(FOLDER).exists());
        fs::remove_dir_all(dir).unwrap();
        fs::remove_dir_all(saved).unwrap();
    }

    #[test]
    fn a_part_that_cannot_be_written_leaves_those_before_it() {
        let dir = scratch("refused");
        let mut parts = Parts::begin(&dir, empty()).unwrap();
        parts.add(block(0, 10)).unwrap();
        // In the way of the next attempt.
        fs::create_dir(dir.join(FOLDER).join("readings.000000.new")).unwrap();
        let error = parts.add(block(1, 10)).unwrap_err().to_string();
        assert!(error.contains("ends there and can be read"), "{error}");
        let seen = Record::load(&dir).unwrap();
        assert_eq!((seen.steps.len(), seen.readings.len()), (2, 10));
        fs::remove_dir_all(dir).unwrap();
    }
}
