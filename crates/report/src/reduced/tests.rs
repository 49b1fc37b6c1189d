//! Tests of reduced records: they give the answers that whole records give.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::engine::{ProgramInfo, ThreadEventKind};
use countersteer_model::hint::Hint;
use countersteer_model::policy::PolicyRng as Rng;
use countersteer_model::sample::{Event, Sample, Samples};
use countersteer_model::units::{CoreTypeId, CpuId, Nanos, ProgramId, ThreadId};
use rand::{RngExt, SeedableRng};

use super::*;
use crate::record::{
    ClockRow, DecisionRow, EventRow, HintRow, ProgramRow, ReadingRow, RecordedMetrics, ShareRow,
    SpanRow, StepRow, ThreadRow, VirtualRow,
};
use crate::why;

const THREADS: u32 = 5;
const STEPS: u32 = 400;
const PERIOD_NS: u64 = 1_000_000;

/// Reduction that begins with few rows.
struct Early<R>(R, usize);

impl<R: Reduction> Reduction for Early<R> {
    fn reads(&self, table: &str) -> bool {
        self.0.reads(table)
    }

    fn reduce(&self, table: &str, record: &mut Record) {
        self.0.reduce(table, record);
    }

    fn short(&self) -> usize {
        self.1
    }
}

/// Makes a record of threads that appear, move, sleep and end at random. Half of the records have the events of this.
fn random(seed: u64) -> Record {
    of_length(STEPS, seed)
}

fn of_length(steps: u32, seed: u64) -> Record {
    let mut rng = Rng::seed_from_u64(seed);
    let mut record = Record::empty();
    record.metric_names = vec!["sf".into()];
    let has_events = rng.random_bool(0.5);
    let lives: Vec<(u32, u32)> = (0..THREADS)
        .map(|_| {
            (
                rng.random_range(0..steps / 2),
                rng.random_range(steps / 2..=steps),
            )
        })
        .collect();
    let mut cpus = [0_u32; THREADS as usize];
    for step in 0..steps {
        let at_ns = u64::from(step) * PERIOD_NS;
        record.steps.push(StepRow {
            at_ns,
            ..StepRow::default()
        });
        for thread in 0..THREADS {
            let (first, last) = lives[thread as usize];
            if !(first..last).contains(&step) {
                continue;
            }
            let cpu = &mut cpus[thread as usize];
            let mut event = |kind| {
                record.events.push(EventRow {
                    step,
                    at_ns,
                    thread,
                    kind,
                });
            };
            if step == first && has_events {
                event(ThreadEventKind::New);
            }
            if rng.random_bool(0.1) {
                let from = CpuId(*cpu);
                *cpu = rng.random_range(0..4);
                if has_events {
                    let to = CpuId(*cpu);
                    event(ThreadEventKind::Migrate { from, to });
                }
            }
            rows(&mut record, &mut rng, (step, at_ns, thread, *cpu));
        }
    }
    record
}

fn rows(record: &mut Record, rng: &mut Rng, (step, at_ns, thread, cpu): (u32, u64, u32, u32)) {
    record.threads.push(ThreadRow {
        step,
        at_ns,
        thread,
        program: thread / 2,
        name: format!("p{}", thread / 2).into(),
        cpu,
        runnable: rng.random_bool(0.8),
        nice: 0,
        allowed: Arc::new(CpuSet::first(4)),
    });
    if rng.random_bool(0.7) {
        let (id, end) = (ThreadId(thread), Nanos(at_ns));
        let sample = Sample::of_thread(id, CpuId(cpu), CoreTypeId(0), end, Nanos(PERIOD_NS));
        let counts = [
            (Event::Instructions, rng.random_range(1.0..9.0)),
            (Event::Cycles, 4.0),
            (Event::LlcOccupancyBytes, rng.random_range(0.0..1e6)),
        ];
        record
            .samples
            .extend(step, &Samples::of(sample, 1, &counts));
        record.metrics.push(RecordedMetrics {
            step,
            at_ns,
            thread,
            values: [rng.random_bool(0.5).then(|| rng.random_range(1.0..3.0))].into(),
        });
    }
    if rng.random_bool(0.3) {
        let group = rng.random_range(0..4);
        record.decisions.push(DecisionRow {
            step,
            at_ns,
            thread,
            target: format!("cpu{group}").into(),
            target_cpus: Arc::new([CpuId(group)].into_iter().collect()),
            rule: ["fast", "fair"][rng.random_range(0..2)].into(),
            seen: vec![("sf".into(), rng.random_range(1.0..3.0))],
            ..DecisionRow::default()
        });
    }
    if at_ns > 0 && rng.random_bool(0.6) {
        let length_ns = rng.random_range(1..PERIOD_NS);
        record.spans.push(SpanRow {
            step,
            thread,
            cpu,
            start_ns: at_ns - length_ns,
            end_ns: at_ns,
        });
    }
}

fn saved(record: &Record) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    record.save(&folder.path().join("run.rec")).unwrap();
    folder
}

#[test]
fn every_moment_of_a_run_is_explained_as_by_the_whole_record() {
    let mut rng = Rng::seed_from_u64(1);
    let mut explained = 0;
    for seed in 0..8 {
        let folder = saved(&random(seed));
        let dir = folder.path().join("run.rec");
        let whole = Record::load(&dir).unwrap();
        for _ in 0..12 {
            let at_s = rng.random_range(0.0..0.41);
            // Batches have 16,384 rows, so a table is reduced in pieces only if it is cut by hand.
            let reduced = in_pieces(&whole, &why(at_s), rng.random_range(1..40));
            for who in ["p0", "p1", "p2", "thread0", "thread3", "nosuch"] {
                let (a, b) = (why::why(&whole, who, at_s), why::why(&reduced, who, at_s));
                explained += usize::from(a.is_ok());
                assert_eq!(text(a), text(b), "{who} at {at_s} s, seed {seed}");
            }
            let loaded = Record::load_reduced(&dir, &Early(why(at_s), 7)).unwrap();
            assert!(loaded.threads.len() < 100, "{}", loaded.threads.len());
            let (a, b) = (why::why(&whole, "p0", at_s), why::why(&loaded, "p0", at_s));
            assert_eq!(text(a), text(b));
        }
    }
    assert!(explained > 200, "{explained}");
}

fn text(answer: Result<why::Explanation, ReportError>) -> Result<why::Explanation, String> {
    answer.map_err(|e| e.to_string())
}

/// Reduces a record whenever it has grown by this many steps.
fn in_pieces(whole: &Record, needed: &dyn Reduction, steps: u32) -> Record {
    let mut record = Record::new(whole.manifest.clone());
    record.metric_names.clone_from(&whole.metric_names);
    record.steps.clone_from(&whole.steps);
    for first in (0..STEPS).step_by(steps as usize) {
        let is_new = |step: u32| (first..first + steps).contains(&step);
        macro_rules! add {
            ($($table:ident)*) => { $({
                let new = whole.$table.iter().filter(|row| is_new(row.step));
                record.$table.extend(new.cloned());
            })* };
        }
        add!(threads events metrics decisions spans readings virtuals);
        let samples = whole.samples.steps.iter().zip(whole.samples.samples.iter());
        for (step, row) in samples.filter(|(step, _)| is_new(**step)) {
            record.samples.steps.push(*step);
            record.samples.samples.push_row(row);
        }
        for table in [
            "threads",
            "events",
            "samples",
            "metrics",
            "decisions",
            "spans",
            "readings",
            "virtuals",
        ] {
            needed.reduce(table, &mut record);
        }
    }
    record
}

#[test]
fn a_report_tells_the_same_decisions_and_draws_the_same_times() {
    for seed in 0..6 {
        let folder = saved(&random(seed));
        let whole = Record::load(&folder.path().join("run.rec")).unwrap();
        let shown = report(&whole);
        let reduced = in_pieces(&whole, &shown, 30);
        assert_eq!(
            (reduced.end(), reduced.identities()),
            (whole.end(), whole.identities())
        );
        let answers = |record: &Record| -> Vec<why::Explanation> {
            let chosen = telling(record, crate::html::DECISIONS);
            let answer = |d: &&DecisionRow| {
                why::why(
                    record,
                    &format!("thread{}", d.thread),
                    d.at_ns as f64 * 1e-9,
                )
                .unwrap()
            };
            chosen.iter().map(answer).collect()
        };
        assert!(!answers(&whole).is_empty());
        assert_eq!(answers(&reduced), answers(&whole), "seed {seed}");
        let times = |record: &Record| {
            let mut times: BTreeMap<(u32, u32), u64> = BTreeMap::new();
            for row in &record.spans {
                *times.entry((row.thread, row.cpu)).or_default() += row.end_ns - row.start_ns;
            }
            times
        };
        assert_eq!(times(&reduced), times(&whole), "seed {seed}");
        assert!(reduced.spans.is_sorted_by_key(|row| row.step));
        // In pieces as at once: the rule of `Reduction`.
        assert!(reduced == in_pieces(&whole, &shown, STEPS), "seed {seed}");
    }
}

#[test]
fn a_long_timeline_keeps_the_share_of_each_interval() {
    let mut record = Record::empty();
    let end_ns = 1_000_000_000;
    for step in 0..200_000_u32 {
        let start_ns = u64::from(step) * 5000;
        record.spans.push(SpanRow {
            step,
            thread: 1,
            cpu: step % 2,
            start_ns,
            end_ns: start_ns + 2500,
        });
    }
    coarse::spans(&mut record, end_ns);
    assert_eq!(record.spans.len(), 2 * 4800);
    let of_first_tenth = record
        .spans
        .iter()
        .filter(|s| s.cpu == 1 && s.end_ns <= end_ns / 10);
    let sum: u64 = of_first_tenth.map(|s| s.end_ns - s.start_ns).sum();
    assert_eq!(sum, end_ns / 10 / 4);
}

#[test]
fn counts_are_added_up_and_keep_their_totals() {
    let mut record = Record::empty();
    record.reading_counts = vec!["cycles".into(), "instructions".into()];
    record.reading_metrics = vec!["ipc".into()];
    let steps = 50_000_u32;
    for step in 0..steps {
        let at_ns = u64::from(step + 1) * PERIOD_NS;
        record.steps.push(StepRow {
            at_ns,
            ..StepRow::default()
        });
        for thread in [7, 8] {
            record.readings.push(reading(step, at_ns, thread));
            record.virtuals.push(virtual_value(step, at_ns, thread));
        }
    }
    let end_ns = record.end().0;
    let totals = crate::counted::totals(&record);
    let mean = |record: &Record| {
        let rows = record.readings.iter();
        let weighted = rows.map(|r| r.metrics[0].unwrap_or(0.0) * r.running_ns as f64);
        weighted.sum::<f64>()
    };
    let before = mean(&record);
    let shown = ShownRows {
        moments: Vec::new(),
        end_ns,
        has_spans: false,
    };
    shown.reduce("readings", &mut record);
    shown.reduce("virtuals", &mut record);
    assert_eq!(record.readings.len(), 2 * 2400);
    assert_eq!(record.virtuals.len(), 2 * 2400);
    assert_eq!(
        record.virtuals.last().map(|row| row.value),
        Some(f64::from(steps - 1))
    );
    assert_eq!(crate::counted::totals(&record), totals);
    assert!((mean(&record) / before - 1.0).abs() < 1e-9);
}

fn virtual_value(step: u32, at_ns: u64, thread: u32) -> VirtualRow {
    VirtualRow {
        step,
        at_ns,
        scope: "thread".into(),
        place: "x".into(),
        thread: Some(thread),
        cpu: None,
        name: "watts".into(),
        unit: "W".into(),
        value: f64::from(step),
    }
}

fn reading(step: u32, at_ns: u64, thread: u32) -> ReadingRow {
    ReadingRow {
        step,
        start_ns: at_ns - PERIOD_NS,
        at_ns,
        pid: Some(1),
        thread: Some(thread),
        name: "x".into(),
        enabled_ns: PERIOD_NS,
        running_ns: PERIOD_NS / u64::from(1 + step % 3),
        counts: [
            Some(u64::from(step)),
            (!step.is_multiple_of(5)).then_some(3),
        ]
        .into(),
        metrics: [Some(f64::from(step % 7))].into(),
        ..ReadingRow::default()
    }
}

/// Reduction that keeps all rows of one table.
struct OnlyTable(&'static str);

impl Reduction for OnlyTable {
    fn reads(&self, table: &str) -> bool {
        table == self.0 || table == "steps"
    }

    fn reduce(&self, _: &str, _: &mut Record) {}
}

/// Makes a short record with rows in every table.
fn of_every_table() -> Record {
    let mut record = of_length(8, 3);
    record.reading_counts = vec!["cycles".into(), "instructions".into()];
    record.reading_metrics = vec!["ipc".into()];
    record.manifest.profiles = [("a.toml".into(), "[program]".into())].into();
    for step in 1..4 {
        let at_ns = u64::from(step) * PERIOD_NS;
        record.readings.push(reading(step, at_ns, 7));
        record.virtuals.push(virtual_value(step, at_ns, 7));
        let (thread, hint) = (7, Hint::of(3, 500, 1, 4));
        record.hints.push(HintRow {
            step,
            at_ns,
            thread,
            hint,
        });
        record.programs.push(ProgramRow {
            step,
            at_ns,
            info: ProgramInfo {
                id: ProgramId(step),
                name: "x".into(),
                path: Some("/bin/x".into()),
            },
        });
        record.shares.push(ShareRow {
            step,
            at_ns,
            class: "light".into(),
            ways: Some(2),
            ..ShareRow::default()
        });
        record.clocks.push(ClockRow {
            step,
            at_ns,
            cpu: Some(1),
            seen: vec![("sf".into(), 1.5)],
            ..ClockRow::default()
        });
    }
    record
}

#[test]
fn a_table_with_changed_bytes_is_refused_or_read() {
    let folder = saved(&of_every_table());
    let dir = folder.path().join("run.rec");
    let mut tables = 0;
    for name in Record::table_names() {
        let path = dir.join(format!("{name}.parquet"));
        let sound = std::fs::read(&path).unwrap();
        countersteer_fuzz::storm(&format!("table {name}"), &[&sound], 0.01, |input| {
            std::fs::write(&path, input).unwrap();
            let _ = Record::load_reduced(&dir, &OnlyTable(name));
        });
        std::fs::write(&path, sound).unwrap();
        tables += 1;
    }
    assert!(tables > 10 && Record::load(&dir).is_ok());
}
