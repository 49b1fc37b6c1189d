//! `steer` from a user's point of view: output, errors, exit codes.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

mod counting;
mod daemon;
mod errors;
mod experiments;
mod modules;
mod steering;
mod trials;
mod verdicts;
mod virtual_counters;
mod web;

fn steer(args: &[&str], dir: &Path) -> Output {
    // The output must not depend on other runs.
    let mut command = Command::new(env!("CARGO_BIN_EXE_steer"));
    command
        .args(args)
        .current_dir(dir)
        // Keeps sentences on one line.
        .env("COLUMNS", "1000")
        .env("HOME", dir)
        .env("RUNTIME_DIRECTORY", dir.join("runtime"));
    command.output().unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command that must succeed; returns its stdout.
fn data(args: &[&str], dir: &Path) -> String {
    let output = steer(args, dir);
    assert!(
        output.status.success(),
        "{args:?}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// Command with its own folder for journals and sockets.
fn steered(args: &[&str], dir: &Path) -> Command {
    steered_by(&[], args, dir)
}

/// As [`steered`], started by another program.
fn steered_by(starter: &[&str], args: &[&str], dir: &Path) -> Command {
    let mut words = [starter, &[env!("CARGO_BIN_EXE_steer")], args]
        .concat()
        .into_iter();
    let mut command = Command::new(words.next().unwrap());
    command
        .args(words)
        .current_dir(dir)
        .env("HOME", dir)
        .env("RUNTIME_DIRECTORY", dir.join("runtime"));
    command
}

/// A process that ends with its test in every case.
struct Ends(std::process::Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Affinity list of a process from the kernel.
fn cpus_of(pid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status
        .lines()
        .find_map(|l| l.strip_prefix("Cpus_allowed_list:"))
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Repeats a check until it holds; half a minute is more than any machine takes.
fn until(mut holds: impl FnMut() -> bool) -> bool {
    (0..300).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        holds()
    })
}

/// Asks a process to end.
fn nix_kill(pid: u32) {
    assert!(
        Command::new("kill")
            .arg(pid.to_string())
            .status()
            .unwrap()
            .success()
    );
}
