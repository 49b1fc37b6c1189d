//! Random changes of valid input, for tests that check of every parser of external input: "an error or a value, never a panic".
//!
//! Input: valid examples, and a parser. Output: none, or a panic that shows the input. Examples are changed by bytes and by
//! words, so that most pass the syntax checks. Changes of words make numbers absurd, and remove, duplicate or exchange pieces
//! between examples. `COUNTERSTEER_FUZZ=N` sets the number of runs of each parser (`make fuzz` does so), `COUNTERSTEER_FUZZ_SEED`
//! the seed. An input on which a parser fails is kept in a file. `COUNTERSTEER_FUZZ_INPUT=FILE` passes only this input to a
//! parser.

pub mod cpus;
pub mod fake_root;
pub mod instrumentation;

use std::fs::OpenOptions;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Default number of runs of a parser, which takes a fraction of a second.
const RUNS: u64 = 2_000;
/// Maximum CPU time for an input of these sizes, which does not depend on the load of the CPU.
const HANG: Duration = Duration::from_secs(10);
/// Maximum elapsed time for an input, including waits.
const WAIT: Duration = Duration::from_secs(300);

/// Reports that a test cannot run on this host, with the reason.
///
/// `COUNTERSTEER_SKIPPED` names a file that collects the reports, which `make test` shows at its end. The output of tests that
/// pass is hidden.
pub fn skipped(why: impl std::fmt::Display) {
    let thread = std::thread::current();
    let line = format!("skipped: {}: {why}\n", thread.name().unwrap_or("a test"));
    eprint!("{line}");
    if let Some(path) = std::env::var_os("COUNTERSTEER_SKIPPED") {
        let file = OpenOptions::new().create(true).append(true).open(path);
        // One call, since many tests write at once.
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

/// Words that often break parsers.
const WORDS: [&str; 20] = [
    "0",
    "-1",
    "1e308",
    "1e-308",
    "nan",
    "inf",
    "4294967295",
    "4294967296",
    "18446744073709551615",
    "-9223372036854775808",
    "0.0000001",
    "\"\"",
    "[]",
    "{}",
    "null",
    "\u{1b}[31m",
    "\u{fffd}",
    "0x",
    ",",
    "é",
];

fn setting(name: &str, default: u64) -> u64 {
    let given = std::env::var(name).ok().and_then(|text| text.parse().ok());
    given.unwrap_or(default)
}

/// Passes changed examples to `parse`; `share` scales the number of runs, for slow parsers.
///
/// # Panics
/// Panics if `parse` does, or if it takes ten seconds of CPU time; the input is kept in a file before.
pub fn storm(name: &str, examples: &[&[u8]], share: f64, parse: impl Fn(&[u8])) {
    if let Some(file) = std::env::var_os("COUNTERSTEER_FUZZ_INPUT") {
        let input = std::fs::read(&file);
        assert!(
            input.is_ok(),
            "{}: {input:?}",
            PathBuf::from(file).display()
        );
        return parse(&input.unwrap_or_default());
    }
    let runs = (setting("COUNTERSTEER_FUZZ", RUNS) as f64 * share).ceil() as u64;
    let mut rng = Pcg64::seed_from_u64(setting("COUNTERSTEER_FUZZ_SEED", 1));
    let begun = Instant::now();
    for run in 0..runs {
        let input = changed(examples, &mut rng);
        let (since, cpu_before) = (Instant::now(), cpu_time());
        let outcome = catch_unwind(AssertUnwindSafe(|| parse(&input)));
        let (took, cpu) = (since.elapsed(), cpu_time() - cpu_before);
        let hangs = cpu > HANG || took > WAIT;
        if outcome.is_err() || hangs {
            let shown = input[..input.len().min(SHOWN)].escape_ascii();
            eprintln!(
                "{name}, run {run}, kept in {}: {shown}",
                keep(name, run, &input).display()
            );
        }
        if let Err(panic) = outcome {
            resume_unwind(panic);
        }
        assert!(
            !hangs,
            "{name} takes {cpu:?} of CPU time and {took:?} in all"
        );
    }
    println!(
        "fuzz {name}: {runs} runs in {:.1} s",
        begun.elapsed().as_secs_f64()
    );
}

/// Maximum number of bytes of an input that are printed.
const SHOWN: usize = 2_000;

/// Writes an input to a file that is kept.
fn keep(name: &str, run: u64, input: &[u8]) -> PathBuf {
    let name: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let prefix = format!("countersteer-fuzz-{name}-{run}-");
    let mut builder = tempfile::Builder::new();
    builder
        .prefix(&prefix)
        .suffix(".input")
        .disable_cleanup(true);
    let file = builder.tempfile().and_then(|mut file| {
        file.write_all(input)?;
        Ok(file.path().to_owned())
    });
    file.unwrap_or_else(|why| PathBuf::from(format!("no file ({why})")))
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|n| n.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

fn changed(examples: &[&[u8]], rng: &mut Pcg64) -> Vec<u8> {
    let mut input = examples[rng.random_range(0..examples.len())].to_vec();
    for _ in 0..rng.random_range(1..5_u32) {
        let at = rng.random_range(0..=input.len());
        let end = (at + rng.random_range(0..40_usize)).min(input.len());
        match rng.random_range(0..8_u32) {
            0 => drop(input.drain(at..end)),
            1 => input.truncate(at),
            2 => insert(
                &mut input,
                at,
                WORDS[rng.random_range(0..WORDS.len())].as_bytes(),
            ),
            3 => {
                let piece = input[at..end].to_vec();
                insert(&mut input, at, &piece);
            }
            4 => {
                let other = examples[rng.random_range(0..examples.len())];
                let from = rng.random_range(0..=other.len());
                let to = (from + rng.random_range(0..80_usize)).min(other.len());
                insert(&mut input, at, &other[from..to]);
            }
            5 if at < input.len() => input[at] = rng.random(),
            _ => replace_number(
                &mut input,
                at,
                WORDS[rng.random_range(0..WORDS.len())].as_bytes(),
            ),
        }
    }
    input
}

fn insert(input: &mut Vec<u8>, at: usize, piece: &[u8]) {
    input.splice(at..at, piece.iter().copied());
}

/// Replaces the first number at or after `at` by `word`.
fn replace_number(input: &mut Vec<u8>, at: usize, word: &[u8]) {
    let Some(start) = input[at..].iter().position(u8::is_ascii_digit) else {
        return;
    };
    let start = at + start;
    let part = |b: &u8| b.is_ascii_digit() || b".eE+-".contains(b);
    let length = input[start..].iter().take_while(|b| part(b)).count();
    input.splice(start..start + length, word.iter().copied());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_parser_that_falls_over_a_number_is_found() {
        let parse = |input: &[u8]| {
            let text = String::from_utf8_lossy(input);
            assert!(!text.contains("4294967296"), "too large");
        };
        let name = format!("test-{}", std::process::id());
        assert!(catch_unwind(|| storm(&name, &[b"size = 12"], 1.0, parse)).is_err());
        // The input is kept, as it should be.
        let kept = format!("countersteer-fuzz-{name}-");
        let is_own = |file: &std::fs::DirEntry| {
            let file = file.file_name();
            file.to_string_lossy().starts_with(&kept)
        };
        let files = std::fs::read_dir(std::env::temp_dir()).unwrap().flatten();
        let own: Vec<PathBuf> = files.filter(is_own).map(|file| file.path()).collect();
        assert_eq!(own.len(), 1);
        std::fs::remove_file(&own[0]).unwrap();
    }

    #[test]
    fn an_input_that_fails_is_kept() {
        let kept = keep("record a.parquet", 3, b"bytes");
        let name = kept.file_name().unwrap().to_string_lossy().into_owned();
        assert!(
            name.starts_with("countersteer-fuzz-record-a-parquet-3-"),
            "{name}"
        );
        assert_eq!(std::fs::read(&kept).unwrap(), b"bytes");
        std::fs::remove_file(kept).unwrap();
    }

    #[test]
    fn most_changes_leave_something_of_the_example() {
        let kept = Cell::new(0_u32);
        storm("test", &[b"schema = \"a\"\nsize = 12\n"], 0.5, |input| {
            kept.set(kept.get() + u32::from(input.starts_with(b"schema")));
        });
        assert!((300..1000).contains(&kept.get()), "{}", kept.get());
    }
}
