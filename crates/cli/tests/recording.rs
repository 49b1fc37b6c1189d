//! Records written during counting: an early end of a run only loses its last part.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use countersteer_report::record::Record;

fn steer(args: &[&str], dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steer"));
    // Keeps sentences on one line.
    command.env("COLUMNS", "1000");
    command.args(args).current_dir(dir).env("HOME", dir);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// True if the kernel lets this test count; prints a message if not.
fn counts(dir: &Path) -> bool {
    let tried = steer(&["stat", "--", "true"], dir).output().unwrap();
    let permitted = !text(&tried.stderr).contains("perf_event_paranoid") && tried.status.success();
    if !permitted {
        countersteer_fuzz::skipped("counting is not permitted here");
    }
    permitted
}

fn until(mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(60), "waited in vain");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn parts(record: &Path) -> usize {
    std::fs::read_dir(record.join("parts")).map_or(0, Iterator::count)
}

/// Kills a run once a part of its record is on disk.
fn killed(dir: &Path) {
    let args = [
        "stat",
        "-i",
        "20ms",
        "--to",
        "/dev/null",
        "-o",
        "run.rec",
        "-e",
        "task_clock",
        "--",
    ];
    let busy = ["sh", "-c", "while :; do :; done"];
    let mut child: Child = steer(&[&args[..], &busy[..]].concat(), dir)
        .process_group(0)
        .spawn()
        .unwrap();
    until(|| Record::load(&dir.join("run.rec")).is_ok_and(|record| record.readings.len() > 10));
    let group = format!("-{}", child.id());
    assert!(
        Command::new("kill")
            .args(["-9", "--", &group])
            .status()
            .unwrap()
            .success()
    );
    child.wait().unwrap();
}

#[test]
fn a_killed_run_leaves_a_record_that_says_so() {
    let dir = tempfile::tempdir().unwrap();
    if !counts(dir.path()) {
        return;
    }
    killed(dir.path());
    let record = Record::load(&dir.path().join("run.rec")).unwrap();
    assert!(
        record.manifest.unfinished && record.readings.len() > 10,
        "{}",
        record.readings.len()
    );
    assert!(record.steps.len() > 10 && record.manifest.outcome.elapsed_s > 0.2);
    let report = steer(&["report", "run.rec", "-o", "run.html"], dir.path())
        .output()
        .unwrap();
    assert!(
        report.status.success() && text(&report.stderr).contains("cut short"),
        "{}",
        text(&report.stderr)
    );
    assert!(
        std::fs::read_to_string(dir.path().join("run.html"))
            .unwrap()
            .contains("ends early")
    );
    let replay = steer(&["replay", "run.rec", "--policy", "aarr"], dir.path())
        .output()
        .unwrap();
    assert!(replay.status.success(), "{}", text(&replay.stderr));
    // Another run may replace it, and leaves no trace of it.
    let again = steer(
        &[
            "stat",
            "-o",
            "run.rec",
            "--force",
            "--to",
            "/dev/null",
            "--",
            "true",
        ],
        dir.path(),
    )
    .output()
    .unwrap();
    assert!(again.status.success(), "{}", text(&again.stderr));
    let record = Record::load(&dir.path().join("run.rec")).unwrap();
    assert!(!record.manifest.unfinished && parts(&dir.path().join("run.rec")) == 0);
    let left: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert!(
        left.iter()
            .all(|name| !name.to_string_lossy().starts_with('.')),
        "{left:?}"
    );
}

/// A file size limit simulates a full disk: the kernel refuses writes in the same way.
#[test]
fn a_full_disk_ends_the_record_but_not_the_counting() {
    let dir = tempfile::tempdir().unwrap();
    if !counts(dir.path()) {
        return;
    }
    let line = format!(
        "ulimit -f 100; exec '{}' stat -i 1ms --json -o run.rec -- sh -c 'i=0; while [ $i -lt 60 ]; do sleep 0.1; i=$((i+1)); done; exit 3'",
        env!("CARGO_BIN_EXE_steer")
    );
    let output: Output = Command::new("bash")
        .args(["-c", &line])
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{errors}");
    assert!(
        errors.contains("counting continues") && errors.contains("ulimit -f"),
        "{errors}"
    );
    assert!(
        text(&output.stdout).contains("\"exit_code\":3"),
        "the rows went on until the end"
    );
    let record = Record::load(&dir.path().join("run.rec")).unwrap();
    assert!(record.manifest.unfinished && record.readings.len() > 10);
}

#[test]
fn what_is_no_record_is_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    if !counts(dir.path()) {
        return;
    }
    std::fs::create_dir(dir.path().join("precious")).unwrap();
    std::fs::write(dir.path().join("precious/file"), "x").unwrap();
    let output = steer(
        &["stat", "-o", "precious", "--", "touch", "ran"],
        dir.path(),
    )
    .output()
    .unwrap();
    assert!(
        !output.status.success() && text(&output.stderr).contains("is no record"),
        "{}",
        text(&output.stderr)
    );
    assert!(
        !dir.path().join("ran").exists(),
        "said before the program ran"
    );
}

/// The counted program itself advances the energy counter: two joules in each of four intervals.
#[test]
fn virtual_counters_are_in_formulas_and_in_the_record() {
    let dir = tempfile::tempdir().unwrap();
    if !counts(dir.path()) {
        return;
    }
    let zone = dir.path().join("sys/class/powercap/intel-rapl:0");
    std::fs::create_dir_all(&zone).unwrap();
    std::fs::write(zone.join("name"), "package-0\n").unwrap();
    std::fs::write(zone.join("energy_uj"), "0\n").unwrap();
    let turn = "for i in 1 2 3 4; do echo $((i * 2000000)) > sys/class/powercap/intel-rapl:0/energy_uj; sleep 0.1; done";
    let args = [
        "stat",
        "--root",
        ".",
        "-v",
        "energy",
        "-m",
        "energy/page_faults,energy_j/1000",
        "-i",
        "30ms",
    ];
    let output = steer(
        &[
            &args[..],
            &[
                "--per", "total", "--json", "-o", "run.rec", "--", "sh", "-c", turn,
            ],
        ]
        .concat(),
        dir.path(),
    )
    .output()
    .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines: Vec<serde_json::Value> = text(&output.stdout)
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let sum = |kind: &str, of: &dyn Fn(&serde_json::Value) -> Option<f64>| -> f64 {
        lines
            .iter()
            .filter(|l| l["kind"] == kind)
            .filter_map(of)
            .sum()
    };
    assert!(
        (sum("value", &|l| l["value"].as_f64()) - 8.0).abs() < 1e-9,
        "{lines:?}"
    );
    // A reading is followed by the value of its interval. In an interval without a reading, nothing of the program had been counted.
    let mut joules_of_readings = 0.0;
    for pair in lines.windows(2) {
        let Some(thousandth) = pair[0]["metrics"]["energy_j/1000"].as_f64() else {
            continue;
        };
        let joules = pair[1]["value"].as_f64().unwrap();
        assert!((thousandth * 1e3 - joules).abs() < 1e-9, "{lines:?}");
        joules_of_readings += joules;
    }
    assert!(joules_of_readings > 0.0, "{lines:?}");
    let per_fault = |l: &serde_json::Value| {
        let joules = l["metrics"]["energy_j/1000"].as_f64()? * 1e3;
        let faults = l["counts"]["page_faults"].as_f64()?;
        let shown = l["metrics"]["energy/page_faults"].as_f64()?;
        assert!((shown - joules / faults).abs() < 1e-9, "{l}");
        Some(1.0)
    };
    assert!(sum("reading", &per_fault) >= 1.0, "{lines:?}");
    let record = Record::load(&dir.path().join("run.rec")).unwrap();
    let joules: f64 = record.virtuals.iter().map(|v| v.value).sum();
    assert!(
        (joules - 8.0).abs() < 1e-9
            && record
                .virtuals
                .iter()
                .all(|v| &*v.name == "energy_j" && &*v.unit == "J")
    );
    assert_eq!(
        (&*record.virtuals[0].scope, &*record.virtuals[0].place),
        ("zone", "package-0")
    );
    assert_eq!(record.reading_metrics.len(), 2);
}
