use std::fmt::Write as _;

use super::*;
use crate::Experiment;

mod perf;
mod perfetto;
mod trace_dat;

/// `worker` runs 10 ms and sleeps 30 ms, three times. It preempts `hog`, which never sleeps. Times in ms.
const SWITCHES: [(u64, i32, char, i32); 6] = [
    (10, 7, 'S', 8),
    (40, 8, 'R', 7),
    (50, 7, 'S', 8),
    (80, 8, 'R', 7),
    (90, 7, 'S', 8),
    (120, 8, 'R', 7),
];
const WAKES_MS: [u64; 3] = [40, 80, 120];
const END_MS: u64 = 130;

fn name(tid: i32) -> &'static str {
    match tid {
        0 => "swapper/0",
        7 => "worker",
        _ => "hog of CPUs",
    }
}

fn ftrace_text() -> String {
    let mut text = String::from("# tracer: nop\n");
    let head = "          <...>-7     [000] d..2.   100.";
    for at in WAKES_MS {
        writeln!(
            text,
            "{head}{:06}: sched_waking: comm=worker pid=7 prio=120 target_cpu=000",
            at * 1000 - 1
        )
        .unwrap();
    }
    writeln!(text, "{head}000000: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=worker next_pid=7 next_prio=120").unwrap();
    for (at, prev, state, next) in SWITCHES {
        writeln!(
            text,
            "{head}{:06}: sched_switch: prev_comm={} prev_pid={prev} prev_prio=120 prev_state={state} ==> next_comm={} next_pid={next} next_prio=120",
            at * 1000, name(prev), name(next)
        )
        .unwrap();
    }
    writeln!(text, "{head}{:06}: sched_switch: prev_comm=worker prev_pid=7 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120", END_MS * 1000).unwrap();
    text
}

fn tasks(format: &str, bytes: &[u8]) -> Tasks {
    let format = FORMATS.iter().find(|f| f.name == format).unwrap();
    assert!((format.detects)(bytes), "{} is not detected", format.name);
    format.read("x", bytes.to_vec(), io::empty()).unwrap()
}

/// Checks both tasks. Worker: 40 ms of CPU time in four bursts, three sleeps of 30 ms. Hog: 90 ms without a sleep.
fn check(tasks: &Tasks, what: &str) {
    let [hog, worker] = &tasks.tasks[..] else {
        panic!("{what}: {tasks:?}");
    };
    assert_eq!(
        (&*hog.name, &*worker.name),
        ("hog of CPUs", "worker"),
        "{what}"
    );
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-5, "{what}: {a} is not {b}");
    near(hog.cpu_s, 0.09);
    near(hog.sleeps, 0.0);
    near(hog.start_s, 0.01);
    near(worker.cpu_s, 0.04);
    near(worker.sleeps, 3.0);
    near(worker.sleep_s, 0.03);
    near(worker.start_s, 0.0);
}

#[test]
fn text_of_ftrace_gives_bursts_and_sleeps() {
    check(&tasks("ftrace", ftrace_text().as_bytes()), "ftrace");
    // Short form of `trace-cmd report` and `perf script`.
    let mut short = String::new();
    for at in WAKES_MS {
        writeln!(
            short,
            "  x  7 [000]  5.{:09}: sched:sched_waking: worker:7 [120] CPU:000",
            at * 1_000_000
        )
        .unwrap();
    }
    let mut switch = |at: u64, prev: i32, state: char, next: i32| {
        let p = name(prev);
        let n = name(next);
        writeln!(short, "  x  7 [000]  5.{:09}: sched:sched_switch: {p}:{prev} [120] {state} ==> {n}:{next} [120]", at * 1_000_000).unwrap();
    };
    switch(0, 0, 'R', 7);
    SWITCHES
        .into_iter()
        .for_each(|(at, prev, state, next)| switch(at, prev, state, next));
    switch(END_MS, 7, 'S', 0);
    check(&tasks("ftrace", short.as_bytes()), "trace-cmd");
    let broken = "x-1 [000] 1.000001: sched_switch: what\n";
    let error = ftrace::read("t.txt", &mut broken.as_bytes()).unwrap_err();
    let error = error.downcast_ref::<TextError>().unwrap();
    assert_eq!(error.line, Some(1), "{error}");
}

#[test]
fn a_thread_whose_switch_is_missing_ran_until_the_next_one_of_its_cpu() {
    let switch = |us: u64, cpu: u32, prev: &str, state: &str, next: &str| {
        format!("x-1 [00{cpu}] 1.{us:06}: sched_switch: {prev} [120] {state} ==> {next} [115]\n")
    };
    let text = [
        switch(0, 0, "a:1", "R", "hidden:2"),
        // The hidden thread is never switched out, and `b` begins elsewhere by a clock that is ahead.
        switch(3_000, 0, "a:1", "S", "b:3"),
        switch(4_000, 1, "b:3", "S", "swapper:0"),
        switch(9_000, 0, "swapper:0", "R", "a:1"),
        switch(10_000, 0, "a:1", "S", "swapper:0"),
    ];
    let read = tasks("ftrace", text.concat().as_bytes());
    let of = |name: &str| read.tasks.iter().find(|t| t.name == name).unwrap();
    assert!((of("hidden").cpu_s - 0.003).abs() < 1e-9, "{read:?}");
    assert!((of("a").cpu_s - 0.001).abs() < 1e-9, "{read:?}");
    assert_eq!((of("hidden").nice, of("b").nice), (-5, 0));
    assert!(
        read.warnings[0].starts_with("2 switches are missing"),
        "{read:?}"
    );
}

fn state_of(letter: char) -> i64 {
    i64::from(letter == 'S')
}

const RT_APP: &str = r#"{
    /* two kinds of threads */
    "global": { "duration": 2 },
    "tasks": {
        "frame": { "instance": 2, "delay": 500000, "priority": -5, "cpus": [0, 1], "phases": {
            "light": { "loop": 3, "run": 1000, "timer": { "ref": "unique", "period": 10000 } },
            "heavy": { "run": 5000, "timer": { "ref": "unique", "period": 20000 } },
        } },
        "batch": { "loop": 4, "run0": 1000, "sleep": 2000, "run1": 3000, "sleep": 4000, "lock": "m" },
    }
}"#;

#[test]
fn phases_of_rt_app_are_gone_through() {
    let read = tasks("rt-app", RT_APP.as_bytes());
    let [frame, batch] = &read.tasks[..] else {
        panic!("{read:?}");
    };
    assert_eq!(
        (frame.copies, frame.nice, frame.cpus.as_deref()),
        (2, -5, Some("0,1"))
    );
    // A pass takes 50 ms with 8 ms of CPU time and four sleeps. 1.5 s remain after the delay.
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} is not {b}");
    near(frame.cpu_s, 30.0 * 0.008);
    near(frame.sleeps, 30.0 * 4.0 - 1.0);
    near(frame.sleep_s, 0.042 / 4.0);
    near(batch.cpu_s, 4.0 * 0.004);
    near(batch.sleep_s, 0.003);
    assert_eq!(read.warnings, ["not kept: `lock`, `timer.ref`"]);
    let text = RT_APP.replace("\"run\": 5000", "\"run\": \"x\"");
    let error = rt_app::read("t.json", text.into()).unwrap_err();
    assert_eq!(error.line, Some(7), "{error}");
}

#[test]
fn tasks_of_rt_app_wait_until_others_resume_them() {
    let text = "\u{feff}{ \"tasks\": {
        \"worker\": { \"loop\": -1, \"suspend\", \"run\": 1500 },
        \"waker\": { \"loop\": -1, \"run\": 500, \"resume\": \"worker\", \"timer\": { \"period\": 10000 } },
        \"alone\": { \"loop\": -1, \"suspend\", \"run\": 700, \"util_max\": 5 } },
        \"global\": { \"duration\": 1, \"frag\": 1 } }";
    let read = tasks("rt-app", text.as_bytes());
    let [worker, waker, alone] = &read.tasks[..] else {
        panic!("{read:?}");
    };
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} is not {b}");
    near(worker.cpu_s, 100.0 * 0.0015);
    near(worker.sleep_s, 0.0085);
    near(waker.cpu_s, 100.0 * 0.0005);
    near(alone.cpu_s, 0.0007);
    assert_eq!(
        read.warnings,
        [
            "task `alone` waits to be resumed, and no other task resumes it: one pass is kept",
            "not kept: `global.frag`, `util_max`"
        ]
    );
}

#[test]
fn fragments_and_old_forms_of_rt_app_are_said_to_be_such() {
    let refused = |text: &str| {
        assert!(rt_app::detects(text.as_bytes()), "{text}");
        rt_app::read("x", text.into()).unwrap_err().to_string()
    };
    let fragment = refused(r#"{ "global": { "duration": 5 } }"#);
    assert!(fragment.contains("a fragment of a task file"), "{fragment}");
    let old = refused(r#"{ "tasks": { "t": { "exec": 5000, "period": 5000 } } }"#);
    assert!(old.contains("the old form"), "{old}");
}

#[test]
fn an_imported_workload_sleeps_as_long_as_its_origin() {
    let options = ImportOptions::default();
    let imported = import("w.txt", ftrace_text().as_bytes(), &options).unwrap();
    let worker = &imported.workload.program[1];
    assert_eq!(
        (worker.burst_mi, worker.sleep_ms),
        (Some(20.0), Some(29.999))
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("w.toml");
    std::fs::write(&file, imported.text).unwrap();
    let mut experiment =
        Experiment::named("quickia-2b-2s", file.to_str().unwrap(), "linux").unwrap();
    experiment.options.rounds = 1;
    let finished = experiment.run().unwrap();
    let worker = finished
        .score
        .programs
        .iter()
        .find(|p| p.name == "worker")
        .unwrap();
    // It has its own core: three sleeps of 30 ms and 80 million instructions.
    let expected_s = 0.09 + 80e6 / (worker.ipc * 1e9 * 3.0);
    assert!(
        (0.09..2.0 * expected_s).contains(&worker.completion_s),
        "{worker:?}"
    );
}

#[test]
fn what_cannot_be_read_is_said() {
    let error = import("x", &b"nothing"[..], &ImportOptions::default())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("not in a supported format") && error.contains("rt-app"),
        "{error}"
    );
    let unknown = ImportOptions {
        profile: "nosuch".into(),
        ..ImportOptions::default()
    };
    let error = import("x", ftrace_text().as_bytes(), &unknown)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("nosuch") && error.contains("steer profile list"),
        "{error}"
    );
    for format in &FORMATS {
        let read = format.read("x", Vec::new(), io::empty());
        assert!(read.is_err(), "{}", format.name);
    }
}

#[test]
fn no_input_makes_a_reader_panic() {
    let [perf, perf_of_several] = perf::examples();
    let ftrace = ftrace_text();
    let [compact, packed] = perfetto::examples();
    let trace_dat = trace_dat::example();
    let examples: [(&str, &[&[u8]]); 5] = [
        ("trace-cmd", &[&trace_dat]),
        ("perf", &[&perf, &perf_of_several]),
        ("rt-app", &[RT_APP.as_bytes()]),
        ("ftrace", &[ftrace.as_bytes()]),
        ("perfetto", &[&compact, &packed]),
    ];
    for (name, examples) in examples {
        let format = FORMATS.iter().find(|f| f.name == name).unwrap();
        countersteer_fuzz::storm(name, examples, 1.0, |bytes| {
            let _ = format.read("x", bytes.to_vec(), io::empty());
        });
    }
}

/// Stream that must not be read.
struct Unread;

impl Read for Unread {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        panic!("more than the head of this file is read");
    }
}

#[test]
fn files_are_refused_by_their_heads_or_beyond_their_limits() {
    let refused = |stream: &mut dyn Read| {
        let error = import("x", stream, &ImportOptions::default()).unwrap_err();
        format!("{error:#}")
    };
    let head_of = |begin: &[u8]| {
        let mut head = begin.to_vec();
        head.resize(HEAD as usize, 0);
        io::Cursor::new(head)
    };
    for (begin, why) in [
        (&b"PERFILE2"[..], "damaged perf.data: its header"),
        (b"PERFILE2\x10\0\0\0\0\0\0\0", "written to a pipe"),
        (b"\x17\x08Dtracing5\0", "its version is 5"),
        (b"\x17\x08Dtracing6\0", "the format of its pages is missing"),
        (b"\x17\x08Dtracing7\0", "its compression"),
    ] {
        let said = refused(&mut head_of(begin).chain(Unread));
        assert!(said.contains(why), "{said}");
    }
    let said = refused(&mut RT_APP.as_bytes().chain(io::repeat(b' ')));
    let wanted = "larger than a file of the format rt-app may be (4194304 bytes)";
    assert!(said.contains(wanted), "{said}");
    let text = ftrace_text();
    let said = refused(&mut text.as_bytes().chain(io::repeat(b' ')));
    assert!(said.contains("x:13: this line has 1048576"), "{said}");
}

#[test]
fn sleeps_below_the_resolution_of_a_timer_are_imported() {
    let switch = |ns: u64, prev: &str, state: &str, next: &str| {
        format!("x-1 [000] 1.{ns:09}: sched_switch: {prev} [120] {state} ==> {next} [120]\n")
    };
    let text = [
        switch(0, "swapper:0", "R", "short:1"),
        switch(300, "short:1", "S", "swapper:0"),
        switch(700, "swapper:0", "R", "short:1"),
        switch(1100, "short:1", "S", "swapper:0"),
    ];
    let options = ImportOptions::default();
    let imported = import("x", text.concat().as_bytes(), &options).unwrap();
    let [short] = &imported.workload.program[..] else {
        panic!("{imported:?}");
    };
    assert_eq!((short.burst_mi, short.sleep_ms), (Some(0.001), Some(0.001)));
}
