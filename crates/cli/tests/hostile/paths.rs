//! Links, and names of any bytes.

use super::*;

#[test]
fn no_output_is_written_through_a_link() {
    let dir = tempfile::tempdir().unwrap();
    record(dir.path());
    let secret = dir.path().join("secret");
    let commands = [
        "stat --csv --to out -- true",
        "report run.rec -o out",
        "mrc run.trace -o out",
        "workload import ftrace.txt --force -o out",
        "compare -M core2-quad -w shared-caches -P linux --seeds 1 --max-seconds 0.1 --report out",
        "trace import --format lackey lackey.txt -o out",
        "run -P linux --summary out -- true",
        "machine detect --root / -o out",
        "top --stdout out -- true",
    ];
    fs::write(
        dir.path().join("lackey.txt"),
        "I  04000d20,3\n L 1ffefffa08,8\n",
    )
    .unwrap();
    let trace = "  a-1 [000] d... 1.0: sched_switch: prev_comm=a prev_pid=1 prev_prio=120 prev_state=S ==> next_comm=b next_pid=2 next_prio=120\n  \
                 b-2 [000] d... 2.0: sched_switch: prev_comm=b prev_pid=2 prev_prio=120 prev_state=S ==> next_comm=a next_pid=1 next_prio=120\n";
    fs::write(dir.path().join("ftrace.txt"), trace).unwrap();
    let mut written = 0;
    for command in commands {
        let _ = fs::remove_file(dir.path().join("out"));
        fs::write(&secret, "kept").unwrap();
        symlink(&secret, dir.path().join("out")).unwrap();
        let output = bounded(steer(dir.path()).args(command.split(' ')));
        assert_eq!(
            fs::read(&secret).unwrap(),
            b"kept",
            "{command}: {}",
            text_of(&output.stderr)
        );
        let replaced = !dir.path().join("out").is_symlink();
        assert_eq!(
            replaced,
            output.status.success(),
            "{command}: {}",
            text_of(&output.stderr)
        );
        written += usize::from(replaced);
    }
    assert!(written >= 7, "{written}");
}

#[test]
fn paths_of_any_bytes_are_taken() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join(OsStr::from_bytes(b"a\x9bb"));
    fs::create_dir(&folder).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let at = |name: &[u8]| folder.join(OsStr::from_bytes(name));
    fs::copy(root.join("machines/core2-quad.toml"), at(b"m\xff.toml")).unwrap();
    fs::copy(root.join("profiles/recorded/gzip.json"), at(b"p.json")).unwrap();
    fs::write(at(b"w\xfe.toml"), "[[program]]\nprofile = \"p.json\"\n").unwrap();
    let program = at(b"x\x80");
    let mut file = File::create(&program).unwrap();
    file.write_all(b"#!/bin/sh\nprintf '%s' \"$1\" > \"$2\"\n")
        .unwrap();
    drop(file);
    fs::set_permissions(
        &program,
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let run = |words: &[&OsStr]| {
        let output = bounded(steer(dir.path()).args(words));
        assert!(
            output.status.success(),
            "{words:?}: {}",
            text_of(&output.stderr)
        );
        output
    };
    let word = OsStr::new;
    let (machine, workload) = (at(b"m\xff.toml"), at(b"w\xfe.toml"));
    run(&[word("machine"), word("show"), machine.as_os_str()]);
    run(&[word("workload"), word("show"), workload.as_os_str()]);
    let record = at(b"r\xf0.rec");
    let sim = [
        word("sim"),
        word("-M"),
        machine.as_os_str(),
        word("-w"),
        workload.as_os_str(),
    ];
    let rest = [
        word("-P"),
        word("linux"),
        word("--max-seconds"),
        word("0.1"),
        word("-o"),
    ];
    run(&[&sim[..], &rest[..], &[record.as_os_str()]].concat());
    let report = at(b"\xf1.html");
    run(&[
        word("report"),
        record.as_os_str(),
        word("-o"),
        report.as_os_str(),
    ]);
    assert!(report.is_file());
    let (argument, said) = (OsStr::from_bytes(b"\x9b one"), at(b"said\xc3"));
    for command in [&["stat"][..], &["run", "-P", "linux"]] {
        let words: Vec<&OsStr> = command.iter().copied().map(word).collect();
        let started = [word("--"), program.as_os_str(), argument, said.as_os_str()];
        run(&[&words[..], &started[..]].concat());
        assert_eq!(fs::read(&said).unwrap(), argument.as_bytes());
        fs::remove_file(&said).unwrap();
    }
}

#[test]
fn a_recorder_gets_the_bytes_of_paths() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &[u8]| dir.path().join(OsStr::from_bytes(name));
    let (temporary, program, plugin) = (at(b"t\xff,p"), at(b"gz\x80"), at(b"plug\xfein"));
    fs::create_dir(&temporary).unwrap();
    fs::copy("/bin/true", &program).unwrap();
    fs::write(&plugin, "").unwrap();
    let engine = dir.path().join("engine");
    fs::write(&engine, "#!/bin/sh\nprintf '%s\\n' \"$@\" > words\n").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&engine, executable).unwrap();
    let words = [
        OsStr::new("--"),
        program.as_os_str(),
        OsStr::from_bytes(b"\x9b"),
    ];
    let tried = ["try", "-M", "quickia-2b-2s", "-P", "hsf"];
    for command in [&["profile"][..], &tried] {
        let mut steer = steer(dir.path());
        steer
            .args(command)
            .args(words)
            .env("TMPDIR", &temporary)
            .env("COUNTERSTEER_QEMU", &engine)
            .env("COUNTERSTEER_PLUGIN", &plugin);
        let output = bounded(&mut steer);
        let said = text_of(&output.stderr);
        // The engine did nothing.
        assert!(said.contains("did not load the plugin"), "{said}");
        let words = fs::read(dir.path().join("words")).unwrap();
        for wanted in [
            b"t\xff,,p/steer-profile-".as_slice(),
            b"/gz\x80\n\x9b\n",
            b"plug\xfein,",
        ] {
            let found = words.windows(wanted.len()).any(|part| part == wanted);
            assert!(found, "{command:?}: {}", text_of(&words));
        }
        fs::remove_file(dir.path().join("words")).unwrap();
        assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
    }
}

#[test]
fn tables_show_bytes_of_names_as_what_they_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let profile = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles/recorded/gzip.json");
    let make = [
        OsStr::new("signature"),
        OsStr::new("make"),
        profile.as_os_str(),
    ];
    let name = ["-o", "s.json", "--name"].map(OsStr::new);
    let made = bounded(
        steer(dir.path())
            .args(make)
            .args(name)
            .arg(OsStr::from_bytes(b"gz\x80")),
    );
    assert!(made.status.success(), "{}", text_of(&made.stderr));
    let workload = "[[program]]\nprofile = \"gzip\"\nname = \"gz\u{10ff80}\"\n";
    fs::write(dir.path().join("w.toml"), workload).unwrap();
    for command in [
        "signature show s.json",
        "sim -M core2-quad -w w.toml -P linux --max-seconds 0.1",
    ] {
        let output = bounded(steer(dir.path()).args(command.split(' ')));
        let said = text_of(&output.stdout);
        assert!(said.contains("gz\u{fffd}"), "{command}: {said}");
        assert!(
            !said.contains("\u{10ff80}") && !said.contains("10ff80"),
            "{said}"
        );
    }
}
