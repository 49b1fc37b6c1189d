//! A user who may open connections cannot harm a daemon.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
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

fn status(pid: u32, key: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix(key)?.strip_prefix(':'));
    line.unwrap_or_default().trim().to_owned()
}

fn mask(pid: u32) -> String {
    status(pid, "Cpus_allowed_list")
}

/// Waits until `holds` returns true; half a minute is more than any machine takes.
fn until(mut holds: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(30) {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

fn metrics(address: SocketAddr) -> String {
    let mut answer = String::new();
    if let Ok(mut stream) = TcpStream::connect(address) {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n");
        let _ = stream.write_all(request.as_bytes());
        let _ = stream.read_to_string(&mut answer);
    }
    answer
}

/// Starts a program with the name that the rules cover.
fn program(name: &str) -> Process {
    let script = "ulimit -t 60; echo $0 > /proc/$$/comm; while :; do :; done";
    let mut command = Command::new("setsid");
    command
        .args(["sh", "-c", script, name])
        .stdin(Stdio::null());
    Process(command.spawn().unwrap())
}

#[test]
fn hundreds_of_idle_connections_to_the_metrics_port_keep_nobody_from_being_steered() {
    if !countersteer_fuzz::cpus::may_use(&[0]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let number = std::process::id();
    let name = format!("v{number}");
    let rules = "schema = \"countersteer.rules/1\"\npolicy = \"static:*=cpu0\"\nperiod_ms = 20\n";
    let rules = format!("{rules}[[steer]]\nname = \"{name}\"\n");
    std::fs::write(dir.path().join("rules.toml"), rules).unwrap();
    // All of 127.0.0.0/8 is the local machine, so this address is unique.
    let [_, _, high, low] = number.to_be_bytes();
    let address = SocketAddr::from((Ipv4Addr::new(127, 77, high, low), 9190));
    let limited = "ulimit -n 128; exec \"$0\" daemon --rules rules.toml --metrics \"$1\"";
    let mut command = Command::new("sh");
    command
        .args(["-c", limited, env!("CARGO_BIN_EXE_steer")])
        .arg(address.to_string())
        .current_dir(dir.path())
        .env("HOME", dir.path())
        .env("RUNTIME_DIRECTORY", dir.path().join("runtime"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let daemon = Process(command.spawn().unwrap());
    let first = program(&name);
    assert!(
        until(|| mask(first.0.id()) == "0"),
        "{}",
        mask(first.0.id())
    );
    assert!(until(|| metrics(address).contains("countersteer_decisions")));
    let threads = status(daemon.0.id(), "Threads");
    let idle: Vec<TcpStream> = (0..500)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    let second = program(&name);
    assert!(
        until(|| mask(second.0.id()) == "0"),
        "{}",
        mask(second.0.id())
    );
    assert_eq!(mask(first.0.id()), "0", "it was let go");
    assert!(metrics(address).contains("countersteer_decisions"));
    assert_eq!(status(daemon.0.id(), "Threads"), threads);
    let files = std::fs::read_dir(format!("/proc/{}/fd", daemon.0.id())).unwrap();
    assert!(files.count() < 100);
    drop(idle);
    drop(first);
    drop(second);
}

#[test]
fn what_a_process_is_called_steers_nobodys_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let script = "ulimit -t 60; printf 'aud\\033[31mX\\n\\302\\233Y' > /proc/$$/comm; while :; do sleep 0.01; done";
    let mut command = Command::new("setsid");
    command.args(["sh", "-c", script]).stdin(Stdio::null());
    let program = Process(command.spawn().unwrap());
    let pid = program.0.id().to_string();
    let comm = format!("/proc/{pid}/comm");
    assert!(until(
        || std::fs::read(&comm).is_ok_and(|name| name.starts_with(b"aud"))
    ));
    let rules = "schema = \"countersteer.rules/1\"\n[[steer]]\nname = \"aud*\"\n";
    std::fs::write(dir.path().join("rules.toml"), rules).unwrap();
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_steer"));
        command
            .args(args)
            .current_dir(dir.path())
            .env("HOME", dir.path())
            .env("RUNTIME_DIRECTORY", dir.path().join("runtime"))
            .stdin(Stdio::null());
        let output = command.output().unwrap();
        let both = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&both).into_owned();
        assert!(output.status.success(), "{args:?}: {text}");
        text
    };
    let steer: [&[&str]; 3] = [
        &["daemon", "--rules", "rules.toml", "--list"],
        &["run", "-p", &pid, "--duration", "200ms"],
        &[
            "run",
            "-p",
            &pid,
            "--duration",
            "200ms",
            "-P",
            "aarr",
            "--dry-run",
            "-o",
            "rec",
        ],
    ];
    let counted: &[&str] = &[
        "stat",
        "-e",
        "task_clock",
        "-p",
        &pid,
        "--duration",
        "200ms",
    ];
    let counting = Command::new(env!("CARGO_BIN_EXE_steer"))
        .args(["stat", "-e", "task_clock", "--", "true"])
        .output();
    let counts = counting.unwrap().status.success();
    if !counts {
        countersteer_fuzz::skipped("counting is not permitted here");
    }
    for args in steer.into_iter().chain(counts.then_some(counted)) {
        let text = run(args);
        assert!(text.contains("aud?[31mX"), "{args:?}: {text:?}");
        // Tables have their own emphasis.
        let plain = text.replace("\x1b[1m", "").replace("\x1b[0m", "");
        let steers = |c: char| c.is_control() && c != '\n';
        assert!(!plain.contains(steers), "{args:?}: {text:?}");
        assert!(!plain.lines().any(|line| line.starts_with('Y')), "{text:?}");
    }
    let page = run(&["report", "rec", "-o", "page.html"]);
    assert!(!page.contains('\x1b'), "{page:?}");
    let page = std::fs::read_to_string(dir.path().join("page.html")).unwrap();
    assert!(page.contains("aud?[31mX") && !page.contains('\x1b'));
    let exact = run(&["run", "-p", &pid, "--duration", "200ms", "--json"]);
    assert!(exact.contains("aud\\u001b[31mX\\n"), "{exact}");
}
