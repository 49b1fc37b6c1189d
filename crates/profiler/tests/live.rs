//! Tests of programs that are simulated while they run: their events equal those of a recording, and no process or file is left.
//!
//! The tests need a QEMU with plugin support and a C compiler. Without them they print a message and pass.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

mod instrumented;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use countersteer_cache::source::{EventStream, TraceSource};
use countersteer_cache::wire::BlockHead;
use countersteer_profiler::live::{LiveSimulation, RunningProgram};
use countersteer_profiler::{Architecture, engines, profile};

use instrumented::{options, programs};

/// Environment variable with the program, for a copy of this test that is to be killed.
const HOLDS: &str = "COUNTERSTEER_TEST_HOLDS";

fn live(program: &str, arguments: &[&str], threads: u32) -> LiveSimulation {
    let words = [&[program], arguments].concat();
    LiveSimulation::new(words.into_iter().map(str::to_owned).collect(), threads)
}

/// Returns the words of a thread's run, by nonempty block.
fn run(stream: &mut dyn EventStream, instructions: u64) -> Vec<Vec<u32>> {
    let mut left = instructions;
    let mut blocks = Vec::new();
    while left > 0 {
        let block = stream.next_block();
        left -= u64::from(block.head.instructions);
        blocks.push(block.words.to_vec());
    }
    blocks.retain(|words| !words.is_empty());
    blocks
}

/// Returns the words of each thread's recorded run, by nonempty block, and the instructions of all threads.
fn recorded(program: &str, arguments: &[&str]) -> (BTreeMap<u32, Vec<Vec<u32>>>, u64) {
    let recorded = Arc::new(Mutex::new(BTreeMap::<u32, Vec<Vec<u32>>>::new()));
    let into = recorded.clone();
    let mut wanted = options(program, arguments);
    let sink = move |head: BlockHead, words: &[u32]| {
        let mut into = into.lock().unwrap();
        let thread = into.entry(head.thread).or_default();
        thread.extend((!words.is_empty()).then(|| words.to_vec()));
        true
    };
    wanted.stream = Some((8, Arc::new(Mutex::new(sink))));
    let instructions = profile(&wanted).unwrap().instructions;
    let recorded = std::mem::take(&mut *recorded.lock().unwrap());
    (recorded, instructions)
}

/// Asserts that two runs are equal word by word; reports the first difference.
fn assert_same(now: &[Vec<u32>], recorded: &[Vec<u32>], which: &str) {
    assert_eq!(now.len(), recorded.len(), "{which}: blocks");
    for (block, (now, recorded)) in now.iter().zip(recorded).enumerate() {
        let part = now.iter().zip(recorded).position(|(a, b)| a != b);
        assert!(
            now == recorded,
            "{which}: block {block} of {} and {} words differs from word {part:?} on",
            now.len(),
            recorded.len()
        );
    }
}

/// True if a run is the same each time, also when it is sent. Since release 8.2, QEMU gives programs a vDSO: it lies where the host has room, and
/// programs read the host's time from it.
fn runs_are_the_same() -> bool {
    let engine = engines(Architecture::here().unwrap()).remove(0);
    let said = Command::new(&engine.file)
        .arg("--version")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let release = said.split_whitespace().nth(2).unwrap_or_default();
    let mut numbers = release.split('.').map(|n| n.parse::<u32>().unwrap_or(0));
    let release = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if release >= (8, 2) {
        countersteer_fuzz::skipped(format_args!(
            "{} gives programs a vDSO, whose place and time are the host's",
            engine.file.display()
        ));
    }
    release < (8, 2)
}

/// Returns the number of processes with the program in their command line.
fn processes(program: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap();
    let command = |entry: std::io::Result<std::fs::DirEntry>| {
        std::fs::read(entry.ok()?.path().join("cmdline")).ok()
    };
    let named = |command: &Vec<u8>| {
        let words = command.split(|b| *b == 0);
        words.skip(1).any(|word| word == program.as_bytes())
    };
    entries.filter_map(command).filter(named).count()
}

fn until(mut done: impl FnMut() -> bool, what: &str) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_running_program_sends_what_its_recording_holds_run_after_run() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    if !runs_are_the_same() {
        return;
    }
    let (mut recorded, instructions) = recorded(&program, &["mixed", "20"]);
    let recorded = recorded.remove(&1).unwrap();
    let source = live(&program, &["mixed", "20"], 1);
    let mut stream = source.copy().stream(0);
    assert!(!stream.begin(0.0, 0));
    assert_same(&run(&mut *stream, instructions), &recorded, "the first run");
    assert_same(&run(&mut *stream, instructions), &recorded, "the next run");
    stream.next_block();
    assert!(!stream.begin(0.5, 1) && stream.begin(0.0, 1));
    let again = run(&mut *stream, instructions);
    assert_same(&again, &recorded, "from the start");
    drop(stream);
    assert_eq!(source.failure(), None);
    assert_eq!(processes(&program), 0);
}

#[test]
fn threads_have_streams_of_their_own_and_may_wait_for_each_other() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    let process = RunningProgram::start(&options(&program, &["threads", "2", "2000000"])).unwrap();
    let executed = |thread| {
        let blocks = std::iter::from_fn(|| process.next_block(thread).unwrap());
        blocks
            .map(|block| u64::from(block.head.instructions))
            .sum::<u64>()
    };
    // The first thread waits for the others at its end, and the others wait for room in their queues.
    let first = executed(0);
    let others = [executed(1), executed(2)];
    assert!(first < 1_000_000, "{first}");
    assert!(others.iter().all(|n| *n > 4_000_000), "{others:?}");
    assert_eq!((executed(3), process.threads()), (0, 3));
}

#[test]
fn forked_and_executed_programs_are_threads_too() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    for (kind, threads) in [("fork", 2), ("spawn", 3)] {
        let process = RunningProgram::start(&options(&program, &[kind])).unwrap();
        while process.next_block(0).unwrap().is_some() {}
        until(|| process.ending().is_some(), "the program goes on");
        // The child of `posix_spawn` is one thread before it executes the program, and another thread after it.
        assert_eq!(process.threads(), threads, "{kind}");
    }
    assert_eq!(processes(&program), 0);
}

#[test]
fn a_forked_process_sends_what_its_recording_holds() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    if !runs_are_the_same() {
        return;
    }
    let (recorded, _) = recorded(&program, &["fork"]);
    let process = RunningProgram::start(&options(&program, &["fork"])).unwrap();
    for thread in [0, 1] {
        let blocks = std::iter::from_fn(|| process.next_block(thread).unwrap());
        let blocks = blocks.map(|block| block.words.to_vec());
        let sent: Vec<Vec<u32>> = blocks.filter(|words| !words.is_empty()).collect();
        assert_same(&sent, &recorded[&(thread + 1)], &format!("thread {thread}"));
    }
}

#[test]
fn programs_that_cannot_run_are_failures_with_reasons() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    let missing = live("/nonexistent/program", &[], 1);
    let mut stream = missing.copy().stream(0);
    assert!(stream.next_block().words.is_empty());
    assert!(missing.failure().unwrap().contains("was not found"));
    let few = live(&program, &["exit", "0"], 2);
    let copy = few.copy();
    let (mut first, mut second) = (copy.stream(0), copy.stream(1));
    assert!(!first.next_block().words.is_empty());
    assert!(second.next_block().words.is_empty());
    let why = few.failure().unwrap();
    assert!(why.contains("thread 2 executed nothing"), "{why}");
    let crashes = live(&program, &["crash"], 1);
    let mut stream = crashes.copy().stream(0);
    assert!((0..3).all(|_| !stream.next_block().words.is_empty()));
}

/// Helper process rather than a test: holds a program until it is killed.
#[test]
fn holder() {
    let Some(program) = std::env::var_os(HOLDS) else {
        return;
    };
    let program = program.to_str().unwrap();
    let naps = RunningProgram::start(&options(program, &["naps"])).unwrap();
    let busy = RunningProgram::start(&options(program, &["forever"])).unwrap();
    assert!(busy.next_block(0).unwrap().is_some());
    // No more blocks are taken from either program.
    std::thread::sleep(Duration::from_secs(600));
    drop((naps, busy));
}

#[test]
fn when_the_simulation_is_killed_nothing_is_left_of_its_programs() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "holder"])
        .env(HOLDS, &program)
        .env("TMPDIR", scratch.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // The busy program, and a tree of three processes.
    until(|| processes(&program) == 4, "the programs do not start");
    holder.kill().unwrap();
    holder.wait().unwrap();
    until(|| processes(&program) == 0, "a program goes on");
    let left = |path: &Path| std::fs::read_dir(path).unwrap().count();
    assert_eq!(left(scratch.path()), 0);
}
