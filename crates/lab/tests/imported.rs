//! Imported workloads run and sleep as their origins did.
//!
//! `COUNTERSTEER_SCHED_TRACES` names a folder of recordings. Each has the same trace beside it as text of ftrace, ending in `.txt`. An
//! independent reader takes the right values from the text.

#![allow(clippy::unwrap_used)] // a test helper that fails has failed its test

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use countersteer_lab::Experiment;
use countersteer_lab::import::{ImportOptions, import, task_set};
use countersteer_report::record::Detail;

/// CPU time in seconds and number of wake-ups of the threads with one name.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    cpu_s: f64,
    wakes: f64,
}

/// Reads ftrace's short text (`name:tid [prio] state ==> name:tid [prio]`): CPU time by the switches of each CPU, and one wake-up for
/// each switch in behind a sleep.
fn truth(text: &str) -> BTreeMap<String, Use> {
    let mut names: BTreeMap<i32, String> = BTreeMap::new();
    let mut on_cpu: BTreeMap<&str, (i32, f64)> = BTreeMap::new();
    let mut asleep = BTreeMap::new();
    let mut uses: BTreeMap<i32, Use> = BTreeMap::new();
    for line in text.lines() {
        let Some((head, fields)) = line.split_once("sched_switch:") else {
            continue;
        };
        let mut words = head.trim_end().rsplit(' ').filter(|word| !word.is_empty());
        let time_s: f64 = words.next().unwrap().trim_end_matches(':').parse().unwrap();
        let cpu = words.find(|word| word.starts_with('[')).unwrap();
        let (prev, next) = fields.trim().split_once(" ==> ").unwrap();
        let thread = |text: &str| {
            let (thread, rest) = text.rsplit_once(" [").unwrap();
            let (name, tid) = thread.rsplit_once(':').unwrap();
            let state = rest.split_once(']').unwrap().1.trim().to_owned();
            (name.to_owned(), tid.parse::<i32>().unwrap(), state)
        };
        let ((prev_name, prev, state), (next_name, next, _)) = (thread(prev), thread(next));
        if let Some((tid, since_s)) = on_cpu.insert(cpu, (next, time_s)) {
            uses.entry(tid).or_default().cpu_s += time_s - since_s;
        }
        if !state.starts_with('R') {
            asleep.insert(prev, ());
        }
        if asleep.remove(&next).is_some() {
            uses.entry(next).or_default().wakes += 1.0;
        }
        names.insert(prev, prev_name);
        names.insert(next, next_name);
    }
    let mut by_name: BTreeMap<String, Use> = BTreeMap::new();
    for (tid, own) in uses.into_iter().filter(|(tid, _)| *tid != 0) {
        let sum = by_name.entry(names.remove(&tid).unwrap()).or_default();
        sum.cpu_s += own.cpu_s;
        sum.wakes += own.wakes;
    }
    by_name
}

/// Simulates a recording on four equal cores, until each program has run once. Returns the use of one run by name.
fn simulated(name: &str, bytes: &[u8]) -> BTreeMap<String, Use> {
    let options = ImportOptions {
        min_share: 0.0,
        ..ImportOptions::default()
    };
    let imported = import(name, bytes, &options).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("imported.toml");
    std::fs::write(&file, imported.text).unwrap();
    let mut experiment = Experiment::named("core2-quad", file.to_str().unwrap(), "linux").unwrap();
    experiment.options.rounds = 1;
    experiment.detail = Some(Detail::Everything);
    let finished = experiment.run().unwrap();
    let record = finished.record.unwrap();
    let mut program_of = BTreeMap::new();
    for row in &record.threads {
        program_of.insert(row.thread, row.program as usize);
    }
    let mut wakes = vec![0.0; finished.usage.len()];
    for event in &record.events {
        if event.kind.name() == "wake" {
            wakes[program_of[&event.thread]] += 1.0;
        }
    }
    let mut uses: BTreeMap<String, Use> = BTreeMap::new();
    let rows = finished.usage.iter().zip(wakes);
    let programs = imported.workload.program.iter();
    let names = programs.flat_map(|p| vec![p; p.copies as usize]);
    // All programs have one profile, so instructions are proportional to `scale`.
    let per_scale = experiment.workload.programs[0].1.instructions() as f64;
    for (program, (usage, wakes)) in names.zip(rows) {
        let runs = usage.instructions / (program.scale * per_scale);
        let sum = uses.entry(program.name.clone().unwrap()).or_default();
        sum.cpu_s += usage.cpu_s.iter().sum::<f64>() / runs;
        sum.wakes += wakes / runs;
    }
    uses
}

/// Compares the names with one per cent of the CPU time or more. Returns the shares of the CPU time and the numbers of wake-ups that differ
/// by more than two per cent; one wake-up more or less is allowed, because a trace begins and ends within sleeps.
fn differences(right: &BTreeMap<String, Use>, found: &BTreeMap<String, Use>) -> Vec<String> {
    let all = |uses: &BTreeMap<String, Use>| uses.values().map(|u| u.cpu_s).sum::<f64>();
    let (all_right, all_found) = (all(right), all(found));
    let mut wrong = Vec::new();
    let large = right.iter().filter(|(_, u)| u.cpu_s >= 0.01 * all_right);
    for (name, right) in large.clone() {
        let found = found.get(name).copied().unwrap_or_default();
        let share = (found.cpu_s / all_found) / (right.cpu_s / all_right);
        let more_wakes = found.wakes - right.wakes;
        let line = format!(
            "{name}: share of CPU time x {share:.4}, {more_wakes:+.2} wake-ups to {}",
            right.wakes
        );
        println!("{line}");
        if (share - 1.0).abs() > 0.02 || more_wakes.abs() > (0.02 * right.wakes).max(1.0) {
            wrong.push(line);
        }
    }
    assert!(
        large.count() > 0,
        "no thread has one per cent of the CPU time"
    );
    wrong
}

/// Text of a trace of two CPUs: on each of them a thread runs and sleeps, another one fills the gaps. All lengths differ.
fn made_up() -> String {
    let mut text = String::new();
    let mut switch = |cpu: usize, us: u64, prev: &str, state: &str, next: &str| {
        writeln!(
            text,
            "  x-1 [00{cpu}] {}.{:06}: sched_switch: {prev} [120] {state} ==> {next} [120]",
            us / 1_000_000,
            us % 1_000_000
        )
        .unwrap();
    };
    for (cpu, worker, filler, sleeps) in
        [(0, "ui:7", "batch:8", 90), (1, "audio:9", "index:10", 211)]
    {
        let mut us = 1_000_000 + cpu as u64;
        switch(cpu, us, "swapper:0", "R", worker);
        for nth in 0..sleeps {
            us += 1_000 + 37 * (nth % 11);
            switch(cpu, us, worker, "S", filler);
            us += 4_000 + 91 * (nth % 7);
            switch(cpu, us, filler, "R+", worker);
        }
        switch(cpu, us + 1_000, worker, "S", "swapper:0");
    }
    text
}

#[test]
fn shares_and_wake_ups_are_those_of_the_trace() {
    let text = made_up();
    let wrong = differences(&truth(&text), &simulated("made-up.txt", text.as_bytes()));
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn shares_and_wake_ups_are_those_of_recordings() {
    let Some(folder) = std::env::var_os("COUNTERSTEER_SCHED_TRACES") else {
        countersteer_fuzz::skipped("COUNTERSTEER_SCHED_TRACES names no folder of recordings");
        return;
    };
    let (mut seen, mut wrong) = (0, Vec::new());
    for entry in std::fs::read_dir(Path::new(&folder)).unwrap() {
        let path = entry.unwrap().path();
        let text = path.with_extension("txt");
        if path == text || !text.exists() {
            continue;
        }
        let name = path.display().to_string();
        let right = truth(&std::fs::read_to_string(text).unwrap());
        println!("{name}");
        let of_file = differences(&right, &simulated(&name, &std::fs::read(&path).unwrap()));
        wrong.extend(of_file.into_iter().map(|line| format!("{name}: {line}")));
        seen += 1;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(seen > 0, "no recording there has a text beside it");
}

#[test]
fn task_files_of_rt_app_are_sets_of_tasks_for_kernels() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vm/rt-app/frames.json");
    let stream = std::fs::File::open(&file).unwrap();
    let made = task_set("frames.json", stream, &ImportOptions::default(), "frames").unwrap();
    let sets = include_str!("../../sim/tests/kernel/sets.tsv");
    let of_set = sets.lines().filter(|l| l.starts_with("frames\t"));
    let wanted: String = of_set.map(|l| format!("{l}\n")).collect();
    assert!(
        made.text == wanted,
        "sets.tsv of crates/sim/tests/kernel should have these lines:\n{}",
        made.text
    );
    // A set has up to 64 tasks.
    let many = r#"{"tasks": {"a": {"instance": 65, "loop": -1, "run": 10, "sleep": 10}}, "global": {"duration": 1}}"#;
    let error = task_set(
        "many.json",
        many.as_bytes(),
        &ImportOptions::default(),
        "many",
    )
    .unwrap_err();
    assert!(format!("{error:#}").contains("64 tasks"), "{error:#}");
}
