//! Simulations, comparisons and records: equal bytes, replays, limits.

use super::*;

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
    // Without the policy its decisions cannot be repeated, and the error says so.
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
        "energy_per_instruction_nj",
        "energy_per_run_j",
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
            record.decisions.iter().any(|d| d.clamp_most.is_some()),
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
fn a_simulation_that_takes_too_long_ends_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let args = "sim -M i9-12900k-8p8e -w spec-16 --rounds 1000 --max-wall 100ms";
    let args: Vec<&str> = args.split(' ').collect();
    let output = steer(&args, dir.path());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("stopped after 100ms"), "{said}");
}
