//! Errors are one paragraph: problem, place, remedy.

use super::*;

/// Golden cases: `tests/errors/<case>/` holds `args` (a line each), input files, and `expected` (exit code, then stderr).
#[test]
fn errors_are_one_paragraph_with_place_remedy_and_exit_code() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/errors");
    let mut names: Vec<PathBuf> = std::fs::read_dir(&cases)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    names.sort();
    assert!(names.len() > 10);
    for case in names {
        let args = std::fs::read_to_string(case.join("args")).unwrap();
        let args: Vec<&str> = args.lines().collect();
        let output = steer(&args, &case);
        let got = format!(
            "exit code {}\n{}",
            output.status.code().unwrap(),
            text(&output.stderr)
        );
        let path = case.join("expected");
        if std::env::var_os("COUNTERSTEER_BLESS").is_some() {
            std::fs::write(&path, &got).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(got, expected, "{}", case.display());
        assert!(
            output.stdout.is_empty(),
            "{}: {}",
            case.display(),
            text(&output.stdout)
        );
        let left = std::fs::read_dir(&case)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap());
        assert!(
            !left
                .into_iter()
                .any(|f| f.starts_with('.') || f.ends_with("html") || f.ends_with("rec")),
            "left behind"
        );
    }
}
