//! Ctrl-C at any stage: the exit code is that of the signal, and a line reports it. No process and no folder remains, and
//! confined threads are released. A partial profile never looks complete.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A program without an end.
const ENDLESS: [&str; 3] = ["sh", "-c", "while :; do :; done"];

/// Target of the signal: `steer` alone, as with `kill`, or its whole process group, as from a terminal.
#[derive(Clone, Copy, Debug)]
enum To {
    Steer,
    Group,
}

/// A command in its own process group; the whole group ends with the test.
struct Started(Child);

impl Started {
    fn new(args: &[&str], dir: &Path) -> Self {
        let temporary = dir.join("tmp");
        std::fs::create_dir_all(&temporary).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_steer"));
        command
            .args(args)
            .current_dir(dir)
            .env("HOME", dir)
            .env("XDG_CACHE_HOME", dir.join("cache"))
            .env("TMPDIR", temporary)
            .env("RUNTIME_DIRECTORY", dir.join("runtime"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        Self(command.spawn().unwrap())
    }

    fn interrupted(mut self, to: To) -> Output {
        let pid = self.0.id();
        assert!(self.0.try_wait().unwrap().is_none(), "it ended before");
        kill("-INT", pid, to);
        let stdout = std::io::read_to_string(self.0.stdout.take().unwrap()).unwrap();
        let stderr = std::io::read_to_string(self.0.stderr.take().unwrap()).unwrap();
        let status = self.0.wait().unwrap();
        let left = group(pid);
        assert!(left.is_empty(), "left: {left:?}");
        Output {
            status,
            stdout: stdout.into(),
            stderr: stderr.into(),
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        kill("-KILL", self.0.id(), To::Group);
        let _ = self.0.wait();
    }
}

fn kill(signal: &str, pid: u32, to: To) {
    let whom = match to {
        To::Steer => pid.to_string(),
        To::Group => format!("-{pid}"),
    };
    let mut command = Command::new("kill");
    command.args([signal, "--", &whom]).stderr(Stdio::null());
    // It may have ended already.
    let _ = command.status();
}

/// Names and command lines of the running processes in a group.
fn processes(of: u32) -> Vec<(String, String)> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let named = entries.filter_map(|entry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let runs = fields[0] != "Z" && fields[2] == of.to_string();
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        runs.then(|| (name.to_owned(), String::from_utf8_lossy(&line).into_owned()))
    });
    named.collect()
}

/// Names of the running processes in a group.
fn group(of: u32) -> Vec<String> {
    processes(of).into_iter().map(|(name, _)| name).collect()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// True if programs can be recorded here; prints a message if not.
fn records() -> bool {
    let ready = countersteer_fuzz::instrumentation::ready(countersteer_profiler::tools);
    ready.map_err(countersteer_fuzz::skipped).is_ok()
}

/// Waits until the program runs inside QEMU: it cannot be interrupted earlier. QEMU also runs before that, to list its options.
fn recording(started: &Started) {
    until("recording", || {
        let records =
            |(name, line): &(String, String)| name.starts_with("qemu") && line.contains("-plugin");
        processes(started.0.id()).iter().any(records)
    });
}

fn entries(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir);
    let names = entries.map(|e| e.flatten().map(|e| e.file_name().into_string().unwrap()));
    names.map(Iterator::collect).unwrap_or_default()
}

fn said(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(output.stdout.is_empty(), "{output:?}");
    said
}

/// Delays after the program's start, with the target of the signal.
fn moments() -> impl Iterator<Item = (Duration, To)> {
    let delays = [0, 50, 500].map(Duration::from_millis);
    delays.into_iter().zip([To::Steer, To::Group, To::Steer])
}

#[test]
fn a_profile_that_is_interrupted_is_marked_so() {
    if !records() {
        return;
    }
    for (delay, to) in moments().skip(1) {
        let dir = tempfile::tempdir().unwrap();
        let args = [&["profile", "-o", "half.json", "--"][..], &ENDLESS].concat();
        let started = Started::new(&args, dir.path());
        recording(&started);
        std::thread::sleep(delay);
        let said = said(&started.interrupted(to));
        assert_eq!(entries(&dir.path().join("tmp")), [""; 0]);
        // On a busy machine the signal may come before the program's first instruction.
        if said.contains("before") {
            assert!(said.contains("interrupted by SIGINT"), "{said}");
            assert!(!dir.path().join("half.json").exists());
            continue;
        }
        let profile = std::fs::read_to_string(dir.path().join("half.json")).unwrap();
        let profile: serde_json::Value = serde_json::from_str(&profile).unwrap();
        assert_eq!(profile["partial"], "interrupted by SIGINT");
        assert!(said.contains("partial: interrupted by SIGINT"), "{said}");
    }
}

#[test]
fn a_try_that_is_interrupted_takes_its_recorders_along() {
    if !records() {
        return;
    }
    for (delay, to) in moments() {
        let dir = tempfile::tempdir().unwrap();
        let two = [
            &["try", "-M", "core2-quad", "--"][..],
            &ENDLESS,
            &["--"],
            &ENDLESS,
        ]
        .concat();
        let started = Started::new(&two, dir.path());
        recording(&started);
        std::thread::sleep(delay);
        let said = said(&started.interrupted(to));
        assert_eq!(said, "steer: interrupted by SIGINT: there is no result\n");
        assert_eq!(entries(&dir.path().join("tmp")), [""; 0]);
    }
}

#[test]
fn a_comparison_that_is_interrupted_keeps_no_half_of_a_profile() {
    if !records() {
        return;
    }
    for (delay, to) in moments() {
        let dir = tempfile::tempdir().unwrap();
        let workload = format!("title = \"endless\"\n[[program]]\ncommand = {ENDLESS:?}\n");
        std::fs::write(dir.path().join("endless.toml"), workload).unwrap();
        let args = [
            "compare",
            "-M",
            "core2-quad",
            "-w",
            "endless.toml",
            "-P",
            "linux,mpi",
        ];
        let started = Started::new(&args, dir.path());
        recording(&started);
        std::thread::sleep(delay);
        let said = said(&started.interrupted(to));
        let last = said.lines().last();
        assert_eq!(
            last,
            Some("steer: interrupted by SIGINT: there is no result")
        );
        assert_eq!(entries(&dir.path().join("tmp")), [""; 0]);
        let cached = entries(&dir.path().join("cache/countersteer/profiles"));
        assert!(cached.is_empty(), "{cached:?}");
    }
}

#[test]
fn a_simulation_that_is_interrupted_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let grid = [
        "-M",
        "server-12llc",
        "-w",
        "shared-caches",
        "-P",
        "linux,joint",
        "--seeds",
        "50",
    ];
    let started = Started::new(&[&["compare"][..], &grid].concat(), dir.path());
    // Worker threads show that the simulation runs.
    let tasks = format!("/proc/{}/task", started.0.id());
    until("simulating", || entries(Path::new(&tasks)).len() > 2);
    let said = said(&started.interrupted(To::Group));
    assert_eq!(said, "steer: interrupted by SIGINT: there is no result\n");
}

#[test]
fn a_run_that_is_interrupted_takes_its_program_along() {
    for to in [To::Steer, To::Group] {
        let dir = tempfile::tempdir().unwrap();
        let args = [&["run", "-o", "rec", "--"][..], &ENDLESS].concat();
        let started = Started::new(&args, dir.path());
        until("running", || {
            group(started.0.id()).contains(&"sh".to_owned())
        });
        let said = said(&started.interrupted(to));
        assert!(dir.path().join("rec/manifest.json").is_file(), "{said}");
    }
}

/// A run that steers existing processes normally ends by Ctrl-C, so that is not a failure.
#[test]
fn a_run_that_is_interrupted_frees_what_it_confined() {
    let mask = |pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find(|l| l.starts_with("Cpus_allowed_list:"));
        line.unwrap().to_owned()
    };
    let own = mask(std::process::id());
    if !countersteer_fuzz::cpus::may_use(&[0]) {
        return;
    }
    for to in [To::Steer, To::Group] {
        let dir = tempfile::tempdir().unwrap();
        let mut endless = Command::new(ENDLESS[0]);
        endless.args(&ENDLESS[1..]).process_group(0);
        let program = Started(endless.spawn().unwrap());
        let pid = program.0.id();
        let pin = [
            "run",
            "-P",
            "static:*=cpu0",
            "-i",
            "20ms",
            "-o",
            "rec",
            "-p",
            &pid.to_string(),
        ];
        let started = Started::new(&pin, dir.path());
        until("confined", || mask(pid) != own);
        let output = started.interrupted(to);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert_eq!(mask(pid), own, "{said}");
        assert_eq!(entries(&dir.path().join("runtime")), [""; 0]);
        assert!(dir.path().join("rec/manifest.json").is_file(), "{said}");
    }
}
