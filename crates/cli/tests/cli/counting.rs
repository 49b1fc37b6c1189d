//! Counts of programs: rows, tables, records, other machines.

use super::*;

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

#[test]
fn rows_replace_a_file_only_where_something_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("counts.csv");
    std::fs::write(&path, "former").unwrap();
    for repeat in [&[][..], &["-r", "2"]] {
        let args = [&["stat", "--csv", "--to", "counts.csv"], repeat].concat();
        let none = steer(&[&args[..], &["--", "nosuchprogram"]].concat(), dir.path());
        assert_eq!(none.status.code(), Some(4), "{}", text(&none.stderr));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "former");
    }
    let args = ["stat", "--to", "missing/counts.csv", "--", "echo", "ran"];
    let nowhere = steer(&args, dir.path());
    assert_eq!(nowhere.status.code(), Some(5), "{}", text(&nowhere.stderr));
    assert!(nowhere.stdout.is_empty());
}

/// `script` (util-linux) provides a terminal for the program.
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
    let explained = |e: &serde_json::Value| e["available"] == true || e["why"].is_string();
    assert!(explained(&event("task_clock")) && explained(&event("instructions")));
    let metrics = value["metrics"].as_array().unwrap();
    let ipc = metrics.iter().find(|m| m["name"] == "ipc").unwrap();
    assert_eq!(ipc["formula"], "instructions / cycles");
    assert_eq!(
        ipc["available"],
        event("instructions")["available"],
        "{ipc}"
    );
    assert!(explained(&event("sf")) && event("sf")["pmu"] == "derived");
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

/// Writes a substitute for ssh, which runs the line that the other machine's shell would get. The other
/// machine is `me@there`, and no signal reaches it.
pub fn substitute_for_ssh(dir: &Path) -> PathBuf {
    let write = |name: &str, script: String| {
        let [text, path] = ["txt", ""].map(|kind| dir.join(name).with_extension(kind));
        std::fs::write(&text, script).unwrap();
        // Another process writes the file and exits. A child of another test could otherwise hold it open for writing, which
        // prevents its execution.
        let mut install = Command::new("install");
        let installed = install.args(["-m", "755"]).args([&text, &path]).status();
        assert!(installed.unwrap().success());
        path
    };
    write(
        "steer",
        format!("#!/bin/sh\nexec '{}' \"$@\"\n", env!("CARGO_BIN_EXE_steer")),
    );
    write(
        "ssh",
        format!(
            "#!/bin/sh\n[ \"$1 $2 $3\" = '-T me@there --' ] || exit 99\nexport PATH='{}':$PATH\nsetsid sh -c \"$4\" &\ntrap 'exit 130' INT\nwait $!\n",
            dir.display()
        ),
    )
}

#[test]
fn counting_on_another_machine_passes_on_arguments_output_and_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let ssh = substitute_for_ssh(dir.path());
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
