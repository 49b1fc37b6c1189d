//! `steer` as its users meet it: output, errors, exit codes.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn steer(args: &[&str], dir: &Path) -> Output {
    // Nothing that other runs have left may show.
    let mut command = Command::new(env!("CARGO_BIN_EXE_steer"));
    command
        .args(args)
        .current_dir(dir)
        .env("HOME", dir)
        .env("RUNTIME_DIRECTORY", "/nonexistent");
    command.output().unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command that must succeed; its stdout.
fn data(args: &[&str], dir: &Path) -> String {
    let output = steer(args, dir);
    assert!(
        output.status.success(),
        "{args:?}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// Golden cases: `tests/errors/<case>/` holds `args` (a line each), input files, and `expected` (exit code, then stderr).
#[test]
fn errors_are_one_paragraph_with_place_mend_and_exit_code() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/errors");
    let mut names: Vec<PathBuf> = std::fs::read_dir(&cases)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    names.sort();
    assert!(names.len() > 10);
    for case in names {
        let args = std::fs::read_to_string(case.join("args")).unwrap();
        let args: Vec<&str> = args.lines().collect();
        let output = steer(&args, &case);
        let got = format!(
            "exit code {}\n{}",
            output.status.code().unwrap(),
            text(&output.stderr)
        );
        let path = case.join("expected");
        if std::env::var_os("COUNTERSTEER_BLESS").is_some() {
            std::fs::write(&path, &got).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(got, expected, "{}", case.display());
        assert!(
            output.stdout.is_empty(),
            "{}: {}",
            case.display(),
            text(&output.stdout)
        );
        let left = std::fs::read_dir(&case)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap());
        assert!(
            !left
                .into_iter()
                .any(|f| f.starts_with('.') || f.ends_with("html") || f.ends_with("rec")),
            "left behind"
        );
    }
}

#[test]
fn a_program_may_bring_its_own_policies() {
    let dir = tempfile::tempdir().unwrap();
    let example = Path::new(env!("CARGO_BIN_EXE_steer"))
        .with_file_name("examples")
        .join("big_cache");
    assert!(
        example.exists(),
        "`cargo test` builds examples only when all tests are run: `cargo build --examples` does it"
    );
    let run = |args: &[&str]| {
        Command::new(&example)
            .args(args)
            .current_dir(dir.path())
            .output()
            .unwrap()
    };
    let listed = text(&run(&["policy", "list"]).stdout);
    assert!(
        listed.contains("big-cache") && listed.contains("capacity+mpi"),
        "{listed}"
    );
    let sim = [
        "sim",
        "--machine",
        "ryzen-7950x3d",
        "--workload",
        "shared-caches",
        "--policy",
        "big-cache:mpki=2",
    ];
    let simulated = run(&[&sim[..], &["--output", "run.rec"]].concat());
    assert!(simulated.status.success(), "{}", text(&simulated.stderr));
    let replayed = run(&["replay", "run.rec"]);
    assert!(replayed.status.success(), "{}", text(&replayed.stderr));
    // Whoever does not have the policy cannot repeat what it decided, and is told so.
    let other = steer(&["replay", "run.rec"], dir.path());
    assert_eq!(other.status.code(), Some(2));
    assert!(
        text(&other.stderr).contains("there is no policy `big-cache`"),
        "{}",
        text(&other.stderr)
    );
}

#[test]
fn the_same_comparison_gives_the_same_bytes_on_one_and_two_workers() {
    let dir = tempfile::tempdir().unwrap();
    let run = |jobs: &str| {
        let mut args = vec![
            "compare",
            "--machine",
            "i9-12900k-8p8e",
            "--workload",
            "spec-16",
            "--seeds",
            "2",
            "--json",
        ];
        args.extend([
            "--policy",
            "linux,aarr,hsf:sf=oracle,margin=0.05,hsf",
            "--jobs",
            jobs,
            "--max-seconds",
            "20",
        ]);
        data(&args, dir.path())
    };
    let first = run("1");
    assert_eq!(first, run("2"));
    let value: serde_json::Value = serde_json::from_str(&first).unwrap();
    assert_eq!(value["schema"], "countersteer.compare/1");
    assert_eq!(value["runs"].as_array().unwrap().len(), 8);
    for key in [
        "machine",
        "workload",
        "policy",
        "seed",
        "asp",
        "stp",
        "antt",
        "unfairness",
        "jain",
        "ipc",
        "energy_j",
    ] {
        assert!(!value["runs"][0][key].is_null(), "{key}");
    }
    assert_eq!(value["runs"][0]["programs"].as_array().unwrap().len(), 16);
}

#[test]
fn lists_are_json_arrays_of_objects_with_names() {
    for what in ["machine", "policy", "workload"] {
        let value: serde_json::Value =
            serde_json::from_str(&data(&[what, "list", "--json"], &root())).unwrap();
        assert!(
            value
                .as_array()
                .unwrap()
                .iter()
                .all(|row| row["name"].is_string()),
            "{what}"
        );
        let name = value[0]["name"].as_str().unwrap();
        assert!(!data(&[what, "show", name], &root()).is_empty());
    }
}

#[test]
fn a_record_replays_to_the_same_decisions_and_answers_why() {
    let dir = tempfile::tempdir().unwrap();
    for policy in [
        "hsf:clamp=on",
        "aarr",
        "best-static",
        "contention:ways=split",
    ] {
        let machine = if policy.contains("contention") {
            "core2-quad"
        } else {
            "i9-12900k-8p8e"
        };
        let mut args = vec![
            "sim",
            "--machine",
            machine,
            "--workload",
            "shared-caches",
            "--policy",
            policy,
        ];
        args.extend(["--max-seconds", "3", "--output", "run.rec", "--force"]);
        data(&args, dir.path());
        assert!(
            data(&["replay", "run.rec"], dir.path()).contains("same"),
            "{policy}"
        );
        let record =
            countersteer_report::record::Record::load(&dir.path().join("run.rec")).unwrap();
        assert_eq!(
            record.shares.iter().any(|s| s.ways > Some(0)),
            policy.contains("split"),
            "{policy}"
        );
        assert_eq!(
            record.decisions.iter().any(|d| d.clamp.is_some()),
            policy.contains("clamp"),
            "{policy}"
        );
        let why = data(
            &["why", "run.rec", "--program", "stream", "--at", "2"],
            dir.path(),
        );
        assert!(why.contains("stream"), "{why}");
    }
    let other = steer(&["replay", "run.rec", "--policy", "linux"], dir.path());
    assert!(
        other.status.success(),
        "another policy may decide differently"
    );
    data(&["report", "run.rec", "-o", "run.html"], dir.path());
    data(
        &["report", "run.rec", "--perfetto", "-o", "run.pftrace"],
        dir.path(),
    );
    assert!(
        std::fs::read_to_string(dir.path().join("run.html"))
            .unwrap()
            .contains("</html>")
    );
}

#[test]
fn a_full_disk_is_reported_and_leaves_nothing() {
    let args = [
        "compare",
        "--machine",
        "core2-quad",
        "--workload",
        "shared-caches",
        "--policy",
        "linux",
    ];
    let output = steer(
        &[
            &args[..],
            &[
                "--max-seconds",
                "1",
                "--seeds",
                "1",
                "--report",
                "/dev/full",
            ],
        ]
        .concat(),
        &root(),
    );
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("/dev/full"));
}

#[test]
fn completions_and_the_manual_come_from_the_same_definitions() {
    assert!(data(&["manual"], &root()).contains("steer"));
    assert!(data(&["manual", "--completions", "bash"], &root()).contains("compare"));
}

#[test]
fn counting_passes_the_exit_code_on_and_writes_a_line_per_thread() {
    let dir = tempfile::tempdir().unwrap();
    let output = steer(
        &[
            "stat",
            "--json",
            "-e",
            "task_clock,page_faults",
            "--",
            "sh",
            "-c",
            "true & wait; exit 7",
        ],
        dir.path(),
    );
    if text(&output.stderr).contains("perf_event_paranoid") {
        countersteer_fuzz::skipped("counting is not permitted here");
        return;
    }
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    let lines: Vec<serde_json::Value> = text(&output.stdout)
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let (end, readings) = lines.split_last().unwrap();
    assert_eq!(
        (&end["kind"], &end["exit_code"], &end["records_lost"]),
        (&"end".into(), &7.into(), &0.into())
    );
    assert!(readings.len() >= 2, "{readings:?}");
    assert!(
        readings
            .iter()
            .all(|r| r["kind"] == "reading" && r["counts"]["task_clock"].as_u64().unwrap() > 0)
    );
}

#[test]
fn csv_and_tables_of_counts_go_where_they_are_sent() {
    let dir = tempfile::tempdir().unwrap();
    let output = steer(
        &["stat", "--csv", "--to", "counts.csv", "--", "echo", "hello"],
        dir.path(),
    );
    if text(&output.stderr).contains("perf_event_paranoid") {
        countersteer_fuzz::skipped("counting is not permitted here");
        return;
    }
    assert_eq!(text(&output.stdout), "hello\n");
    let csv = std::fs::read_to_string(dir.path().join("counts.csv")).unwrap();
    let columns: Vec<usize> = csv.lines().map(|l| l.split(',').count()).collect();
    assert!(csv.starts_with("time_s,") && columns.len() >= 2, "{csv}");
    assert!(columns.iter().all(|n| *n == columns[0]), "{csv}");
}

/// `script` (util-linux) gives the program a terminal.
#[test]
fn on_a_terminal_the_table_is_drawn_in_its_place_and_what_the_program_prints_stays() {
    let dir = tempfile::tempdir().unwrap();
    let run = |options: &str| {
        let line = format!(
            "'{}' stat -i 50ms {options} -e task_clock -- sh -c 'sleep 0.2; echo said; sleep 0.1'",
            env!("CARGO_BIN_EXE_steer")
        );
        let mut script = Command::new("script");
        script
            .args(["-qec", &line, "/dev/null"])
            .current_dir(dir.path())
            .env("TERM", "xterm");
        script
            .stdin(std::process::Stdio::null())
            .output()
            .map(|output| text(&output.stdout))
    };
    let Ok(live) = run("") else {
        countersteer_fuzz::skipped("there is no `script`");
        return;
    };
    if live.contains("perf_event_paranoid") {
        countersteer_fuzz::skipped("counting is not permitted here");
        return;
    }
    let region = "\x1b7\x1b[1;";
    assert!(
        live.contains(region) && live.contains("said\r\n"),
        "{live:?}"
    );
    let (_, end) = live.rsplit_once("\x1b[r\x1b8").unwrap();
    assert!(
        end.contains("time_s") && end.contains("sh") && !end.contains('\x1b'),
        "{end:?}"
    );
    let plain = run("--no-live").unwrap();
    assert!(
        !plain.contains('\x1b') && plain.matches("sh").count() >= 1,
        "{plain:?}"
    );
}

/// Files of a machine whose one package spends a joule each ten milliseconds, and which has no other virtual counter.
struct Spends {
    root: tempfile::TempDir,
    stop: std::sync::Arc<std::sync::atomic::AtomicBool>,
    meter: Option<std::thread::JoinHandle<()>>,
}

impl Spends {
    fn start() -> Self {
        let root = tempfile::tempdir().unwrap();
        let zone = root.path().join("sys/class/powercap/intel-rapl:0");
        std::fs::create_dir_all(&zone).unwrap();
        std::fs::write(zone.join("name"), "package-0\n").unwrap();
        let write = move |uj: u64| {
            std::fs::write(zone.join("new"), uj.to_string()).unwrap();
            std::fs::rename(zone.join("new"), zone.join("energy_uj")).unwrap();
        };
        write(1);
        let stop = std::sync::Arc::<std::sync::atomic::AtomicBool>::default();
        let stopped = std::sync::Arc::clone(&stop);
        let spend = move || {
            (2..)
                .take_while(|_| !stopped.load(std::sync::atomic::Ordering::Relaxed))
                .for_each(|n| {
                    write(n * 1_000_000);
                    std::thread::sleep(std::time::Duration::from_millis(10));
                });
        };
        Self {
            root,
            stop,
            meter: Some(std::thread::spawn(spend)),
        }
    }
}

impl Drop for Spends {
    fn drop(&mut self) {
        self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let _ = self.meter.take().map(std::thread::JoinHandle::join);
    }
}

#[test]
fn virtual_counters_have_columns_beside_the_counts_and_stand_in_the_record() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Spends::start();
    let root = machine.root.path().to_str().unwrap();
    let busy = [
        "--",
        "sh",
        "-c",
        "n=0; while [ $n -lt 10000000 ]; do n=$((n+1)); done",
    ];
    let top = [
        "top",
        "--root",
        root,
        "--json",
        "-i",
        "200ms",
        "-n",
        "4",
        "-v",
        "energy,thread_energy",
        "--output",
        "r",
    ];
    let output = steer(
        &[&top[..], &["-m", "100*thread_energy/energy"], &busy].concat(),
        dir.path(),
    );
    if text(&output.stderr).contains("perf_event_paranoid") {
        countersteer_fuzz::skipped("counting is not permitted here");
        return;
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines: Vec<serde_json::Value> = text(&output.stdout)
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    // One thread has all that was spent.
    let is = |value: &serde_json::Value, wanted: f64| {
        (value.as_f64().unwrap() / wanted - 1.0).abs() < 1e-6
    };
    let columns = lines
        .iter()
        .map(|l| &l["columns"])
        .find(|c| !c["energy%"].is_null())
        .unwrap();
    assert!(
        is(&columns["energy%"], 100.0) && columns["watts"].as_f64() > Some(0.0),
        "{columns}"
    );
    assert!(
        is(&columns["watts"], columns["energy_j/s"].as_f64().unwrap()),
        "{columns}"
    );
    // Sets take turns, so the formula has nothing to say at first.
    let shares: Vec<f64> = lines
        .iter()
        .filter_map(|l| l["columns"]["100*thread_energy/energy"].as_f64())
        .collect();
    assert!(
        !shares.is_empty() && shares.iter().all(|s| (s - 100.0).abs() < 1e-6),
        "{shares:?}"
    );
    let record = countersteer_report::record::Record::load(&dir.path().join("r")).unwrap();
    let kept = |name: &str| {
        record
            .virtuals
            .iter()
            .any(|v| &*v.name == name && v.value > 0.0)
    };
    assert!(kept("energy_j") && kept("thread_energy_j") && kept("energy_share_percent"));
    assert!(
        record.readings.iter().any(|r| r
            .metrics
            .iter()
            .flatten()
            .any(|v| (v - 100.0).abs() < 1e-6))
    );
    let plain = [
        "top",
        "--root",
        root,
        "-i",
        "100ms",
        "-n",
        "2",
        "--columns",
        "energy%,name",
    ];
    let table = text(&steer(&[&plain[..], &busy].concat(), dir.path()).stdout);
    assert!(
        table.starts_with("  time_s energy% name\n") && table.contains("100 sh"),
        "{table}"
    );
    let missing = steer(
        &[
            &["top", "--root", root, "--columns", "temperature"],
            &busy[..],
        ]
        .concat(),
        dir.path(),
    );
    let said = text(&missing.stderr);
    assert!(
        missing.status.code() == Some(4)
            && said.contains("`temperature` has nothing to show here: "),
        "{said}"
    );
}

#[test]
fn virtual_counters_are_read_with_each_window_of_events() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Spends::start();
    let root = machine.root.path().to_str().unwrap();
    let command = [
        "stat",
        "--root",
        root,
        "--json",
        "--every",
        "1:context_switches",
        "-m",
        "energy/context_switches",
        "-v",
        "energy",
        "--",
        "sh",
        "-c",
        "for n in 1 2 3 4 5 6; do sleep 0.1; done",
    ];
    let output = steer(&command, dir.path());
    let log = text(&output.stderr);
    if log.contains("perf_event_paranoid") {
        eprintln!("skipped: counting is not permitted here");
        return;
    }
    assert!(output.status.success(), "{log}");
    let rows: Vec<serde_json::Value> = text(&output.stdout)
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let energies = rows.iter().filter(|r| r["name"] == "energy_j").count();
    // A busy machine may read several windows at once; without windows there is one value, at the end.
    assert!(energies >= 3, "{energies} of {} rows: {rows:?}", rows.len());
}

#[test]
fn the_sums_of_a_run_have_metrics_with_virtual_counters() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Spends::start();
    let line = format!(
        "'{}' stat --root '{}' -i 100ms -v energy -m 'energy/energy,thread_energy/seconds' -- sh -c '{}'",
        env!("CARGO_BIN_EXE_steer"),
        machine.root.path().display(),
        "n=0; while [ $n -lt 300000 ]; do n=$((n+1)); done"
    );
    let mut script = Command::new("script");
    script
        .args(["-qec", &line, "/dev/null"])
        .current_dir(dir.path())
        .env("TERM", "xterm");
    let Ok(output) = script.stdin(std::process::Stdio::null()).output() else {
        countersteer_fuzz::skipped("there is no `script`");
        return;
    };
    let live = text(&output.stdout);
    if live.contains("perf_event_paranoid") {
        countersteer_fuzz::skipped("counting is not permitted here");
        return;
    }
    let (_, end) = live.rsplit_once("\x1b[r\x1b8").unwrap();
    let row = end.lines().find(|l| l.contains(" sh ")).unwrap_or_default();
    let cells: Vec<&str> = row.split_whitespace().collect();
    let [.., share, watts, _counted] = cells[..] else {
        panic!("{end:?}")
    };
    assert!(share == "1" || share == "1.000", "{end:?}");
    assert!(end.contains("package-0       energy_j "), "{end:?}");
    assert!(
        watts.replace(',', "").parse::<f64>().unwrap() > 0.0,
        "{end:?}"
    );
}

#[test]
fn events_are_listed_with_what_is_missing_and_why() {
    let value: serde_json::Value =
        serde_json::from_str(&data(&["events", "--json"], &root())).unwrap();
    let event = |name: &str| {
        value["events"]
            .as_array()
            .unwrap()
            .iter()
            .find(|e| e["name"] == name)
            .cloned()
            .unwrap()
    };
    let told = |e: &serde_json::Value| e["available"] == true || e["why"].is_string();
    assert!(told(&event("task_clock")) && told(&event("instructions")));
    let metrics = value["metrics"].as_array().unwrap();
    let ipc = metrics.iter().find(|m| m["name"] == "ipc").unwrap();
    assert_eq!(ipc["formula"], "instructions / cycles");
    assert_eq!(
        ipc["available"],
        event("instructions")["available"],
        "{ipc}"
    );
    assert!(told(&event("sf")) && event("sf")["pmu"] == "derived");
    let filtered = data(&["events", "switches"], &root());
    assert!(
        filtered.contains("context_switches") && !filtered.contains("task_clock"),
        "{filtered}"
    );
}

#[test]
fn a_record_of_counts_is_a_record_like_any_other() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "stat",
        "-m",
        "faults_per_s",
        "-i",
        "20ms",
        "-o",
        "run.rec",
        "--",
        "sh",
        "-c",
        "sleep 0.05; true & wait",
    ];
    let output = steer(&args, dir.path());
    if text(&output.stderr).contains("perf_event_paranoid") {
        countersteer_fuzz::skipped("counting is not permitted here");
        return;
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
    let record = countersteer_report::record::Record::load(&dir.path().join("run.rec")).unwrap();
    assert_eq!(record.reading_counts, [std::sync::Arc::from("page_faults")]);
    assert!(record.readings.len() >= 2 && record.readings.iter().any(|r| r.counts[0] > Some(0)));
    assert!(
        record
            .readings
            .iter()
            .any(|r| r.metrics[0].is_some_and(|v| v > 0.0))
    );
    let of_threads = record
        .readings
        .iter()
        .filter(|r| r.thread.is_some())
        .count();
    assert_eq!(
        (&*record.manifest.engine, of_threads),
        ("counters", record.samples.len())
    );
    data(&["report", "run.rec", "-o", "run.html"], dir.path());
}

/// A stand-in for ssh runs the line that the other machine's shell would get.
#[test]
fn counting_on_another_machine_passes_on_arguments_output_and_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, script: String| {
        let path = dir.path().join(name);
        std::fs::write(&path, script).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, mode).unwrap();
        path
    };
    let ssh = write(
        "ssh",
        format!(
            "#!/bin/sh\n[ \"$1 $2 $3\" = '-T me@there --' ] || exit 99\nPATH='{}':$PATH sh -c \"$4\"\n",
            dir.path().display()
        ),
    );
    write(
        "steer",
        format!("#!/bin/sh\nexec '{}' \"$@\"\n", env!("CARGO_BIN_EXE_steer")),
    );
    let args = [
        "stat",
        "--host",
        "me@there",
        "--json",
        "-e",
        "task_clock:u",
        "--",
        "sh",
        "-c",
        "echo 'a  b'; exit 3",
    ];
    let output = Command::new(env!("CARGO_BIN_EXE_steer"))
        .args(args)
        .env("COUNTERSTEER_SSH", ssh)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    assert!(
        stdout.starts_with("a  b\n") && stdout.contains("\"exit_code\":3"),
        "{stdout}"
    );
}

/// A job's own folder for journals and sockets.
fn steered(args: &[&str], dir: &Path) -> Command {
    steered_by(&[], args, dir)
}

/// The same, started by another program.
fn steered_by(starter: &[&str], args: &[&str], dir: &Path) -> Command {
    let mut words = [starter, &[env!("CARGO_BIN_EXE_steer")], args]
        .concat()
        .into_iter();
    let mut command = Command::new(words.next().unwrap());
    command
        .args(words)
        .current_dir(dir)
        .env("HOME", dir)
        .env("RUNTIME_DIRECTORY", dir.join("runtime"));
    command
}

#[test]
fn a_run_passes_the_exit_code_on_and_leaves_a_record_that_replays() {
    let dir = tempfile::tempdir().unwrap();
    let script = "(n=0; while [ $n -lt 100000 ]; do n=$((n+1)); done) & wait; sleep 0.2; exit 7";
    let args = [
        "run", "-P", "aarr", "-i", "20ms", "--json", "-o", "run.rec", "--", "sh", "-c", script,
    ];
    let output = steered(&args, dir.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["programs"][0]["name"], "sh");
    assert_eq!(summary["programs"][0]["exit_code"], 7);
    assert!(summary["decisions"].as_u64().unwrap() > 3, "{summary}");
    assert!(data(&["replay", "run.rec"], dir.path()).contains("the same"));
    assert!(data(&["report", "run.rec", "-o", "run.html"], dir.path()).is_empty());
    assert_eq!(
        std::fs::read_dir(dir.path().join("runtime"))
            .unwrap()
            .count(),
        0,
        "journal and socket are gone"
    );
}

#[test]
fn a_daemon_steers_by_rules_and_answers_until_it_is_told_to_stop() {
    let dir = tempfile::tempdir().unwrap();
    let name = format!("t{}", std::process::id());
    let rules = format!("schema = \"countersteer.rules/1\"\n[[steer]]\nname = \"{name}\"\n");
    std::fs::write(dir.path().join("rules.toml"), rules).unwrap();
    let mut daemon = steered(&["daemon", "--rules", "rules.toml"], dir.path())
        .spawn()
        .unwrap();
    let program = dir.path().join(&name);
    std::fs::copy("/bin/sleep", &program).unwrap();
    let mut sleeper = Command::new(&program).arg("60").spawn().unwrap();
    let ask = |args: &[&str]| steered(args, dir.path()).output().unwrap();
    let mut seen = false;
    for _ in 0..100 {
        std::thread::sleep(std::time::Duration::from_millis(100));
        seen = text(&ask(&["ctl", "status"]).stdout).contains(&format!("{name}#{}", sleeper.id()));
        if seen {
            break;
        }
    }
    assert!(seen, "{}", text(&ask(&["ctl", "status"]).stderr));
    assert!(ask(&["ctl", "set", "policy=aarr"]).status.success());
    assert_eq!(ask(&["ctl", "set", "policy=nix"]).status.code(), Some(2));
    nix_kill(daemon.id());
    assert!(daemon.wait().unwrap().success());
    assert!(
        sleeper.try_wait().unwrap().is_none(),
        "who was steered runs on"
    );
    let _ = sleeper.kill();
    let _ = sleeper.wait();
    assert_eq!(
        std::fs::read_dir(dir.path().join("runtime"))
            .unwrap()
            .count(),
        0
    );
}

/// A process that ends with its test, whatever becomes of that.
struct Ends(std::process::Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The CPUs of a process, as the kernel tells them.
fn cpus_of(pid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status
        .lines()
        .find_map(|l| l.strip_prefix("Cpus_allowed_list:"))
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Asks again and again; half a minute is more than any machine takes.
fn until(mut holds: impl FnMut() -> bool) -> bool {
    (0..300).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        holds()
    })
}

/// An engine that rests looks once a second; counters tell it of births, which the scan of /proc would not.
#[test]
fn threads_that_came_and_went_between_two_looks_are_their_programs_own() {
    let dir = tempfile::tempdir().unwrap();
    // The last ones end with the program.
    let script = "for n in 1 2 3 4 5; do sh -c 'cat /dev/null & wait'; done";
    let args = [
        "run", "-P", "linux", "--engine", "affinity", "--json", "--", "sh", "-c", script,
    ];
    // By BPF programs, where these may be loaded, and by counters.
    for starter in [&[][..], &["setpriv", "--bounding-set=-bpf,-sys_admin"]] {
        let Ok(out) = steered_by(starter, &args, dir.path()).output() else {
            countersteer_fuzz::skipped(format_args!("{starter:?} is not there"));
            continue;
        };
        let told = String::from_utf8(out.stdout).unwrap();
        let log = String::from_utf8_lossy(&out.stderr).into_owned();
        if log.contains("without counters") || log.starts_with("setpriv") {
            countersteer_fuzz::skipped(format_args!("{log}"));
            continue;
        }
        let summary: serde_json::Value = serde_json::from_str(&told).unwrap();
        let program = &summary["programs"][0];
        let counts = (
            program["threads"].as_u64(),
            program["living"].as_u64(),
            summary["short_lived"].is_null(),
        );
        assert_eq!(counts, (Some(11), Some(0), true), "{told}{log}");
    }
}

/// With an hour between decisions, only being woken has one follow.
#[test]
fn what_is_set_is_obeyed_at_once_by_an_engine_that_rests() {
    if cpus_of(std::process::id()).parse::<u32>().is_ok() {
        countersteer_fuzz::skipped("this machine has a single CPU");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let script = "echo $$ > pid.new; mv pid.new pid; exec sleep 60";
    let args = [
        "run", "-P", "linux", "--engine", "affinity", "-i", "1h", "--", "sh", "-c", script,
    ];
    let null = std::process::Stdio::null;
    let mut run = Ends(
        steered(&args, dir.path())
            .stdout(null())
            .stderr(null())
            .spawn()
            .unwrap(),
    );
    let pid = || {
        std::fs::read_to_string(dir.path().join("pid"))
            .ok()?
            .trim()
            .parse::<u32>()
            .ok()
    };
    assert!(until(|| pid().is_some()));
    let set = |policy: &str| {
        steered(&["ctl", "set", policy], dir.path())
            .output()
            .unwrap()
            .status
            .success()
    };
    for (policy, cpus) in [("policy=static:*=cpu0", "0"), ("policy=static:*=cpu1", "1")] {
        assert!(set(policy));
        assert!(until(|| cpus_of(pid().unwrap()) == cpus), "{policy}");
    }
    nix_kill(run.0.id());
    run.0.wait().unwrap();
}

#[test]
fn who_leaves_the_rules_is_let_go_and_the_period_can_be_set() {
    let all = cpus_of(std::process::id());
    if all.parse::<u32>().is_ok() {
        countersteer_fuzz::skipped("this machine has a single CPU");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let name = format!("u{}", std::process::id());
    let rules = "schema = \"countersteer.rules/1\"\npolicy = \"static:*=cpu0\"\n";
    let rules = format!("{rules}[[steer]]\nname = \"{name}\"\n");
    std::fs::write(dir.path().join("rules.toml"), rules).unwrap();
    let null = std::process::Stdio::null;
    let start = |command: &mut Command| {
        Ends(
            command
                .stdin(null())
                .stdout(null())
                .stderr(null())
                .spawn()
                .unwrap(),
        )
    };
    let mut daemon = start(&mut steered(
        &["daemon", "--rules", "rules.toml"],
        dir.path(),
    ));
    let script = "echo $1 > /proc/$$/comm; n=0; while [ $n -lt 600 ]; do \
                  [ ! -e moved ] || echo other > /proc/$$/comm; sleep 0.1; n=$((n+1)); done";
    let program = start(
        Command::new("sh")
            .args(["-c", script, "sh", &name])
            .current_dir(dir.path()),
    );
    let pid = program.0.id();
    let confined = until(|| cpus_of(pid) != all);
    std::fs::write(dir.path().join("moved"), "").unwrap();
    let free = until(|| cpus_of(pid) == all);
    let ctl = |args: &[&str]| {
        steered(&[&["ctl"], args].concat(), dir.path())
            .output()
            .unwrap()
    };
    let status = text(&ctl(&["status", "--json"]).stdout);
    let legible = text(&ctl(&["status"]).stdout);
    let set = [ctl(&["set", "period=20ms"]), ctl(&["set", "period=0.1ms"])]
        .map(|output| output.status.code());
    let told = text(&ctl(&["get"]).stdout);
    assert!(confined && free, "{confined} {free}");
    assert!(
        status.contains("\"period\": \"100ms\"") && !status.contains(&format!("#{pid}\"")),
        "{status}"
    );
    assert!(
        legible.contains("period: 100ms\n") && legible.contains("\n  decisions: "),
        "{legible}"
    );
    assert_eq!(set, [Some(0), Some(2)]);
    assert!(told.contains("20ms"), "{told}");
    nix_kill(daemon.0.id());
    assert!(daemon.0.wait().unwrap().success());
}

fn nix_kill(pid: u32) {
    assert!(
        Command::new("kill")
            .arg(pid.to_string())
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn a_simulation_that_takes_too_long_ends_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let args = "sim -M i9-12900k-8p8e -w spec-16 --rounds 1000 --max-wall 100ms";
    let args: Vec<&str> = args.split(' ').collect();
    let output = steer(&args, dir.path());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("stopped after 100ms"), "{said}");
}

#[test]
fn a_trial_that_is_decided_ends() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "trial",
        "-P",
        "aarr",
        "--block",
        "100ms",
        "-i",
        "20ms",
        "--duration",
        "60s",
        "--margin",
        "90",
        "--until-decided",
        "--json",
        "--",
        "sh",
        "-c",
        // A trial leaves its program running; this one has 8 s of CPU time.
        "ulimit -t 8; while :; do :; done",
    ];
    let output = steered(&args, dir.path()).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let pairs = report["all"]["pairs"].as_u64().unwrap_or_default();
    assert!(report["all"]["verdict"].is_string(), "{report}");
    assert!((6..200).contains(&pairs), "{report}");
}

#[test]
fn a_trial_reports_each_program_with_an_interval() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "trial",
        "-P",
        "aarr",
        "--block",
        "100ms",
        "-i",
        "20ms",
        "--duration",
        "3s",
        "--json",
        "--",
    ];
    let args: Vec<&str> = args
        .into_iter()
        .chain([
            "sh",
            "-c",
            "n=0; while [ $n -lt 2000000 ]; do n=$((n+1)); done",
        ])
        .collect();
    let output = steered(&args, dir.path()).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let pairs = report["programs"][0]["pairs"].as_u64().unwrap_or_default();
    assert!(
        pairs >= 6 && report["programs"][0]["interval"].is_array(),
        "{report}"
    );
}
