//! Examples at the end of each `--help`, in a folder with the files that they name.

use std::fs;
use std::path::Path;

use crate::folder::{Folder, text};
use crate::session::{NO_COUNTERS, Rule, Rules, Session, Substitutions, assert_used};

const RULES: &Rules = &[
    (
        "auto forget xz",
        Rule::Refused(4, "there is no verdict on that program"),
    ),
    ("top$", Rule::Endless("time_s")),
    ("top -p 4711", Rule::Endless("time_s")),
    ("trial -P hsf -p", Rule::Endless("")),
    (
        "daemon --rules rules.toml$",
        Rule::Beside("runtime/daemon.sock"),
    ),
    ("stat -i 100ms -m ipc", NO_COUNTERS),
    ("ctl set policy=hsf", Rule::Refused(4, "instructions")),
    ("ctl why", Rule::Refused(2, "no decision about thread")),
    ("reproduce pmctrack", Rule::NotRun("takes minutes")),
    ("model eval", Rule::NotRun("takes minutes")),
    ("model train quickia", Rule::NotRun("takes minutes")),
    (
        "model train --from",
        Rule::NotRun("needs records of four families of programs on real cores of two types"),
    ),
    ("model rules", Rule::NotRun("takes minutes")),
    ("signature read /usr/bin/xz", Rule::Refused(4, "signature")),
    ("signature read 4711", Rule::Refused(4, "signature")),
];

const SUBSTITUTIONS: &Substitutions = &[
    ("/tmp/verdicts.json", "./other.json"),
    ("-o mcf.trace -", "-o mcf.trace - <mcf.champsim"),
];

/// Examples that write what others read, in this order.
const FIRST: [&str; 6] = [
    "steer machine detect -o here.toml",
    "steer profile -o xz.json -- xz -c file",
    "steer trace record -o xz.trace -- xz -c file",
    "steer signature make xz.trace -o xz.signature.json",
    "steer sim -M here.toml -w mix.toml -o run.rec",
    "steer auto export verdicts.json",
];

const MIX: &str =
    "[[program]]\nprofile = \"gzip\"\nname = \"xz\"\n\n[[program]]\nprofile = \"mcf-2006\"\n";
const GRID: &str = "machines = [\"core2-quad\"]\nworkloads = [\"shared-caches\"]\npolicies = [\"linux\", \"mpi\"]\nseeds = 1\n";
const RULES_FILE: &str = "schema = \"countersteer.rules/1\"\npolicy = \"linux\"\n[[steer]]\nname = \"no-such-program\"\n";
const TOPOLOGY: &str = "<topology><object type=\"Machine\" cpuset=\"0x3\"><object type=\"PU\" os_index=\"0\"/>\
    <object type=\"PU\" os_index=\"1\"/></object></topology>";
const LSCPU: &str = "{\"lscpu\": [{\"field\": \"CPU(s):\", \"data\": \"2\"}]}";
/// Context switches of two threads on a CPU, as ftrace prints them.
const SWITCHES: &str = "  a-1 [000] d... 1.0: sched_switch: prev_comm=a prev_pid=1 prev_prio=120 prev_state=S ==> next_comm=b next_pid=2 next_prio=120\n  \
    b-2 [000] d... 2.0: sched_switch: prev_comm=b prev_pid=2 prev_prio=120 prev_state=S ==> next_comm=a next_pid=1 next_prio=120\n";

/// Names of the subcommands that a help text lists.
fn subcommands(help: &str) -> Vec<String> {
    let listed = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| line.starts_with("  "));
    listed
        .filter(|line| !line.starts_with("    "))
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect()
}

/// Collects the examples of a command and of its subcommands.
fn collect(folder: &Folder, path: &[String], into: &mut Vec<String>) {
    let mut asked = folder.command(env!("CARGO_BIN_EXE_steer"));
    let help = text(&asked.args(path).arg("--help").output().unwrap().stdout);
    let examples = help.lines().skip_while(|line| *line != "Examples:").skip(1);
    for line in examples.map(str::trim_start) {
        // A line that is too long would continue on the next one.
        assert!(line.starts_with("steer "), "{path:?}: {line}");
        if !into.iter().any(|known| known == line) {
            into.push(line.to_owned());
        }
    }
    for name in subcommands(&help) {
        if name != "help" || path.is_empty() {
            collect(folder, &[path, &[name]].concat(), into);
        }
    }
}

/// Record of one instruction as ChampSim writes it: it loads from one address and stores to another.
fn champsim() -> Vec<u8> {
    let words: [u64; 8] = [0x40_1000, 1, 0x8000, 0, 0x9000, 0, 0, 0];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn prepare(folder: &Folder, xz: &Path) {
    for (name, content) in [
        ("mix.toml", MIX),
        ("grid.toml", GRID),
        ("rules.toml", RULES_FILE),
        ("topology.xml", TOPOLOGY),
        ("lscpu.json", LSCPU),
        ("cachegrind.out", "events: Ir\nsummary: 1000\n"),
        ("file", "some text for xz\n"),
        ("perf.data", SWITCHES),
    ] {
        folder.write(name, content);
    }
    folder.programs(&["program", "a", "b"]);
    folder.copy("vm/rt-app/frames.json", "game.json");
    for table in ["metrics.csv", "XEON_SKL", "intfile.xls"] {
        folder.copy(&format!("crates/lab/tests/published/{table}"), table);
    }
    folder.write("fpfile.xls", "");
    folder.copy("models/golden-cove/i9-12900k-8p8e.sf.toml", "model.toml");
    folder.write("mcf.champsim", champsim());
    fs::copy(xz, folder.path().join("xz")).unwrap();
}

/// Copies what the first examples made to the other names that examples use.
fn copy_made(folder: &Folder) {
    for (made, names) in [
        ("xz.json", &["gcc.json", "small.json", "large.json"][..]),
        (
            "xz.signature.json",
            &[
                "small.signature.json",
                "large.signature.json",
                "old.signature.json",
                "new.signature.json",
            ],
        ),
    ] {
        for name in names {
            fs::copy(folder.path().join(made), folder.path().join(name)).unwrap();
        }
    }
}

#[test]
fn examples_of_all_helps_run() {
    let folder = Folder::new();
    let xz = ["/usr/bin/xz", "/bin/xz"].map(Path::new);
    let xz = xz.into_iter().find(|path| path.exists());
    let (None, Some(xz)) = (folder.no_recorder(), xz) else {
        let why = folder
            .no_recorder()
            .map_or("xz is not installed", |why| why);
        return countersteer_fuzz::skipped(format!("examples of --help do not run: {why}"));
    };
    prepare(&folder, xz);
    let mut found = Vec::new();
    collect(&folder, &[], &mut found);
    assert!(found.len() > 100, "{found:?}");
    assert_used(&found, RULES, SUBSTITUTIONS);
    let first = FIRST.map(str::to_owned);
    assert!(first.iter().all(|line| found.contains(line)), "{found:?}");
    found.retain(|line| !first.contains(line));
    let mut session = Session::new(&folder, RULES, SUBSTITUTIONS);
    first.iter().for_each(|line| session.run(line));
    copy_made(&folder);
    // Runs have sockets of their own, and `ctl` asks the only one.
    found.sort_by_key(|line| {
        let order = ["steer daemon --rules rules.toml", "steer ctl "];
        let place = order
            .iter()
            .position(|beginning| line.starts_with(beginning));
        place.unwrap_or(order.len())
    });
    found.iter().for_each(|line| session.run(line));
    session.end("--help");
}
