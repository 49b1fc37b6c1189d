//! `steer auto`: verdicts are stored, shown, removed and checked. Programs run with any verdict.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::process::{Command, Output, Stdio};

fn steer(home: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steer"));
    command
        .args(args)
        .env("HOME", home)
        .env("RUNTIME_DIRECTORY", home.join("runtime"))
        .env_remove("XDG_STATE_HOME")
        .env_remove("XDG_RUNTIME_DIR")
        .stdin(Stdio::null());
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Two CPUs of this machine; one of them is declared small.
fn machine() -> String {
    let four = include_str!("../../../vm/unequal.toml");
    four.replace("cpus = \"0-1\"", "cpus = \"0\"")
        .replace("cpus = \"2-3\"", "cpus = \"1\"")
        .replace("0-3", "0-1")
}

fn kept(home: &Path) -> serde_json::Value {
    let output = steer(home, &["auto", "list", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_program_runs_and_its_verdict_is_kept_shown_and_forgotten() {
    let ready = countersteer_fuzz::instrumentation::ready(countersteer_profiler::tools);
    if !countersteer_fuzz::cpus::may_use(&[0, 1])
        || ready.map_err(countersteer_fuzz::skipped).is_err()
    {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("unequal.toml");
    std::fs::write(&file, machine()).unwrap();
    let file = file.to_str().unwrap();
    let first = steer(home.path(), &["auto", "-M", file, "--", "echo", "done"]);
    let said = text(&first.stderr);
    assert!(first.status.success(), "{said}");
    assert_eq!(text(&first.stdout), "done\n");
    let verdicts = kept(home.path());
    assert_eq!(verdicts[0]["policy"], "linux", "{verdicts}");
    let again = steer(home.path(), &["auto", "-M", file, "--", "echo", "done"]);
    assert!(text(&again.stderr).contains("stored verdict"));
    let forgotten = steer(home.path(), &["auto", "forget", "echo"]);
    assert!(forgotten.status.success());
    assert_eq!(kept(home.path()).as_array().unwrap().len(), 0);
    assert_eq!(
        steer(home.path(), &["auto", "forget", "echo"])
            .status
            .code(),
        Some(4)
    );
}

#[test]
fn a_program_that_fails_is_not_judged_and_its_code_is_passed_on() {
    if !countersteer_fuzz::cpus::may_use(&[0, 1]) {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("unequal.toml");
    std::fs::write(&file, machine()).unwrap();
    let output = steer(
        home.path(),
        &[
            "auto",
            "-M",
            file.to_str().unwrap(),
            "--",
            "sh",
            "-c",
            "exit 7",
        ],
    );
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("not judged"));
    assert_eq!(kept(home.path()).as_array().unwrap().len(), 0);
}

#[test]
fn a_damaged_store_is_set_aside_and_foreign_verdicts_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join(".local/state/countersteer");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("verdicts.json"), "{ \"schema\"").unwrap();
    let output = steer(home.path(), &["auto", "list", "--json"]);
    assert!(text(&output.stderr).contains("is not trusted"));
    assert_eq!(text(&output.stdout).trim(), "[]");
    assert!(folder.join("verdicts.json.set-aside").is_file());
    let other = r#"{"schema":"countersteer.verdicts/1","version":"0.0.0","verdicts":[]}"#;
    std::fs::write(folder.join("verdicts.json"), other).unwrap();
    let output = steer(home.path(), &["auto", "list", "--json"]);
    let said = text(&output.stderr);
    assert!(
        said.contains("of version 0.0.0") && said.contains("judged again"),
        "{said}"
    );
    let aside = std::fs::read_to_string(folder.join("verdicts.json.set-aside")).unwrap();
    assert_eq!(aside, other);
    let foreign = home.path().join("foreign.json");
    std::fs::write(
        &foreign,
        r#"{"schema":"other/1","version":"9","verdicts":[]}"#,
    )
    .unwrap();
    let refused = steer(home.path(), &["auto", "import", foreign.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(3), "{}", text(&refused.stderr));
    let exported = home.path().join("out.json");
    let exported = exported.to_str().unwrap();
    assert!(
        steer(home.path(), &["auto", "export", exported])
            .status
            .success()
    );
    assert!(
        steer(home.path(), &["auto", "import", exported])
            .status
            .success()
    );
}

#[test]
fn a_foreground_program_must_run_already() {
    if !countersteer_fuzz::cpus::may_use(&[0, 1]) {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("unequal.toml");
    std::fs::write(&file, machine()).unwrap();
    let machine = ["auto", "-M", file.to_str().unwrap()];
    let output = steer(
        home.path(),
        &[
            &machine[..],
            &["--foreground", "nosuch", "--", "sh", "-c", "exit 7"],
        ]
        .concat(),
    );
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("no process is named `nosuch`"), "{said}");
    // With a program that runs, the exit code is that of the command, which does not wait for the program.
    let name = format!("fore-{}", std::process::id());
    let sleeper = home.path().join(&name);
    std::os::unix::fs::symlink("/bin/sleep", &sleeper).unwrap();
    let mut sleeps = Command::new(&sleeper).arg("600").spawn().unwrap();
    let output = steer(
        home.path(),
        &[
            &machine[..],
            &["--foreground", &name, "--", "sh", "-c", "exit 7"],
        ]
        .concat(),
    );
    sleeps.kill().unwrap();
    sleeps.wait().unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
}
