//! Record in progress: each table is in parts, which are merged at the end.
//!
//! Input: rows, block by block. Output: a folder that is a valid record at any time and after any end of the run. The manifest
//! marks it as unfinished, and `parts/` has each table in files with a fixed number of rows. The last part of a table is
//! rewritten with every block, under another name first, so every file is complete. [`RecordParts::finish`] leaves the folder as
//! [`Record::save`] would have written it.
//!
//! Parts are no Arrow IPC streams. A stream appends 16,000 rows (`stat`, 1,000 threads, 8 s) in less than 22 ms of CPU time; the
//! last part takes 22 to 62 ms as it fills, 0.5 % of a CPU. A reading of three events takes 91 bytes in a stream, and 22 in
//! Parquet. Readers would need a second format with limits like those of `bounded`, and DuckDB could not read a running record.
//! A table would still have several files, because columns are added during a run.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchReader, new_null_array};
use arrow_schema::{ArrowError, Field, Schema, SchemaRef};
use countersteer_model::topology::Topology;

use super::files::{
    check_place, file_name, new_file, put, read_batches, replace_file, write_batches,
    write_manifest,
};
use super::reading::RecordReading;
use super::tables::{RecordTable, TABLES};
use super::{Manifest, Record};
use crate::error::ReportError;
use countersteer_files::write::temporary_folder;

const FOLDER: &str = "parts";
/// Number of rows in a complete part. It limits the rows in memory, which are rewritten with every block.
const PART_ROWS: usize = 1 << 16;

/// Folder of a record in progress, with the rows of its last part.
pub(super) struct RecordParts {
    dir: PathBuf,
    topology: Arc<Topology>,
    /// Rows of the last part, which is not yet complete.
    tail: Record,
    /// Number of the last part, from 0.
    number: u32,
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
            tail: empty,
            number: 0,
        })
    }

    /// Adds rows and writes them to disk, so that they are visible to readers of the record.
    pub(super) fn add(&mut self, mut rows: Record) -> Result<(), ReportError> {
        self.tail.append(&mut rows);
        // Steps are the first table, so that rows of all later tables refer to existing steps.
        let tables = TABLES.iter().filter(|t| !t.at_end);
        for table in tables.filter(|t| (t.rows)(&self.tail) > 0) {
            let path = self
                .dir
                .join(FOLDER)
                .join(format!("{}.{:06}.parquet", table.name, self.number));
            replace_file(table.batches(&self.tail, &self.topology), &path)
                .map_err(|error| error.cut_short(&self.dir))?;
        }
        if self.tail.most_rows() >= PART_ROWS {
            drop(self.tail.take_rows());
            self.number += 1;
        }
        Ok(())
    }

    /// Merges the parts of each table. The folder then equals the result of [`Record::save`].
    pub(super) fn finish(mut self, mut manifest: Manifest) -> Result<(), ReportError> {
        self.tail.manifest.clone_from(&manifest);
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
                    self.tail
                        .write_table(table, &self.topology, new_file(&path)?, &path)?;
                    let rows = (table.rows)(&self.tail) as u64;
                    manifest.tables.insert(table.name.into(), rows);
                }
                continue;
            }
            let schema = all_columns(&files)?;
            let mut rows = 0;
            let batches = files.iter().flat_map(|file| match read_batches(file) {
                Ok((batches, _)) => batches
                    .map(|b| b.and_then(|b| widened(b, &schema)))
                    .map(|b| b.map_err(|e| ReportError::damaged(file, e)))
                    .collect(),
                Err(error) => vec![Err(error)],
            });
            let counted =
                batches.inspect(|b| rows += b.as_ref().map_or(0, |b| b.num_rows() as u64));
            write_batches(counted, new_file(&path)?, &path)?;
            manifest.tables.insert(table.name.into(), rows);
        }
        Ok(())
    }
}

/// Returns the columns of all parts of a table. Columns of the last part come first, because it usually has the most; columns
/// that only earlier parts have follow. Samples lose columns if events are no longer counted.
fn all_columns(files: &[PathBuf]) -> Result<SchemaRef, ReportError> {
    let mut all: Option<SchemaRef> = None;
    for file in files.iter().rev() {
        let schema = read_batches(file)?.0.schema();
        let Some(known) = &mut all else {
            all = Some(schema);
            continue;
        };
        let besides = |field: &&Arc<Field>| known.field_with_name(field.name()).is_err();
        let more: Vec<Arc<Field>> = schema.fields().iter().filter(besides).cloned().collect();
        if !more.is_empty() {
            let fields: Vec<Arc<Field>> = known.fields().iter().cloned().chain(more).collect();
            *known = Arc::new(Schema::new_with_metadata(fields, known.metadata().clone()));
        }
    }
    Ok(all.unwrap_or_else(|| Arc::new(Schema::empty())))
}

/// Returns a batch with all columns of a schema. Missing columns are filled with nulls.
fn widened(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    if *schema == batch.schema() {
        return Ok(batch);
    }
    let column = |field: &Arc<Field>| {
        let known = batch.column_by_name(field.name()).cloned();
        known.unwrap_or_else(|| new_null_array(field.data_type(), batch.num_rows()))
    };
    RecordBatch::try_new(
        Arc::clone(schema),
        schema.fields().iter().map(column).collect(),
    )
}

/// Returns the paths of the parts of a table, in order.
pub(super) fn files(dir: &Path, table: &RecordTable) -> Result<Vec<PathBuf>, ReportError> {
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
mod tests {
    use countersteer_model::cpuset::CpuSet;
    use countersteer_model::engine::{ProgramInfo, ThreadEventKind};
    use countersteer_model::hint::Hint;
    use countersteer_model::sample::{Event, Sample, Samples};
    use countersteer_model::units::{CoreTypeId, CpuId, Nanos, ProgramId, ThreadId};

    use super::*;
    use crate::record::{
        ClockRow, DecisionRow, EventRow, HintRow, ProgramRow, ReadingRow, RecordedMetrics,
        SampleRows, ShareRow, SpanRow, StepRow, ThreadRow, VirtualRow,
    };

    fn empty() -> Record {
        let mut record = Record::empty();
        record.reading_counts = vec!["cycles".into()];
        record.reading_metrics = vec!["ipc".into()];
        record
    }

    /// Returns a step with `rows` readings.
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

    /// Returns a step with a row in every table that is written during a run.
    fn everything(step: u32) -> Record {
        let (thread, at_ns, allowed) = (7, u64::from(step), Arc::new(CpuSet::first(2)));
        let mut rows = block(step, 1);
        rows.metric_names = vec!["ipc".into()];
        rows.threads.push(ThreadRow {
            step,
            at_ns,
            thread,
            program: 1,
            name: "x".into(),
            cpu: 0,
            runnable: true,
            nice: 0,
            allowed: Arc::clone(&allowed),
        });
        rows.programs.push(ProgramRow {
            step,
            at_ns,
            info: ProgramInfo {
                id: ProgramId(1),
                name: "x".into(),
                path: Some("/bin/x".into()),
            },
        });
        rows.hints.push(HintRow {
            step,
            at_ns,
            thread,
            hint: Hint::default(),
        });
        rows.events.push(EventRow {
            step,
            at_ns,
            thread,
            kind: ThreadEventKind::New,
        });
        let (id, end, ran) = (ThreadId(thread), Nanos(at_ns), Nanos(5));
        let sample = Sample::of_thread(id, CpuId(0), CoreTypeId(0), end, ran);
        rows.samples.extend(step, &Samples::of(sample, 1, &[]));
        rows.metrics.push(RecordedMetrics {
            step,
            at_ns,
            thread,
            values: [Some(1.5)].into(),
        });
        rows.decisions.push(DecisionRow {
            step,
            at_ns,
            thread,
            target: "anywhere".into(),
            target_cpus: allowed,
            weight: None,
            clamp_least: None,
            clamp_most: None,
            rule: "r".into(),
            seen: vec![("ipc".into(), 1.5)],
            alternatives: Vec::new(),
            unit: "".into(),
        });
        rows.shares.push(ShareRow {
            step,
            at_ns,
            class: "one".into(),
            ..ShareRow::default()
        });
        rows.clocks.push(ClockRow {
            step,
            at_ns,
            cpu: Some(1),
            most_mhz: 800,
            ..ClockRow::default()
        });
        rows.spans.push(SpanRow {
            step,
            thread,
            cpu: 0,
            start_ns: 0,
            end_ns: at_ns,
        });
        rows.virtuals.push(VirtualRow {
            step,
            at_ns,
            scope: "machine".into(),
            place: "".into(),
            thread: None,
            cpu: None,
            name: "energy".into(),
            unit: "J".into(),
            value: 1.0,
        });
        rows
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
        let mut parts = RecordParts::begin(&dir, empty()).unwrap();
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
        let mut parts = RecordParts::begin(&dir, empty()).unwrap();
        parts.add(block(0, 10)).unwrap();
        drop(parts.tail.take_rows());
        parts.number += 1;
        // This file blocks the next part.
        let wall = dir.join(FOLDER).join("readings.000001.parquet");
        fs::create_dir(&wall).unwrap();
        let error = parts.add(block(1, 10)).unwrap_err().to_string();
        assert!(error.contains("ends there and can be read"), "{error}");
        fs::remove_dir(&wall).unwrap();
        for entry in fs::read_dir(dir.join(FOLDER)).unwrap() {
            let path = entry.unwrap().path();
            assert!(path.extension().is_some_and(|e| e == "parquet"), "{path:?}");
        }
        let seen = Record::load(&dir).unwrap();
        assert_eq!((seen.steps.len(), seen.readings.len()), (2, 10));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn rows_of_steps_that_were_not_written_yet_are_left_out() {
        let dir = scratch("torn");
        let mut parts = RecordParts::begin(&dir, empty()).unwrap();
        parts.add(everything(0)).unwrap();
        let steps = dir.join(FOLDER).join("steps.000000.parquet");
        let before = fs::read(&steps).unwrap();
        parts.add(everything(1)).unwrap();
        // State for a reader that read the steps before the rest was written.
        fs::write(&steps, before).unwrap();
        let mut seen = Record::load(&dir).unwrap();
        let mut expected = everything(0);
        for table in TABLES.iter().filter(|t| !t.at_end) {
            assert_eq!((table.rows)(&expected), 1, "{}", table.name);
        }
        // The manifests may differ.
        seen.manifest = expected.manifest.clone();
        expected.first_step = seen.first_step;
        assert_eq!(seen, expected);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_metric_that_comes_later_has_its_column_and_is_empty_before() {
        let dir = scratch("columns");
        let mut parts = RecordParts::begin(&dir, empty()).unwrap();
        parts.add(everything(0)).unwrap();
        drop(parts.tail.take_rows());
        parts.number += 1;
        parts.add(everything(1)).unwrap();
        let mut later = everything(2);
        later.metric_names.push("sf".into());
        later.metrics[0].values = [Some(2.5), Some(3.5)].into();
        parts.add(later).unwrap();
        assert_eq!(Record::load(&dir).unwrap().metrics.len(), 3);
        parts.finish(empty().manifest).unwrap();
        let merged = Record::load(&dir).unwrap();
        let names: Vec<&str> = merged.metric_names.iter().map(|n| &**n).collect();
        assert_eq!(names, ["ipc", "sf"]);
        let values: Vec<_> = merged.metrics.iter().map(|m| m.values.to_vec()).collect();
        let expected = [[Some(1.5), None], [Some(1.5), None], [Some(2.5), Some(3.5)]];
        assert_eq!(values, expected);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn an_event_that_is_counted_no_longer_keeps_its_column() {
        let dir = scratch("events");
        let with = |step: u32, counts: &[(Event, f64)]| {
            let mut rows = everything(step);
            let (id, end, ran) = (ThreadId(7), Nanos(u64::from(step)), Nanos(5));
            let sample = Sample::of_thread(id, CpuId(0), CoreTypeId(0), end, ran);
            rows.samples = SampleRows::default();
            rows.samples.extend(step, &Samples::of(sample, 1, counts));
            rows
        };
        let mut parts = RecordParts::begin(&dir, empty()).unwrap();
        parts
            .add(with(0, &[(Event::Cycles, 1.0), (Event::LlcMisses, 7.0)]))
            .unwrap();
        drop(parts.tail.take_rows());
        parts.number += 1;
        parts.add(with(1, &[(Event::Cycles, 2.0)])).unwrap();
        parts.finish(empty().manifest).unwrap();
        let merged = Record::load(&dir).unwrap();
        let counted = |row: usize, event| {
            let row = merged.samples.samples.row(row).unwrap();
            row.counts.get(event)
        };
        assert_eq!(counted(0, Event::LlcMisses), Some(7.0));
        assert_eq!(counted(1, Event::LlcMisses), None);
        assert_eq!(counted(1, Event::Cycles), Some(2.0));
        fs::remove_dir_all(dir).unwrap();
    }
}
