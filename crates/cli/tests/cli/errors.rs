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

/// A pipe that keeps the borders of writes shows them: each ends with a line, so lines of other programs can come between messages
/// but not into them.
#[test]
fn messages_are_written_a_line_or_more_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let commands: [(&[&str], &str); 4] = [
        (&["machine", "show", "nosuch"], "no machine `nosuch`"),
        (&["policy", "show", "nosuch"], "nosuch"),
        (&["stat", "-i", "20ms", "--", "sleep", "0.1"], " elapsed, "),
        (&["run", "-P", "rr", "--", "sleep", "0.1"], " decisions; "),
    ];
    for (args, expected) in commands {
        let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_DIRECT).unwrap();
        let mut command = steered(args, dir.path());
        command.stdout(std::process::Stdio::null()).stderr(write);
        let mut child = command.spawn().unwrap();
        drop(command);
        let mut read = std::fs::File::from(read);
        let mut packet = [0; 4096];
        let mut all = String::new();
        loop {
            let length = std::io::Read::read(&mut read, &mut packet).unwrap();
            if length == 0 {
                break;
            }
            let written = text(&packet[..length]);
            assert!(
                length == packet.len() || written.ends_with('\n'),
                "{args:?}: {written:?}"
            );
            all.push_str(&written);
        }
        child.wait().unwrap();
        let not_counted = all.contains("perf_event_paranoid");
        assert!(not_counted || all.contains(expected), "{args:?}: {all}");
    }
}
