//! `steer threads`: numbers of threads that are found, programs without one, candidates of other machines.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::process::{Command, Output, Stdio};

use countersteer_model::cpuset::CpuSet;
use serde_json::Value;

/// Two CPUs of this process; `None` if it may use only one.
fn two_cpus() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("Cpus_allowed_list:"));
    let allowed: CpuSet = line?.split_whitespace().nth(1)?.parse().unwrap();
    let two: CpuSet = allowed.iter().take(2).collect();
    (two.len() == 2).then(|| two.to_string())
}

fn threads(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new("taskset");
    command
        .arg("-c")
        .arg(two_cpus().unwrap_or_else(|| "0".into()));
    command.arg(env!("CARGO_BIN_EXE_steer")).arg("threads");
    command.args(args).current_dir(dir).env("COLUMNS", "1000");
    command.stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Number of trials with a thread for each CPU.
fn uncrowded(trials: &[Value]) -> usize {
    let fits = |row: &&Value| {
        let cpus: CpuSet = row["cpus"].as_str().unwrap().parse().unwrap();
        row["threads"] == cpus.len()
    };
    trials.iter().filter(fits).count()
}

/// A shell program that is fastest with one thread.
const ALONE: &str = "if [ {n} = 1 ]; then sleep 0.05; else sleep 0.3; fi";

#[test]
fn the_number_that_is_faster_is_found_and_can_be_typed() {
    let Some(cpus) = two_cpus() else {
        return countersteer_fuzz::skipped("there is one CPU");
    };
    let dir = tempfile::tempdir().unwrap();
    // As many pairs as one that was disturbed for seconds needs beside it.
    let args = ["-w", "0", "-r", "24", "--json", "--", "sh", "-c", ALONE];
    let found = json(&threads(dir.path(), &args));
    let trials = found["trials"].as_array().unwrap();
    assert_eq!(uncrowded(trials), 2, "both candidates are run");
    assert_eq!(trials[0]["confined"], false);
    assert!(trials[0]["predicted"].is_null() && trials[1]["predicted"]["time"].is_f64());
    assert_eq!(found["recommended"], 0);
    let best = &found["finals"][0];
    let first = cpus.split([',', '-']).next().unwrap();
    assert_eq!(
        (&best["threads"], &best["cpus"]),
        (&Value::from(1), &Value::from(first))
    );
    assert_eq!(best["gain"]["verdict"], "faster");
    assert!(
        best["gain"]["interval"][0].as_f64().unwrap() > 0.5,
        "{best}"
    );
    let command = best["command"].as_str().unwrap();
    assert!(
        command.starts_with(&format!("taskset -c {first} sh -c ")),
        "{command}"
    );
    let typed = Command::new("sh").arg("-c").arg(command).status().unwrap();
    assert!(typed.success());
}

#[test]
fn too_few_pairs_recommend_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["-w", "0", "-r", "2", "--", "sh", "-c", ALONE];
    let output = threads(dir.path(), &args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(!said.contains("Type:"), "{said}");
    if two_cpus().is_some() {
        assert!(
            said.contains("Cannot tell") && said.contains("Nothing is recommended"),
            "{said}"
        );
    }
}

#[test]
fn programs_without_a_number_or_an_answer_have_no_verdict() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |args: &[&str], code: i32, part: &str| {
        let output = threads(dir.path(), args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(output.stdout.is_empty() && said.contains(part), "{said}");
        said
    };
    let said = refused(&["--", "sleep", "1"], 2, "has no `{n}`");
    assert!(said.contains("--env OMP_NUM_THREADS={n}"), "{said}");
    refused(&["--env", "{n}", "--", "true"], 2, "NAME=VALUE");
    refused(&["--", "./nosuch", "{n}"], 4, "not found");
    refused(&["--", "sh", "-c", "exit {n}"], 3, "failed with exit code");
    let said = refused(
        &["--chunk", "8", "--", "sh", "-c", "true {n}"],
        2,
        "has no `{chunk}`",
    );
    assert!(said.contains("--env OMP_SCHEDULE={chunk}"), "{said}");
    let changing = ["--check-output", "--", "sh", "-c", "echo $$ {n}"];
    refused(&changing, 3, "wrote something else");
}

#[test]
fn a_dry_run_lists_the_candidates_of_any_machine_and_runs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "--dry-run",
        "--json",
        "-M",
        "i9-12900k",
        "--",
        "touch",
        "was-run-{n}",
    ];
    let found = json(&threads(dir.path(), &args));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    assert_eq!(found["trials"].as_array().unwrap().len(), 0);
    let all = found["others"].as_array().unwrap();
    let of = |cores: &str| all.iter().find(|row| row["cores"] == cores);
    assert_eq!(of("8 golden-cove").unwrap()["cpus"], "0,2,4,6,8,10,12,14");
    let one = of("1 golden-cove").unwrap()["predicted"]["time"].as_f64();
    assert!(
        one.unwrap() > 1.0,
        "one thread is expected to be slower than all"
    );
}

/// Compiles a C program; `None` without a compiler that can.
fn compiled(dir: &Path, source: &str, flag: &str) -> Option<()> {
    std::fs::write(dir.join("program.c"), source).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", flag, "program.c", "-o", "program"]);
    let built = gcc.current_dir(dir).stderr(Stdio::null()).status();
    built.is_ok_and(|status| status.success()).then_some(())
}

const OPENMP: &str = "#include <omp.h>\n#include <stdio.h>\nint main(void) {\n  double sum = 0; int threads = 0;\n\
    #pragma omp parallel for reduction(+:sum)\n  for (long i = 1; i < 6000000; i++) sum += 1.0 / i;\n\
    #pragma omp parallel\n  { if (!omp_get_thread_num()) threads = omp_get_num_threads(); }\n\
    FILE *f = fopen(\"threads\", \"a\"); fprintf(f, \"%d\\n\", threads); return sum < 1; }\n";

const PTHREADS: &str = "#include <pthread.h>\n#include <stdio.h>\n#include <stdlib.h>\nstatic long each;\n\
    static void *work(void *sum) { double s = 0; for (long i = 1; i < each; i++) s += 1.0 / i; *(double *)sum = s; return 0; }\n\
    int main(int c, char **v) { int n = atoi(v[1]); pthread_t t[64]; double s[64]; each = 6000000 / n;\n\
    for (int i = 0; i < n; i++) pthread_create(t + i, 0, work, s + i);\n\
    for (int i = 0; i < n; i++) pthread_join(t[i], 0);\n\
    FILE *f = fopen(\"threads\", \"a\"); fprintf(f, \"%d\\n\", n); return s[0] < 1; }\n";

#[test]
fn openmp_and_pthread_programs_run_with_every_number() {
    let programs: [(&str, &str, &[&str]); 2] = [
        (
            OPENMP,
            "-fopenmp",
            &["--env", "OMP_NUM_THREADS={n}", "--", "./program"],
        ),
        (PTHREADS, "-pthread", &["--", "./program", "{n}"]),
    ];
    for (source, flag, args) in programs {
        let dir = tempfile::tempdir().unwrap();
        if compiled(dir.path(), source, flag).is_none() {
            countersteer_fuzz::skipped("there is no C compiler for parallel programs");
            continue;
        }
        let found = json(&threads(
            dir.path(),
            &[&["-r", "6", "--json"], args].concat(),
        ));
        let trials = found["trials"].as_array().unwrap();
        let mut tried: Vec<u64> = trials
            .iter()
            .map(|row| row["threads"].as_u64().unwrap())
            .collect();
        let ran = std::fs::read_to_string(dir.path().join("threads")).unwrap();
        tried.sort_unstable();
        for threads in &tried {
            assert!(
                ran.lines().any(|line| line == threads.to_string()),
                "{threads}: {ran}"
            );
        }
        let numbers = if two_cpus().is_some() {
            vec![1, 2]
        } else {
            vec![1]
        };
        assert_eq!(uncrowded(trials), numbers.len());
        tried.dedup();
        assert!(tried.starts_with(&numbers), "{tried:?}");
    }
}

/// Loop with a schedule that is chosen at its start; its last iterations take longest.
const SCHEDULED: &str = "#include <omp.h>\n#include <stdio.h>\nint main(void) {\n  double sum = 0;\n\
    #pragma omp parallel for schedule(runtime) reduction(+:sum)\n\
    for (long i = 1; i < 2000; i++) for (long k = 1; k < i; k++) sum += 1.0 / k;\n\
    omp_sched_t kind; int chunk; omp_get_schedule(&kind, &chunk);\n\
    FILE *f = fopen(\"ran\", \"a\"); fprintf(f, \"%d %d %d\\n\", omp_get_max_threads(), kind & 0xf, chunk); return sum < 1; }\n";

/// Threads that take chunks of a loop, as many iterations as the second argument says.
const TAKING: &str = "#include <pthread.h>\n#include <stdatomic.h>\n#include <stdio.h>\n#include <stdlib.h>\n\
    static atomic_long next; static long chunk;\n\
    static void *work(void *sum) { double s = 0; for (;;) { long from = atomic_fetch_add(&next, chunk); if (from >= 2000000) break;\n\
    for (long i = from; i < from + chunk; i++) s += 1.0 / (i + 1); } *(double *)sum = s; return 0; }\n\
    int main(int c, char **v) { int n = atoi(v[1]); pthread_t t[64]; double s[64]; chunk = atol(v[2]);\n\
    for (int i = 0; i < n; i++) pthread_create(t + i, 0, work, s + i);\n\
    for (int i = 0; i < n; i++) pthread_join(t[i], 0);\n\
    FILE *f = fopen(\"ran\", \"a\"); fprintf(f, \"%d 0 %ld\\n\", n, chunk); return c != 3; }\n";

#[test]
fn openmp_and_pthread_programs_run_with_every_chunking() {
    // Kinds of OpenMP: 1 is static, 2 dynamic.
    let openmp = [("static", "1 0"), ("dynamic,16", "2 16")];
    let own = [("10", "0 10"), ("5000", "0 5000")];
    let openmp_args = [
        "--env",
        "OMP_NUM_THREADS={n}",
        "--env",
        "OMP_SCHEDULE={chunk}",
        "--",
        "./program",
    ];
    let own_args = ["--", "./program", "{n}", "{chunk}"];
    for (source, flag, chunkings, args) in [
        (SCHEDULED, "-fopenmp", openmp, &openmp_args[..]),
        (TAKING, "-pthread", own, &own_args[..]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        if compiled(dir.path(), source, flag).is_none() {
            countersteer_fuzz::skipped("there is no C compiler for parallel programs");
            continue;
        }
        let [(one, _), (other, _)] = chunkings;
        let chunks = ["-r", "2", "--json", "--chunk", one, "--chunk", other];
        let found = json(&threads(dir.path(), &[&chunks, args].concat()));
        let ran = std::fs::read_to_string(dir.path().join("ran")).unwrap();
        let trials = found["trials"].as_array().unwrap();
        let cpus = if two_cpus().is_some() { 2 } else { 1 };
        assert_eq!(uncrowded(trials), 2 * cpus, "{found}");
        for row in trials {
            let chunking = row["chunking"].as_str().unwrap();
            let (_, printed) = chunkings
                .iter()
                .find(|(name, _)| *name == chunking)
                .unwrap();
            let line = format!("{} {printed}", row["threads"]);
            assert!(ran.lines().any(|ran| ran == line), "{line}: {ran}");
        }
    }
}

#[test]
fn programs_that_wait_have_more_threads_than_cpus() {
    let dir = tempfile::tempdir().unwrap();
    let tasks = "seq 16 | xargs -P {n} -I_ sleep 0.2";
    // With twelve runs each, one late run leaves the verdict as it is.
    let args = ["-w", "0", "-r", "12", "--json", "--", "sh", "-c", tasks];
    let found = json(&threads(dir.path(), &args));
    let cpus = if two_cpus().is_some() { 2 } else { 1 };
    let trials = found["trials"].as_array().unwrap();
    let busy = found["warnings"].to_string().contains("other programs");
    if uncrowded(trials) == trials.len() && busy {
        return countersteer_fuzz::skipped("other programs keep the CPUs busy");
    }
    let best = &found["finals"][0];
    assert!(best["threads"].as_u64() >= Some(4 * cpus), "{best}");
    assert_eq!(found["recommended"], 0, "{found}");
    assert!(best["bound"].is_null());
}
