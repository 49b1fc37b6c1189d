//! Files with false contents: each is refused with exit code 3, quickly and without much memory.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

mod files;
mod limits;
mod paths;
mod records;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, RecordBatch, StringArray};

/// An idle machine answers in hundredths of a second.
const LONGEST: Duration = Duration::from_secs(20);
/// Memory limit in kilobytes.
const MOST_MEMORY: u64 = 200_000;

fn steer(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steer"));
    command
        .current_dir(dir)
        .env("HOME", dir)
        .env("RUNTIME_DIRECTORY", dir.join("runtime"));
    command
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command with a time limit. Returns its output and peak memory in kilobytes.
fn measured(command: &mut Command) -> (Output, u64) {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let [status, executable] = ["status", "exe"].map(|f| format!("/proc/{}/{f}", child.id()));
    let own = fs::read_link("/proc/self/exe").unwrap();
    let begun = Instant::now();
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        // `spawn` returns slightly before the child has memory of its own.
        if fs::read_link(&executable).is_ok_and(|path| path != own) {
            let text = fs::read_to_string(&status).unwrap_or_default();
            let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let peak = peak.and_then(|peak| peak.split_whitespace().next()?.parse().ok());
            most = most.max(peak.unwrap_or(0));
        }
        if begun.elapsed() > LONGEST {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let in_time = begun.elapsed() < LONGEST;
    let output = child.wait_with_output().unwrap();
    assert!(in_time, "{command:?} goes on: {}", text_of(&output.stderr));
    (output, most)
}

fn bounded(command: &mut Command) -> Output {
    measured(command).0
}

/// Runs a command that must refuse its file; returns its message of one line.
fn refused(args: &[&str], dir: &Path) -> String {
    let said = refused_with_line(args, dir);
    assert_eq!(said.trim_end().lines().count(), 1, "{args:?}: {said}");
    said
}

/// Runs a command that must refuse its file; returns its message, which may show a line of the file.
fn refused_with_line(args: &[&str], dir: &Path) -> String {
    let (output, most) = measured(steer(dir).args(args).stdin(Stdio::null()));
    let said = text_of(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{args:?}: {said}");
    assert!(output.stdout.is_empty(), "{args:?}");
    assert!(most < MOST_MEMORY, "{args:?}: {most} kB");
    said
}

fn pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

/// A short record with its tables.
fn record(dir: &Path) -> PathBuf {
    let args = "sim -M core2-quad -w shared-caches -P linux --max-seconds 0.2 -o run.rec";
    let output = bounded(steer(dir).args(args.split(' ')));
    assert!(output.status.success(), "{}", text_of(&output.stderr));
    dir.join("run.rec")
}

/// Commands; `FILE` stands for the hostile file.
const COMMANDS: [&str; 17] = [
    "machine show FILE",
    "compare -M FILE -w shared-caches -P linux",
    "sim -M core2-quad -w FILE -P linux",
    "workload show FILE",
    "workload import FILE",
    "profile show FILE",
    "trace info FILE",
    "trace import --format lackey FILE -o out.trace",
    "trace import --format drmemtrace FILE -o out.trace",
    "trace import --format champsim FILE -o out.trace",
    "mrc FILE",
    "signature show FILE",
    "model show FILE",
    "sweep FILE -o out",
    "daemon --list --rules FILE",
    "stat --metric-file FILE -- true",
    "report FILE -o out.html",
];
