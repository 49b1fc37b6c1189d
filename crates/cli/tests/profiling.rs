//! Failures of recorded programs and of the recorder: nothing remains, and messages report irregularities.
//!
//! Requires a QEMU with plugins. Otherwise prints a message and passes.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn steer(args: &[&str], dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steer"));
    // Keeps sentences on one line.
    command.env("COLUMNS", "1000");
    command.args(args).current_dir(dir);
    command
}

/// True if programs can be recorded here; prints a message if not.
fn records() -> bool {
    let ready = countersteer_fuzz::instrumentation::ready(countersteer_profiler::tools);
    ready.map_err(countersteer_fuzz::skipped).is_ok()
}

fn until(mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(120), "waited in vain");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns true if any recording process runs below a folder.
fn records_below(folder: &Path) -> impl Fn(&[u8]) -> bool {
    let needle = format!("dir={}", folder.display());
    move |words: &[u8]| {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let mut lines = processes.filter_map(|of| std::fs::read(of.path().join("cmdline")).ok());
        lines.any(|line| {
            let text = String::from_utf8_lossy(&line);
            text.contains(&needle) && line.ends_with(words)
        })
    }
}

#[test]
fn a_killed_recorder_takes_its_programs_and_files_along() {
    if !records() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let temporary = dir.path().join("temporary");
    std::fs::create_dir(&temporary).unwrap();
    let script = "sleep 100 & sleep 200";
    let mut recorder = steer(
        &["profile", "-o", "p.json", "--", "sh", "-c", script],
        dir.path(),
    )
    .env("TMPDIR", &temporary)
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    let recorded = records_below(&temporary);
    until(|| recorded(b"sleep\x00100\x00") && recorded(b"sleep\x00200\x00"));
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    until(|| !recorded(b"") && std::fs::read_dir(&temporary).unwrap().next().is_none());
}

#[test]
fn a_trace_of_more_threads_than_descriptors_is_an_error() {
    if !records() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // Each process has a thread of its own, and none ends before all are there.
    let many = "n=0; while [ $n -lt 40 ]; do sleep 100 & n=$((n+1)) all=\"$all $!\"; done; kill $all; wait";
    let traced = |limit: u32| {
        let script = format!("ulimit -n {limit}; exec \"$0\" trace record -o t -- sh -c '{many}'");
        let steer = env!("CARGO_BIN_EXE_steer");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, steer]).current_dir(dir.path());
        let output = shell.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    };
    let (code, said) = traced(40);
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("cannot receive what all threads"), "{said}");
    assert!(!dir.path().join("t").exists());
    let (code, said) = traced(400);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_full_disk_makes_windows_longer_and_loses_nothing() {
    if !records() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let small = dir.path().join("small");
    std::fs::create_dir(&small).unwrap();
    // Space for about ten windows of a million instructions each.
    let script = "mount -t tmpfs -o size=72k none small && TMPDIR=$PWD/small exec \"$@\"";
    let mut unshare = Command::new("unshare");
    unshare.args(["-m", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_steer")]);
    unshare.args(["profile", "-o", "p.json", "--", "sh", "-c"]);
    unshare.arg("i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done");
    let output = unshare.current_dir(dir.path()).output();
    let Ok(output) = output else {
        countersteer_fuzz::skipped("unshare is missing");
        return;
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("ermitted") || stderr.contains("denied") {
        countersteer_fuzz::skipped("needs root for a small file system");
        return;
    }
    assert!(output.status.success(), "{stderr}");
    let text = std::fs::read_to_string(dir.path().join("p.json")).unwrap();
    let profile: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(
        profile["instructions"].as_u64() > Some(12_000_000),
        "{stderr}"
    );
    assert!(profile.get("partial").is_none(), "{stderr}");
}

#[test]
fn what_sets_a_run_apart_is_said_in_a_line() {
    if !records() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // The number of io_uring_setup is equal on all architectures.
    let refused = "my $parameters = \"\\0\" x 120; syscall(425, 4, $parameters)";
    let mut command = steer(
        &["profile", "-o", "p.json", "--", "perl", "-e", refused],
        dir.path(),
    );
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("perl was not found") {
        countersteer_fuzz::skipped("perl is missing");
        return;
    }
    let lines = stderr
        .lines()
        .filter(|line| line.contains("was refused io_uring"));
    assert_eq!(lines.count(), 1, "{stderr}");
    let shown = steer(&["profile", "show", "p.json"], dir.path())
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout);
    assert!(
        shown
            .lines()
            .any(|line| line.starts_with("caveat ") && line.contains("io_uring"))
    );
}

#[test]
fn a_window_and_the_counters_of_a_native_run_make_a_whole_profile() {
    if !records() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let done = steer(args, dir.path()).output().unwrap();
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    let loops = "i=0; while [ $i -lt 6000 ]; do i=$((i+1)); done";
    let program = ["--", "sh", "-c", loops];
    let recorded = run(&[
        &["profile", "-o", "whole.json", "--name", "loops"],
        &program[..],
    ]
    .concat());
    assert_eq!(recorded.0, Some(0), "{}", recorded.1);
    // The simulator stands for a machine with counters.
    std::fs::write(
        dir.path().join("w.toml"),
        "[[program]]\nprofile = \"whole.json\"\nlaunch_on = \"0\"\n",
    )
    .unwrap();
    let events = "instructions,cycles,llc_misses,branch_misses,branches,loads,stores";
    let simulated = run(&[
        "sim",
        "-M",
        "core2-quad",
        "-w",
        "w.toml",
        "-i",
        "1ms",
        "--rounds",
        "1",
        "--count",
        events,
        "-o",
        "counts.rec",
    ]);
    assert_eq!(simulated.0, Some(0), "{}", simulated.1);
    let options = "profile --native --window 5M --counters counts.rec --program loops -o native.json --name loops";
    let options: Vec<&str> = options.split(' ').collect();
    let native = run(&[&options[..], &program[..]].concat());
    assert_eq!(native.0, Some(0), "{}", native.1);
    let instructions = |file: &str| {
        let text = std::fs::read_to_string(dir.path().join(file)).unwrap();
        let profile: serde_json::Value = serde_json::from_str(&text).unwrap();
        profile["instructions"].as_f64().unwrap()
    };
    let length = instructions("native.json") / instructions("whole.json");
    assert!((length - 1.0).abs() < 0.05, "{length}: {}", native.1);
    // Page faults stand for accesses: they have addresses, and no distance is far.
    let sampling = ["--addresses", "--address-event", "page_faults:3"];
    let sampled = run(&[&options[..], &sampling, &program[..]].concat());
    if sampled.1.contains("perf_event_paranoid") || sampled.1.contains("refuses") {
        countersteer_fuzz::skipped("page faults cannot be sampled here");
    } else {
        assert_eq!(sampled.0, Some(0), "{}", sampled.1);
        let line = sampled
            .1
            .lines()
            .find(|line| line.contains("have an address"));
        let line = line.expect("the samples are reported");
        assert!(line.contains("lines were watched; 0 octaves"), "{line}");
        let text = std::fs::read_to_string(dir.path().join("native.json")).unwrap();
        assert!(text.contains("0 octaves of stack distances by"), "{line}");
    }
    let alone = run(&["profile", "--program", "loops", "--", "true"]);
    assert_eq!(alone.0, Some(2), "{}", alone.1);
}
