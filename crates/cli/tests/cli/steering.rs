//! Programs that run under a policy.

use super::*;

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
fn what_would_be_changed_does_not_stand_in_the_summary() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["run", "-P", "aarr", "-i", "20ms", "--dry-run", "--json"];
    let args = [&args[..], &["--", "sleep", "1"]].concat();
    let output = steered(&args, dir.path()).output().unwrap();
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(summary["decisions"].as_u64().unwrap() > 0, "{summary}");
    let said = text(&output.stderr);
    assert!(said.contains(" s  sleep "), "{said}");
}

#[test]
fn a_run_whose_summary_cannot_be_written_does_not_begin() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["run", "--summary", "missing/x", "--", "sh", "-c"];
    let args = [&args[..], &["echo ran; exit 7"]].concat();
    let output = steered(&args, dir.path()).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(said.contains("cannot write missing/x"), "{said}");
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
}

/// An idle engine scans once a second. Counters report forks to it that the scan of /proc would miss.
#[test]
fn threads_that_came_and_went_between_two_looks_are_their_programs_own() {
    let dir = tempfile::tempdir().unwrap();
    // The last ones end with the program.
    let script = "for n in 1 2 3 4 5; do sh -c 'cat /dev/null & wait'; done";
    let args = [
        "run", "-P", "linux", "--engine", "affinity", "--json", "--", "sh", "-c", script,
    ];
    // With BPF programs if possible, and with counters.
    for starter in [&[][..], &["setpriv", "--bounding-set=-bpf,-sys_admin"]] {
        let Ok(out) = steered_by(starter, &args, dir.path()).output() else {
            countersteer_fuzz::skipped(format_args!("{starter:?} is not there"));
            continue;
        };
        let printed = String::from_utf8(out.stdout).unwrap();
        let log = String::from_utf8_lossy(&out.stderr).into_owned();
        if log.contains("without counters") || log.starts_with("setpriv") {
            countersteer_fuzz::skipped(format_args!("{log}"));
            continue;
        }
        let summary: serde_json::Value = serde_json::from_str(&printed).unwrap();
        let program = &summary["programs"][0];
        let counts = (
            program["threads"].as_u64(),
            program["living"].as_u64(),
            summary["short_lived"].is_null(),
        );
        assert_eq!(counts, (Some(11), Some(0), true), "{printed}{log}");
    }
}

/// With an hour between decisions, the engine only reacts if it is woken.
#[test]
fn what_is_set_is_obeyed_at_once_by_an_engine_that_rests() {
    if !countersteer_fuzz::cpus::may_use(&[0, 1]) {
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
