//! `steer bench`: figures of commands, and commands that have none.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn bench(dir: &std::path::Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steer"));
    command.arg("bench").args(args).current_dir(dir);
    command.env("COLUMNS", "1000").stdin(Stdio::null());
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn each_arm_has_as_many_runs_with_a_median_in_its_interval() {
    let dir = tempfile::tempdir().unwrap();
    let scan = ["-r", "6", "-w", "0", "-L", "ms", "0.01,0.03", "--json"];
    let files = ["--export-json", "h.json", "--", "sleep", "{ms}"];
    let output = bench(dir.path(), &[&scan[..], &files].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let arms = found["arms"].as_array().unwrap();
    assert_eq!(arms.len(), 2);
    for (arm, least_s) in arms.iter().zip([0.01, 0.03]) {
        assert_eq!(arm["runs"], 6);
        assert_eq!(arm["times_s"].as_array().unwrap().len(), 6);
        let time = &arm["time_s"];
        let median = time["median"].as_f64().unwrap();
        let low = time["interval"][0].as_f64().unwrap();
        let high = time["interval"][1].as_f64().unwrap();
        assert!(least_s <= low && low <= median && median <= high, "{arm}");
    }
    let exported = std::fs::read(dir.path().join("h.json")).unwrap();
    let exported: Value = serde_json::from_slice(&exported).unwrap();
    for field in ["command", "mean", "stddev", "median", "times", "exit_codes"] {
        assert!(!exported["results"][1][field].is_null(), "{field}");
    }
}

#[test]
fn a_command_that_fails_or_does_not_exist_has_no_figure() {
    let dir = tempfile::tempdir().unwrap();
    let failing = bench(dir.path(), &["-r", "3", "--", "sh", "-c", "exit 7"]);
    let said = text(&failing.stderr);
    assert_eq!(failing.status.code(), Some(3), "{said}");
    assert!(
        failing.stdout.is_empty() && said.contains("exit code 7"),
        "{said}"
    );
    let missing = bench(dir.path(), &["--", "./nosuch"]);
    assert_eq!(missing.status.code(), Some(4), "{}", text(&missing.stderr));
    let nowhere = bench(dir.path(), &["--on", "nosuch", "--", "true"]);
    assert_eq!(nowhere.status.code(), Some(2), "{}", text(&nowhere.stderr));
    let measured = bench(dir.path(), &["-i", "-r", "3", "--json", "--", "false"]);
    let found: Value = serde_json::from_slice(&measured.stdout).unwrap();
    assert_eq!(found["arms"][0]["exit_codes"][0], 1);
}

#[test]
fn a_comparison_says_which_is_faster_only_if_that_is_certain() {
    let dir = tempfile::tempdir().unwrap();
    let compared = |repeat: &str, first: &str, second: &str| {
        let args = ["-w", "0", "-r", repeat, "--compare", first, second];
        let output = bench(dir.path(), &args);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let same = compared("3", "sleep 0.01", "sleep 0.01");
    assert!(same.contains("Cannot tell"), "{same}");
    let apart = compared("40", "sleep 0.1", "sleep 0.01");
    assert!(!apart.contains("Cannot tell"), "{apart}");
}
