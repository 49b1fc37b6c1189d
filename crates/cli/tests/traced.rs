//! Commands that run during their simulation: more commands than cores, and cleanup after a kill.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn traced(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steer"));
    // Keeps sentences on one line.
    command.env("COLUMNS", "1000");
    let args = [
        "sim",
        "-M",
        "core2-quad",
        "-w",
        "mix.toml",
        "-P",
        "linux",
        "--fidelity",
        "traced",
        "--rounds",
        "1",
        "--json",
    ];
    command.args(args).current_dir(dir);
    for variable in ["HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_DATA_HOME"] {
        command.env(variable, dir);
    }
    command
}

/// Writes a workload of shells that count to these numbers.
fn mix(dir: &Path, counts: &[u32]) {
    let mut text = "title = \"shells\"\n".to_owned();
    for count in counts {
        let script = format!("i=0; while [ $i -lt {count} ]; do i=$((i+1)); done");
        let _ = writeln!(
            text,
            "[[program]]\ncommand = [\"sh\", \"-c\", \"{script}\"]"
        );
    }
    std::fs::write(dir.join("mix.toml"), text).unwrap();
}

fn ready() -> bool {
    let ready = countersteer_fuzz::instrumentation::ready(countersteer_profiler::tools);
    ready.map_err(countersteer_fuzz::skipped).is_ok()
}

#[test]
fn more_commands_than_cores_all_end_and_share_them() {
    if !ready() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let counts = [300, 1_500, 300, 1_500, 300, 1_500];
    mix(dir.path(), &counts);
    let output = traced(dir.path()).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let programs = result["programs"].as_array().unwrap();
    let alone = programs.iter().map(|p| p["alone_fast_s"].as_f64().unwrap());
    let alone: Vec<f64> = alone.collect();
    assert_eq!(alone.len(), counts.len());
    // Five times the rounds, plus the start of a shell.
    let longer = alone[1] / alone[0];
    assert!(longer > 2.0 && longer < 5.0, "{alone:?}");
    for (nth, alone_s) in alone.iter().enumerate() {
        let of_kind_s = alone[nth % 2];
        assert!((alone_s / of_kind_s - 1.0).abs() < 0.05, "{alone:?}");
    }
    let late = programs
        .iter()
        .filter(|p| p["slowdown"].as_f64().unwrap() > 1.2);
    assert!(late.count() >= 2, "six share four cores: {result}");
}

/// Number of processes with these words on their command line, except `steer` itself.
fn running(words: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines
        .filter(|line| String::from_utf8_lossy(line).contains(words))
        .count()
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn nothing_is_left_of_commands_whose_simulation_is_ended() {
    if !ready() {
        return;
    }
    for signal in ["-TERM", "-KILL"] {
        let dir = tempfile::tempdir().unwrap();
        let endless = 2_000_000_000 + std::process::id();
        mix(dir.path(), &[endless; 2]);
        let mut steer = traced(dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let words = format!("-lt {endless} ]");
        until("commands never ran", || running(&words) > 0);
        let pid = steer.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(sent.success());
        steer.wait().unwrap();
        until("commands are left", || running(&words) == 0);
    }
}
