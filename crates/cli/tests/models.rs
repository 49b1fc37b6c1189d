//! Models out of records: programs that ran alone on each core type, simulated here, against the direct way.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use countersteer_core::model::{ModelFile, Target};
use countersteer_core::profile::Profile;
use countersteer_lab::{experiment, library};
use countersteer_report::record::Record;
use countersteer_train::sample::samples;

const MACHINE: &str = "i9-12900k-8p8e";
/// One of each of several families.
const PROGRAMS: [&str; 8] = [
    "bzip2",
    "gcc",
    "lua",
    "matmul",
    "mix",
    "stockfish",
    "stream",
    "xmllint",
];
const EVENTS: &str = "llc_references,llc_misses,branches,branch_misses,l2_misses,loads,stores";

fn steer(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steer"));
    command.args(args).current_dir(dir).env("HOME", dir);
    command.output().unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The record of a program alone on a core type.
fn record(dir: &Path, program: &str, core_type: &str, events: &str) -> String {
    let workload = format!("{program}.toml");
    let profile = root().join(format!("profiles/recorded/{program}.json"));
    let text = format!(
        "title = \"one program\"\n[[program]]\nprofile = \"{}\"\nthreads = 1\n",
        profile.display()
    );
    std::fs::write(dir.join(&workload), text).unwrap();
    let name = format!("{program}.{core_type}.rec");
    let policy = format!("static:*={core_type}");
    let args = [
        "sim",
        "-m",
        MACHINE,
        "-w",
        &workload,
        "-P",
        &policy,
        "-o",
        &name,
        "--period-ms",
        "4",
        "--rounds",
        "2",
        "--count",
        events,
    ];
    let output = steer(dir, &args);
    assert!(output.status.success(), "{}", told(&output));
    name
}

fn train(dir: &Path, records: &[String]) -> Output {
    let mut args = vec!["model", "train", "-o", "models", "--from"];
    args.extend(records.iter().map(String::as_str));
    steer(dir, &args)
}

/// Mean factor of programs, each phase counting alike, by the direct way.
fn directly() -> Vec<(String, f64)> {
    let topology = Arc::clone(&experiment::machine(MACHINE).unwrap().topology);
    let shipped = library::recorded().into_iter();
    let profiles = shipped.map(|t| Profile::parse(&t.path, &t.text).unwrap());
    let wanted = profiles.filter(|p| PROGRAMS.contains(&p.name()));
    let programs: Vec<_> = wanted.map(|p| (p.name().to_owned(), Arc::new(p))).collect();
    let all = samples(&topology, &programs).unwrap();
    PROGRAMS
        .iter()
        .map(|name| {
            // The first are of behaviours alone; the last are of its windows.
            let last = all.iter().rfind(|s| s.program == *name).unwrap();
            ((*name).to_owned(), last.speed_up())
        })
        .collect()
}

#[test]
fn records_of_programs_alone_train_the_model_that_the_direct_way_does() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut records = Vec::new();
    for program in PROGRAMS {
        for core_type in ["golden-cove", "gracemont"] {
            records.push(record(dir, program, core_type, EVENTS));
        }
    }
    let output = train(dir, &records);
    assert!(output.status.success(), "{}", told(&output));
    for core_type in ["golden-cove", "gracemont"] {
        let path = dir.join(format!("models/{core_type}/{MACHINE}.sf.toml"));
        let text = std::fs::read_to_string(path).unwrap();
        let file = ModelFile::parse("model", &text).unwrap();
        assert_eq!((file.target, &*file.machine), (Target::Sf, MACHINE));
        assert!(
            file.trained_on.contains("out of 16 records"),
            "{}",
            file.trained_on
        );
        // Nothing is read that was not counted.
        let counted = |name: &str| {
            EVENTS
                .split(',')
                .chain(["cycles", "instructions"])
                .any(|e| e == name)
        };
        assert!(
            file.factor
                .features
                .iter()
                .all(|f| counted(&f.above) && counted(&f.below))
        );
        assert!(file.constant.factor > 1.0 && file.constant.factor < 2.5);
    }
    // The factors that records show are those of the simulator's model: but for noise of counters and costs of sampling.
    let passes = |program: &str, core_type: &str| {
        let record = Record::load(&dir.join(format!("{program}.{core_type}.rec"))).unwrap();
        let own = record
            .manifest
            .outcome
            .programs
            .iter()
            .find(|p| p.name == program)
            .unwrap();
        own.completions_s[1]
    };
    for (program, factor) in directly() {
        let seen = passes(&program, "gracemont") / passes(&program, "golden-cove");
        println!("{program}: {seen:.3} in records, last phase {factor:.3} directly");
        assert!(
            (seen / factor - 1.0).abs() < 0.25,
            "{program}: {seen} {factor}"
        );
    }
}

#[test]
fn what_records_lack_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let fast = record(dir, "mix", "golden-cove", EVENTS);
    let output = train(dir, std::slice::from_ref(&fast));
    assert!(!output.status.success());
    let why = told(&output);
    assert!(why.contains("mix: it has no run on gracemont"), "{why}");
    assert!(why.contains("taskset"), "{why}");
    let slow = record(dir, "mix", "gracemont", EVENTS);
    let why = told(&train(dir, &[fast.clone(), slow]));
    assert!(why.contains("too few"), "{why}");
    let other = dir.join("other.rec");
    let args = [
        "sim",
        "-m",
        "quickia-2b-2s",
        "-w",
        "mix.toml",
        "--rounds",
        "1",
        "-o",
        "other.rec",
    ];
    assert!(steer(dir, &args).status.success());
    let why = told(&train(dir, &[fast, other.display().to_string()]));
    assert!(why.contains("train on records of one machine"), "{why}");
}
