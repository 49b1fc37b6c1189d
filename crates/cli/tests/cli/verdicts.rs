//! Verdicts of `try`, `trial` and `compare`: refusals and comparisons.

use super::*;

#[test]
fn programs_that_fail_are_refused_and_their_own_error_is_shown() {
    let ready = countersteer_fuzz::instrumentation::ready(countersteer_profiler::tools);
    if ready.map_err(countersteer_fuzz::skipped).is_err() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let tried = |program: &[&str]| {
        let args = ["try", "-M", "i9-12900k-8p8e", "-P", "aarr", "--seeds", "1"];
        let output = steer(&[&args[..], &["--"], program].concat(), dir.path());
        (
            output.status.code(),
            text(&output.stderr),
            text(&output.stdout),
        )
    };
    let (code, said, out) = tried(&["sh", "-c", "echo it is broken >&2; exit 3"]);
    assert_eq!((code, out.as_str()), (Some(3), ""), "{said}");
    assert!(
        said.contains("failed with exit code 3") && said.contains("it is broken"),
        "{said}"
    );
    let (code, said, out) = tried(&["false"]);
    assert_eq!((code, out.as_str()), (Some(3), ""), "{said}");
    assert!(said.contains("it printed no error"), "{said}");
    // One of two suffices.
    let (code, said, _) = tried(&["true", "--", "false"]);
    assert_eq!(code, Some(3), "{said}");
}

#[test]
fn a_trial_of_a_program_that_fails_has_no_verdict() {
    let dir = tempfile::tempdir().unwrap();
    let trial = |more: &[&str]| {
        let program = ["--", "sh", "-c", "echo it is broken >&2; sleep 0.3; exit 7"];
        let args = [&["trial", "-P", "aarr", "--json"], more, &program].concat();
        let output = steer(&args, dir.path());
        (
            output.status.code(),
            text(&output.stderr),
            text(&output.stdout),
        )
    };
    let (code, said, out) = trial(&["--block", "100ms", "-i", "20ms"]);
    assert_eq!((code, out.as_str()), (Some(7), ""), "{said}");
    assert!(
        said.contains("no verdict: the program failed with exit code 7"),
        "{said}"
    );
    let (code, said, out) = trial(&["--by", "wall", "--pairs", "2"]);
    assert_eq!((code, out.as_str()), (Some(3), ""), "{said}");
    assert!(said.contains("it is broken"), "{said}");
}

#[test]
fn a_comparison_without_policies_compares_the_shelf_and_one_of_none_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let compare = |more: &[&str]| {
        let args = [
            "compare",
            "-M",
            "core2-quad",
            "-w",
            "shared-caches",
            "--seeds",
            "1",
        ];
        let args = [&args[..], &["--max-seconds", "2"], more].concat();
        steer(&args, dir.path())
    };
    let output = compare(&["--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let policies: Vec<&str> = (json["runs"].as_array().unwrap().iter())
        .map(|run| run["policy"].as_str().unwrap())
        .collect();
    assert!(
        policies.contains(&"contention") && policies.contains(&"joint"),
        "{policies:?}"
    );
    assert!(!policies.contains(&"hsf"), "{policies:?}");
    assert!(json["verdict"].is_string() && json["rankings"][0]["remarks"].is_array());
    for none in ["", ","] {
        let output = compare(&["-P", none]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("names no policy"));
    }
    let only = compare(&["-P", "linux"]);
    assert!(only.status.success(), "{}", text(&only.stderr));
}
