//! Traces from a user's point of view: other tools' traces are imported, shown, and converted to miss curves. Invalid files are
//! refused.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn steer(args: &[&str], dir: &Path, input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steer"));
    // Keeps sentences on one line.
    command.env("COLUMNS", "1000");
    command.args(args).current_dir(dir).env("HOME", dir);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A command that refuses its input does not read all of it.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().unwrap()
}

fn json(args: &[&str], dir: &Path, input: &str) -> serde_json::Value {
    let output = steer(args, dir, input);
    assert!(
        output.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Trace of ten sweeps over 32 KiB; every second instruction is a load.
fn lackey() -> String {
    let sweep = (0..5120).map(|n| {
        format!(
            "I  00400000,4\n L {:x},8\nI  00400004,4\n",
            0x10_0000 + n % 512 * 64
        )
    });
    sweep.collect()
}

#[test]
fn an_imported_trace_has_the_miss_curve_of_its_program() {
    let dir = tempfile::tempdir().unwrap();
    let import = [
        "trace", "import", "--format", "lackey", "-o", "a.trace", "-",
    ];
    let output = steer(&import, dir.path(), &lackey());
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let info = json(&["trace", "info", "--json", "a.trace"], dir.path(), "");
    assert_eq!(info["trailer"]["totals"]["instructions"], 10_240);
    assert_eq!(info["trailer"]["totals"]["loads"], 5120);
    let table = json(
        &["mrc", "--json", "--plot", "a.svg", "a.trace"],
        dir.path(),
        "",
    );
    let row = |at: usize| table["rows"][at]["full_mpki"].as_f64().unwrap();
    assert_eq!(row(0), 500.0, "16 KiB");
    assert_eq!(row(1), 50.0, "32 KiB");
    assert_eq!(table["rows"][1]["ways_mpki"][1], 50.0);
    assert!(dir.path().join("a.svg").is_file());
    let trace = std::fs::read(dir.path().join("a.trace")).unwrap();
    let twice = steer(
        &[
            "trace", "import", "--format", "lackey", "-o", "b.trace", "-",
        ],
        dir.path(),
        &lackey(),
    );
    assert!(twice.status.success());
    assert_eq!(
        trace,
        std::fs::read(dir.path().join("b.trace")).unwrap(),
        "the same bytes"
    );
}

/// Path of a shipped recorded profile.
fn recorded(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles/recorded");
    folder.join(name).to_string_lossy().into_owned()
}

#[test]
fn programs_together_leave_each_other_parts_of_a_cache() {
    let dir = tempfile::tempdir().unwrap();
    let user = recorded("gzip.json");
    let stream = recorded("stream.json");
    let sizes = ["mrc", "--json", "-M", "core2-quad", "--sizes", "64K,64M"];
    let found = json(&[&sizes[..], &[&user, &stream]].concat(), dir.path(), "");
    let part = |size: usize, program: usize, key: &str| {
        found["sizes"][size]["parts"][program][key]
            .as_f64()
            .unwrap()
    };
    let held: f64 = (0..2).map(|program| part(0, program, "bytes")).sum();
    assert!(
        (held / 65536.0 - 1.0).abs() < 0.01,
        "the small one is full: {found:#}"
    );
    assert!(part(0, 0, "mpki") > part(0, 0, "mpki_alone"), "{found:#}");
    assert!(part(0, 0, "mpki") > part(1, 0, "mpki"), "{found:#}");
    let alone = json(&[&sizes[..], &[&user]].concat(), dir.path(), "");
    let of = &alone["sizes"][0]["parts"][0];
    assert_eq!(of["mpki"], of["mpki_alone"]);
    assert_eq!(of["mpki"].as_f64().unwrap(), part(0, 0, "mpki_alone"));
    let without = steer(&["mrc", &user, &stream], dir.path(), "");
    assert_eq!(
        without.status.code(),
        Some(2),
        "how fast they run is not known"
    );
}

#[test]
fn what_is_no_trace_is_refused_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("x.trace"), "CSTRACE1 no").unwrap();
    for (args, input, says) in [
        (&["trace", "info", "x.trace"][..], "", "x.trace"),
        (&["mrc", "-"], "1\n2\nelephant\n", "-:3"),
        (
            &["trace", "import", "--format", "lackey", "-"],
            "I 1,1\nhello\n",
            "-:2:",
        ),
    ] {
        let output = steer(args, dir.path(), input);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{error}");
        assert!(error.contains(says), "{error}");
    }
    assert!(!dir.path().join("stdin.trace").exists());
}

#[test]
fn a_signature_goes_beside_a_binary_or_into_it_and_is_found_there() {
    let dir = tempfile::tempdir().unwrap();
    let own = env!("CARGO_BIN_EXE_steer");
    std::fs::copy(own, dir.path().join("program")).unwrap();
    let import = [
        "trace", "import", "--format", "lackey", "--name", "sweep", "-o", "a.trace", "-",
    ];
    assert!(steer(&import, dir.path(), &lackey()).status.success());
    let done = |args: &[&str]| {
        let output = steer(args, dir.path(), "");
        assert!(
            output.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    done(&["signature", "make", "a.trace"]);
    let none = steer(&["signature", "read", "program"], dir.path(), "");
    assert_eq!(none.status.code(), Some(4));
    done(&["signature", "embed", "program", "sweep.signature.json"]);
    assert!(
        done(&["signature", "read", "program"]).contains(".local/share/countersteer/signatures")
    );
    done(&[
        "signature",
        "embed",
        "--inside",
        "program",
        "sweep.signature.json",
    ]);
    assert!(done(&["signature", "read", "program"]).contains("inside the binary"));
    let read = json(&["signature", "read", "--json", "program"], dir.path(), "");
    // Every second instruction is a load. All loads miss in 16 KiB; in 32 KiB only the first sweep misses.
    assert_eq!(read["misses"][0][0], 2048);
    assert_eq!(read["misses"][1][3], 205);
}

#[test]
fn a_program_without_a_trace_cannot_be_traced() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "sim",
        "-M",
        "core2-quad",
        "-w",
        "shared-caches",
        "--fidelity",
        "traced",
    ];
    let output = steer(&args, dir.path(), "");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{error}");
    assert!(error.contains("steer trace record"), "{error}");
}
