//! Imported workloads run and sleep as their origins did.
//!
//! If perf is permitted to record, it records some programs here. `COUNTERSTEER_SCHED_TRACES` names a folder of further recordings.
//! Each has the same trace beside it as text of ftrace or of `perf script`, ending in `.txt`. An independent reader takes the right
//! values from the text.

#![allow(clippy::unwrap_used)] // a test helper that fails has failed its test

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use countersteer_lab::Experiment;
use countersteer_lab::import::{ImportOptions, import, task_set};
use countersteer_report::record::Detail;

/// CPU time in seconds and number of wake-ups of the threads with one name.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    cpu_s: f64,
    wakes: f64,
    /// CPU time as it is imported, which the simulation changes by the costs of wake-ups.
    imported_s: f64,
    /// Number of threads with wake-ups.
    sleepers: f64,
    /// A switch of a thread is missing in the trace, so its CPU time is unknown.
    is_unsure: bool,
}

/// CPU time in seconds that a simulated wake-up costs at most: a switch, and cold caches.
const WAKE_S: f64 = 10e-6;

/// Name, TID and state of a thread in a context switch, in the long form of the text or in the short one; `None` in another form.
fn thread(text: &str) -> Option<(String, i32, String)> {
    // `prev_comm=NAME prev_pid=TID prev_prio=PRIORITY prev_state=STATE`.
    if let Some((name, rest)) = text
        .split_once("_comm=")
        .and_then(|(_, rest)| rest.split_once("_pid="))
    {
        let name = name.rsplit_once(' ')?.0;
        let tid = rest.split(' ').next()?.parse().ok()?;
        let state = rest.split_once("_state=").map_or("", |(_, state)| state);
        return Some((name.to_owned(), tid, state.to_owned()));
    }
    // `NAME:TID [PRIORITY] STATE`.
    let (thread, rest) = text.rsplit_once(" [")?;
    let (name, tid) = thread.rsplit_once(':')?;
    let state = rest.split_once(']')?.1.trim();
    Some((name.to_owned(), tid.parse().ok()?, state.to_owned()))
}

/// Threads of a context switch; `None` in another form.
fn switch(fields: &str) -> Option<[(String, i32, String); 2]> {
    let (prev, next) = fields.trim().split_once(" ==> ")?;
    Some([thread(prev)?, thread(next)?])
}

/// Reads text of ftrace or `perf script`: CPU time by the switches of each CPU, and one wake-up for each switch in behind a sleep.
/// The first thread of a CPU has run since the first switch, and the last one runs until the last switch.
fn truth(text: &str) -> BTreeMap<String, Use> {
    let mut names: BTreeMap<i32, String> = BTreeMap::new();
    let mut on_cpu: BTreeMap<&str, (i32, f64)> = BTreeMap::new();
    let mut asleep = BTreeMap::new();
    let mut times = None;
    let mut uses: BTreeMap<i32, Use> = BTreeMap::new();
    for line in text.lines() {
        let Some((head, fields)) = line.split_once("sched_switch:") else {
            continue;
        };
        let head = head.trim_end_matches("sched:").trim_end();
        let mut words = head.rsplit(' ').filter(|word| !word.is_empty());
        let time_s: f64 = words.next().unwrap().trim_end_matches(':').parse().unwrap();
        let cpu = words.find(|word| word.starts_with('[')).unwrap();
        // Without this switch, the next one does not fit the last one, and its threads are not compared.
        let Some([(prev_name, prev, state), (next_name, next, _)]) = switch(fields) else {
            continue;
        };
        let (begin_s, _) = *times.get_or_insert((time_s, time_s));
        times = Some((begin_s, time_s));
        // perf itself begins on one CPU after the other.
        let is_new = !names.contains_key(&prev);
        let before = on_cpu.insert(cpu, (next, time_s));
        if let Some((tid, _)) = before
            && tid != prev
        {
            uses.entry(tid).or_default().is_unsure = true;
            uses.entry(prev).or_default().is_unsure = true;
        }
        if let Some((tid, since_s)) = before.or(is_new.then_some((prev, begin_s))) {
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
    for (tid, since_s) in on_cpu.into_values() {
        let (_, end_s) = times.unwrap();
        uses.entry(tid).or_default().cpu_s += end_s - since_s;
    }
    let mut by_name: BTreeMap<String, Use> = BTreeMap::new();
    for (tid, own) in uses.into_iter().filter(|(tid, _)| *tid != 0) {
        let sum = by_name.entry(names.remove(&tid).unwrap()).or_default();
        sum.cpu_s += own.cpu_s;
        sum.wakes += own.wakes;
        sum.sleepers += f64::from(own.wakes > 0.0);
        sum.is_unsure |= own.is_unsure;
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
        sum.imported_s += program.scale * per_scale / (options.mips * 1e6);
        sum.cpu_s += usage.cpu_s.iter().sum::<f64>() / runs;
        sum.wakes += wakes / runs;
    }
    uses
}

/// CPU time in seconds of the least name that is compared. The end of a run within a job weighs more with less.
const LEAST_S: f64 = 0.02;

/// Compares the names with one per cent of the CPU time or more. Returns the shares of the CPU time and the numbers of wake-ups that differ
/// by more than two per cent. Two wake-ups more or less are allowed, because a trace begins and ends within sleeps, and a simulation ends
/// within a run; of several threads these add up as independent deviations do.
fn differences(right: &BTreeMap<String, Use>, found: &BTreeMap<String, Use>) -> Vec<String> {
    let is_sure = |name: &String| right.get(name).is_some_and(|u| !u.is_unsure);
    let all = |uses: &BTreeMap<String, Use>, of: fn(&Use) -> f64| {
        let sure = uses.iter().filter(|(name, _)| is_sure(name));
        sure.map(|(_, u)| of(u)).sum::<f64>()
    };
    let all_right = all(right, |u| u.cpu_s);
    let all_wakes = all(right, |u| u.wakes);
    let all_simulated = all(found, |u| u.cpu_s);
    let all_imported = all(found, |u| u.imported_s);
    let mut wrong = Vec::new();
    let large = right
        .iter()
        .filter(|(name, u)| is_sure(name) && u.cpu_s >= (0.01 * all_right).max(LEAST_S));
    for (name, right) in large.clone() {
        let found = found.get(name).copied().unwrap_or_default();
        let right_share = right.cpu_s / all_right;
        let imported = found.imported_s / all_imported / right_share;
        let simulated = found.cpu_s / all_simulated / right_share;
        let more_wakes = found.wakes - right.wakes;
        let line = format!(
            "{name}: share of CPU time x {imported:.4} imported, x {simulated:.4} simulated, {more_wakes:+.2} wake-ups to {}",
            right.wakes
        );
        println!("{line}");
        // Those of all names make each share smaller.
        let cost = WAKE_S * (right.wakes / right.cpu_s + all_wakes / all_right);
        if (imported - 1.0).abs() > 0.02
            || (simulated - 1.0).abs() > 0.02 + cost
            || more_wakes.abs() > (0.02 * right.wakes).max(2.0 * right.sleepers.max(1.0).sqrt())
        {
            wrong.push(line);
        }
    }
    for (name, found) in found {
        let share = found.imported_s / all_imported;
        if !right.contains_key(name) && share > 0.02 {
            wrong.push(format!(
                "{name}: {share:.4} of the CPU time, and it is not in the trace"
            ));
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

/// Programs that perf records: shells that compute and sleep, a pipe with many wake-ups, and processes that pack a stream.
const PROGRAMS: [(&str, &str); 3] = [
    (
        "shells",
        "for n in 1 2 3; do (for i in 1 2 3 4 5 6 7 8 9 10 11 12; do j=0; while [ $j -lt $((n * 3000)) ]; do j=$((j + 1)); done; sleep 0.01; done) & done; wait",
    ),
    (
        "pipe",
        "i=0; while [ $i -lt 60000 ]; do echo $i; i=$((i + 1)); done | while read -r x; do echo $x; done > /dev/null",
    ),
    (
        "pack",
        "for n in 1 2; do head -c 8000000 /dev/urandom | gzip -c | cat > /dev/null & done; wait",
    ),
];

fn perf(args: &[&str]) -> Result<Output, String> {
    let ran = Command::new("perf")
        .args(args)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output();
    let output = ran.map_err(|e| format!("perf cannot be started ({e})"))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().map(str::trim).find(|line| !line.is_empty());
    Err(format!(
        "perf {} fails here: {}",
        args[0],
        said.unwrap_or_default()
    ))
}

#[test]
fn shares_and_wake_ups_are_those_that_perf_records_here() {
    let folder = tempfile::tempdir().unwrap();
    let mut compared = 0;
    for (name, script) in PROGRAMS {
        let file = folder.path().join(name);
        let file = file.to_str().unwrap();
        if let Err(why) = perf(&[
            "sched", "record", "-m", "16M", "-o", file, "--", "sh", "-c", script,
        ]) {
            countersteer_fuzz::skipped(why);
            return;
        }
        let text = perf(&["script", "--ns", "-i", file]).unwrap().stdout;
        println!("{name}");
        let right = truth(&String::from_utf8_lossy(&text));
        // perf misses switches on a busy machine. Then little but threads of the kernel may be left.
        let cpu_s = |sure: bool| -> f64 {
            let of = right.values().filter(|u| u.is_unsure != sure);
            of.map(|u| u.cpu_s).sum()
        };
        let is_large = |u: &Use| !u.is_unsure && u.cpu_s >= LEAST_S.max(0.01 * cpu_s(true));
        if cpu_s(true) < cpu_s(false) || !right.values().any(is_large) {
            continue;
        }
        compared += 1;
        let found = simulated(name, &std::fs::read(file).unwrap());
        let wrong = differences(&right, &found);
        assert!(wrong.is_empty(), "{name}: {wrong:#?}");
    }
    if compared == 0 {
        countersteer_fuzz::skipped("perf misses switches of most threads here");
    }
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
