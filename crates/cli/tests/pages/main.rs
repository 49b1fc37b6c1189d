//! A C program and `steer run` communicate through hint pages. The program reports its spinning thread, and sees which thread
//! gets the fast core.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use countersteer_model::hint::Phase;
use countersteer_report::record::Record;

/// Links the library under its own name, so that it is built.
use countersteer_cli as _;

const CAPI: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../capi");

/// The first two CPUs; one of them is declared small.
fn machine() -> String {
    let four = include_str!("../../../../vm/unequal.toml");
    four.replace("cpus = \"0-1\"", "cpus = \"0\"")
        .replace("cpus = \"2-3\"", "cpus = \"1\"")
        .replace("0-3", "0-1")
}

/// True if this process may run on CPUs 0 and 1, and there is a compiler.
fn is_possible() -> bool {
    let compiler = Command::new("cc").arg("--version").output().is_ok();
    if !compiler {
        countersteer_fuzz::skipped("there is no C compiler");
    }
    compiler && countersteer_fuzz::cpus::may_use(&[0, 1])
}

/// Puts links to the library next to the tests into a folder.
fn link_library(folder: &Path) {
    let test = std::env::current_exe().unwrap();
    let folders = [test.parent().unwrap(), test.ancestors().nth(2).unwrap()];
    let library = folders
        .iter()
        .map(|f| f.join("libcountersteer_c.so"))
        .find(|l| l.is_file())
        .unwrap();
    for name in ["libcountersteer.so", "libcountersteer.so.0"] {
        symlink(&library, folder.join(name)).unwrap();
    }
}

fn cc(folder: &Path, source: &str, to: &str, options: &[&str]) -> Output {
    let mut cc = Command::new("cc");
    cc.args([
        "-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-pthread", "-I",
    ])
    .arg(format!("{CAPI}/include"));
    cc.arg(format!("{}/{source}", env!("CARGO_MANIFEST_DIR")))
        .arg("-L")
        .arg(folder)
        .args(options)
        .arg("-o")
        .arg(folder.join(to));
    cc.output().unwrap()
}

fn compiled(folder: &Path, source: &str, to: &str, options: &[&str]) {
    let output = cc(folder, source, to, options);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// Compiles the program against the library next to the tests.
fn compile(folder: &Path) -> PathBuf {
    link_library(folder);
    compiled(folder, "tests/pages/talk.c", "talk", &["-lcountersteer"]);
    folder.join("talk")
}

fn steer(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steer"));
    // Keeps sentences on one line.
    command.env("COLUMNS", "1000");
    command
        .args(args)
        .current_dir(folder)
        .env("HOME", folder)
        .env("RUNTIME_DIRECTORY", folder.join("runtime"));
    command
        .env("LD_LIBRARY_PATH", folder)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn who_works_gets_the_fast_core_and_sees_it_and_a_replay_decides_the_same() {
    if !is_possible() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("unequal.toml"), machine()).unwrap();
    let program = compile(folder.path());
    let program = program.to_str().unwrap();
    let args = [
        "run",
        "-P",
        "hsf:young_ms=0",
        "-i",
        "20ms",
        "--machine",
        "unequal.toml",
        "-o",
        "run.rec",
        "--",
        program,
    ];
    let output = steer(folder.path(), &args);
    let stdout = text(&output.stdout);
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{stdout}{stderr}");
    let ends = |thread: &str, core_type: &str| {
        stdout
            .lines()
            .any(|l| l.starts_with(thread) && l.contains(&format!("ends on {core_type}, share ")))
    };
    assert!(
        ends("thread 0", "big") && ends("thread 1", "small"),
        "{stdout}"
    );
    let replayed = steer(folder.path(), &["replay", "run.rec"]);
    assert!(
        text(&replayed.stdout).contains("the same"),
        "{}{}",
        text(&replayed.stdout),
        text(&replayed.stderr)
    );
    let record = Record::load(&folder.path().join("run.rec")).unwrap();
    assert!(
        record
            .hints
            .iter()
            .any(|r| r.hint.phase == Phase::Spinning && r.hint.workers == 2)
    );
    assert!(
        record
            .decisions
            .iter()
            .any(|d| d.rule.starts_with("it waits")),
        "{:?}",
        record.decisions
    );
}

#[test]
fn an_engine_that_only_observes_says_nothing() {
    if !is_possible() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("unequal.toml"), machine()).unwrap();
    let program = compile(folder.path());
    let args = [
        "run",
        "-P",
        "hsf:young_ms=0",
        "--observe",
        "-i",
        "20ms",
        "--duration",
        "2s",
        "--machine",
        "unequal.toml",
        "--",
    ];
    let output = steer(
        folder.path(),
        &[&args[..], &["timeout", "3", program.to_str().unwrap()]].concat(),
    );
    assert!(
        !text(&output.stdout).contains("ends on"),
        "{}",
        text(&output.stdout)
    );
}

/// Runs a program of OpenMP; true if there are hints that two threads share a loop, and that one of them waits.
fn has_hints(folder: &Path, variable: &str, program: &str) -> bool {
    let variable = format!("{variable}={}/libhints.so", folder.display());
    let start = [
        "run",
        "--engine",
        "affinity",
        "-P",
        "hsf:young_ms=0",
        "-i",
        "20ms",
        "--machine",
        "unequal.toml",
        "--force",
        "-o",
        "run.rec",
        "--",
        "env",
        "OMP_WAIT_POLICY=active",
    ];
    let output = steer(folder, &[&start[..], &[&variable, program]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let record = Record::load(&folder.join("run.rec")).unwrap();
    let hinted =
        |phase| (record.hints.iter()).any(|r| r.hint.phase == phase && r.hint.workers == 2);
    hinted(Phase::Spinning) && hinted(Phase::Running)
}

#[test]
fn runtimes_of_openmp_give_hints_about_shared_loops_and_waits() {
    if !is_possible() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    std::fs::write(dir.join("unequal.toml"), machine()).unwrap();
    link_library(dir);
    let shared = ["-shared", "-fPIC", "-lcountersteer", "-ldl"];
    compiled(dir, "../capi/examples/openmp.c", "libhints.so", &shared);
    let source = "tests/pages/loops.c";
    if cc(dir, source, "loops", &["-fopenmp"]).status.success() {
        assert!(has_hints(dir, "LD_PRELOAD", "./loops"));
        assert!(!has_hints(dir, "NOTHING", "./loops"));
    } else {
        countersteer_fuzz::skipped("the C compiler has no OpenMP (libgomp)");
    }
    // LLVM's runtime has the functions of libgomp, too.
    let versions = std::fs::read_dir("/usr/lib").unwrap().flatten();
    let libraries = versions.map(|entry| entry.path().join("lib"));
    let Some(library) = libraries
        .into_iter()
        .find(|lib| lib.join("libomp.so").exists())
    else {
        return countersteer_fuzz::skipped("there is no runtime of LLVM (libomp-dev)");
    };
    let library = library.to_str().unwrap();
    let path = format!("-Wl,-rpath,{library}");
    compiled(dir, source, "loops.o", &["-fopenmp", "-c"]);
    let mut link = Command::new("cc");
    link.arg(dir.join("loops.o"))
        .args(["-L", library, &path, "-lomp", "-o"]);
    assert!(link.arg(dir.join("loops-llvm")).status().unwrap().success());
    assert!(has_hints(dir, "OMP_TOOL_LIBRARIES", "./loops-llvm"));
}
