//! Limits on memory, threads, files and disks.

use super::*;

#[test]
fn a_program_without_memory_ends_with_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = record(dir.path()).join("manifest.json");
    let file = File::options().write(true).open(manifest).unwrap();
    file.set_len(60 << 20).unwrap();
    let script = "ulimit -v 110000; exec \"$0\" replay run.rec";
    let mut shell = Command::new("sh");
    shell
        .args(["-c", script, env!("CARGO_BIN_EXE_steer")])
        .current_dir(dir.path());
    let output = bounded(&mut shell);
    let said = text_of(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(said.starts_with("steer: out of memory: "), "{said}");
}

#[test]
fn every_limit_on_addresses_ends_with_a_sentence_once_the_program_is_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let run = |kilobytes: u32| {
        let script = format!("ulimit -v {kilobytes}; exec \"$0\" machine list");
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &script, env!("CARGO_BIN_EXE_steer")])
            .current_dir(dir.path());
        bounded(&mut shell)
    };
    let works = |kilobytes: &u32| run(*kilobytes).status.success();
    let enough = (10_000..1_000_000).step_by(1_000).find(works).unwrap();
    // The kernel and the dynamic linker end programs that they cannot load in their own ways. Before the program's first
    // statement, there may be no room for its stack.
    let started = (enough.saturating_sub(16_000)..enough)
        .step_by(300)
        .map(run)
        .skip_while(|output| output.status.code() != Some(5));
    let mut refused = 0;
    for output in started.take_while(|output| !output.status.success()) {
        let said = text_of(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{said}");
        assert!(said.starts_with("steer: out of memory: "), "{said}");
        refused += 1;
    }
    assert!(refused > 0);
}

#[test]
fn a_program_that_gets_no_thread_ends_with_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    for command in [
        "run -P linux -- true",
        "blame -M core2-quad -w shared-caches --max-seconds 0.1",
        "compare -M core2-quad -w shared-caches -P linux --seeds 1 --max-seconds 0.1",
    ] {
        let mut steer = steer(dir.path());
        // No machine has room for such a stack.
        steer
            .args(command.split(' '))
            .env("RUST_MIN_STACK", "70368744177664");
        let output = bounded(&mut steer);
        let said = text_of(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{command}: {said}");
        let last = said.trim_end().lines().last().unwrap();
        assert!(
            last.starts_with("steer: ") && last.contains("thread"),
            "{said}"
        );
        assert!(!said.contains("panicked"), "{command}: {said}");
    }
}

#[test]
fn a_trial_that_cannot_begin_says_why() {
    let dir = tempfile::tempdir().unwrap();
    for (policy, program, code, why) in [
        ("hsf:margin=x", "true", 2, "`margin=x`: it must be a number"),
        ("linux:x", "true", 2, "`x` is not `key=value`"),
        ("linux", "./nosuch", 4, "./nosuch was not found"),
        ("linux", "false", 3, "exit status: 1"),
    ] {
        let args = ["trial", "-P", policy, "--by", "wall", "--", program];
        let output = bounded(steer(dir.path()).args(args).stdin(Stdio::null()));
        let said = text_of(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(why), "{args:?}: {said}");
    }
}

/// Runs `steer` under a limit of `ulimit`.
fn limited(limit: &str, args: &str, dir: &Path) -> Output {
    // Whoever started the test may have left files open.
    let close = "for file in {3..30}; do eval \"exec $file>&-\"; done";
    let script = format!("{close}; ulimit {limit}; exec \"$0\" {args}");
    let mut shell = Command::new("bash");
    shell
        .args(["-c", &script, env!("CARGO_BIN_EXE_steer")])
        .current_dir(dir)
        .env("HOME", dir)
        .stdin(Stdio::null());
    bounded(&mut shell)
}

#[test]
fn a_limit_on_files_is_an_error_of_files() {
    let dir = tempfile::tempdir().unwrap();
    record(dir.path());
    let sim = "sim -M core2-quad -w shared-caches -P linux --max-seconds 0.2 -o big.rec";
    let report = "report run.rec -o out.html";
    for (limit, args, why) in [
        ("-f 1", sim, "File too large"),
        ("-n 4", report, "Too many open files"),
        ("-n 5", report, "Too many open files"),
    ] {
        let output = limited(limit, args, dir.path());
        let said = text_of(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{limit}: {said}");
        assert!(said.contains(why) && said.contains(".parquet"), "{said}");
    }
    let left: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .flatten()
        .map(|e| e.file_name())
        .collect();
    assert_eq!(left, ["run.rec"]);
}

/// Runs `steer` where the disk of the folder `full` is full, and lists that folder.
fn on_full_disk(args: &str, temporary: &Path, dir: &Path) -> (Output, String) {
    let script = "mount -t tmpfs -o size=64k none full && { head -c 100000 /dev/zero > full/zero; \
                  \"$@\"; code=$?; ls -A full > listed; exit $code; }";
    let mut command = Command::new("unshare");
    command
        .args(["--map-root-user", "--mount", "sh", "-c", script, "sh"])
        .arg(env!("CARGO_BIN_EXE_steer"))
        .args(args.split(' '))
        .current_dir(dir)
        .env("HOME", dir)
        .env("TMPDIR", temporary)
        .stdin(Stdio::null());
    let output = bounded(&mut command);
    let listed = fs::read_to_string(dir.join("listed")).unwrap_or_default();
    (output, listed)
}

#[test]
fn a_full_disk_is_named_and_keeps_no_part_of_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let full = dir.path().join("full");
    fs::create_dir(&full).unwrap();
    let lackey = "I  04000d20,3\n L 1ffefffa08,8\n";
    fs::write(dir.path().join("lackey.txt"), lackey).unwrap();
    let (output, _) = on_full_disk("machine list", &full, dir.path());
    if !output.status.success() {
        return countersteer_fuzz::skipped("no file system can be mounted");
    }
    let records = bounded(steer(dir.path()).args(["profile", "-o", "p.json", "--", "true"]));
    let records = records.status.success();
    for (args, place, needs_recorder) in [
        (
            "try -M quickia-2b-2s -P hsf -- true",
            "full/steer-try-",
            false,
        ),
        ("profile -o p.json -- true", "full/steer-profile-", true),
        ("trace record -o full/t -- true", "full/t", true),
        (
            "trace import --format lackey lackey.txt -o full/t",
            "full/t",
            false,
        ),
        ("stat --csv --to full/rows -- true", "full/rows", false),
    ] {
        if needs_recorder && !records {
            continue;
        }
        let is_own = args.starts_with("trace");
        let temporary = if is_own { dir.path() } else { &full };
        let (output, listed) = on_full_disk(args, temporary, dir.path());
        let said = text_of(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{args}: {said}");
        assert!(said.contains(place), "{args}: {said}");
        assert!(!is_own || listed == "zero\n", "{args}: {listed}");
    }
}
