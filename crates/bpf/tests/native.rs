//! Tests of the scheduler as an ordinary program, on a small fake of the kernel, under sanitizers.
//!
//! `native/kernel.c` compiles `src/bpf/engine.bpf.c` and calls its callbacks in random order: enqueue, dispatch, stop, exit,
//! placements, affinity, CPUs that go offline. It ends with a message if the kernel would end the scheduler, and if the
//! scheduler's data contradicts the state.

#![allow(clippy::unwrap_used)] // a test helper that fails has failed its test

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use countersteer_fuzz::skipped;

/// Events of a run.
const STEPS: u64 = 2_000;
/// Number of runs, unless `COUNTERSTEER_FUZZ` requests more events in all.
const LEAST_SEEDS: u64 = 16;

/// Compiled program; `None` if the compiler has no sanitizers.
fn compile(name: &str, more: &[&str]) -> Option<PathBuf> {
    let native = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/native");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // Another run of the tests may be executing the program.
    let made = program.with_extension(std::process::id().to_string());
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let output = Command::new(&cc)
        .args([
            "-std=gnu11",
            "-O1",
            "-g",
            "-Wall",
            "-Werror",
            "-Wno-attributes",
            "-Wno-unused",
        ])
        .args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"])
        .args(more)
        .arg("-I")
        .arg(&native)
        .arg(native.join("kernel.c"))
        .arg("-o")
        .arg(&made)
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            skipped(format_args!("no C compiler `{cc}`: {error}"));
            return None;
        }
    };
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("asan") || said.contains("ubsan") || said.contains("-fsanitize") {
        skipped(format_args!("`{cc}` has no sanitizers"));
        return None;
    }
    assert!(output.status.success(), "{said}");
    std::fs::rename(&made, &program).unwrap();
    Some(program)
}

fn run(program: &Path, seed: u64) -> Output {
    let arguments = [seed.to_string(), STEPS.to_string()];
    Command::new(program).args(arguments).output().unwrap()
}

#[test]
fn the_scheduler_loses_no_thread_in_any_order_of_callbacks() {
    let Some(program) = compile("kernel", &[]) else {
        return;
    };
    let mut said = Vec::new();
    let asked = std::env::var("COUNTERSTEER_FUZZ")
        .ok()
        .and_then(|n| n.parse::<u64>().ok());
    for seed in 1..=LEAST_SEEDS.max(asked.unwrap_or(0) / STEPS) {
        let output = run(&program, seed);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{} {seed} {STEPS}: {errors}",
            program.display()
        );
        said.push(String::from_utf8(output.stdout).unwrap());
    }
    // Equal seeds give equal runs; and each case under test occurs.
    assert_eq!(run(&program, 1).stdout, said[0].as_bytes());
    let happened = |what: &str| {
        said.iter()
            .flat_map(|line| line.trim().split(", "))
            .filter_map(|part| part.strip_suffix(what)?.trim().parse::<u64>().ok())
            .sum::<u64>()
    };
    for what in [
        "records of exits",
        "dispatches",
        "timers",
        "moved",
        "stolen",
        "kept",
        "switches",
    ] {
        assert!(happened(what) > 0, "no {what}: {said:?}");
    }
}

#[test]
fn a_thread_that_the_scheduler_drops_is_noticed() {
    let Some(program) = compile("dropping", &["-DDROP=2"]) else {
        return;
    };
    let noticed = (1..=4).any(|seed| {
        let output = run(&program, seed);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success() || said.contains("waits in no queue"),
            "{said}"
        );
        !output.status.success()
    });
    assert!(noticed);
}
