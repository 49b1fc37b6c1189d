//! Examples at the end of each `--help`: they run as they are printed, in a folder with the files that they name.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// Beginnings of the examples that this test does not run, each with the reason.
const NOT_RUN: &[(&str, &str)] = &[
    ("try", "records and simulates for half a minute"),
    ("auto -- ", "records and simulates for half a minute"),
    ("auto forget xz", "no verdict on xz is stored"),
    ("auto export /tmp", "writes outside the folder"),
    ("auto import /tmp", "reads outside the folder"),
    ("top", "has no end"),
    (
        "daemon --rules rules.toml",
        "has no end; runs beside the others",
    ),
    ("trial -P hsf", "ends when it has decided"),
    ("stat -i 100ms -m ipc", "needs hardware counters"),
    ("ctl set policy=hsf:margin=0.1", "needs hardware counters"),
    ("ctl why", "the policy `linux` decides about no thread"),
    ("reproduce pmctrack", "takes minutes"),
    ("model eval", "takes minutes"),
    (
        "model train",
        "takes minutes, or needs records of a machine with unequal cores",
    ),
    ("model rules", "takes minutes"),
    ("model show model.toml", "needs a trained model"),
    ("workload import", "needs files of other tools"),
    ("profile import-counters", "needs files of other tools"),
    ("trace import", "needs files of other tools"),
    (
        "signature read /usr/bin/xz",
        "this system's xz has no signature",
    ),
    (
        "signature read 4711",
        "the process's binary has no signature",
    ),
];

/// Examples that write what others read, in this order.
const FIRST: [&str; 6] = [
    "machine detect -o here.toml",
    "profile -o xz.json -- xz -c file",
    "trace record -o xz.trace -- xz -c file",
    "signature make xz.trace -o xz.signature.json",
    "sim -M here.toml -w mix.toml -o run.rec",
    "auto export verdicts.json",
];

const MIX: &str =
    "[[program]]\nprofile = \"gzip\"\nname = \"xz\"\n\n[[program]]\nprofile = \"mcf-2006\"\n";
const GRID: &str = "machines = [\"core2-quad\"]\nworkloads = [\"shared-caches\"]\npolicies = [\"linux\", \"mpi\"]\nseeds = 1\n";
const RULES: &str = "schema = \"countersteer.rules/1\"\npolicy = \"linux\"\n[[steer]]\nname = \"no-such-program\"\n";
const TOPOLOGY: &str = "<topology><object type=\"Machine\" cpuset=\"0x3\"><object type=\"PU\" os_index=\"0\"/>\
    <object type=\"PU\" os_index=\"1\"/></object></topology>";
const LSCPU: &str = "{\"lscpu\": [{\"field\": \"CPU(s):\", \"data\": \"2\"}]}";

fn steer(folder: &Path, args: &[String]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steer"));
    command.args(args).current_dir(folder).stdin(Stdio::null());
    command.env("RUNTIME_DIRECTORY", folder.join("runtime"));
    command.env("XDG_STATE_HOME", folder.join("state"));
    command.env("XDG_DATA_HOME", folder.join("data"));
    command
}

/// Splits a line into words as a shell does.
fn words(line: &str) -> Vec<String> {
    let part = |(i, text): (usize, &str)| -> Vec<String> {
        if i % 2 == 1 {
            return vec![text.to_owned()];
        }
        text.split_whitespace().map(str::to_owned).collect()
    };
    line.split('\'').enumerate().flat_map(part).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Names of the subcommands that a help text lists.
fn subcommands(help: &str) -> Vec<String> {
    let listed = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| line.starts_with("  "));
    listed
        .filter(|line| !line.starts_with("    "))
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect()
}

/// Collects the examples of a command and of its subcommands.
fn collect(folder: &Path, path: &[String], into: &mut Vec<String>) {
    let asked = [path, &["--help".to_owned()]].concat();
    let help = text(&steer(folder, &asked).output().unwrap().stdout);
    let examples = help.lines().skip_while(|line| *line != "Examples:").skip(1);
    for line in examples.filter_map(|line| line.strip_prefix("  steer ")) {
        if !into.iter().any(|known| known == line) {
            into.push(line.to_owned());
        }
    }
    for name in subcommands(&help) {
        if name != "help" || path.is_empty() {
            collect(folder, &[path, &[name]].concat(), into);
        }
    }
}

fn prepare(folder: &Path) {
    for (name, content) in [
        ("mix.toml", MIX),
        ("grid.toml", GRID),
        ("rules.toml", RULES),
        ("topology.xml", TOPOLOGY),
        ("lscpu.json", LSCPU),
        ("cachegrind.out", "events: Ir\nsummary: 1000\n"),
        ("file", "some text for xz\n"),
        ("program", "#!/bin/sh\nexec sleep 0.02\n"),
        ("a", "#!/bin/sh\nexec sleep 0.02\n"),
        ("b", "#!/bin/sh\nexec sleep 0.02\n"),
    ] {
        fs::write(folder.join(name), content).unwrap();
    }
    for program in ["program", "a", "b"] {
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.join(program), executable).unwrap();
    }
    fs::create_dir(folder.join("runtime")).unwrap();
}

/// Copies what the first examples made to the other names that examples use.
fn copy_made(folder: &Path) {
    for (made, names) in [
        ("xz.json", &["gcc.json", "small.json", "large.json"][..]),
        (
            "xz.signature.json",
            &[
                "small.signature.json",
                "large.signature.json",
                "old.signature.json",
                "new.signature.json",
            ],
        ),
    ] {
        for name in names {
            fs::copy(folder.join(made), folder.join(name)).unwrap();
        }
    }
}

/// Process that is ended with this value.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn examples_of_all_helps_run() {
    let ready = countersteer_fuzz::instrumentation::ready(countersteer_profiler::tools);
    let xz = ["/usr/bin/xz", "/bin/xz"]
        .into_iter()
        .find(|path| Path::new(path).exists());
    let (Ok(_), Some(xz)) = (ready.as_ref(), xz) else {
        let why = ready.err().unwrap_or_else(|| "xz is not installed".into());
        return countersteer_fuzz::skipped(format!("examples of --help do not run: {why}"));
    };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    prepare(folder);
    fs::copy(xz, folder.join("xz")).unwrap();
    let mut found = Vec::new();
    collect(folder, &[], &mut found);
    assert!(found.len() > 100, "{found:?}");
    let first = FIRST.map(str::to_owned);
    assert!(first.iter().all(|line| found.contains(line)), "{found:?}");
    for (beginning, _) in NOT_RUN {
        assert!(
            found.iter().any(|line| line.starts_with(beginning)),
            "{beginning}"
        );
    }
    let process = Ended(Command::new("sleep").arg("1000").spawn().unwrap());
    let run = |line: &str| -> Output {
        let line = line.replace("4711", &process.0.id().to_string());
        steer(folder, &words(&line)).output().unwrap()
    };
    let mut failed = Vec::new();
    let mut check = |line: &str| {
        let output = run(line);
        if !output.status.success() {
            failed.push(format!(
                "steer {line}: {}: {}",
                output.status,
                text(&output.stderr)
            ));
        }
    };
    first.iter().for_each(|line| check(line));
    copy_made(folder);
    let daemon = steer(folder, &words("daemon --rules rules.toml"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let daemon = Ended(daemon);
    let is_run = |line: &str| {
        NOT_RUN
            .iter()
            .all(|(beginning, _)| !line.starts_with(beginning))
    };
    let rest = |ctl: bool| {
        let left = found
            .iter()
            .filter(|line| !first.contains(line) && is_run(line));
        left.filter(move |line| line.starts_with("ctl ") == ctl)
    };
    // Runs have sockets of their own, and `ctl` asks the only one.
    let socket = folder.join("runtime/daemon.sock");
    while !socket.exists() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    rest(true).for_each(|line| check(line));
    drop(daemon);
    rest(false).for_each(|line| check(line));
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Lines of blocks of code in a document that are commands of `steer`.
fn commands(document: &str) -> Vec<&str> {
    let blocks = document.split("\n```").skip(1).step_by(2);
    blocks
        .flat_map(str::lines)
        .filter(|line| line.starts_with("steer "))
        .collect()
}

#[test]
fn the_quick_start_runs() {
    let document = include_str!("../../../docs/quick-start.md");
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let lines: String = (0..200_000).rev().map(|n| format!("{n}\n")).collect();
    fs::write(folder.join("big.txt"), lines).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_steer")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let commands = commands(document);
    assert!(commands.len() > 10, "{commands:?}");
    // `try` records and simulates for half a minute, and has tests of its own.
    for line in commands
        .iter()
        .filter(|line| !line.starts_with("steer try"))
    {
        let output = Command::new("sh")
            .args(["-c", line])
            .current_dir(folder)
            .env("PATH", &path)
            .env("RUNTIME_DIRECTORY", folder.join("runtime"))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{line}: {}: {}",
            output.status,
            text(&output.stderr)
        );
    }
}
