//! Every example prints what its golden file says. `COUNTERSTEER_BLESS=1` writes the files again.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::path::Path;
use std::process::Command;

fn run(name: &str) -> std::process::Output {
    let program = env!("CARGO_BIN_EXE_ideas");
    Command::new(program).arg(name).output().unwrap()
}

/// Returns the names of the files beside `main.rs`.
fn names() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = std::fs::read_dir(folder).unwrap();
    let stem = |file: std::fs::DirEntry| {
        let path = file.path();
        path.file_stem().unwrap().to_str().unwrap().to_owned()
    };
    let mut names: Vec<String> = files.map(|file| stem(file.unwrap())).collect();
    names.retain(|name| name != "main");
    names.sort();
    names
}

#[test]
fn every_example_prints_what_is_expected() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/expected");
    let names = names();
    assert!(names.len() >= 20, "{names:?}");
    for name in names {
        let output = run(&name);
        let printed = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{name}: {errors}");
        let file = folder.join(name.clone() + ".out");
        if std::env::var_os("COUNTERSTEER_BLESS").is_some() {
            std::fs::write(&file, &printed).unwrap();
        }
        let expected = std::fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(printed, expected, "{name}");
    }
}

#[test]
fn an_unknown_name_gets_the_list() {
    let output = run("nothing");
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("compare_policies"), "{errors}");
}
