//! Command lines in the blocks of code of the README and of `docs/*.md`, each document's in their order and in a folder of its own.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::folder::Folder;
use crate::lines;
use crate::session::{NO_COUNTERS, Rule, Rules, Session, Substitutions, assert_used};

const RULES: &Rules = &[
    ("try", Rule::Records),
    ("auto -- ./a", Rule::Records),
    ("auto --dry-run", Rule::Records),
    ("stat -i 100ms -e instructions", NO_COUNTERS),
    ("stat -m ipc", NO_COUNTERS),
    ("stat -m ipc", Rule::Endless("page_faults")),
    ("stat --every 100M:instructions", NO_COUNTERS),
    ("stat -a -C 0-3", Rule::Refused(2, "is not online")),
    ("stat -v runqueue_wait_ms", Rule::Endless("runqueue_wait")),
    ("top$", Rule::Endless("time_s")),
    (
        "top -v llc_occupancy",
        Rule::Refused(4, "this kernel or processor has no resctrl"),
    ),
    ("top --columns name,cpu%,energy%", Rule::Endless("name")),
    (
        "top --columns name,cpu%,energy%",
        Rule::Refused(4, "has no zone with an energy counter"),
    ),
    ("top --module", Rule::Endless("fault_excess")),
    // A busy machine may start it too late.
    (
        "top --module",
        Rule::Refused(2, "it says nothing within 5 s"),
    ),
    ("top --web", Rule::Endless("http:")),
    (
        "run -P hsf --engine scx",
        Rule::Refused(4, "this kernel has no sched_ext"),
    ),
    ("run -P hsf --observe -p", Rule::Endless("")),
    ("run -P hsf --dry-run -p", Rule::Endless("")),
    ("trial -P hsf -p", Rule::Endless("")),
    (
        "daemon --rules rules.toml$",
        Rule::Beside("runtime/daemon.sock"),
    ),
    ("model eval", Rule::NotRun("takes minutes")),
    ("model train -o", Rule::NotRun("takes minutes")),
    ("model rules", Rule::NotRun("takes minutes")),
    (
        "model train --from a.big.rec",
        Rule::NotRun("needs records of four families of programs on real cores of two types"),
    ),
    (
        "model train --from run.rec",
        Rule::NotRun("needs a simulation of minutes"),
    ),
    ("reproduce pmctrack", Rule::NotRun("takes minutes")),
];

/// Shorter runs: the test is that the lines work, not what comes out.
const SUBSTITUTIONS: &Substitutions = &[
    ("--duration 10m", "--duration 1s"),
    ("--duration 10s", "--duration 1s"),
    ("steer compare ", "steer compare --max-seconds 1 "),
    ("steer blame ", "steer blame --max-seconds 1 "),
    (
        "--max-seconds 20 --rounds 100",
        "--max-seconds 1 --rounds 100",
    ),
    (
        "steer sim -M ryzen-7950x3d",
        "steer sim --max-seconds 1 -M ryzen-7950x3d",
    ),
    (
        "steer sim -M server-12llc",
        "steer sim --max-seconds 1 -M server-12llc",
    ),
    ("-o results", "-o results --shard 0/12"),
    ("-r 10", "-r 2"),
    ("steer threads --", "steer threads --duration 1s --"),
    ("steer bench -", "steer bench --duration 1s -"),
];

/// Workload of commands.
const MIX: &str = "[[program]]\ncommand = [\"./a\"]\n\n[[program]]\ncommand = [\"./b\"]\n";
const RULES_FILE: &str = "schema = \"countersteer.rules/1\"\npolicy = \"linux\"\n[[steer]]\nname = \"no-such-program\"\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Writes the files that the documents name, and those that the document shows.
fn prepare(folder: &Folder, document: &str) {
    folder.programs(&["a", "b", "program", "mcf", "benchmark", "omp"]);
    folder.substitute_ssh();
    let lines: String = (0..20_000).rev().map(|n| format!("{n}\n")).collect();
    folder.write("big.txt", lines);
    folder.write("Makefile", "all:\n\t@sleep 0.02\n");
    folder.write("mix.toml", MIX);
    folder.write("rules.toml", RULES_FILE);
    for to in ["bursts.py", "data/countersteer/modules/bursts.py"] {
        folder.copy("examples/modules/bursts.py", to);
    }
    folder.copy("models", "models");
    folder.copy("systemd", "systemd");
    folder.copy("bench/scx", "bench/scx");
    folder.copy("vm/rt-app", "vm/rt-app");
    schedulers_in_place(folder);
    published_tables(folder);
    for (name, content) in lines::files(document) {
        folder.write(&name, content);
    }
}

/// Writes a scheduler in place of those whose sources are not in the repository, with the variables that the documents set.
fn schedulers_in_place(folder: &Folder) {
    let source =
        fs::read_to_string(root().join("crates/scx/tests/schedulers/vtime.bpf.c")).unwrap();
    let source = source + "\nconst volatile u16 cpu_order_performance[64];\n";
    for name in [
        "scx/scheds/rust/scx_bpfland/src/bpf",
        "scx/scheds/rust/scx_cosmos/src/bpf",
        "LAVD",
    ] {
        folder.write(&format!("{name}/main.bpf.c"), &source);
    }
}

/// Copies some rows of the published tables of counters to the places that the documents name.
fn published_tables(folder: &Folder) {
    let tables = "crates/lab/tests/published";
    for (table, to) in [
        ("metrics.csv", "metrics.csv"),
        ("XEON_SKL", "XEON_SKL"),
        ("intfile.xls", "950/output/intfile.xls"),
        ("intfile.xls", "980/output/intfile.xls"),
    ] {
        folder.copy(&format!("{tables}/{table}"), to);
    }
}

fn run(name: &str) {
    let document = fs::read_to_string(root().join(name)).unwrap();
    let folder = Folder::new();
    prepare(&folder, &document);
    let mut session = Session::new(&folder, RULES, SUBSTITUTIONS);
    for line in lines::commands(&document) {
        session.run(&line);
    }
    session.end(name);
}

macro_rules! documents {
    ($($test:ident: $name:literal,)*) => {
        const DOCUMENTS: &[&str] = &[$($name),*];

        $(#[test]
        fn $test() {
            run($name);
        })*
    };
}

documents! {
    readme: "README.md",
    benchmarks: "docs/benchmarks.md",
    compare_a_policy: "docs/compare-a-policy.md",
    counters: "docs/counters.md",
    hybrid_laptop: "docs/hybrid-laptop.md",
    machines: "docs/machines.md",
    many_llc_server: "docs/many-llc-server.md",
    models: "docs/models.md",
    published: "docs/published.md",
    quick_start: "docs/quick-start.md",
    scheduler_authors: "docs/scheduler-authors.md",
    simulated_linux: "docs/simulated-linux.md",
    steering: "docs/steering.md",
    threads: "docs/threads.md",
    x3d_desktop: "docs/x3d-desktop.md",
}

#[test]
fn every_document_with_command_lines_runs() {
    let mut found = BTreeSet::from(["README.md".to_owned()]);
    for entry in fs::read_dir(root().join("docs")).unwrap() {
        let name = format!("docs/{}", entry.unwrap().file_name().display());
        let is_document = name.ends_with(".md");
        if is_document
            && !lines::commands(&fs::read_to_string(root().join(&name)).unwrap()).is_empty()
        {
            found.insert(name);
        }
    }
    assert!(found.iter().eq(DOCUMENTS), "{found:?}");
}

#[test]
fn every_rule_is_for_a_line() {
    let texts = DOCUMENTS
        .iter()
        .map(|name| fs::read_to_string(root().join(name)).unwrap());
    let all: Vec<String> = texts.flat_map(|text| lines::commands(&text)).collect();
    assert!(all.len() > 130, "{}", all.len());
    assert_used(&all, RULES, SUBSTITUTIONS);
}
