//! Trials: A against B.

use super::*;

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
        // A trial does not end its program; this one has a limit of 8 s of CPU time.
        "ulimit -t 8; while :; do :; done",
    ];
    let output = steered(&args, dir.path()).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let pairs = report["all"]["pairs"].as_u64().unwrap_or_default();
    assert!(report["all"]["verdict"].is_string(), "{report}");
    assert!((6..200).contains(&pairs), "{report}");
}

#[test]
fn a_trial_has_the_confidence_that_it_was_asked_for_or_does_not_begin() {
    let dir = tempfile::tempdir().unwrap();
    for percent in ["10", "100", "nan"] {
        let args = ["trial", "-P", "aarr", "--confidence", percent];
        let args = [&args[..], &["--", "touch", "ran"]].concat();
        let output = steered(&args, dir.path()).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("it must be 50 to 99.99"), "{said}");
        assert!(!dir.path().join("ran").exists());
    }
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
        pairs >= 3 && report["programs"][0]["interval"].is_array(),
        "{report}"
    );
}

#[test]
fn a_trial_of_whole_runs_leaves_records_and_at_an_interrupt_what_it_has_found() {
    let dir = tempfile::tempdir().unwrap();
    let plan = [
        "trial",
        "-P",
        "nice -n 3",
        "--by",
        "wall",
        "--json",
        "-o",
        "out",
    ];
    let short = ["--pairs", "2", "--", "sleep", "0.05"];
    let whole = steer(&[&plan[..], &short].concat(), dir.path());
    assert!(whole.status.success(), "{}", text(&whole.stderr));
    let kept = std::fs::read(dir.path().join("out/trial.json")).unwrap();
    let json = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).unwrap();
    assert_eq!(json(&kept), json(&whole.stdout));
    for record in ["out/01-policy.rec", "out/02-baseline.rec"] {
        let args = ["report", record, "-o", "page.html"];
        assert!(steer(&args, dir.path()).status.success(), "{record}");
    }
    let again = steer(&[&plan[..], &short].concat(), dir.path());
    assert_eq!(again.status.code(), Some(2), "{}", text(&again.stderr));

    let endless = ["--force", "--pairs", "1000", "--", "sleep", "0.05"];
    let started = steered(&[&plan[..], &endless].concat(), dir.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // The third pair is running.
    let third = |side: &str| dir.path().join(format!("out/03-{side}.rec")).exists();
    assert!(until(|| third("policy") || third("baseline")));
    nix_kill(started.id());
    let ended = started.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(143), "{}", text(&ended.stderr));
    assert!(json(&ended.stdout)["all"]["pairs"].as_u64().unwrap() >= 2);
}
