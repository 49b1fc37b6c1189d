//! Measures the recording speed of programs, in comparison with cachegrind, and the error of the miss curve.
//!
//! `cargo build --release -p countersteer-capture && cargo run --release -p countersteer-profiler --example profile_speed`
//! prints a Markdown table. Speeds are million instructions per CPU-second: the median of `ROUNDS` rounds (an environment
//! variable; default 3). Each tool runs each program once per round. Errors are relative to exact stack distances.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use countersteer_model::profile::Recorded;
use countersteer_profiler::{Measure, ProfileError, ProfileOptions};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

/// Cache sizes at which miss curves are compared, in KiB.
const SIZES_KIB: [u64; 13] = [
    8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768,
];

fn main() -> ExitCode {
    let rounds = std::env::var("ROUNDS")
        .ok()
        .and_then(|r| r.parse().ok())
        .unwrap_or(3);
    match run(rounds) {
        Ok(table) => {
            print!("{table}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(rounds: usize) -> Result<String, Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    std::fs::write(directory.path().join("text"), text(6_000_000))?;
    std::fs::write(directory.path().join("short"), text(1_500_000))?;
    let mut table = String::from(
        "| program | instructions | steer profile, MIPS | with --sampled | cachegrind, MIPS | with --branch-sim=yes | largest error of the miss ratio | mean |\n|---|---|---|---|---|---|---|---|\n",
    );
    for command in commands()? {
        let mut speeds = [const { Vec::new() }; 4];
        let mut instructions = 0;
        for _ in 0..rounds {
            let recording = profile(&command, directory.path(), Measure::Exact)?;
            instructions = recording.0.instructions;
            speeds[0].push(instructions as f64 / 1e6 / recording.1);
            let sampled = profile(&command, directory.path(), Measure::Sampled)?;
            speeds[1].push(sampled.0.instructions as f64 / 1e6 / sampled.1);
            speeds[2].push(cachegrind(&command, directory.path(), "no")?);
            speeds[3].push(cachegrind(&command, directory.path(), "yes")?);
        }
        let [ours, sampled, plain, branches] = speeds.map(median);
        let (largest, mean) = error(
            &profile(&command, directory.path(), Measure::Exact)?.0,
            &profile(&command, directory.path(), Measure::Reference)?.0,
        );
        writeln!(
            table,
            "| `{}` | {instructions} | {ours:.0} | {sampled:.0} | {plain:.0} | {branches:.0} | {largest:.5} | {mean:.5} |",
            shown(&command)
        )?;
    }
    Ok(table)
}

/// Returns four single-threaded programs of different character.
fn commands() -> Result<Vec<Vec<String>>, Box<dyn std::error::Error>> {
    let python = Command::new("python3")
        .args(["-c", "import sys; print(sys.executable)"])
        .output()?;
    let python = String::from_utf8(python.stdout)?.trim().to_owned();
    let counting = "d = {}\nfor w in open('short').read().split(): d[w] = d.get(w, 0) + 1\nprint(sorted(d.items())[:9], sum(i * i for i in range(400000)))";
    let lists: [&[&str]; 4] = [
        &["gzip", "-c", "text"],
        &["xz", "-1", "-c", "short"],
        &["sort", "--parallel=1", "-S", "64M", "text"],
        &[&python, "-c", counting],
    ];
    Ok(lists
        .iter()
        .map(|l| l.iter().map(|a| (*a).to_owned()).collect())
        .collect())
}

fn shown(command: &[String]) -> String {
    let name = Path::new(&command[0])
        .file_name()
        .map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let rest: Vec<&str> = command[1..]
        .iter()
        .map(|a| {
            if a.contains('\n') {
                "SCRIPT"
            } else {
                a.as_str()
            }
        })
        .collect();
    format!("{name} {}", rest.join(" "))
}

/// Returns text from a vocabulary: compressible, sortable, and identical in every run.
fn text(bytes: usize) -> String {
    let mut state = 1u64;
    let mut random = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut text = String::new();
    while text.len() < bytes {
        // The square of a uniform number makes some words frequent.
        let (rank, end) = (random() % 5000, random() % 10 == 0);
        let mut word = rank * rank / 5000 * 7919 + 26;
        while word > 0 {
            text.push((b'a' + (word % 26) as u8) as char);
            word /= 26;
        }
        text.push(if end { '\n' } else { ' ' });
    }
    text
}

/// Standard output is discarded; both tools write to a file, so both have this cost.
fn profile(
    command: &[String],
    directory: &Path,
    measure: Measure,
) -> Result<(Recorded, f64), ProfileError> {
    let mut wrapped: Vec<String> = ["sh", "-c", "exec \"$@\" > output", "sh"]
        .map(String::from)
        .into();
    wrapped.extend_from_slice(command);
    let mut options = ProfileOptions::new(wrapped);
    (options.stdin_null, options.workdir, options.measure) =
        (true, Some(directory.to_owned()), measure);
    let recording = countersteer_profiler::profile(&options)?;
    Ok((recording.profile, recording.cpu_seconds))
}

fn children_seconds() -> f64 {
    let seconds = |u: nix::sys::resource::Usage| {
        (u.user_time().num_microseconds() + u.system_time().num_microseconds()) as f64 * 1e-6
    };
    getrusage(UsageWho::RUSAGE_CHILDREN).map_or(0.0, seconds)
}

fn cachegrind(
    command: &[String],
    directory: &Path,
    branches: &str,
) -> Result<f64, Box<dyn std::error::Error>> {
    let before = children_seconds();
    let output = Command::new("valgrind")
        .args([
            "--tool=cachegrind",
            "--cache-sim=yes",
            "--cachegrind-out-file=/dev/null",
        ])
        .arg(format!("--branch-sim={branches}"))
        .args(command)
        .current_dir(directory)
        .env("LANG", "C")
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(directory.join("output"))?)
        .output()?;
    let seconds = children_seconds() - before;
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    let count = report
        .lines()
        .find(|l| l.contains("refs:"))
        .and_then(|l| l.split(':').nth(1))
        .map(|c| c.replace(',', ""));
    let count: f64 = count.ok_or(report)?.trim().parse()?;
    Ok(count / 1e6 / seconds)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns the largest and the mean absolute difference of the miss ratio over the sizes.
fn error(quick: &Recorded, exact: &Recorded) -> (f64, f64) {
    let differences: Vec<f64> = SIZES_KIB
        .iter()
        .map(|kib| (ratio(quick, kib * 16) - ratio(exact, kib * 16)).abs())
        .collect();
    (
        differences.iter().copied().fold(0.0, f64::max),
        differences.iter().sum::<f64>() / differences.len() as f64,
    )
}

/// Returns the share of all touches that miss a fully associative cache of `lines` lines.
fn ratio(profile: &Recorded, lines: u64) -> f64 {
    let (mut misses, mut all) = (0.0, 0.0);
    for segment in &profile.timeline {
        let locality = &profile.behaviours[segment.behaviour as usize].locality;
        let weight = segment.instructions as f64;
        misses += weight * (locality.stack_distance_pki.at_least(lines as f64) + locality.cold_pki);
        all += weight * (locality.stack_distance_pki.total() + locality.cold_pki);
    }
    misses / all
}
