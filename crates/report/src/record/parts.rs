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
    let (path, schema) = (file.to_owned(), Arc::clone(schema));
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
    let (own, rows) = (batch.schema(), batch.num_rows());
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

    fn table(name: &str) -> &'static RecordTable {
        TABLES.iter().find(|table| table.name == name).unwrap()
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
        assert_eq!(parts.empty.most_rows(), 0, "memory does not grow");
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
    fn a_block_that_cannot_be_written_leaves_those_before_it() {
        let dir = scratch("refused");
        let mut parts = RecordParts::begin(&dir, empty()).unwrap();
        parts.add(block(0, 10)).unwrap();
        let mut wider = block(1, 10);
        wider.reading_metrics.push("sf".into());
        wider
            .readings
            .iter_mut()
            .for_each(|row| row.metrics = [None, Some(2.0)].into());
        // A folder blocks the stream with the new column.
        let wall = dir.join(FOLDER).join("readings.000001.arrows");
        fs::create_dir(&wall).unwrap();
        let error = parts.add(wider).unwrap_err().to_string();
        assert!(error.contains("ends there and can be read"), "{error}");
        fs::remove_dir(&wall).unwrap();
        for entry in fs::read_dir(dir.join(FOLDER)).unwrap() {
            let path = entry.unwrap().path();
            assert!(path.extension().is_some_and(|e| e == "arrows"), "{path:?}");
        }
        let seen = Record::load(&dir).unwrap();
        assert_eq!((seen.steps.len(), seen.readings.len()), (2, 10));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_stream_that_ends_anywhere_is_read_up_to_its_last_whole_block() {
        let dir = scratch("torn");
        let mut parts = RecordParts::begin(&dir, empty()).unwrap();
        let path = dir.join(FOLDER).join("readings.000000.arrows");
        let mut ends = Vec::new();
        for step in 0..3 {
            parts.add(block(step, 2)).unwrap();
            ends.push(fs::metadata(&path).unwrap().len() as usize);
        }
        let whole = fs::read(&path).unwrap();
        for length in ends[0]..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let blocks = ends.iter().filter(|end| **end <= length).count();
            let seen = Record::load(&dir).unwrap();
            assert_eq!(
                (seen.steps.len(), seen.readings.len()),
                (3, 2 * blocks),
                "{length}"
            );
        }
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn rows_of_steps_that_were_not_written_yet_are_left_out() {
        let dir = scratch("later");
        let mut parts = RecordParts::begin(&dir, empty()).unwrap();
        parts.add(everything(0)).unwrap();
        let steps = dir.join(FOLDER).join("steps.000000.arrows");
        let before = fs::read(&steps).unwrap();
        parts.add(everything(1)).unwrap();
        // State for a reader that read the steps before the rest was written.
        fs::write(&steps, before).unwrap();
        let mut seen = Record::load(&dir).unwrap();
        let saved = scratch("saved-later");
        seen.save(&saved).unwrap();
        let whole = Record::load(&saved).unwrap();
        assert!(!whole.manifest.unfinished && whole.threads == seen.threads);
        fs::remove_dir_all(saved).unwrap();
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
    fn changed_streams_are_read_or_refused() {
        let dir = scratch("fuzz");
        let mut parts = RecordParts::begin(&dir, empty()).unwrap();
        (0..3).for_each(|step| parts.add(everything(step)).unwrap());
        for entry in fs::read_dir(dir.join(FOLDER)).unwrap() {
            let path = entry.unwrap().path();
            let sound = fs::read(&path).unwrap();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            countersteer_fuzz::storm(&format!("record {name}"), &[&sound], 0.05, |input| {
                fs::write(&path, input).unwrap();
                let _ = Record::load(&dir);
            });
            fs::write(&path, sound).unwrap();
        }
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn parts_by_earlier_versions_are_read() {
        let dir = scratch("earlier");
        let mut parts = RecordParts::begin(&dir, empty()).unwrap();
        parts.add(everything(0)).unwrap();
        for table in TABLES {
            for path in files(&dir, table).unwrap() {
                let batches: Vec<_> = read_batches(&path).unwrap().0.collect();
                let file = new_file(&path.with_extension(PARQUET)).unwrap();
                let batches = batches.into_iter().map(|batch| Ok(batch.unwrap()));
                write_batches(batches, file, &path).unwrap();
                fs::remove_file(path).unwrap();
            }
        }
        let mut seen = Record::load(&dir).unwrap();
        seen.manifest = empty().manifest;
        assert_eq!(seen, everything(0));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_metric_that_comes_later_has_its_column_and_is_empty_before() {
        let dir = scratch("columns");
        let mut parts = RecordParts::begin(&dir, empty()).unwrap();
        parts.add(everything(0)).unwrap();
        parts.add(everything(1)).unwrap();
        let mut later = everything(2);
        later.metric_names.push("sf".into());
        later.metrics[0].values = [Some(2.5), Some(3.5)].into();
        parts.add(later).unwrap();
        assert_eq!(Record::load(&dir).unwrap().metrics.len(), 3);
        assert_eq!(files(&dir, table("metrics")).unwrap().len(), 2);
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
        parts.add(with(1, &[(Event::Cycles, 2.0)])).unwrap();
        assert_eq!(files(&dir, table("samples")).unwrap().len(), 1);
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
