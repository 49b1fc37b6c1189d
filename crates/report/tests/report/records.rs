//! Tests of records: they survive the disk, foreign or damaged files are refused, and a replay is identical bit by bit.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use countersteer_model::counters::{
    BoundMetric, MetricGroup, Operand, Owner, PlannedEvent, PlannedSet, Sample, Samples, SetPlan,
};
use countersteer_model::driver::{DriverConfig, Recorder, drive};
use countersteer_model::engine::{Engine, ThreadEventKind};
use countersteer_model::machine::Machine;
use countersteer_model::placement::{
    CacheShare, Clamp, ClockLimit, Members, Placement, Reason, Target, WayClass, Ways,
};
use countersteer_model::policy::{Needs, Policy, PolicyRng, View};
use countersteer_model::sample::Event;
use countersteer_model::topology::{GroupBy, Topology};
use countersteer_model::units::{CoreTypeId, CpuId, Nanos, ProgramId};
use countersteer_report::ReportError;
use countersteer_report::record::{
    Collector, CountingRecorder, Detail, Differences, LiveCollector, Record, ReplayEngine,
    ThreadRow, compare_decisions,
};
use rand::SeedableRng;

use crate::synthetic::{self, FastestFirst, HYBRID};

/// Folder that is removed at the end of the test.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("countersteer-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn sample_record() -> Record {
    synthetic::record(HYBRID, "fastest-first", 10, 1, Detail::Everything)
}

fn saved(scratch: &Scratch) -> PathBuf {
    let dir = scratch.0.join("run.rec");
    sample_record().save(&dir).unwrap();
    dir
}

#[test]
fn a_record_comes_back_from_disk_as_it_was() {
    let scratch = Scratch::new("round-trip");
    let mut record = sample_record();
    // A processor-specific event is stored under the string that encodes it.
    let own = Event::named("uops_retired.slots").unwrap();
    record.samples.samples.set(0, own, 3.0);
    let dir = scratch.0.join("run.rec");
    record.save(&dir).unwrap();
    let mut back = Record::load(&dir).unwrap();
    back.manifest.tables.clear();
    assert!(back == record);
    assert_eq!(
        fs::read_dir(&scratch.0).unwrap().count(),
        1,
        "nothing temporary stays"
    );
}

#[test]
fn the_same_run_saves_the_same_bytes_and_replaces_the_old_record() {
    let scratch = Scratch::new("same-bytes");
    let dir = saved(&scratch);
    let bytes = |dir: &PathBuf| {
        let mut files: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|f| f.unwrap().path())
            .collect();
        files.sort();
        files
            .into_iter()
            .map(|f| fs::read(f).unwrap())
            .collect::<Vec<_>>()
    };
    let first = bytes(&dir);
    sample_record().save(&dir).unwrap();
    assert!(first == bytes(&dir));
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1);
}

#[test]
fn scores_only_keep_the_outcome() {
    let scratch = Scratch::new("scores");
    let record = synthetic::record(HYBRID, "linux", 10, 1, Detail::Scores);
    let dir = scratch.0.join("run.rec");
    record.save(&dir).unwrap();
    let back = Record::load(&dir).unwrap();
    assert!(back.steps.is_empty() && back.spans.is_empty());
    assert!(back.score() == record.score());
}

#[test]
fn a_folder_that_is_no_record_is_left_alone() {
    let scratch = Scratch::new("taken");
    fs::write(scratch.0.join("thesis.txt"), "ten years").unwrap();
    let error = sample_record().save(&scratch.0).unwrap_err();
    assert!(matches!(error, ReportError::Taken { .. }), "{error}");
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1);
}

#[test]
fn a_record_that_cannot_be_written_leaves_nothing() {
    let scratch = Scratch::new("unwritable");
    let dir = scratch.0.join("missing").join("run.rec");
    let error = sample_record().save(&dir).unwrap_err().to_string();
    assert!(
        error.contains("run.rec") && error.contains("make the folder"),
        "{error}"
    );
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0);
}

#[test]
fn foreign_newer_and_damaged_folders_are_distinguished() {
    let scratch = Scratch::new("foreign");
    assert!(matches!(
        Record::load(&scratch.0.join("none")),
        Err(ReportError::Absent { .. })
    ));
    assert!(matches!(
        Record::load(&scratch.0),
        Err(ReportError::Foreign { .. })
    ));
    let dir = saved(&scratch);
    let manifest = dir.join("manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(
        &manifest,
        text.replace("countersteer.record/1", "countersteer.record/9"),
    )
    .unwrap();
    assert!(matches!(Record::load(&dir), Err(ReportError::Newer { .. })));
    fs::write(
        &manifest,
        text.replace("countersteer.record/1", "something else"),
    )
    .unwrap();
    assert!(matches!(
        Record::load(&dir),
        Err(ReportError::Foreign { .. })
    ));
    fs::write(&manifest, &text[..text.len() / 2]).unwrap();
    assert!(matches!(
        Record::load(&dir),
        Err(ReportError::Damaged { .. })
    ));
    fs::write(&manifest, &text).unwrap();
    let spans = dir.join("spans.parquet");
    let bytes = fs::read(&spans).unwrap();
    fs::write(&spans, &bytes[..bytes.len() / 2]).unwrap();
    assert!(matches!(
        Record::load(&dir),
        Err(ReportError::Damaged { .. })
    ));
    fs::remove_file(&spans).unwrap();
    let error = Record::load(&dir).unwrap_err().to_string();
    assert!(
        error.contains("spans.parquet") && error.contains("missing"),
        "{error}"
    );
}

fn replayed(record: &Record, policy: &mut dyn Policy) -> Differences {
    played(ReplayEngine::new(record).unwrap(), record, policy)
}

fn played(mut engine: ReplayEngine<'_>, record: &Record, policy: &mut dyn Policy) -> Differences {
    let config = DriverConfig {
        period: Nanos(record.manifest.period_ns),
        until: Nanos::NEVER,
    };
    let mut rng = PolicyRng::seed_from_u64(record.manifest.seed);
    drive(&mut engine, policy, &mut [], config, &mut rng).unwrap();
    engine.differences().unwrap()
}

#[test]
fn the_same_policy_decides_the_same_in_a_replay_from_disk() {
    let scratch = Scratch::new("replay");
    let record = Record::load(&saved(&scratch)).unwrap();
    let differences = replayed(&record, &mut FastestFirst);
    assert!(
        differences.is_empty() && differences.same > 1000,
        "{differences}"
    );
    assert!(differences.to_string().starts_with("all "));
}

/// Places one thread anywhere after some time.
struct Contrary;

impl Policy for Contrary {
    fn needs(&self) -> &Needs {
        FastestFirst.needs()
    }

    fn decide(&mut self, view: &mut View<'_>, rng: &mut PolicyRng) -> Placement {
        let late = view.now > Nanos::from_millis(2000);
        let mut placement = FastestFirst.decide(view, rng);
        if late {
            placement.threads[3].target = Target::Anywhere;
        }
        placement
    }
}

#[test]
fn another_policy_differs_and_the_first_difference_is_shown() {
    let differences = replayed(&sample_record(), &mut Contrary);
    let first = differences.first.as_ref().unwrap();
    assert!((first.at_s - 2.1).abs() < 0.011, "{differences}");
    assert!(
        differences.to_string().contains("anywhere (CPUs 0-15)"),
        "{differences}"
    );
    assert!(differences.elsewhere > 0 && differences.same > 100);
}

/// Also sets hints and cache partitions, from some time on.
struct Hinting(u64);

impl Policy for Hinting {
    fn needs(&self) -> &Needs {
        FastestFirst.needs()
    }

    fn decide(&mut self, view: &mut View<'_>, rng: &mut PolicyRng) -> Placement {
        let mut placement = FastestFirst.decide(view, rng);
        placement
            .threads
            .iter_mut()
            .for_each(|t| t.clamp = Some(Clamp::at_most(500)));
        let llc = view.topology.groups_by(GroupBy::Llc)[0].id;
        let share = CacheShare {
            llc,
            ways: Some(Ways {
                first: None,
                count: 3,
            }),
            bandwidth: Some(50),
        };
        let members = Members::Programs(vec![ProgramId(1), ProgramId(4)]);
        let class = WayClass {
            name: "one".into(),
            members,
            shares: vec![share],
        };
        let late = view.now > Nanos::from_millis(self.0);
        placement.caches = Some(if late { Vec::new() } else { vec![class] });
        let limit = ClockLimit {
            cpu: CpuId(3),
            most_mhz: 800,
            reason: Reason::rule("slow").saw("ipc", Some(0.5)),
        };
        placement.clocks = Some(if late { Vec::new() } else { vec![limit] });
        placement
    }
}

#[test]
fn hints_and_cache_partitions_are_kept_and_compared() {
    let scratch = Scratch::new("hints");
    let sample = sample_record();
    let mut engine = ReplayEngine::new(&sample).unwrap();
    let mut collector = Collector::new(sample.manifest.clone(), Detail::NoSpans);
    let config = DriverConfig {
        period: Nanos(sample.manifest.period_ns),
        until: Nanos::NEVER,
    };
    drive(
        &mut engine,
        &mut Hinting(1000),
        &mut [&mut collector],
        config,
        &mut PolicyRng::seed_from_u64(1),
    )
    .unwrap();
    let record = collector.finish(&sample.manifest.outcome);
    let dir = scratch.0.join("hints.rec");
    record.save(&dir).unwrap();
    let loaded = Record::load(&dir).unwrap();
    assert_eq!(
        (&loaded.decisions, &loaded.shares, &loaded.clocks),
        (&record.decisions, &record.shares, &record.clocks)
    );
    let limited = &loaded.clocks[0];
    assert_eq!(
        (limited.cpu, limited.most_mhz, &*limited.rule),
        (Some(3), 800, "slow")
    );
    let removed: Vec<_> = loaded
        .clocks
        .iter()
        .filter(|row| row.cpu.is_none())
        .collect();
    assert_eq!(
        removed.len(),
        1,
        "the end of all limits is a row, and then nothing"
    );
    assert_eq!(&*loaded.shares[0].members, "programs 1,4");
    assert!(replayed(&loaded, &mut Hinting(1000)).is_empty());
    let other = replayed(&loaded, &mut Hinting(2000));
    assert!(other.shares > 1 && other.elsewhere == 0, "{other}");
    assert!(other.clocks > 1 && other.to_string().contains("clocks are limited otherwise"));
    assert!(
        other
            .to_string()
            .contains("one (programs 1,4): llc0 ways 3 bandwidth % 50"),
        "{other}"
    );
    let without = replayed(&loaded, &mut FastestFirst);
    assert!(
        without.same == 0 && without.shares == record.steps.iter().filter(|s| s.decided).count(),
        "{without}"
    );
    let nothing = compare_decisions(&loaded, &[]);
    assert!(
        nothing.to_string().contains("capacity 0 to 500"),
        "{nothing}"
    );
}

#[test]
fn a_record_with_changed_bytes_is_refused_or_read() {
    let scratch = Scratch::new("changed");
    let place = saved(&scratch);
    for entry in fs::read_dir(&place).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let sound = fs::read(&path).unwrap();
        countersteer_fuzz::storm(&format!("record {name}"), &[&sound], 0.005, |input| {
            fs::write(&path, input).unwrap();
            if let Ok(record) = Record::load(&place) {
                let _ = (record.topology(), record.profiles(), record.score());
            }
        });
        fs::write(&path, sound).unwrap();
    }
}

/// Saves a record and returns the result of reading it.
fn read_back(name: &str, record: &Record) -> Result<Record, ReportError> {
    let scratch = Scratch::new(name);
    let dir = scratch.0.join("run.rec");
    record.save(&dir).unwrap();
    Record::load(&dir)
}

#[test]
fn rows_out_of_order_or_of_no_observation_are_damage() {
    type Change = (&'static str, fn(&mut Record, u32));
    let changes: [Change; 6] = [
        ("threads", |r, step| r.threads[0].step = step),
        ("events", |r, step| r.events[0].step = step),
        ("samples", |r, step| r.samples.steps[0] = step),
        ("metrics", |r, step| r.metrics[0].step = step),
        ("decisions", |r, step| r.decisions[0].step = step),
        ("spans", |r, step| r.spans[0].step = step),
    ];
    let record = sample_record();
    let last = record.steps.len() as u32 - 1;
    for (table, change) in changes {
        for step in [last, last + 1] {
            let mut changed = record.clone();
            change(&mut changed, step);
            let error = read_back("order", &changed).unwrap_err().to_string();
            assert!(error.contains(&format!("{table}.parquet")), "{error}");
        }
    }
    let mut beyond = record;
    beyond.spans.last_mut().unwrap().step = last + 1;
    assert!(matches!(
        read_back("beyond", &beyond),
        Err(ReportError::Damaged { .. })
    ));
}

#[test]
fn a_table_with_fewer_or_more_rows_than_the_manifest_says_is_damage() {
    let scratch = Scratch::new("short");
    let dir = saved(&scratch);
    let mut shorter = sample_record();
    let last = *shorter.samples.steps.last().unwrap();
    shorter.samples.keep_steps(last);
    let other = scratch.0.join("shorter.rec");
    shorter.save(&other).unwrap();
    let (long, short) = (dir.join("samples.parquet"), other.join("samples.parquet"));
    let whole = fs::read(&long).unwrap();
    fs::copy(&short, &long).unwrap();
    fs::write(&short, whole).unwrap();
    for place in [&dir, &other] {
        let error = Record::load(place).unwrap_err().to_string();
        assert!(
            error.contains("samples.parquet") && error.contains("the manifest says"),
            "{error}"
        );
    }
}

#[test]
fn decisions_are_the_same_only_with_the_same_reasons_to_the_last_bit() {
    type Change = (
        &'static str,
        fn(&mut countersteer_report::record::DecisionRow),
    );
    let changes: [Change; 8] = [
        ("seen", |d| {
            d.seen[0].1 = f64::from_bits(d.seen[0].1.to_bits() + 1)
        }),
        ("seen, name", |d| d.seen[0].0 = "other".into()),
        ("alternatives", |d| {
            d.alternatives[0].1 = f64::from_bits(d.alternatives[0].1.to_bits() + 1);
        }),
        ("alternatives, fewer", |d| d.alternatives.truncate(1)),
        ("rule", |d| d.rule = "other".into()),
        ("unit", |d| d.unit = "other".into()),
        ("weight", |d| d.weight = Some(3)),
        ("clamp", |d| d.clamp_most = Some(3)),
    ];
    let record = sample_record();
    assert!(compare_decisions(&record, &record.decisions).is_empty());
    let with_reasons = |d: &&countersteer_report::record::DecisionRow| {
        !d.seen.is_empty() && d.alternatives.len() > 1
    };
    let number = record
        .decisions
        .iter()
        .position(|d| with_reasons(&d))
        .unwrap();
    for (what, change) in changes {
        let mut decisions = record.decisions.clone();
        change(&mut decisions[number]);
        let differences = compare_decisions(&record, &decisions);
        assert_eq!(differences.same, decisions.len() - 1, "{what}");
        assert_eq!(differences.elsewhere, 0, "{what}");
        let first = differences.first.unwrap();
        assert_eq!(first.step, decisions[number].step, "{what}");
    }
}

/// Replays a record's observations to its policy, and records the run with another recorder.
fn again(record: &Record, recorder: &mut dyn Recorder) {
    let mut engine = ReplayEngine::new(record).unwrap();
    let config = DriverConfig {
        period: Nanos(record.manifest.period_ns),
        until: Nanos::NEVER,
    };
    let mut rng = PolicyRng::seed_from_u64(record.manifest.seed);
    drive(
        &mut engine,
        &mut FastestFirst,
        &mut [recorder],
        config,
        &mut rng,
    )
    .unwrap();
}

#[test]
fn a_live_record_is_what_a_collected_one_is() {
    let scratch = Scratch::new("live");
    let record = sample_record();
    let (live, collected) = (scratch.0.join("live.rec"), scratch.0.join("collected.rec"));
    let mut one = Collector::new(record.manifest.clone(), Detail::Everything);
    again(&record, &mut one);
    one.finish(&record.manifest.outcome)
        .save(&collected)
        .unwrap();
    let mut other =
        LiveCollector::begin(&live, record.manifest.clone(), Detail::Everything).unwrap();
    assert!(Record::load(&live).unwrap().manifest.unfinished);
    again(&record, &mut other);
    other
        .finish(&record.manifest.outcome, BTreeMap::new(), None)
        .unwrap();
    let (live, collected) = (
        Record::load(&live).unwrap(),
        Record::load(&collected).unwrap(),
    );
    assert!(live == collected && live.decisions.len() > 1000);
    assert_eq!(
        fs::read_dir(&scratch.0).unwrap().count(),
        2,
        "nothing temporary stays"
    );
}

#[test]
fn a_live_record_that_is_never_finished_has_all_but_its_last_step() {
    let scratch = Scratch::new("live-killed");
    let record = sample_record();
    let dir = scratch.0.join("live.rec");
    let mut live = LiveCollector::begin(&dir, record.manifest.clone(), Detail::Everything).unwrap();
    again(&record, &mut live);
    drop(live);
    let seen = Record::load(&dir).unwrap();
    assert!(seen.manifest.unfinished);
    let steps = record.steps.len() - 1;
    assert_eq!(seen.steps.len(), steps);
    let decided = |r: &Record| {
        (r.decisions.iter())
            .filter(|d| (d.step as usize) < steps)
            .count()
    };
    assert_eq!(seen.decisions.len(), decided(&record));
    assert!(replayed(&seen, &mut FastestFirst).is_empty());
}

#[test]
fn a_live_record_that_cannot_be_written_says_so_once_and_the_run_goes_on() {
    let scratch = Scratch::new("live-lost");
    let record = sample_record();
    let dir = scratch.0.join("live.rec");
    let mut live = LiveCollector::begin(&dir, record.manifest.clone(), Detail::Everything).unwrap();
    fs::remove_dir_all(&dir).unwrap();
    let mut failures = Vec::new();
    // Waits until the writing thread has tried.
    for _ in 0..1000 {
        again(&record, &mut live);
        failures.extend(live.trouble());
        if !failures.is_empty() {
            break;
        }
    }
    again(&record, &mut live);
    failures.extend(live.trouble());
    assert!(
        failures.len() == 1 && failures[0].contains("cannot write"),
        "{failures:?}"
    );
    assert!(
        live.finish(&record.manifest.outcome, BTreeMap::new(), None)
            .is_err()
    );
}

#[test]
fn what_is_counted_is_on_disk_by_period_and_nothing_is_complained_of() {
    let scratch = Scratch::new("counting");
    let dir = scratch.0.join("counted.rec");
    let machine = Machine::parse("machine.toml", HYBRID).unwrap();
    let topology = Topology::new(&machine);
    let os_cpus: Vec<CpuId> = (0..topology.cpus.len()).map(CpuId::from_index).collect();
    let event = PlannedEvent {
        name: "instructions".into(),
        unit: String::new(),
        scale: 1.0,
        event: Some(Event::Instructions),
    };
    let set = PlannedSet {
        events: vec![event],
    };
    let formulas = "prose = \"\"\n\
        [[metric]]\nname = \"instructions\"\nformula = \"instructions\"\nunit = \"\"\nprose = \"\"\n\
        [[metric]]\nname = \"speed\"\nformula = \"instructions / seconds\"\nunit = \"\"\nprose = \"\"\n";
    let metrics = MetricGroup::parse("speed.toml", formulas).unwrap();
    let bound = |metric| {
        let operands = [Operand::Event(0), Operand::Seconds];
        BoundMetric::new(metric, 0, &set, operands.into()).unwrap()
    };
    let metrics = metrics.iter().map(bound).collect();
    let plan = SetPlan::new(vec![set.clone()], None).unwrap();
    let sets = plan.event_sets();
    let manifest = sample_record().manifest;
    let core_types = vec!["any".to_owned()];
    let mut recorder = CountingRecorder::begin(
        &dir,
        manifest,
        (topology, &os_cpus),
        (plan, metrics),
        core_types,
    )
    .unwrap();
    let owner = Owner::Thread { pid: 41, tid: 42 };
    for period in 1..=2u64 {
        let mut samples = Samples::by_sets(sets.clone());
        let row = Sample {
            start: Nanos::from_millis(period * 100 - 100),
            end: Nanos::from_millis(period * 100),
            enabled: Nanos::from_millis(50),
            running: Nanos::from_millis(50),
            present: 1,
            last: period == 2,
            ..Sample::new(owner, Some(CpuId(1)), CoreTypeId(0), 0)
        };
        samples.push(row, [(period * 1_000) as f64]);
        let at = Nanos::from_millis(period * 100);
        let outside = |_: &str, _: &Sample| None;
        recorder.period(
            Nanos::ZERO,
            at,
            period == 2,
            &samples,
            |_| "sorter",
            &outside,
        );
        assert_eq!(recorder.done(), None);
    }
    recorder.finish(Nanos::from_millis(200)).unwrap();
    let record = Record::load(&dir).unwrap();
    let speeds: Vec<_> = record.readings.iter().map(|r| &*r.metrics).collect();
    assert_eq!(
        speeds,
        [[Some(2e4)], [Some(4e4)]],
        "a count's name is the count's"
    );
    let rows = record.readings.iter();
    let counted: Vec<_> = rows.map(|r| (r.step, r.counts[0], r.last)).collect();
    assert_eq!(counted, [(0, Some(1_000), false), (1, Some(2_000), true)]);
    let kinds: Vec<_> = record.events.iter().map(|e| (e.step, e.kind)).collect();
    assert_eq!(
        kinds,
        [(0, ThreadEventKind::New), (1, ThreadEventKind::Exit)]
    );
    let samples = record.samples.samples.iter();
    let instructions: Vec<_> = samples.map(|s| s.counts.get(Event::Instructions)).collect();
    assert_eq!(instructions, [Some(1e3), Some(2e3)]);
}

#[test]
fn a_record_that_is_read_step_by_step_is_replayed_as_the_whole_one() {
    let scratch = Scratch::new("stream");
    let mut record = sample_record();
    // More rows than are read at once and kept: the threads of many other programs, which sleep.
    let sleepers = record.threads[0].clone();
    let threads = std::mem::take(&mut record.threads);
    for rows in threads.chunk_by(|a, b| a.step == b.step) {
        record.threads.extend_from_slice(rows);
        record.threads.extend((1000..1800).map(|thread| ThreadRow {
            step: rows[0].step,
            at_ns: rows[0].at_ns,
            thread,
            runnable: false,
            ..sleepers.clone()
        }));
    }
    assert!(record.threads.len() > 150_000, "{}", record.threads.len());
    let dir = scratch.0.join("run.rec");
    record.save(&dir).unwrap();
    let in_memory = replayed(&record, &mut FastestFirst);
    let engine = ReplayEngine::open(&dir).unwrap();
    let streamed = played(engine, &record, &mut FastestFirst);
    assert_eq!(streamed, in_memory);
    assert!(streamed.same > 1000 && streamed.recorded == record.decisions.len());
    // Rows that are missing are noticed, as they are when all is read at once.
    let text = fs::read_to_string(dir.join("manifest.json")).unwrap();
    let count = format!("\"events\": {}", record.events.len());
    assert!(text.contains(&count));
    fs::write(
        dir.join("manifest.json"),
        text.replace(&count, "\"events\": 7"),
    )
    .unwrap();
    let mut engine = ReplayEngine::open(&dir).unwrap();
    let watch = Default::default();
    let failed = (0..record.steps.len()).find_map(|_| engine.observe(&watch, Nanos(0)).err());
    let error = failed.unwrap().to_string();
    assert!(
        error.contains("events.parquet") && error.contains("manifest says 7"),
        "{error}"
    );
}
