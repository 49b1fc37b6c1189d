//! Output on terminals of 80 and 120 columns. A case is a folder of `terminal/` with `args` (one per line), `expected.80` and
//! `expected.120`. `COUNTERSTEER_BLESS=1` writes the expected files again.

#![allow(clippy::unwrap_used)] // a test helper that fails has failed its test

use std::path::Path;
use std::process::{Command, Stdio};

/// Output of a command on a terminal with this number of columns.
fn shown(args: &str, columns: usize) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_steer"))
        .args(args.lines())
        .env("COLUMNS", columns.to_string())
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn terminals_show_what_was_reviewed_and_no_line_is_wider() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/terminal");
    let mut tried = 0;
    for case in std::fs::read_dir(cases).unwrap() {
        let case = case.unwrap().path();
        let args = std::fs::read_to_string(case.join("args")).unwrap();
        for columns in [80, 120] {
            let got = shown(&args, columns);
            let widest = got.lines().max_by_key(|line| line.chars().count()).unwrap();
            assert!(
                widest.chars().count() <= columns,
                "{}: {widest}",
                case.display()
            );
            let golden = case.join(format!("expected.{columns}"));
            if std::env::var_os("COUNTERSTEER_BLESS").is_some() {
                std::fs::write(&golden, &got).unwrap();
            }
            let expected = std::fs::read_to_string(&golden).unwrap_or_default();
            assert_eq!(got, expected, "{} at {columns} columns", case.display());
        }
        tried += 1;
    }
    assert!(tried > 5);
}

/// Long listings, as written to a pipe.
#[test]
fn no_listing_is_wider_than_80_columns_in_a_pipe() {
    let listings = [
        "doctor",
        "events",
        "machine list",
        "machine show core2-quad",
        "policy list",
        "policy show hsf",
        "profile list",
        "profile show gzip",
        "reproduce list",
        "workload list",
    ];
    for listing in listings {
        let output = Command::new(env!("CARGO_BIN_EXE_steer"))
            .args(listing.split(' '))
            .env_remove("COLUMNS")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && out.lines().count() > 3,
            "{listing}"
        );
        // A word such as a path is never broken.
        let is_wide =
            |line: &&str| line.chars().count() > 80 && line.split_whitespace().nth(1).is_some();
        assert_eq!(out.lines().find(is_wide), None, "{listing}");
    }
}
