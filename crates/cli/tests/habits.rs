//! Common usage patterns of perf, time and hyperfine.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::path::Path;
use std::process::{Command, Output, Stdio};

fn steer(args: &[&str], dir: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steer"));
    command
        .args(args)
        .current_dir(dir)
        // Keeps sentences on one line.
        .env("COLUMNS", "1000")
        .env("HOME", dir)
        .env("RUNTIME_DIRECTORY", dir.join("runtime"))
        .stdin(Stdio::null());
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Output of a `stat` of events that every user may count; `None` if counting is not permitted.
fn stat(args: &[&str], dir: &Path) -> Option<(String, String, Option<i32>)> {
    let args = [&["stat", "-e", "task_clock:u"], args].concat();
    let output = steer(&args, dir);
    let errors = text(&output.stderr);
    if errors.contains("perf_event_paranoid permits") || errors.contains("not permitted") {
        countersteer_fuzz::skipped("counting is not permitted here");
        return None;
    }
    Some((text(&output.stdout), errors, output.status.code()))
}

#[test]
fn a_program_needs_no_dashes_and_has_stdout_for_itself() {
    let dir = tempfile::tempdir().unwrap();
    let Some((out, errors, code)) = stat(&["sh", "-c", "echo -n data; exit 4"], dir.path()) else {
        return;
    };
    assert_eq!((out.as_str(), code), ("data", Some(4)), "{errors}");
    assert!(errors.contains("task_clock:u"), "{errors}");
    let last = errors.lines().last().unwrap();
    for word in ["s elapsed", "s user", "s sys", "CPUs used"] {
        assert!(last.contains(word), "{errors}");
    }
}

#[test]
fn data_is_on_stdout_when_it_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let Some((out, ..)) = stat(&["--json", "true"], dir.path()) else {
        return;
    };
    let end: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert!(
        end["user_s"].is_number() && end["system_s"].is_number(),
        "{end}"
    );
}

#[test]
fn runs_are_repeated_and_shown_with_their_deviation() {
    let dir = tempfile::tempdir().unwrap();
    let script = "echo >>ran; exit 3";
    let Some((out, errors, code)) = stat(&["-r", "3", "sh", "-c", script], dir.path()) else {
        return;
    };
    let ran = std::fs::read_to_string(dir.path().join("ran")).unwrap();
    assert_eq!((ran.lines().count(), code), (3, Some(3)), "{errors}");
    assert!(out.is_empty() && errors.contains("± deviation"), "{errors}");
    for quantity in ["task_clock:u/ms", "elapsed/s", "user/s", "CPUs used"] {
        assert!(errors.contains(quantity), "{errors}");
    }
}

#[test]
fn a_record_is_replaced_only_by_force() {
    let dir = tempfile::tempdir().unwrap();
    let sim = |more: &[&str]| {
        let args = [
            "sim",
            "-M",
            "core2-quad",
            "-w",
            "shared-caches",
            "-o",
            "run.rec",
        ];
        let output = steer(
            &[&args[..], &["--max-seconds", "0.2"], more].concat(),
            dir.path(),
        );
        (output.status.code(), text(&output.stderr))
    };
    assert_eq!(sim(&[]).0, Some(0));
    let before = std::fs::read(dir.path().join("run.rec/manifest.json")).unwrap();
    let (code, errors) = sim(&["-P", "mpi"]);
    assert!(code == Some(2) && errors.contains("--force"), "{errors}");
    let after = std::fs::read(dir.path().join("run.rec/manifest.json")).unwrap();
    assert_eq!(before, after);
    let (code, errors) = sim(&["-P", "mpi", "--force"]);
    assert_eq!(code, Some(0), "{errors}");
    let output = steer(&["run", "-o", "run.rec", "touch", "ran"], dir.path());
    assert_eq!(output.status.code(), Some(2));
    assert!(
        !dir.path().join("ran").exists(),
        "said before the program ran"
    );
}

#[test]
fn what_a_shell_started_is_found_by_its_own_name() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "run",
        "-i",
        "20ms",
        "-o",
        "run.rec",
        "sh",
        "-c",
        "sleep 2; true",
    ];
    let output = steer(&args, dir.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let why = |program: &str| {
        let args = ["why", "run.rec", "--program", program, "--at", "1.5"];
        let output = steer(&args, dir.path());
        (
            output.status.code(),
            text(&output.stdout) + &text(&output.stderr),
        )
    };
    let (code, said) = why("sleep");
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = why("gzip");
    assert!(code == Some(2) && said.contains("sh, sleep"), "{said}");
}

#[test]
fn policies_that_cannot_act_on_real_threads_say_so() {
    let dir = tempfile::tempdir().unwrap();
    for spec in [
        "best-static",
        "hsf:sf=oracle",
        "ef:ef=oracle",
        "ef:ef=static",
    ] {
        let output = steer(&["run", "-P", spec, "touch", "ran"], dir.path());
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains("only a simulator"), "{errors}");
    }
    assert!(!dir.path().join("ran").exists());
}

#[test]
fn policies_for_unequal_cores_or_several_caches_say_where_there_is_nothing_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let compare = |machine: &str, policies: &str| {
        let args = [
            "compare",
            "-M",
            machine,
            "-w",
            "shared-caches",
            "-P",
            policies,
        ];
        let output = steer(
            &[&args[..], &["--seeds", "1", "--max-seconds", "1", "--json"]].concat(),
            dir.path(),
        );
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let scores: Vec<f64> = (value["runs"].as_array().unwrap().iter())
            .map(|run| run["stp"].as_f64().unwrap())
            .collect();
        (scores, text(&output.stderr))
    };
    let policies = "linux,rr,aarr,ideal-rr,adwrr,eqp,acfs,hsf,hass,ipc-driven";
    let (scores, errors) = compare("core2-quad", policies);
    // Other times of observation end other steps of the shared caches, so that runs differ a little.
    let alike = |scores: &[f64]| scores.iter().all(|s| (s / scores[0] - 1.0).abs() < 5e-3);
    assert!(alike(&scores), "{scores:?}");
    assert!(errors.contains("all cores are alike"), "{errors}");
    let (scores, errors) = compare(
        "i9-12900k-8p8e",
        "linux,mpi,capacity,capacity+mpi,contention",
    );
    assert!(alike(&scores), "{scores:?}");
    assert!(errors.contains("one last-level cache"), "{errors}");
}

/// Three real programs, on a machine where policies can act.
#[test]
fn try_says_what_to_do_with_three_programs() {
    let ready = countersteer_fuzz::instrumentation::ready(countersteer_profiler::tools);
    if ready.map_err(countersteer_fuzz::skipped).is_err() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let words: String = (0..6_000)
        .map(|n| format!("{} ", n * 7919 % 65_537))
        .collect();
    std::fs::write(dir.path().join("text"), words).unwrap();
    let args = [
        "try",
        "-M",
        "i9-12900k-8p8e",
        "-P",
        "aarr,hsf,best-static",
        "--seeds",
        "1",
        "--duration",
        "60s",
    ];
    let programs = [
        "--",
        "gzip",
        "-c",
        "text",
        "--",
        "sort",
        "text",
        "--",
        "sha256sum",
        "text",
    ];
    let run = |more: &[&str]| steer(&[&args[..], more, &programs].concat(), dir.path());
    let output = run(&[]);
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let out = text(&output.stdout);
    for word in [
        "aarr",
        "hsf",
        "best-static (simulator only)",
        "throughput",
        "worst loser",
    ] {
        assert!(out.contains(word), "{out}");
    }
    assert!(!out.contains("Use best-static"), "{out}");
    // Programs of some milliseconds end before a policy can act.
    assert!(
        out.contains("Left out") || out.contains("Not compared"),
        "{out}"
    );
    assert!(out.contains("must run for at least 1 s"), "{out}");
    assert!(
        out.lines().last().unwrap().starts_with("No advice"),
        "{out}"
    );
    assert!(!dir.path().join("gzip.profile.json").exists());
    let json: serde_json::Value = serde_json::from_slice(&run(&["--json"]).stdout).unwrap();
    assert_eq!(
        json["rankings"][0]["simulator_only"][0]["policy"],
        "best-static"
    );
    let output = steer(&["try", "true", "--"], dir.path());
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn commands_that_start_programs_are_sides_of_a_trial() {
    let dir = tempfile::tempdir().unwrap();
    let trial = |more: &[&str]| {
        let args = [
            &["trial", "-P", "nice -n 3", "--pairs", "2", "--json"],
            more,
        ]
        .concat();
        let output = steer(&args, dir.path());
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let wall = trial(&["sh", "-c", "sleep 0.15; nice >>levels"]);
    assert_eq!(
        (&wall["programs"][0]["program"], &wall["all"]["pairs"]),
        (&"sh".into(), &2.into())
    );
    let mut levels: Vec<String> = std::fs::read_to_string(dir.path().join("levels"))
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    levels.sort();
    let own = Command::new("nice").output().unwrap();
    let own: i32 = text(&own.stdout).trim().parse().unwrap();
    let mut expected = [own, own, own + 3, own + 3].map(|level| level.to_string());
    expected.sort();
    assert_eq!(levels, expected);
    // The score is the number that the command prints.
    let score = format!("expr $(cat $STEER_OUTPUT) - {own} + 1");
    let score = trial(&["--score", &score, "nice"]);
    let gain = score["all"]["gain"].as_f64().unwrap();
    assert!((gain - 3.0).abs() < 1e-9, "{score}");
    let output = steer(&["trial", "-P", "fastest", "true"], dir.path());
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

#[test]
fn a_simulation_that_is_cut_names_the_programs_without_a_whole_run() {
    let dir = tempfile::tempdir().unwrap();
    let said = |max_seconds: &str| {
        let args = [
            "sim",
            "-M",
            "core2-quad",
            "-w",
            "shared-caches",
            "-P",
            "linux",
            "--rounds",
            "1",
            "--max-seconds",
            max_seconds,
        ];
        let output = steer(&args, dir.path());
        assert!(output.status.success());
        text(&output.stderr)
    };
    let cut = said("0.01");
    assert!(
        cut.contains("no run of ") && cut.contains("--max-seconds"),
        "{cut}"
    );
    assert!(!said("1000").contains("no run of"));
}

const BUSY: &str = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";

/// Run-queue latency without privilege: the kernel's sums, which have no percentiles, with a message about it.
#[test]
fn waits_for_a_cpu_are_shown_and_sums_are_no_percentiles() {
    let dir = tempfile::tempdir().unwrap();
    let script = format!("({BUSY}) & {BUSY}; sleep 0.1; wait");
    let args = ["--latency", "--bpf", "never", "sh", "-c", &script];
    let Some((out, errors, code)) = stat(&args, dir.path()) else {
        return;
    };
    assert_eq!((out.as_str(), code), ("", Some(0)), "{errors}");
    for part in ["waits, in ms", "mean", "(all)", "no percentiles"] {
        assert!(errors.contains(part), "{errors}");
    }
    assert!(!errors.contains("99 %"), "{errors}");
    let Some((out, ..)) = stat(&[&["--json"], &args[..]].concat(), dir.path()) else {
        return;
    };
    let lines: Vec<serde_json::Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let waits: Vec<_> = lines.iter().filter(|l| l["kind"] == "waits").collect();
    let all = waits.last().unwrap();
    assert!(
        all["times"].as_u64().unwrap() > 1 && all["tid"].is_null(),
        "{out}"
    );
    assert!(
        all["mean_ms"].is_number() && all["p99_ms"].is_null(),
        "{out}"
    );
    assert_eq!(lines.last().unwrap()["kind"], "end", "{out}");
}

/// With BPF programs each wait is measured, for counted and for steered programs.
#[test]
fn waits_are_measured_one_by_one_where_bpf_programs_may_be_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let script = format!("({BUSY}) & {BUSY}; wait");
    let args = [
        "run",
        "--json",
        "--latency",
        "-o",
        "run.rec",
        "sh",
        "-c",
        &script,
    ];
    let output = steer(&args, dir.path());
    let errors = text(&output.stderr);
    if errors.contains("run-queue latency cannot be measured by BPF") {
        countersteer_fuzz::skipped("BPF programs may not be loaded");
        return;
    }
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let wait = &summary["programs"][0]["wait"];
    let of = |key: &str| wait[key].as_f64().unwrap();
    assert!(
        of("p50_ms") <= of("p99_ms") && of("p99_ms") <= of("longest_ms"),
        "{wait}"
    );
    assert!(wait["wakeups"]["times"].as_u64().unwrap() > 0, "{wait}");
    let report = steer(&["report", "run.rec", "-o", "page.html"], dir.path());
    assert!(report.status.success(), "{}", text(&report.stderr));
    let page = std::fs::read_to_string(dir.path().join("page.html")).unwrap();
    assert!(page.contains("Run-queue latency") && page.contains("99 % within"));
    let Some((_, errors, _)) = stat(
        &["--latency", "--per", "process", "sh", "-c", &script],
        dir.path(),
    ) else {
        return;
    };
    assert!(
        errors.contains("woken") && errors.contains("latency measured"),
        "{errors}"
    );
    let others = errors.lines().filter(|line| line.starts_with("tput"));
    assert_eq!(others.count(), 0, "only the program is: {errors}");
}

/// Percentiles in `top`, or a line with the reason if they are not available.
#[test]
fn top_shows_percentiles_of_waits_or_says_why_not() {
    let dir = tempfile::tempdir().unwrap();
    let script = format!("({BUSY}) & {BUSY}; {BUSY}; wait");
    let columns = "name,wait99_ms,wake50_ms,wake99_ms";
    let top = |bpf| {
        let start = ["top", "--json", "--bpf", bpf, "-i", "100ms", "--columns"];
        let program = [columns, "sh", "-c", &script];
        steer(&[&start[..], &program[..]].concat(), dir.path())
    };
    let refused = top("never");
    let errors = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(4), "{errors}");
    assert!(errors.contains("--bpf never excludes"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");

    let output = top("auto");
    let errors = text(&output.stderr);
    if !output.status.success() {
        assert!(errors.contains("BPF programs") || errors.contains("latency cannot"));
        countersteer_fuzz::skipped("BPF programs may not be loaded");
        return;
    }
    let waits: Vec<f64> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter_map(|line| line["columns"]["wait99_ms"].as_f64())
        .collect();
    assert!(!waits.is_empty() && waits.iter().all(|ms| (0.0..10_000.0).contains(ms)));
}

#[test]
fn a_process_that_only_sleeps_is_said_to_have_done_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = sleeper.id().to_string();
    let sleeps = |stat: String| stat.contains(") S ");
    while !sleeps(std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap()) {
        std::thread::yield_now();
    }
    let said = stat(&["-p", &pid, "-i", "50ms", "-n", "2"], dir.path());
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    if let Some((_, errors, code)) = said {
        assert_eq!(code, Some(0), "{errors}");
        assert!(errors.contains("no selected thread ran"), "{errors}");
    }
}

#[test]
fn a_filter_shows_what_it_finds_or_says_that_it_found_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let found = text(&steer(&["events", "page_faults"], dir.path()).stdout);
    assert!(
        found.contains("page_faults") && !found.contains("PMU "),
        "{found}"
    );
    let nothing = steer(&["events", "page_falts"], dir.path());
    assert_eq!(nothing.status.code(), Some(2));
    let nothing = text(&nothing.stderr);
    assert_eq!(nothing.lines().count(), 1, "{nothing}");
    assert!(
        nothing.contains("no event or metric has `page_falts`")
            && nothing.contains("did you mean `page_faults`?"),
        "{nothing}"
    );
}

#[test]
fn a_policy_that_is_named_twice_is_compared_once() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "compare",
        "-M",
        "core2-quad",
        "-w",
        "shared-caches",
        "-P",
        "linux,linux",
    ];
    let more = ["--seeds", "1", "--max-seconds", "0.2", "--json"];
    let output = steer(&[&args[..], &more].concat(), dir.path());
    let compared: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(compared["runs"].as_array().unwrap().len(), 1);
}

#[test]
fn files_of_another_kind_are_called_what_they_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("words.txt", "just words\n");
    write("mix.toml", "[[program]]\nprofile = \"words.txt\"\n");
    for (machine, workload, kind) in [
        ("words.txt", "shared-caches", "not a machine file"),
        ("core2-quad", "./words.txt", "not a workload file"),
        ("core2-quad", "mix.toml", "not a profile file"),
    ] {
        let output = steer(&["sim", "-M", machine, "-w", workload], dir.path());
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{errors}");
        assert!(
            errors.contains(kind) && errors.contains("words.txt"),
            "{errors}"
        );
    }
    let daemon = steer(&["daemon", "--rules", "absent.toml"], dir.path());
    let errors = text(&daemon.stderr);
    assert!(errors.contains("share/countersteer/rules.toml"), "{errors}");
}

#[test]
fn this_machine_is_shown_as_json_too() {
    let dir = tempfile::tempdir().unwrap();
    let output = steer(&["machine", "detect", "--json"], dir.path());
    let machine: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(machine["schema"], "countersteer.machine/1");
}

#[test]
fn a_workload_that_was_measured_on_some_core_types_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let listed = text(&steer(&["workload", "list"], dir.path()).stdout);
    let row = |name: &str| listed.lines().find(|l| l.starts_with(name)).unwrap();
    assert!(row("spec-16").contains("only for machines of"), "{listed}");
    assert!(!row("shared-caches").contains("only for"), "{listed}");
}
