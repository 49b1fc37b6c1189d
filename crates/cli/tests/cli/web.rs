//! The page of `steer top --web`, as a browser and as other programs see it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::counting::substitute_for_ssh;
use crate::{data, steer, steered, text};

/// Time limit for anything to appear on the page.
const PATIENCE: Duration = Duration::from_secs(30);
const ENDLESS: &str = "while :; do :; done";

/// A running page; it ends with the test.
struct Served {
    steer: Child,
    stderr: BufReader<std::process::ChildStderr>,
    port: u16,
    path: String,
}

impl Served {
    fn new(args: &[&str], dir: &Path) -> Self {
        let mut command = steered(&[&["top", "--web"], args].concat(), dir);
        command.env("COUNTERSTEER_SSH", dir.join("ssh"));
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut steer = command.spawn().unwrap();
        let mut stderr = BufReader::new(steer.stderr.take().unwrap());
        let mut said = String::new();
        // A host that fails at once is named before.
        while !said.contains("http:") {
            assert!(stderr.read_line(&mut said).unwrap() > 0, "{said}");
        }
        let address = said.split("http://127.0.0.1:").nth(1).unwrap();
        let address = address.split(' ').next().unwrap();
        let (port, path) = address.split_once('/').unwrap();
        Self {
            steer,
            stderr,
            port: port.parse().unwrap(),
            path: format!("/{path}"),
        }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}{}", self.port, self.path)
    }

    fn get(&self, file: &str) -> String {
        let (port, path) = (self.port, &self.path);
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let request = format!("GET {path}{file} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Waits until the panels contain all of these texts; returns them.
    fn panels(&self, query: &str, texts: &[&str]) -> String {
        let began = Instant::now();
        loop {
            let panels = self.get(&format!("panels?{query}"));
            if texts.iter().all(|text| panels.contains(text)) {
                return panels;
            }
            assert!(began.elapsed() < PATIENCE, "{texts:?} not in {panels}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Interrupts it; returns what it said since its address, and how it ended.
    fn end(mut self) -> (String, ExitStatus) {
        let mut kill = Command::new("kill");
        kill.args(["-INT", &self.steer.id().to_string()])
            .status()
            .unwrap();
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).unwrap();
        (said, self.steer.wait().unwrap())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.steer.kill();
        let _ = self.steer.wait();
    }
}

/// Returns what a browser shows after some seconds, or `None` without a browser.
fn browsed(url: &str) -> Option<String> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let browser = names
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok());
    let Some(browser) = browser else {
        countersteer_fuzz::skipped("there is no Chromium, which shows if the page's script runs");
        return None;
    };
    let options = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=4000",
        "--dump-dom",
    ];
    let output = Command::new(browser)
        .args(options)
        .arg(url)
        .output()
        .unwrap();
    Some(text(&output.stdout))
}

#[test]
fn a_page_shows_hosts_side_by_side_until_ctrl_c() {
    let dir = tempfile::tempdir().unwrap();
    substitute_for_ssh(dir.path());
    let args = [
        "--host",
        "me@there",
        "--host=.",
        "-i",
        "200ms",
        "-e",
        "page_faults",
        "--",
        "sh",
        "-c",
        ENDLESS,
    ];
    let served = Served::new(&args, dir.path());
    // Each host counts its own program.
    let panels = served.panels(
        "span=60",
        &[
            "<h2>me@there</h2>",
            "<h4>cpu%</h4>",
            "<h4>page_faults/s</h4>",
        ],
    );
    assert_eq!(panels.matches("<h2>").count(), 2, "{panels}");
    let began = Instant::now();
    while served.get("panels").matches("<h4>cpu%</h4>").count() < 2 {
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(50));
    }
    if let Some(page) = browsed(&served.url()) {
        assert!(
            page.contains("<h2>me@there</h2>") && page.contains("<svg class=\"plot\""),
            "{page}"
        );
    }
    let (said, status) = served.end();
    assert!(status.success() && said.is_empty(), "{status}: {said}");
    let children = || {
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let ours = entries.filter(|entry| {
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            text(&environment).contains(&*dir.path().to_string_lossy())
        });
        ours.count()
    };
    // The other machine hears of the end when it writes its next interval.
    let ended = Instant::now();
    while children() > 0 {
        assert!(ended.elapsed() < PATIENCE, "children are left");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn records_are_shown_again_and_a_port_in_use_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let program = "n=0; while [ $n -lt 500000 ]; do n=$((n+1)); done";
    data(
        &[
            "stat",
            "-i",
            "50ms",
            "-e",
            "task_clock",
            "-o",
            "a.rec",
            "--",
            "sh",
            "-c",
            program,
        ],
        dir.path(),
    );
    let served = Served::new(&["--replay", "a.rec", "--replay", "a.rec"], dir.path());
    let whole = served.panels("", &["<h4>task_clock (ns/s)"]);
    assert_eq!(whole.matches("<h2>a.rec</h2>").count(), 2, "{whole}");
    let points = |panels: &str| panels.matches(',').count();
    // On a busy machine, the first samples come late.
    let at = [0.12, 0.25, 0.5, 1.0, 2.0, 4.0].map(|at| served.get(&format!("panels?at={at}")));
    let start = at
        .iter()
        .find(|page| page.contains("<h4>task_clock (ns/s)"));
    let start = start.expect("the record has a beginning");
    assert!(points(start) < points(&whole), "{start}");
    if let Some(page) = browsed(&served.url()) {
        assert!(
            page.contains("<svg class=\"plot\"") && page.contains(" of "),
            "{page}"
        );
    }
    let port = served.port.to_string();
    let output = steer(
        &["top", "--web", "--port", &port, "--replay", "a.rec"],
        dir.path(),
    );
    let said = text(&output.stderr);
    assert!(
        output.status.code() == Some(2) && said.contains(&format!("127.0.0.1:{port}")),
        "{said}"
    );
    assert!(served.end().1.success());
}

#[test]
fn a_host_that_fails_or_lies_is_named_and_the_page_stays() {
    let dir = tempfile::tempdir().unwrap();
    substitute_for_ssh(dir.path());
    std::fs::write(
        dir.path().join("s"),
        "#!/bin/sh\necho '{\"time_s\": 1, \"pid\": <b>'; exec sleep 2\n",
    )
    .unwrap();
    let mut install = Command::new("install");
    let paths = ["s", "steer"].map(|name| dir.path().join(name));
    assert!(
        install
            .args(["-m", "755"])
            .args(paths)
            .status()
            .unwrap()
            .success()
    );
    let served = Served::new(
        &["--host", "me@there", "--host", "who@nowhere", "-i", "200ms"],
        dir.path(),
    );
    served.panels(
        "",
        &[
            "stopped: a line is none of `steer top --json`",
            "has ended (exit status: 99)",
        ],
    );
    let (said, status) = served.end();
    assert!(status.success(), "{said}");
}
