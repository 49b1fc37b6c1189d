//! Records survive the disk, refuse what is not theirs, and replay to the last bit.

use std::fs;
use std::path::PathBuf;

use countersteer_core::driver::{DriverConfig, drive};
use countersteer_core::placement::{
    CacheClass, CacheShare, Clamp, Members, Placement, Target, Ways,
};
use countersteer_core::policy::{Needs, Policy, PolicyRng, View};
use countersteer_core::topology::GroupBy;
use countersteer_core::units::{Nanos, ProgramId};
use countersteer_report::ReportError;
use countersteer_report::record::{
    Collector, Detail, Differences, Record, ReplayEngine, compare_decisions, compare_shares,
};
use rand::SeedableRng;

use crate::synthetic::{self, FastestFirst, HYBRID};

/// A folder that goes when the test ends.
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
    let record = sample_record();
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
fn foreign_newer_and_damaged_folders_are_told_apart() {
    let scratch = Scratch::new("foreign");
    assert!(matches!(
        Record::load(&scratch.0.join("none")),
        Err(ReportError::Foreign { .. })
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
    let mut engine = ReplayEngine::new(record).unwrap();
    let config = DriverConfig {
        period: Nanos(record.manifest.period_ns),
        until: Nanos::NEVER,
    };
    let mut rng = PolicyRng::seed_from_u64(record.manifest.seed);
    drive(&mut engine, policy, &mut [], config, &mut rng).unwrap();
    let mut differences = compare_decisions(record, engine.decisions());
    compare_shares(record, engine.shares(), &mut differences);
    differences
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

/// Sends everybody anywhere once time has gone by.
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

/// Gives hints and parts of caches as well, from a moment on.
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
        let class = CacheClass {
            name: "one".into(),
            members,
            shares: vec![share],
        };
        let late = view.now > Nanos::from_millis(self.0);
        placement.caches = Some(if late { Vec::new() } else { vec![class] });
        placement
    }
}

#[test]
fn hints_and_parts_of_caches_are_kept_and_compared() {
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
    let record = collector.finish(&sample.manifest.outcome, &sample.score());
    let dir = scratch.0.join("hints.rec");
    record.save(&dir).unwrap();
    let loaded = Record::load(&dir).unwrap();
    assert_eq!(
        (&loaded.decisions, &loaded.shares),
        (&record.decisions, &record.shares)
    );
    assert_eq!(&*loaded.shares[0].members, "programs 1,4");
    assert!(replayed(&loaded, &mut Hinting(1000)).is_empty());
    let other = replayed(&loaded, &mut Hinting(2000));
    assert!(other.shares > 1 && other.elsewhere == 0, "{other}");
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
