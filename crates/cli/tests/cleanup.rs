//! A killed run leaves nothing behind, at once.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A process that ends with the test in every case.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    fn start(command: &mut Command) -> Self {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

fn steer(args: &[&str], dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steer"));
    command
        .args(args)
        .current_dir(dir)
        .env("HOME", dir)
        .env("RUNTIME_DIRECTORY", dir.join("runtime"));
    command
}

fn status(pid: u32, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines()
        .find_map(|l| l.strip_prefix(key)?.strip_prefix(":"))
        .map(|v| v.trim().to_owned())
}

fn mask(pid: u32) -> Option<String> {
    status(pid, "Cpus_allowed_list")
}

/// PID of a run's cleanup process.
fn cleanup(steer: u32) -> Option<u32> {
    let pids = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse().ok());
    let is_cleanup = |pid: &u32| {
        status(*pid, "PPid") == Some(steer.to_string())
            && status(*pid, "Name").as_deref() == Some("steer-cleanup")
    };
    { pids }.find(is_cleanup)
}

/// Waits until `there` returns a value; half a minute is more than any machine takes. It does not sleep, so that a kill comes in the
/// moment that it waits for.
fn until<T>(mut there: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(30) {
        if let Some(found) = there() {
            return Some(found);
        }
        std::thread::yield_now();
    }
    None
}

fn kill(args: &[&str]) {
    assert!(Command::new("kill").args(args).status().unwrap().success());
}

/// Starts a program, and a run in its own process group that confines it to one CPU.
fn confined(dir: &Path) -> Option<(Process, Process, u32, String)> {
    let own = mask(std::process::id()).unwrap();
    if !countersteer_fuzz::cpus::may_use(&[0]) {
        return None;
    }
    // Cleanup processes look for relatives in whole sessions. The cleanup process of another test has another folder and does not
    // know this run.
    let program = Process::start(Command::new("setsid").args([
        "sh",
        "-c",
        "ulimit -t 60; while :; do :; done",
    ]));
    let args = [
        "run",
        "-P",
        "static:*=cpu0",
        "-i",
        "20ms",
        "-p",
        &program.pid().to_string(),
    ];
    let mut command = steer(&args, dir);
    let said = dir.join("said");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&said).unwrap());
    let run = Process(command.process_group(0).spawn().unwrap());
    let cleanup =
        until(|| cleanup(run.pid()).filter(|_| mask(program.pid()).as_ref() != Some(&own)));
    let found = || {
        (
            mask(program.pid()),
            status(run.pid(), "State"),
            std::fs::read_to_string(&said),
        )
    };
    assert!(cleanup.is_some(), "{:?}", found());
    Some((program, run, cleanup.unwrap(), own))
}

fn journals(dir: &Path) -> usize {
    let names = std::fs::read_dir(dir.join("runtime"))
        .unwrap()
        .flatten()
        .map(|e| e.file_name());
    names
        .filter(|n| n.to_string_lossy().contains("journal"))
        .count()
}

#[test]
fn what_a_killed_run_confined_is_free_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let Some((program, run, cleanup, own)) = confined(dir.path()) else {
        return;
    };
    assert_eq!(journals(dir.path()), 1);
    // Signals of a terminal or a service manager do not reach it, or are ignored.
    kill(&["-INT", &cleanup.to_string()]);
    kill(&["-HUP", &cleanup.to_string()]);
    kill(&["-TERM", &cleanup.to_string()]);
    // Kills the whole process group, as a shell does with a job.
    kill(&["-KILL", "--", &format!("-{}", run.pid())]);
    let free = until(|| mask(program.pid()).filter(|now| *now == own));
    assert!(free.is_some(), "{:?}", mask(program.pid()));
    let left = || {
        std::fs::read_dir(dir.path().join("runtime"))
            .unwrap()
            .count()
    };
    assert!(
        until(|| (left() == 0).then_some(())).is_some(),
        "journal and socket are gone"
    );
    assert!(
        until(|| status(cleanup, "Name")
            .is_none_or(|n| n != "steer-cleanup")
            .then_some(()))
        .is_some()
    );
}

#[test]
fn a_cleanup_process_holds_nobody_elses_files_and_ends_with_its_run() {
    let dir = tempfile::tempdir().unwrap();
    let Some((program, run, cleanup, own)) = confined(dir.path()) else {
        return;
    };
    let files = || -> Vec<String> {
        let files = std::fs::read_dir(format!("/proc/{cleanup}/fd")).unwrap();
        let links = files
            .flatten()
            .filter_map(|e| std::fs::read_link(e.path()).ok());
        links.map(|link| link.display().to_string()).collect()
    };
    // It has its name before it opens the last one.
    let files = until(|| Some(files()).filter(|f| f.iter().any(|f| f.contains("pidfd"))));
    let files = files.unwrap();
    let nothing = files.iter().filter(|f| *f == "/dev/null");
    let pipes = files.iter().filter(|f| f.starts_with("pipe:"));
    let of_process = files.iter().filter(|f| f.contains("pidfd"));
    assert_eq!(
        (
            nothing.count(),
            pipes.count(),
            of_process.count(),
            files.len()
        ),
        (2, 1, 1, 4),
        "{files:?}"
    );
    let own_kib = status(cleanup, "RssAnon").unwrap();
    assert!(
        own_kib.trim_end_matches(" kB").parse::<u64>().unwrap() < 4096,
        "{own_kib}"
    );
    kill(&[&run.pid().to_string()]);
    let mut run = run;
    assert!(run.0.wait().unwrap().success());
    assert_eq!(mask(program.pid()), Some(own));
    assert!(
        status(cleanup, "Name").is_none(),
        "the run has waited for it"
    );
    assert_eq!(
        std::fs::read_dir(dir.path().join("runtime"))
            .unwrap()
            .count(),
        0
    );
}

/// Folder with a program that waits until the pipe beside it is opened.
fn waiting(dir: &Path) {
    let made = Command::new("mkfifo").arg(dir.join("pipe")).status();
    assert!(made.unwrap().success());
    let program = dir.join("waits");
    std::fs::write(&program, "#!/bin/sh\nread -r end < pipe\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir(dir.join("temporary")).unwrap();
}

/// Number of processes whose command lines contain a path.
fn with_path(path: &Path) -> usize {
    let wanted = path.as_os_str().as_bytes();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|e| std::fs::read(e.path().join("cmdline")).ok());
    let has = |line: &Vec<u8>| line.windows(wanted.len()).any(|part| part == wanted);
    lines.filter(has).count()
}

#[test]
fn temporary_folders_go_with_commands_that_are_killed() {
    let scheduler = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../scx/tests/schedulers/vtime.bpf.c")
        .canonicalize()
        .unwrap();
    let compare = format!(
        "compare -M core2-quad -w shared-caches -P scx:path={}",
        scheduler.display()
    );
    // Each is ended once as soon as its folders exist, and once when a process works in them beside the folders' shells.
    for (command, is_killed, folders, processes) in [
        ("try -M quickia-2b-2s -P hsf -- ./waits", true, 2, 0),
        ("try -M quickia-2b-2s -P hsf -- ./waits", true, 2, 3),
        ("trial -P linux --score true -- ./waits", true, 1, 0),
        (&compare, false, 1, 0),
        (&compare, false, 1, 2),
        (&compare, true, 1, 0),
        (&compare, true, 1, 2),
    ] {
        let dir = tempfile::tempdir().unwrap();
        waiting(dir.path());
        let temporary = dir.path().join("temporary");
        let args: Vec<&str> = command.split(' ').collect();
        // The recorder's engine and the compiler wait as well.
        let program = dir.path().join("waits");
        let mut command = steer(&args, dir.path());
        command
            .env("TMPDIR", &temporary)
            .env("CC", "./waits")
            .env("COUNTERSTEER_QEMU", &program)
            .env("COUNTERSTEER_PLUGIN", &program);
        let mut run = Process::start(&mut command);
        let left = || std::fs::read_dir(&temporary).unwrap().count();
        let begun = until(|| {
            let there = left() == folders && (processes == 0 || with_path(&temporary) >= processes);
            there.then_some(())
        });
        assert!(begun.is_some(), "{args:?}: {}", left());
        if is_killed {
            run.0.kill().unwrap();
        } else {
            kill(&[&run.pid().to_string()]);
        }
        run.0.wait().unwrap();
        let gone = until(|| (left() == 0 && with_path(&temporary) == 0).then_some(()));
        // Ends the trial's program, which goes on without the trial.
        drop(
            std::fs::File::options()
                .read(true)
                .write(true)
                .open(dir.path().join("pipe")),
        );
        assert!(
            gone.is_some(),
            "{args:?}: {} folders, {} processes",
            left(),
            with_path(&temporary)
        );
    }
}
