//! Files with false contents: each is refused with exit code 3, quickly and without much memory.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

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
    let (begun, mut most) = (Instant::now(), 0);
    while child.try_wait().unwrap().is_none() {
        // `spawn` returns slightly before the child has memory of its own.
        let executes = fs::read_link(&executable).is_ok_and(|path| path != own);
        let text = fs::read_to_string(&status).unwrap_or_default();
        let text = if executes { text } else { String::new() };
        let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|peak| peak.split_whitespace().next()?.parse().ok());
        most = most.max(peak.unwrap_or(0));
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

#[test]
fn what_is_no_regular_file_or_has_no_end_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    pipe(&dir.path().join("pipe"));
    File::create(dir.path().join("huge"))
        .unwrap()
        .set_len(5 << 30)
        .unwrap();
    symlink("/dev/zero", dir.path().join("zero")).unwrap();
    for command in COMMANDS {
        for (file, kind) in [
            ("./pipe", "a named pipe"),
            ("/dev/zero", "a device"),
            ("./zero", "a device"),
            ("./huge", ""),
            ("/dev/fd/../cwd/pipe", "a named pipe"),
            ("/proc/self/fd/../cwd/zero", "a device"),
        ] {
            let args: Vec<&str> = command
                .split(' ')
                .map(|word| if word == "FILE" { file } else { word })
                .collect();
            let said = refused(&args, dir.path());
            // A record is a folder, so the error about another file is different.
            let named = said.contains(kind) || command.starts_with("report");
            assert!(named && said.contains(file), "{args:?}: {said}");
        }
    }
}

#[test]
fn folders_that_hold_pipes_are_read_without_them() {
    let dir = tempfile::tempdir().unwrap();
    let cpus = dir.path().join("root/sys/devices/system/cpu");
    fs::create_dir_all(&cpus).unwrap();
    pipe(&cpus.join("online"));
    let output = bounded(steer(dir.path()).args(["machine", "detect", "--root", "root"]));
    assert_ne!(
        output.status.code(),
        Some(101),
        "{}",
        text_of(&output.stderr)
    );
    let lists = dir.path().join("lists");
    fs::create_dir(&lists).unwrap();
    pipe(&lists.join("core.json"));
    let args = ["events", "--event-lists", "lists"];
    assert!(refused(&args, dir.path()).contains("a named pipe"));
    let grid =
        "machines = ['quickia-2b-2s']\npolicies = ['linux']\nmixes = { count = 1, programs = 2 }\n";
    fs::write(dir.path().join("grid.toml"), grid).unwrap();
    let results = dir.path().join("results");
    fs::create_dir(&results).unwrap();
    pipe(&results.join("grid.toml"));
    let args = ["sweep", "grid.toml", "-o", "results"];
    assert!(refused(&args, dir.path()).contains("a named pipe"));
}

#[test]
fn standard_input_and_what_the_shell_opens_are_still_read() {
    let dir = tempfile::tempdir().unwrap();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/core2-quad.toml");
    let shell = |script: &str| {
        let mut bash = Command::new("bash");
        bash.args(["-c", script, env!("CARGO_BIN_EXE_steer")])
            .arg(&shipped)
            .current_dir(dir.path())
            .env("HOME", dir.path());
        bounded(&mut bash)
    };
    for script in [
        "$0 machine show /dev/stdin < $1",
        "cat $1 | $0 machine show /dev/stdin",
        "$0 machine show <(cat $1)",
    ] {
        let output = shell(script);
        assert!(
            output.status.success(),
            "{script}: {}",
            text_of(&output.stderr)
        );
        assert!(text_of(&output.stdout).contains("core2"), "{script}");
    }
    for script in [
        "$0 machine show /dev/stdin < /dev/zero",
        "$0 workload import - < /dev/zero",
    ] {
        let output = shell(script);
        assert_eq!(
            output.status.code(),
            Some(3),
            "{script}: {}",
            text_of(&output.stderr)
        );
    }
}

/// Returns a text of just less than `length` bytes: a beginning, numbered parts, and an end.
fn filled(length: usize, begin: &str, part: impl Fn(usize) -> String, end: &str) -> String {
    let mut text = begin.to_owned();
    for nth in 0.. {
        let part = part(nth);
        if text.len() + part.len() + end.len() >= length {
            break;
        }
        text += &part;
    }
    text + end
}

/// Largest TOML file in bytes.
const MOST_TOML: usize = 400_000;

#[test]
fn toml_below_the_limit_needs_little_memory_and_time() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.toml");
    let same = |part: &'static str| move |_: usize| part.to_owned();
    let texts = [
        filled(MOST_TOML, "a=[", same("1,"), "]"),
        filled(MOST_TOML, "a=[", same("{},"), "]"),
        filled(MOST_TOML, "", same("\n"), "a"),
        filled(MOST_TOML, "", same("#\n"), "a"),
        filled(MOST_TOML, "a=[", same("{a={a={a={}}}},"), "]"),
        filled(MOST_TOML, "", |nth| format!("[a{nth}]\n"), ""),
        filled(MOST_TOML, "", |nth| format!("[[a.b{nth}]]\n"), ""),
        filled(MOST_TOML, "", |nth| format!("a{nth}=1\n"), ""),
        filled(MOST_TOML, "a", same(".a"), "=1"),
        filled(
            MOST_TOML,
            "",
            |nth| format!("[[{}{nth}]]\n", "a.".repeat(60)),
            "",
        ),
        filled(MOST_TOML, "core_type=[", same("{},"), "]"),
        filled(MOST_TOML, "program=[", same("{},"), "]"),
        filled(MOST_TOML, "a=\"", same("\\n"), "\""),
        filled(3 * MOST_TOML, "a=[", same("1,"), "]"),
    ];
    let commands = [
        "machine show a.toml",
        "workload show a.toml",
        "profile show a.toml",
        "model show a.toml",
        "sweep a.toml -o out",
        "daemon --list --rules a.toml",
        "stat --metric-file a.toml -- true",
    ];
    for (nth, text) in texts.iter().enumerate() {
        fs::write(&file, text).unwrap();
        // Each kind of file is parsed in the same way.
        let chosen = commands.iter().skip(nth % 3).step_by(3);
        for command in chosen {
            let args: Vec<&str> = command.split(' ').collect();
            let said = refused_with_line(&args, dir.path());
            assert!(said.len() < 40_000, "{args:?}: {}", said.len());
        }
    }
    let said = refused(&["machine", "show", "a.toml"], dir.path());
    assert!(said.contains("TOML is read up to 400000"), "{said}");
}

#[test]
fn long_formulas_are_refused_and_long_words_of_tables_are_cut() {
    let dir = tempfile::tempdir().unwrap();
    let group = |name: &str, formula: &str| {
        let head = "prose = 'x'\n[[metric]]\nunit = 'x'\nprose = 'x'\n";
        let text = format!("{head}name = '{name}'\nformula = '{formula}'\n");
        fs::write(dir.path().join("m.toml"), text).unwrap();
    };
    let args = ["events", "--metric-file", "m.toml"];
    for terms in [4_000, 16_000, 50_000] {
        group("m", &vec!["cycles"; terms].join("+"));
        let (output, _) = measured(steer(dir.path()).args(args));
        let said = text_of(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("the formula is too long"), "{said}");
        assert!(said.len() < 2_000, "{said}");
    }
    // The place of an error may be far from the beginning.
    group("m", &format!("{}$", " ".repeat(100_000)));
    let said = text_of(&bounded(steer(dir.path()).args(args)).stderr);
    assert!(
        said.contains("column 100001: ") && said.len() < 2_000,
        "{said}"
    );
    group(&"m".repeat(100_000), &vec!["cycles"; 500].join("+"));
    let output = bounded(steer(dir.path()).args(args).arg("mmm"));
    // Cells are wrapped.
    let listed: String = text_of(&output.stdout).split_whitespace().collect();
    assert!(output.status.success(), "{}", text_of(&output.stderr));
    assert!(listed.contains("cycles+cycles") && listed.contains('…'));
    assert!(!listed.contains(&"cycles+".repeat(40)), "{listed}");
}

#[test]
fn many_tasks_and_many_cpus_take_no_time_for_each_pair() {
    let dir = tempfile::tempdir().unwrap();
    let task = |nth: usize| format!("\"t{nth}\":{{\"run\":9,\"loop\":1}},");
    let end = "\"t\":{\"run\":9,\"loop\":1}}}";
    let args = "workload import tasks.json --min-share 0 -o tasks.toml --force";
    let args: Vec<&str> = args.split(' ').collect();
    fs::write(
        dir.path().join("tasks.json"),
        filled(80_000, "{\"tasks\":{", task, end),
    )
    .unwrap();
    let output = bounded(steer(dir.path()).args(&args));
    assert!(output.status.success(), "{}", text_of(&output.stderr));
    fs::write(
        dir.path().join("tasks.json"),
        filled(400_000, "{\"tasks\":{", task, end),
    )
    .unwrap();
    assert!(refused(&args, dir.path()).contains("--min-share"));
    let cpus = dir.path().join("root/sys/devices/system/cpu");
    fs::create_dir_all(&cpus).unwrap();
    let args = ["machine", "detect", "--root", "root"];
    fs::write(cpus.join("online"), "0-8191").unwrap();
    let output = bounded(steer(dir.path()).args(args));
    assert!(output.status.success(), "{}", text_of(&output.stderr));
    fs::write(cpus.join("online"), "0-65535").unwrap();
    let said = refused(&args, dir.path());
    assert!(said.contains("65536; it must be 1 to 8192"), "{said}");
    fs::write(cpus.join("online"), "0-1999").unwrap();
    // Each CPU has another cache, and none knows its siblings.
    for cpu in 0..2000 {
        let cache = cpus.join(format!("cpu{cpu}/cache/index0"));
        fs::create_dir_all(&cache).unwrap();
        for (name, text) in [
            ("level", "2"),
            ("type", "Unified"),
            ("shared_cpu_list", "0-1999"),
        ] {
            fs::write(cache.join(name), text).unwrap();
        }
        fs::write(cache.join("size"), format!("{}K", 512 + cpu)).unwrap();
    }
    bounded(steer(dir.path()).args(args));
}

#[test]
fn schedulers_are_read_through_the_same_door() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("scx_x");
    fs::create_dir_all(folder.join("src/bpf")).unwrap();
    let source = "#include <scx/common.bpf.h>\nSCX_OPS_DEFINE(ops, .name = \"x\");\n";
    let (main, build) = (folder.join("src/main.rs"), folder.join("build.rs"));
    let scheduler = folder.join("src/bpf/main.bpf.c");
    fs::write(&scheduler, source).unwrap();
    let args = "sim -M core2-quad -w shared-caches --max-seconds 0.1 -P scx:path=scx_x";
    let args: Vec<&str> = args.split(' ').collect();
    let mut cases: Vec<(&Path, &str)> = Vec::new();
    for file in [&main, &build, &scheduler] {
        cases.extend([(file.as_path(), "zero"), (file, "pipe"), (file, "huge")]);
    }
    for (file, kind) in cases {
        let sound = fs::read(file).ok();
        let _ = fs::remove_file(file);
        match kind {
            "zero" => symlink("/dev/zero", file).unwrap(),
            "pipe" => pipe(file),
            _ => File::create(file).unwrap().set_len(5 << 30).unwrap(),
        }
        let said = refused(&args, dir.path());
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(said.contains(name), "{kind}: {said}");
        fs::remove_file(file).unwrap();
        if let Some(sound) = sound {
            fs::write(file, sound).unwrap();
        }
    }
}

#[test]
fn what_is_wrong_with_a_file_is_no_defect_and_no_wrong_flag() {
    let dir = tempfile::tempdir().unwrap();
    let lists = dir.path().join("lists");
    fs::create_dir(&lists).unwrap();
    fs::write(lists.join("core.json"), "[{").unwrap();
    let said = refused(&["events", "--event-lists", "lists"], dir.path());
    assert!(said.contains("core.json"), "{said}");
    pipe(&dir.path().join("pipe"));
    for command in ["sim", "compare", "blame"] {
        let args = "-M core2-quad -w shared-caches --belief ./pipe";
        let args: Vec<&str> = std::iter::once(command).chain(args.split(' ')).collect();
        let said = refused(&args, dir.path());
        assert!(said.contains("a named pipe"), "{said}");
    }
}

/// A short record with its tables.
fn record(dir: &Path) -> PathBuf {
    let args = "sim -M core2-quad -w shared-caches -P linux --max-seconds 0.2 -o run.rec";
    let output = bounded(steer(dir).args(args.split(' ')));
    assert!(output.status.success(), "{}", text_of(&output.stderr));
    dir.join("run.rec")
}

#[test]
fn records_that_unpack_to_gigabytes_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let record = record(dir.path());
    let spans = record.join("spans.parquet");
    let sound = fs::read(&spans).unwrap();
    let column = Arc::new(StringArray::from(vec!["x".repeat(1 << 27)])) as ArrayRef;
    let name = RecordBatch::try_from_iter([("name", column)]).unwrap();
    let column = Arc::new(arrow_array::UInt32Array::from(vec![0; 1 << 23])) as ArrayRef;
    let rows = RecordBatch::try_from_iter([("step", column)]).unwrap();
    for (batch, why) in [(name, "a page of 128 MB"), (rows, "8388608 rows in")] {
        countersteer_report::write_table(&spans, &batch).unwrap();
        for command in ["report run.rec -o out.html", "replay run.rec"] {
            let args: Vec<&str> = command.split(' ').collect();
            let said = refused(&args, dir.path());
            assert!(
                said.contains(why) && said.contains("spans.parquet"),
                "{said}"
            );
        }
    }
    fs::remove_file(&spans).unwrap();
    pipe(&spans);
    assert!(refused(&["replay", "run.rec"], dir.path()).contains("a named pipe"));
    fs::remove_file(&spans).unwrap();
    fs::write(&spans, sound).unwrap();
    let manifest = File::options()
        .write(true)
        .open(record.join("manifest.json"));
    manifest.unwrap().set_len(300 << 20).unwrap();
    assert!(refused(&["replay", "run.rec"], dir.path()).contains("manifest.json"));
}

#[test]
fn a_program_without_memory_ends_with_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = record(dir.path()).join("manifest.json");
    let file = File::options().write(true).open(manifest).unwrap();
    file.set_len(60 << 20).unwrap();
    let script = "ulimit -v 110000; exec \"$0\" replay run.rec";
    let mut shell = Command::new("sh");
    shell
        .args(["-c", script, env!("CARGO_BIN_EXE_steer")])
        .current_dir(dir.path());
    let output = bounded(&mut shell);
    let said = text_of(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(said.starts_with("steer: out of memory: "), "{said}");
}

#[test]
fn every_limit_on_addresses_ends_with_a_sentence_once_the_program_is_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let run = |kilobytes: u32| {
        let script = format!("ulimit -v {kilobytes}; exec \"$0\" machine list");
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &script, env!("CARGO_BIN_EXE_steer")])
            .current_dir(dir.path());
        bounded(&mut shell)
    };
    let works = |kilobytes: &u32| run(*kilobytes).status.success();
    let enough = (10_000..1_000_000).step_by(1_000).find(works).unwrap();
    // The kernel and the dynamic linker end programs that they cannot load in their own ways. Before the program's first
    // statement, there may be no room for its stack.
    let started = (enough.saturating_sub(16_000)..enough)
        .step_by(300)
        .map(run)
        .skip_while(|output| output.status.code() != Some(5));
    let mut refused = 0;
    for output in started.take_while(|output| !output.status.success()) {
        let said = text_of(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{said}");
        assert!(said.starts_with("steer: out of memory: "), "{said}");
        refused += 1;
    }
    assert!(refused > 0);
}

#[test]
fn a_program_that_gets_no_thread_ends_with_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    for command in [
        "run -P linux -- true",
        "blame -M core2-quad -w shared-caches --max-seconds 0.1",
        "compare -M core2-quad -w shared-caches -P linux --seeds 1 --max-seconds 0.1",
    ] {
        let mut steer = steer(dir.path());
        // No machine has room for such a stack.
        steer
            .args(command.split(' '))
            .env("RUST_MIN_STACK", "70368744177664");
        let output = bounded(&mut steer);
        let said = text_of(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{command}: {said}");
        let last = said.trim_end().lines().last().unwrap();
        assert!(
            last.starts_with("steer: ") && last.contains("thread"),
            "{said}"
        );
        assert!(!said.contains("panicked"), "{command}: {said}");
    }
}

#[test]
fn no_output_is_written_through_a_link() {
    let dir = tempfile::tempdir().unwrap();
    record(dir.path());
    let secret = dir.path().join("secret");
    let commands = [
        "stat --csv --to out -- true",
        "report run.rec -o out",
        "mrc run.trace -o out",
        "workload import ftrace.txt --force -o out",
        "compare -M core2-quad -w shared-caches -P linux --seeds 1 --max-seconds 0.1 --report out",
        "trace import --format lackey lackey.txt -o out",
        "run -P linux --summary out -- true",
        "machine detect --root / -o out",
        "top --stdout out -- true",
    ];
    fs::write(
        dir.path().join("lackey.txt"),
        "I  04000d20,3\n L 1ffefffa08,8\n",
    )
    .unwrap();
    let trace = "  a-1 [000] d... 1.0: sched_switch: prev_comm=a prev_pid=1 prev_prio=120 prev_state=S ==> next_comm=b next_pid=2 next_prio=120\n  \
                 b-2 [000] d... 2.0: sched_switch: prev_comm=b prev_pid=2 prev_prio=120 prev_state=S ==> next_comm=a next_pid=1 next_prio=120\n";
    fs::write(dir.path().join("ftrace.txt"), trace).unwrap();
    let mut written = 0;
    for command in commands {
        let _ = fs::remove_file(dir.path().join("out"));
        fs::write(&secret, "kept").unwrap();
        symlink(&secret, dir.path().join("out")).unwrap();
        let output = bounded(steer(dir.path()).args(command.split(' ')));
        assert_eq!(
            fs::read(&secret).unwrap(),
            b"kept",
            "{command}: {}",
            text_of(&output.stderr)
        );
        let replaced = !dir.path().join("out").is_symlink();
        assert_eq!(
            replaced,
            output.status.success(),
            "{command}: {}",
            text_of(&output.stderr)
        );
        written += usize::from(replaced);
    }
    assert!(written >= 7, "{written}");
}

#[test]
fn paths_of_any_bytes_are_taken() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join(OsStr::from_bytes(b"a\x9bb"));
    fs::create_dir(&folder).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let at = |name: &[u8]| folder.join(OsStr::from_bytes(name));
    fs::copy(root.join("machines/core2-quad.toml"), at(b"m\xff.toml")).unwrap();
    fs::copy(root.join("profiles/recorded/gzip.json"), at(b"p.json")).unwrap();
    fs::write(at(b"w\xfe.toml"), "[[program]]\nprofile = \"p.json\"\n").unwrap();
    let program = at(b"x\x80");
    let mut file = File::create(&program).unwrap();
    file.write_all(b"#!/bin/sh\nprintf '%s' \"$1\" > \"$2\"\n")
        .unwrap();
    drop(file);
    fs::set_permissions(
        &program,
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let run = |words: &[&OsStr]| {
        let output = bounded(steer(dir.path()).args(words));
        assert!(
            output.status.success(),
            "{words:?}: {}",
            text_of(&output.stderr)
        );
        output
    };
    let word = OsStr::new;
    let (machine, workload) = (at(b"m\xff.toml"), at(b"w\xfe.toml"));
    run(&[word("machine"), word("show"), machine.as_os_str()]);
    run(&[word("workload"), word("show"), workload.as_os_str()]);
    let record = at(b"r\xf0.rec");
    let sim = [
        word("sim"),
        word("-M"),
        machine.as_os_str(),
        word("-w"),
        workload.as_os_str(),
    ];
    let rest = [
        word("-P"),
        word("linux"),
        word("--max-seconds"),
        word("0.1"),
        word("-o"),
    ];
    run(&[&sim[..], &rest[..], &[record.as_os_str()]].concat());
    let report = at(b"\xf1.html");
    run(&[
        word("report"),
        record.as_os_str(),
        word("-o"),
        report.as_os_str(),
    ]);
    assert!(report.is_file());
    let (argument, said) = (OsStr::from_bytes(b"\x9b one"), at(b"said\xc3"));
    for command in [&["stat"][..], &["run", "-P", "linux"]] {
        let words: Vec<&OsStr> = command.iter().copied().map(word).collect();
        let started = [word("--"), program.as_os_str(), argument, said.as_os_str()];
        run(&[&words[..], &started[..]].concat());
        assert_eq!(fs::read(&said).unwrap(), argument.as_bytes());
        fs::remove_file(&said).unwrap();
    }
}

#[test]
fn a_recorder_gets_the_bytes_of_paths() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &[u8]| dir.path().join(OsStr::from_bytes(name));
    let (temporary, program, plugin) = (at(b"t\xff,p"), at(b"gz\x80"), at(b"plug\xfein"));
    fs::create_dir(&temporary).unwrap();
    fs::copy("/bin/true", &program).unwrap();
    fs::write(&plugin, "").unwrap();
    let engine = dir.path().join("engine");
    fs::write(&engine, "#!/bin/sh\nprintf '%s\\n' \"$@\" > words\n").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&engine, executable).unwrap();
    let words = [
        OsStr::new("--"),
        program.as_os_str(),
        OsStr::from_bytes(b"\x9b"),
    ];
    let tried = ["try", "-M", "quickia-2b-2s", "-P", "hsf"];
    for command in [&["profile"][..], &tried] {
        let mut steer = steer(dir.path());
        steer
            .args(command)
            .args(words)
            .env("TMPDIR", &temporary)
            .env("COUNTERSTEER_QEMU", &engine)
            .env("COUNTERSTEER_PLUGIN", &plugin);
        let output = bounded(&mut steer);
        let said = text_of(&output.stderr);
        // The engine did nothing.
        assert!(said.contains("did not load the plugin"), "{said}");
        let words = fs::read(dir.path().join("words")).unwrap();
        for wanted in [
            b"t\xff,,p/steer-profile-".as_slice(),
            b"/gz\x80\n\x9b\n",
            b"plug\xfein,",
        ] {
            let found = words.windows(wanted.len()).any(|part| part == wanted);
            assert!(found, "{command:?}: {}", text_of(&words));
        }
        fs::remove_file(dir.path().join("words")).unwrap();
        assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
    }
}

#[test]
fn tables_show_bytes_of_names_as_what_they_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let profile = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles/recorded/gzip.json");
    let make = [
        OsStr::new("signature"),
        OsStr::new("make"),
        profile.as_os_str(),
    ];
    let name = ["-o", "s.json", "--name"].map(OsStr::new);
    let made = bounded(
        steer(dir.path())
            .args(make)
            .args(name)
            .arg(OsStr::from_bytes(b"gz\x80")),
    );
    assert!(made.status.success(), "{}", text_of(&made.stderr));
    let workload = "[[program]]\nprofile = \"gzip\"\nname = \"gz\u{10ff80}\"\n";
    fs::write(dir.path().join("w.toml"), workload).unwrap();
    for command in [
        "signature show s.json",
        "sim -M core2-quad -w w.toml -P linux --max-seconds 0.1",
    ] {
        let output = bounded(steer(dir.path()).args(command.split(' ')));
        let said = text_of(&output.stdout);
        assert!(said.contains("gz\u{fffd}"), "{command}: {said}");
        assert!(
            !said.contains("\u{10ff80}") && !said.contains("10ff80"),
            "{said}"
        );
    }
}

#[test]
fn a_trial_that_cannot_begin_says_why() {
    let dir = tempfile::tempdir().unwrap();
    for (policy, program, code, why) in [
        ("hsf:margin=x", "true", 2, "`margin=x`: it must be a number"),
        ("linux:x", "true", 2, "`x` is not `key=value`"),
        ("linux", "./nosuch", 4, "./nosuch was not found"),
        ("linux", "false", 3, "exit status: 1"),
    ] {
        let args = ["trial", "-P", policy, "--by", "wall", "--", program];
        let output = bounded(steer(dir.path()).args(args).stdin(Stdio::null()));
        let said = text_of(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(why), "{args:?}: {said}");
    }
}

/// Runs `steer` under a limit of `ulimit`.
fn limited(limit: &str, args: &str, dir: &Path) -> Output {
    // Whoever started the test may have left files open.
    let close = "for file in {3..30}; do eval \"exec $file>&-\"; done";
    let script = format!("{close}; ulimit {limit}; exec \"$0\" {args}");
    let mut shell = Command::new("bash");
    shell
        .args(["-c", &script, env!("CARGO_BIN_EXE_steer")])
        .current_dir(dir)
        .env("HOME", dir)
        .stdin(Stdio::null());
    bounded(&mut shell)
}

#[test]
fn a_limit_on_files_is_an_error_of_files() {
    let dir = tempfile::tempdir().unwrap();
    record(dir.path());
    let sim = "sim -M core2-quad -w shared-caches -P linux --max-seconds 0.2 -o big.rec";
    let report = "report run.rec -o out.html";
    for (limit, args, why) in [
        ("-f 1", sim, "File too large"),
        ("-n 4", report, "Too many open files"),
        ("-n 5", report, "Too many open files"),
    ] {
        let output = limited(limit, args, dir.path());
        let said = text_of(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{limit}: {said}");
        assert!(said.contains(why) && said.contains(".parquet"), "{said}");
    }
    let left: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .flatten()
        .map(|e| e.file_name())
        .collect();
    assert_eq!(left, ["run.rec"]);
}

/// Runs `steer` where the disk of the folder `full` is full, and lists that folder.
fn on_full_disk(args: &str, temporary: &Path, dir: &Path) -> (Output, String) {
    let script = "mount -t tmpfs -o size=64k none full && { head -c 100000 /dev/zero > full/zero; \
                  \"$@\"; code=$?; ls -A full > listed; exit $code; }";
    let mut command = Command::new("unshare");
    command
        .args(["--map-root-user", "--mount", "sh", "-c", script, "sh"])
        .arg(env!("CARGO_BIN_EXE_steer"))
        .args(args.split(' '))
        .current_dir(dir)
        .env("HOME", dir)
        .env("TMPDIR", temporary)
        .stdin(Stdio::null());
    let output = bounded(&mut command);
    let listed = fs::read_to_string(dir.join("listed")).unwrap_or_default();
    (output, listed)
}

#[test]
fn a_full_disk_is_named_and_keeps_no_part_of_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let full = dir.path().join("full");
    fs::create_dir(&full).unwrap();
    let lackey = "I  04000d20,3\n L 1ffefffa08,8\n";
    fs::write(dir.path().join("lackey.txt"), lackey).unwrap();
    let (output, _) = on_full_disk("machine list", &full, dir.path());
    if !output.status.success() {
        return countersteer_fuzz::skipped("no file system can be mounted");
    }
    let records = bounded(steer(dir.path()).args(["profile", "-o", "p.json", "--", "true"]));
    let records = records.status.success();
    for (args, place, needs_recorder) in [
        (
            "try -M quickia-2b-2s -P hsf -- true",
            "full/steer-try-",
            false,
        ),
        (
            "trial -P linux --by wall -- true",
            "full/steer-trial-",
            false,
        ),
        ("profile -o p.json -- true", "full/steer-profile-", true),
        ("trace record -o full/t -- true", "full/t", true),
        (
            "trace import --format lackey lackey.txt -o full/t",
            "full/t",
            false,
        ),
        ("stat --csv --to full/rows -- true", "full/rows", false),
    ] {
        if needs_recorder && !records {
            continue;
        }
        let is_own = args.starts_with("trace");
        let temporary = if is_own { dir.path() } else { &full };
        let (output, listed) = on_full_disk(args, temporary, dir.path());
        let said = text_of(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{args}: {said}");
        assert!(said.contains(place), "{args}: {said}");
        assert!(!is_own || listed == "zero\n", "{args}: {listed}");
    }
}

#[test]
fn recordings_of_a_head_only_take_little_memory() {
    let dir = tempfile::tempdir().unwrap();
    let sparse = |name: &str, head: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, head).unwrap();
        let file = File::options().write(true).open(path).unwrap();
        file.set_len(1 << 30).unwrap();
    };
    sparse("perf.data", b"PERFILE2");
    sparse("trace.dat", b"\x17\x08Dtracing6\0");
    sparse("rt-app.json", b"{ \"tasks\": {} }");
    // Empty packets: two bytes each, and far more in memory.
    fs::write(dir.path().join("perfetto"), b"\x0a\0".repeat(2 << 20)).unwrap();
    for (file, why) in [
        ("perf.data", "damaged perf.data"),
        ("trace.dat", "damaged trace.dat"),
        ("rt-app.json", "format rt-app may be (4194304 bytes)"),
        ("perfetto", "there is no `sched_switch`"),
    ] {
        let said = refused(&["workload", "import", file], dir.path());
        assert!(said.contains(why), "{said}");
    }
}
