//! Tests of recorded programs for 64-bit Arm: they behave as their source determines, like those for this machine.
//!
//! The tests need a qemu-aarch64 with plugin support and a compiler for Arm. Without them they print a message and pass.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::path::{Path, PathBuf};
use std::process::Command;

use countersteer_fuzz::{instrumentation, skipped};
use countersteer_model::profile::{Behaviour, Recorded};
use countersteer_profiler::{
    Architecture, ProfileOptions, Profiled, ProgramEnding, profile, tools_for,
};

/// Folder of the Arm libraries that belong to Debian's compiler.
const SYSROOT: &str = "/usr/aarch64-linux-gnu";

/// Compiles the programs of the other tests for Arm, static or not. Prints the reason and returns `None` if that is impossible.
fn program(directory: &Path, linked: &str) -> Option<String> {
    let compiler = ["aarch64-linux-gnu-gcc", "cc"].into_iter().find(|name| {
        let asked = Command::new(name).arg("-dumpmachine").output();
        asked.is_ok_and(|of| of.stdout.starts_with(b"aarch64-"))
    });
    let Some(compiler) = compiler else {
        skipped("no compiler for Arm: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross");
        return None;
    };
    if let Err(missing) = instrumentation::ready(|| tools_for(Architecture::Aarch64)) {
        skipped(missing);
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs.c");
    let program = directory.join("programs");
    let mut compile = Command::new(compiler);
    compile.args(["-O1", "-fno-tree-vectorize", "-pthread", linked, "-o"]);
    let status = compile.arg(&program).arg(source).status();
    assert!(status.unwrap().success());
    Some(program.display().to_string())
}

fn run(program: &str, arguments: &[&str]) -> Profiled {
    let words = [&[program], arguments].concat();
    let mut options = ProfileOptions::new(words.into_iter().map(str::to_owned).collect());
    options.stdin_null = true;
    let cross = PathBuf::from(SYSROOT);
    options.sysroot = Some(cross).filter(|folder| folder.is_dir());
    let recording = profile(&options).unwrap();
    recording.profile.check().unwrap();
    recording
}

/// Returns the mean over the run.
fn mean(profile: &Recorded, value: impl Fn(&Behaviour) -> f64) -> f64 {
    let parts = profile.timeline.iter();
    let sum: f64 = parts
        .map(|s| value(&profile.behaviours[s.behaviour as usize]) * s.instructions as f64)
        .sum();
    sum / profile.instructions as f64
}

fn mpki(profile: &Recorded, lines: f64) -> f64 {
    mean(profile, |b| {
        b.locality.stack_distance_pki.at_least(lines) + b.locality.cold_pki
    })
}

#[test]
fn programs_for_arm_behave_as_their_source_says() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = program(directory.path(), "-static") else {
        return;
    };
    // 8,192 lines, 20 times.
    let stream = run(&program, &["stream", "8192", "20"]).profile;
    let (inside, outside) = (mpki(&stream, 7000.0), mpki(&stream, 9300.0));
    assert!(
        inside > 15.0 && outside < inside / 10.0,
        "{inside} {outside}"
    );
    // The loop consists of a load, two additions, a comparison and a branch.
    let loads = mean(&stream, |b| b.mix.loads);
    let branches = mean(&stream, |b| b.mix.branches);
    assert!((0.15..0.35).contains(&loads), "{loads}");
    assert!((0.15..0.35).contains(&branches), "{branches}");
    let chase = run(&program, &["chase", "4096", "500000"]).profile;
    assert!(mpki(&chase, 3500.0) > 5.0 * mpki(&chase, 4700.0));
    let matmul = run(&program, &["matmul", "64"]).profile;
    let fp = mean(&matmul, |b| b.mix.fp);
    assert!((0.15..0.8).contains(&fp), "{fp}");
    let wide = run(&program, &["wide", "20"]).profile;
    let (loads, simd) = (mean(&wide, |b| b.mix.loads), mean(&wide, |b| b.mix.simd));
    assert!(
        (0.15..0.35).contains(&loads),
        "{loads}: one for each of 16 bytes"
    );
    assert!(simd > 0.3, "{simd}");
}

#[test]
fn threads_and_children_of_programs_for_arm_are_followed() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = program(directory.path(), "-static") else {
        return;
    };
    let alone = run(&program, &["stream", "512", "200"]).instructions;
    for mode in ["fork", "spawn"] {
        let both = run(&program, &[mode]);
        assert_eq!(both.profile.shape.threads, 2, "{mode}");
        let expected = alone..alone + alone / 2;
        assert!(
            expected.contains(&both.instructions),
            "{mode}: {} {alone}",
            both.instructions
        );
    }
    let three = run(&program, &["threads", "3", "300000"]).profile;
    assert_eq!(three.shape.threads, 4);
    let crash = run(&program, &["crash"]);
    assert_eq!(crash.ending, ProgramEnding::Signaled(11));
}

#[test]
fn programs_for_arm_find_their_libraries_below_a_folder() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = program(directory.path(), "-rdynamic") else {
        return;
    };
    let recording = run(&program, &["exit", "7"]);
    assert_eq!(recording.ending, ProgramEnding::Exited(7));
    assert!(
        recording.instructions > 10_000,
        "the dynamic linker is in it"
    );
}
