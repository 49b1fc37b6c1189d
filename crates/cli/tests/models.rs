//! Models from records of programs alone on each core type, simulated here, compared with direct training.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use countersteer_lab::{experiment, library};
use countersteer_model::machine::Machine;
use countersteer_model::models::{ModelFile, Target};
use countersteer_model::profile::Profile;
use countersteer_report::record::Record;
use countersteer_train::rows::rows;

const MACHINE: &str = "i9-12900k-8p8e";
/// Default folder of trained models.
const OWN: &str = "data/countersteer/models";
/// One program from each of several families.
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
    // Keeps sentences on one line.
    command.env("COLUMNS", "1000");
    command.args(args).current_dir(dir).env("HOME", dir);
    command.env("XDG_DATA_HOME", dir.join("data"));
    command.output().unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Records a program alone on a core type.
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
        "-M",
        MACHINE,
        "-w",
        &workload,
        "-P",
        &policy,
        "-o",
        &name,
        "--interval",
        "4ms",
        "--rounds",
        "2",
        "--count",
        events,
    ];
    let output = steer(dir, &args);
    assert!(output.status.success(), "{}", errors(&output));
    name
}

fn train(dir: &Path, records: &[String]) -> Output {
    let mut args = vec!["model", "train", "--from"];
    args.extend(records.iter().map(String::as_str));
    steer(dir, &args)
}

/// Mean factor of each program by direct simulation; each phase has equal weight.
fn directly() -> Vec<(String, f64)> {
    let topology = Arc::clone(&experiment::machine(MACHINE).unwrap().topology);
    let shipped = library::recorded().into_iter();
    let profiles = shipped.map(|t| Profile::parse(&t.path, &t.text).unwrap());
    let wanted = profiles.filter(|p| PROGRAMS.contains(&p.name()));
    let programs: Vec<_> = wanted.map(|p| (p.name().to_owned(), Arc::new(p))).collect();
    let all = rows(&topology, &programs).unwrap();
    PROGRAMS
        .iter()
        .map(|name| {
            // The first samples are of single behaviours; the last one is of the program's windows.
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
    assert!(output.status.success(), "{}", errors(&output));
    for core_type in ["golden-cove", "gracemont"] {
        let path = dir.join(format!("{OWN}/{core_type}/{MACHINE}.sf.toml"));
        let text = std::fs::read_to_string(path).unwrap();
        let file = ModelFile::parse("model", &text).unwrap();
        assert_eq!((file.target, &*file.machine), (Target::Sf, MACHINE));
        assert!(
            file.trained_on.contains("out of 16 records"),
            "{}",
            file.trained_on
        );
        // Models must only read counted events.
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
                .flat_map(|f| f.ratio.split(" / "))
                .all(counted)
        );
        assert!(file.constant.factor > 1.0 && file.constant.factor < 2.5);
    }
    // The records' factors equal those of the simulator's model, except for counter noise and sampling costs.
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
    policies_use_them(dir);
}

/// Factors that `hsf` received in a simulation, with a record in the given folder.
fn shown(dir: &Path, name: &str, machine: &str) -> Vec<f64> {
    let args = [
        "sim",
        "-M",
        machine,
        "-w",
        "unequal-cores",
        "-P",
        "hsf:sf=model",
    ];
    let output = steer(dir, &[&args[..], &["--rounds", "1", "-o", name]].concat());
    assert!(output.status.success(), "{}", errors(&output));
    let record = Record::load(&dir.join(name)).unwrap();
    let column = record
        .metric_names
        .iter()
        .position(|n| &**n == "sf")
        .unwrap();
    let values = record.metrics.iter().filter_map(|row| row.values[column]);
    values.collect()
}

/// Policies see newly trained models instead of the shipped ones, in every later use of the experiment.
fn policies_use_them(dir: &Path) {
    let own = dir.join(format!("{OWN}/golden-cove/{MACHINE}.sf.toml"));
    let listed = String::from_utf8(steer(dir, &["model", "list"]).stdout).unwrap();
    assert!(listed.contains(&own.display().to_string()), "{listed}");
    let with = shown(dir, "with.rec", MACHINE);
    // Without the models, replays of the record decide the same, and new simulations differ.
    std::fs::rename(dir.join("data"), dir.join("away")).unwrap();
    let replayed = steer(dir, &["replay", "with.rec"]);
    assert!(replayed.status.success(), "{}", errors(&replayed));
    let without = shown(dir, "without.rec", MACHINE);
    std::fs::rename(dir.join("away"), dir.join("data")).unwrap();
    let apart = with.iter().zip(&without).map(|(a, b)| (a / b - 1.0).abs());
    let apart = apart.sum::<f64>() / with.len().min(without.len()) as f64;
    assert!(with.len() > 50 && apart > 0.01, "{} {apart}", with.len());
    // Other machines do not change.
    let said = errors(&steer(
        dir,
        &[
            "sim",
            "-M",
            "core2-quad",
            "-w",
            "unequal-cores",
            "--rounds",
            "1",
        ],
    ));
    assert!(!said.contains("with the model"), "{said}");
}

#[test]
fn damaged_models_are_refused_with_file_and_line() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let folder = dir.join(OWN).join("golden-cove");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("mine.sf.toml");
    let path = format!("models/golden-cove/{MACHINE}.sf.toml");
    let sound = std::fs::read_to_string(root().join(path)).unwrap();
    let simulated = || {
        let output = steer(
            dir,
            &["sim", "-M", MACHINE, "-w", "unequal-cores", "--rounds", "1"],
        );
        (output.status.code(), errors(&output))
    };
    let line = 1 + sound.lines().position(|l| l.starts_with("base")).unwrap();
    let at = |line: usize| format!("mine.sf.toml:{line}: ");
    for (text, wanted) in [
        (sound.replacen("base = 1.", "base = inf #", 1), at(line)),
        (sound.replace("golden-cove", "golden cove"), at(3)),
        (sound[..40].to_owned(), at(2)),
        ("x = 1\n".repeat(1_000_000), "no file of this kind".into()),
        (
            sound.replace("core_type = \"golden-cove\"", "core_type = \"zen4\""),
            "move it to".into(),
        ),
    ] {
        std::fs::write(&file, text).unwrap();
        let (code, why) = simulated();
        assert_eq!(code, Some(3), "{why}");
        assert!(
            why.contains(&wanted) && why.contains("mine.sf.toml"),
            "{why}"
        );
    }
    std::fs::write(&file, [0xff, 0xfe]).unwrap();
    assert!(simulated().1.contains("no text file"));
    std::fs::remove_file(&file).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(&file)
            .status()
            .unwrap()
            .success()
    );
    assert!(simulated().1.contains("it is a named pipe"));
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, sound).unwrap();
    let (code, said) = simulated();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("with the model"), "{said}");
}

/// The local machine, described as one with two core types.
#[test]
fn live_engines_have_own_models_too() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let here = String::from_utf8(steer(dir, &["machine", "detect"]).stdout).unwrap();
    let mut machine = Machine::parse("here", &here).unwrap();
    let big = &mut machine.core_type[0];
    let mut small = big.clone();
    small.name = "small".into();
    small.capacity = 512;
    let big = big.name.clone();
    // One core of the missing type.
    let mut cores = machine.cores[0].clone();
    cores.core_type = small.name.clone();
    let first = machine.cores[0].split(&small).unwrap()[0].clone();
    cores.cpus = first.into_iter().collect();
    machine.cores[0].cpus = machine.cores[0]
        .cpus
        .iter()
        .filter(|c| !cores.cpus.contains(*c))
        .collect();
    if machine.cores[0].cpus.is_empty() {
        eprintln!("skipped: this machine has one core");
        return;
    }
    machine.cores.push(cores);
    machine.core_type.push(small);
    std::fs::write(dir.join("two.toml"), machine.to_toml().unwrap()).unwrap();
    let path = format!("models/golden-cove/{MACHINE}.sf.toml");
    let mut model =
        ModelFile::parse(&path, &std::fs::read_to_string(root().join(&path)).unwrap()).unwrap();
    (model.core_type, model.machine) = (big.clone(), machine.name.clone());
    (model.fast, model.slow, model.clock_ratio) = (big.clone(), "small".into(), 1.0);
    std::fs::create_dir_all(dir.join(OWN).join(&big)).unwrap();
    std::fs::write(
        dir.join(OWN).join(&big).join("mine.toml"),
        model.to_toml().unwrap(),
    )
    .unwrap();
    let run = [
        "run",
        "--machine",
        "two.toml",
        "-P",
        "hsf",
        "-o",
        "live.rec",
        "--",
        "sleep",
        "0.3",
    ];
    let output = steer(dir, &run);
    assert!(output.status.success(), "{}", errors(&output));
    assert!(errors(&output).contains("mine.toml"), "{}", errors(&output));
    let topology = Record::load(&dir.join("live.rec"))
        .unwrap()
        .topology()
        .unwrap();
    let known = topology.models[0].sf.as_ref().unwrap();
    assert_eq!(known.constant, model.constant);
}

/// Records a run of two copies of each program under a policy that moves them between the core types.
fn moved(dir: &Path, seconds: &str) -> String {
    let programs = PROGRAMS.map(|program| {
        let path = root().join(format!("profiles/recorded/{program}.json"));
        let path = path.display();
        format!("[[program]]\nprofile = \"{path}\"\nthreads = 1\ncopies = 2\n")
    });
    std::fs::write(dir.join("all.toml"), programs.concat()).unwrap();
    let name = format!("moved-{seconds}.rec");
    let run = ["sim", "-M", MACHINE, "-w", "all.toml", "-P", "aarr", "-i"];
    let length = ["20ms", "--max-seconds", seconds, "--rounds", "1000"];
    let output = ["--count", EVENTS, "-o", &name];
    let output = steer(dir, &[&run[..], &length, &output].concat());
    assert!(output.status.success(), "{}", errors(&output));
    name
}

#[test]
fn moves_of_a_run_train_a_model_whose_error_stands_beside_the_constants() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let short = moved(dir, "0.4");
    let why = errors(&train(dir, &[short]));
    assert!(why.contains("it takes 30 moves"), "{why}");
    let long = moved(dir, "40");
    let output = train(dir, &[long]);
    let said = errors(&output);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("error ") && said.contains(" (constant "),
        "{said}"
    );
    let path = dir.join(format!("{OWN}/golden-cove/{MACHINE}.sf.toml"));
    let file = ModelFile::parse("model", &std::fs::read_to_string(path).unwrap()).unwrap();
    let trained_on = &file.trained_on;
    assert!(trained_on.contains("of which paid"), "{trained_on}");
    assert!(file.judged.mape < file.judged.constant_mape, "{said}");
    // Co-runners change the factors of moves, but not much.
    let direct = directly();
    let mean = direct.iter().map(|d| d.1).sum::<f64>() / direct.len() as f64;
    let constant = file.constant.factor;
    assert!((constant / mean - 1.0).abs() < 0.25, "{constant} {mean}");
}

#[test]
fn what_records_lack_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let fast = record(dir, "mix", "golden-cove", EVENTS);
    let output = train(dir, std::slice::from_ref(&fast));
    assert!(!output.status.success());
    let why = errors(&output);
    assert!(why.contains("mix: it has no run on gracemont"), "{why}");
    assert!(why.contains("taskset"), "{why}");
    let slow = record(dir, "mix", "gracemont", EVENTS);
    let why = errors(&train(dir, &[fast.clone(), slow]));
    assert!(why.contains("too few"), "{why}");
    let other = dir.join("other.rec");
    let args = [
        "sim",
        "-M",
        "quickia-2b-2s",
        "-w",
        "mix.toml",
        "--rounds",
        "1",
        "-o",
        "other.rec",
    ];
    assert!(steer(dir, &args).status.success());
    let why = errors(&train(dir, &[fast, other.display().to_string()]));
    assert!(why.contains("train on records of one machine"), "{why}");
}
