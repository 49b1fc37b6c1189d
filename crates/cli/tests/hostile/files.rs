//! Files that are no regular files, too long, deep or wrong.

use super::*;

#[test]
fn what_is_no_regular_file_or_has_no_end_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    pipe(&dir.path().join("pipe"));
    File::create(dir.path().join("huge"))
        .unwrap()
        .set_len(5 << 30)
        .unwrap();
    symlink("/dev/zero", dir.path().join("zero")).unwrap();
    for command in COMMANDS {
        for (file, kind) in [
            ("./pipe", "a named pipe"),
            ("/dev/zero", "a device"),
            ("./zero", "a device"),
            ("./huge", ""),
            ("/dev/fd/../cwd/pipe", "a named pipe"),
            ("/proc/self/fd/../cwd/zero", "a device"),
        ] {
            let args: Vec<&str> = command
                .split(' ')
                .map(|word| if word == "FILE" { file } else { word })
                .collect();
            let said = refused(&args, dir.path());
            // A record is a folder, so the error about another file is different.
            let named = said.contains(kind) || command.starts_with("report");
            assert!(named && said.contains(file), "{args:?}: {said}");
        }
    }
}

#[test]
fn folders_that_hold_pipes_are_read_without_them() {
    let dir = tempfile::tempdir().unwrap();
    let cpus = dir.path().join("root/sys/devices/system/cpu");
    fs::create_dir_all(&cpus).unwrap();
    pipe(&cpus.join("online"));
    let output = bounded(steer(dir.path()).args(["machine", "detect", "--root", "root"]));
    assert_ne!(
        output.status.code(),
        Some(101),
        "{}",
        text_of(&output.stderr)
    );
    let lists = dir.path().join("lists");
    fs::create_dir(&lists).unwrap();
    pipe(&lists.join("core.json"));
    let args = ["events", "--event-lists", "lists"];
    assert!(refused(&args, dir.path()).contains("a named pipe"));
    let grid =
        "machines = ['quickia-2b-2s']\npolicies = ['linux']\nmixes = { count = 1, programs = 2 }\n";
    fs::write(dir.path().join("grid.toml"), grid).unwrap();
    let results = dir.path().join("results");
    fs::create_dir(&results).unwrap();
    pipe(&results.join("grid.toml"));
    let args = ["sweep", "grid.toml", "-o", "results"];
    assert!(refused(&args, dir.path()).contains("a named pipe"));
}

#[test]
fn standard_input_and_what_the_shell_opens_are_still_read() {
    let dir = tempfile::tempdir().unwrap();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/core2-quad.toml");
    let shell = |script: &str| {
        let mut bash = Command::new("bash");
        bash.args(["-c", script, env!("CARGO_BIN_EXE_steer")])
            .arg(&shipped)
            .current_dir(dir.path())
            .env("HOME", dir.path());
        bounded(&mut bash)
    };
    for script in [
        "$0 machine show /dev/stdin < $1",
        "cat $1 | $0 machine show /dev/stdin",
        "$0 machine show <(cat $1)",
    ] {
        let output = shell(script);
        assert!(
            output.status.success(),
            "{script}: {}",
            text_of(&output.stderr)
        );
        assert!(text_of(&output.stdout).contains("core2"), "{script}");
    }
    for script in [
        "$0 machine show /dev/stdin < /dev/zero",
        "$0 workload import - < /dev/zero",
    ] {
        let output = shell(script);
        assert_eq!(
            output.status.code(),
            Some(3),
            "{script}: {}",
            text_of(&output.stderr)
        );
    }
}

/// Returns a text of just less than `length` bytes: a beginning, numbered parts, and an end.
fn filled(length: usize, begin: &str, part: impl Fn(usize) -> String, end: &str) -> String {
    let mut text = begin.to_owned();
    for nth in 0.. {
        let part = part(nth);
        if text.len() + part.len() + end.len() >= length {
            break;
        }
        text += &part;
    }
    text + end
}

/// Largest TOML file in bytes.
const MOST_TOML: usize = 400_000;

#[test]
fn toml_below_the_limit_needs_little_memory_and_time() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.toml");
    let same = |part: &'static str| move |_: usize| part.to_owned();
    let texts = [
        filled(MOST_TOML, "a=[", same("1,"), "]"),
        filled(MOST_TOML, "a=[", same("{},"), "]"),
        filled(MOST_TOML, "", same("\n"), "a"),
        filled(MOST_TOML, "", same("#\n"), "a"),
        filled(MOST_TOML, "a=[", same("{a={a={a={}}}},"), "]"),
        filled(MOST_TOML, "", |nth| format!("[a{nth}]\n"), ""),
        filled(MOST_TOML, "", |nth| format!("[[a.b{nth}]]\n"), ""),
        filled(MOST_TOML, "", |nth| format!("a{nth}=1\n"), ""),
        filled(MOST_TOML, "a", same(".a"), "=1"),
        filled(
            MOST_TOML,
            "",
            |nth| format!("[[{}{nth}]]\n", "a.".repeat(60)),
            "",
        ),
        filled(MOST_TOML, "core_type=[", same("{},"), "]"),
        filled(MOST_TOML, "program=[", same("{},"), "]"),
        filled(MOST_TOML, "a=\"", same("\\n"), "\""),
        filled(3 * MOST_TOML, "a=[", same("1,"), "]"),
    ];
    let commands = [
        "machine show a.toml",
        "workload show a.toml",
        "profile show a.toml",
        "model show a.toml",
        "sweep a.toml -o out",
        "daemon --list --rules a.toml",
        "stat --metric-file a.toml -- true",
    ];
    for (nth, text) in texts.iter().enumerate() {
        fs::write(&file, text).unwrap();
        // Each kind of file is parsed in the same way.
        let chosen = commands.iter().skip(nth % 3).step_by(3);
        for command in chosen {
            let args: Vec<&str> = command.split(' ').collect();
            let said = refused_with_line(&args, dir.path());
            assert!(said.len() < 40_000, "{args:?}: {}", said.len());
        }
    }
    let said = refused(&["machine", "show", "a.toml"], dir.path());
    assert!(said.contains("TOML is read up to 400000"), "{said}");
}

#[test]
fn long_formulas_are_refused_and_long_words_of_tables_are_cut() {
    let dir = tempfile::tempdir().unwrap();
    let group = |name: &str, formula: &str| {
        let head = "prose = 'x'\n[[metric]]\nunit = 'x'\nprose = 'x'\n";
        let text = format!("{head}name = '{name}'\nformula = '{formula}'\n");
        fs::write(dir.path().join("m.toml"), text).unwrap();
    };
    let args = ["events", "--metric-file", "m.toml"];
    for terms in [4_000, 16_000, 50_000] {
        group("m", &vec!["cycles"; terms].join("+"));
        let (output, _) = measured(steer(dir.path()).args(args));
        let said = text_of(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("the formula is too long"), "{said}");
        assert!(said.len() < 2_000, "{said}");
    }
    // The place of an error may be far from the beginning.
    group("m", &format!("{}$", " ".repeat(100_000)));
    let said = text_of(&bounded(steer(dir.path()).args(args)).stderr);
    assert!(
        said.contains("column 100001: ") && said.len() < 2_000,
        "{said}"
    );
    group(&"m".repeat(100_000), &vec!["cycles"; 500].join("+"));
    let output = bounded(steer(dir.path()).args(args).arg("mmm"));
    // Cells are wrapped.
    let listed: String = text_of(&output.stdout).split_whitespace().collect();
    assert!(output.status.success(), "{}", text_of(&output.stderr));
    assert!(listed.contains("cycles+cycles") && listed.contains('…'));
    assert!(!listed.contains(&"cycles+".repeat(40)), "{listed}");
}

#[test]
fn many_tasks_and_many_cpus_take_no_time_for_each_pair() {
    let dir = tempfile::tempdir().unwrap();
    let task = |nth: usize| format!("\"t{nth}\":{{\"run\":9,\"loop\":1}},");
    let end = "\"t\":{\"run\":9,\"loop\":1}}}";
    let args = "workload import tasks.json --min-share 0 -o tasks.toml --force";
    let args: Vec<&str> = args.split(' ').collect();
    fs::write(
        dir.path().join("tasks.json"),
        filled(80_000, "{\"tasks\":{", task, end),
    )
    .unwrap();
    let output = bounded(steer(dir.path()).args(&args));
    assert!(output.status.success(), "{}", text_of(&output.stderr));
    fs::write(
        dir.path().join("tasks.json"),
        filled(400_000, "{\"tasks\":{", task, end),
    )
    .unwrap();
    assert!(refused(&args, dir.path()).contains("--min-share"));
    let cpus = dir.path().join("root/sys/devices/system/cpu");
    fs::create_dir_all(&cpus).unwrap();
    let args = ["machine", "detect", "--root", "root"];
    fs::write(cpus.join("online"), "0-8191").unwrap();
    let output = bounded(steer(dir.path()).args(args));
    assert!(output.status.success(), "{}", text_of(&output.stderr));
    fs::write(cpus.join("online"), "0-65535").unwrap();
    let said = refused(&args, dir.path());
    assert!(said.contains("65536; it must be 1 to 8192"), "{said}");
    fs::write(cpus.join("online"), "0-1999").unwrap();
    // Each CPU has another cache, and none knows its siblings.
    for cpu in 0..2000 {
        let cache = cpus.join(format!("cpu{cpu}/cache/index0"));
        fs::create_dir_all(&cache).unwrap();
        for (name, text) in [
            ("level", "2"),
            ("type", "Unified"),
            ("shared_cpu_list", "0-1999"),
        ] {
            fs::write(cache.join(name), text).unwrap();
        }
        fs::write(cache.join("size"), format!("{}K", 512 + cpu)).unwrap();
    }
    bounded(steer(dir.path()).args(args));
}

#[test]
fn schedulers_are_read_through_the_same_door() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("scx_x");
    fs::create_dir_all(folder.join("src/bpf")).unwrap();
    let source = "#include <scx/common.bpf.h>\nSCX_OPS_DEFINE(ops, .name = \"x\");\n";
    let (main, build) = (folder.join("src/main.rs"), folder.join("build.rs"));
    let scheduler = folder.join("src/bpf/main.bpf.c");
    fs::write(&scheduler, source).unwrap();
    let args = "sim -M core2-quad -w shared-caches --max-seconds 0.1 -P scx:path=scx_x";
    let args: Vec<&str> = args.split(' ').collect();
    let mut cases: Vec<(&Path, &str)> = Vec::new();
    for file in [&main, &build, &scheduler] {
        cases.extend([(file.as_path(), "zero"), (file, "pipe"), (file, "huge")]);
    }
    for (file, kind) in cases {
        let sound = fs::read(file).ok();
        let _ = fs::remove_file(file);
        match kind {
            "zero" => symlink("/dev/zero", file).unwrap(),
            "pipe" => pipe(file),
            _ => File::create(file).unwrap().set_len(5 << 30).unwrap(),
        }
        let said = refused(&args, dir.path());
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(said.contains(name), "{kind}: {said}");
        fs::remove_file(file).unwrap();
        if let Some(sound) = sound {
            fs::write(file, sound).unwrap();
        }
    }
}

#[test]
fn what_is_wrong_with_a_file_is_no_defect_and_no_wrong_flag() {
    let dir = tempfile::tempdir().unwrap();
    let lists = dir.path().join("lists");
    fs::create_dir(&lists).unwrap();
    fs::write(lists.join("core.json"), "[{").unwrap();
    let said = refused(&["events", "--event-lists", "lists"], dir.path());
    assert!(said.contains("core.json"), "{said}");
    pipe(&dir.path().join("pipe"));
    for command in ["sim", "compare", "blame"] {
        let args = "-M core2-quad -w shared-caches --belief ./pipe";
        let args: Vec<&str> = std::iter::once(command).chain(args.split(' ')).collect();
        let said = refused(&args, dir.path());
        assert!(said.contains("a named pipe"), "{said}");
    }
}
