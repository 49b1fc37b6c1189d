use countersteer_model::cpuset::CpuSet;
use countersteer_model::engine::{ProgramInfo, ThreadEventKind};
use countersteer_model::hint::Hint;
use countersteer_model::sample::{Event, Sample, Samples};
use countersteer_model::units::{CoreTypeId, CpuId, Nanos, ProgramId, ThreadId};

use super::*;
use crate::record::{
    ClockRow, DecisionRow, EventRow, HintRow, ProgramRow, ReadingRow, RecordedMetrics, SampleRows,
    ShareRow, SpanRow, StepRow, ThreadRow, VirtualRow,
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
