//! Monitoring modules: what the examples compute, and what becomes of modules that fail.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::{root, steer, text};

const PROGRAM: [&str; 4] = [
    "--",
    "sh",
    "-c",
    "n=0; while [ $n -lt 200000 ]; do n=$((n+1)); done",
];

fn counted(dir: &Path, modules: &[&str], more: &[&str]) -> Output {
    counted_program(dir, modules, more, &PROGRAM)
}

fn counted_program(dir: &Path, modules: &[&str], more: &[&str], program: &[&str]) -> Output {
    let mut args = vec!["stat", "-i", "50ms", "--no-live", "-e", "task_clock"];
    for module in modules {
        args.extend(["--module", module]);
    }
    args.extend(more);
    args.extend(program);
    let output = steer(&args, dir);
    assert!(output.status.success(), "{}", text(&output.stderr));
    output
}

/// Writes a module: a script of the shell.
fn module(dir: &Path, name: &str, script: &str) {
    let text = dir.join("script");
    std::fs::write(&text, format!("#!/bin/sh\n{script}\n")).unwrap();
    // Another process writes the file, so that no child of another test holds it open for writing.
    let mut install = Command::new("install");
    let installed = install
        .args(["-m", "755"])
        .arg(&text)
        .arg(dir.join(name))
        .status();
    assert!(installed.unwrap().success());
}

const SIGPIPE: i32 = 13;
const HELLO: &str = r#"echo '{"module": 1, "counters": [{"name": "mine", "unit": "ms"}]}'"#;

#[test]
fn a_module_gets_the_counts_of_its_events_and_its_values_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    // Twice the run time of each row, as the module computes it. The program ends after three answers with values.
    let twice = r#"echo '{"module": 1, "events": ["task_clock"], "counters": [{"name": "twice_clock", "unit": "ms"}]}'
answers=0
while read -r window; do
    values=
    # Without other programs: on a busy machine an answer would take too long.
    while [ "$window" != "${window#*\"tid\":}" ]; do
        window=${window#*\"tid\":}
        tid=${window%%[!0-9]*}
        window=${window#*\"task_clock\":}
        values="$values,{\"counter\": \"twice_clock\", \"tid\": $tid, \"value\": $((${window%%[!0-9]*} * 2))}"
    done
    echo "{\"values\": [${values#,}]}"
    [ -z "$values" ] || answers=$((answers + 1))
    [ $answers -lt 3 ] || touch done
done"#;
    module(dir.path(), "twice", twice);
    let output = counted_program(
        dir.path(),
        &["./twice"],
        &["--json", "-o", "a.rec", "-m", "twice_clock/task_clock"],
        &[
            "--",
            "sh",
            "-c",
            "ulimit -t 60; while [ ! -e done ]; do :; done",
        ],
    );
    let stdout = text(&output.stdout);
    let rows: Vec<serde_json::Value> = stdout
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let clocks: Vec<f64> = (rows.iter())
        .filter_map(|row| row["counts"]["task_clock"].as_f64())
        .collect();
    let values: Vec<f64> = (rows.iter())
        .filter_map(|row| row["value"].as_f64())
        .collect();
    assert!(values.len() > 1, "{stdout}");
    // The module gets the counts of the intervals in which its own event set is counted.
    for value in values {
        assert!(clocks.contains(&(value / 2.0)), "{value}: {stdout}");
    }
    let of_formula = |row: &serde_json::Value| row["metrics"]["twice_clock/task_clock"].is_f64();
    assert!(rows.iter().any(of_formula), "{stdout}");
    let record = countersteer_report::record::Record::load(&dir.path().join("a.rec")).unwrap();
    assert!(
        record
            .virtuals
            .iter()
            .any(|row| &*row.name == "twice_clock" && row.value > 0.0)
    );
}

#[test]
fn a_reader_that_closes_the_pipe_ends_the_command_quietly() {
    let dir = tempfile::tempdir().unwrap();
    module(
        dir.path(),
        "idle",
        &format!("{HELLO}\nwhile read -r window; do echo '{{\"values\": []}}'; done"),
    );
    let words = [
        "stat",
        "-i",
        "20ms",
        "--json",
        "-e",
        "task_clock",
        "--module",
        "./idle",
        "--",
        "sleep",
        "5",
    ];
    let mut command = Command::new(env!("CARGO_BIN_EXE_steer"));
    command
        .args(words)
        .current_dir(dir.path())
        .env("RUNTIME_DIRECTORY", dir.path());
    let said = dir.path().join("stderr");
    command.stderr(std::fs::File::create(&said).unwrap());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut first)
        .unwrap();
    assert!(first.starts_with('{'), "{first}");
    let said = || std::fs::read_to_string(&said).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(SIGPIPE), "{}", said());
    assert!(!said().contains("pipe"), "{}", said());
}

#[test]
fn a_module_that_is_stopped_leaves_none_of_its_children() {
    let dir = tempfile::tempdir().unwrap();
    let script = format!("sleep 67 & echo $! >child\n{HELLO}\nwhile :; do :; done");
    module(dir.path(), "parent", &script);
    let said = text(&counted(dir.path(), &["./parent"], &[]).stderr);
    assert!(said.contains("module ./parent is stopped"), "{said}");
    let child = std::fs::read_to_string(dir.path().join("child")).unwrap();
    let lives = || {
        let command = std::fs::read_to_string(format!("/proc/{}/comm", child.trim()));
        // Its parent is gone, so it may wait for init to take notice of its end.
        let state = std::fs::read_to_string(format!("/proc/{}/stat", child.trim()));
        command.is_ok_and(|name| name == "sleep\n") && !state.is_ok_and(|s| s.contains(") Z "))
    };
    // A process that was killed ends when it gets a CPU.
    let begun = std::time::Instant::now();
    while lives() && begun.elapsed() < std::time::Duration::from_secs(20) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(!lives(), "{child}");
}

#[test]
fn a_module_that_fails_is_stopped_with_its_name_and_counting_goes_on() {
    let answers = |answer: &str| format!("{HELLO}\nwhile read -r window; do echo '{answer}'; done");
    let cases = [
        (
            "crash",
            format!("{HELLO}\nread -r window; exit 9"),
            "it has ended (exit status: 9)",
        ),
        (
            "loop",
            format!("{HELLO}\nwhile :; do :; done"),
            "it does not answer within 0.5 s",
        ),
        (
            "flood",
            format!("{HELLO}\ntr '\\0' x </dev/zero; read -r window"),
            "its line is too long",
        ),
        ("garbage", answers("<b>"), "its answer has no values"),
        (
            "liar",
            answers(r#"{"values": [{"counter": "yours", "value": 1}]}"#),
            "it did not declare the counter `yours`",
        ),
        (
            "stranger",
            answers(r#"{"values": [{"counter": "mine", "tid": 1, "value": 1}]}"#),
            "it got no sample of a thread 1",
        ),
        (
            "mute",
            "sleep 30 2>&-".to_owned(),
            "it says nothing within 5 s",
        ),
        (
            "event",
            r#"echo '{"module": 1, "events": ["no_such_event"], "counters": []}'"#.to_owned(),
            "its events `no_such_event`: ",
        ),
        (
            "taken",
            r#"echo '{"module": 1, "counters": [{"name": "energy_j"}]}'"#.to_owned(),
            "there is a virtual counter `energy_j` already",
        ),
        (
            "babble",
            "echo hello".to_owned(),
            "its first line declares no counters",
        ),
        (
            "old",
            r#"echo '{"module": 0, "counters": []}'"#.to_owned(),
            "it speaks version 0",
        ),
    ];
    let dir = tempfile::tempdir().unwrap();
    for (name, script, why) in &cases {
        module(dir.path(), name, script);
        let began = Instant::now();
        let output = counted(dir.path(), &[&format!("./{name}")], &[]);
        let said = text(&output.stderr);
        let expected = format!("steer: module ./{name} is stopped: {why}");
        assert!(said.contains(&expected), "{name}: {said}");
        assert_eq!(said.matches("is stopped").count(), 1, "{said}");
        assert!(said.lines().count() > 3, "{name}: {said}");
        assert!(began.elapsed() < Duration::from_secs(30), "{name}");
    }
    let said = text(&counted(dir.path(), &["nowhere"], &[]).stderr);
    assert!(
        said.contains("module nowhere is stopped: ")
            && said.contains("countersteer/modules has no such file"),
        "{said}"
    );
    let said = text(&counted(dir.path(), &["./nowhere"], &[]).stderr);
    assert!(said.contains("./nowhere cannot be started"), "{said}");
}

#[test]
fn the_examples_work_in_stat_and_top_and_are_found_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let folder = root().join("examples/modules");
    let data = dir.path().join(".local/share/countersteer");
    std::fs::create_dir_all(&data).unwrap();
    std::os::unix::fs::symlink(folder.canonicalize().unwrap(), data.join("modules")).unwrap();
    let said = text(&counted(dir.path(), &["load.sh"], &[]).stderr);
    assert!(said.contains("load_average"), "{said}");
    if Command::new("python3").arg("--version").output().is_err() {
        countersteer_fuzz::skipped("there is no python3");
        return;
    }
    let args = [
        "top",
        "--json",
        "-n",
        "3",
        "-i",
        "100ms",
        "--module",
        "bursts.py",
    ];
    let output = steer(&[&args[..], &PROGRAM].concat(), dir.path());
    let stdout = text(&output.stdout);
    assert!(
        stdout.contains("\"fault_excess\":"),
        "{stdout} {}",
        text(&output.stderr)
    );
}
