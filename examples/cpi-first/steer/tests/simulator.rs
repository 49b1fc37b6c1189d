//! The policy runs in the simulator, its record says what it saw, and a replay decides the same.

use std::path::Path;
use std::process::{Command, Output};

fn steer(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cpi-first"))
        .args(args)
        .current_dir(folder)
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8(all).unwrap()
}

#[test]
fn it_reads_its_formula_in_the_simulator_and_replays_equal() {
    let scratch = tempfile::tempdir().unwrap();
    let line = "sim -M i9-12900k-8p8e -w unequal-cores -P cpi-first --rounds 1 -o run.rec";
    let args: Vec<&str> = line.split(' ').collect();
    let run = steer(scratch.path(), &args);
    assert!(run.status.success(), "{}", text(&run));
    let replay = steer(scratch.path(), &["replay", "run.rec"]);
    assert!(replay.status.success(), "{}", text(&replay));
    let why = steer(
        scratch.path(),
        &["why", "run.rec", "--program", "stockfish", "--at", "5"],
    );
    assert!(text(&why).contains("cycles/instructions"), "{}", text(&why));
}

#[test]
fn it_is_listed_among_the_policies() {
    let scratch = tempfile::tempdir().unwrap();
    let list = steer(scratch.path(), &["policy", "list"]);
    assert!(text(&list).contains("cpi-first"), "{}", text(&list));
}
