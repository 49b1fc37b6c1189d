//! Regression over occupancy and misses among co-runners recovers a program's miss curve.

#![allow(clippy::unwrap_used)] // a test helper that fails has failed its test

use std::fmt::Write;
use std::path::Path;

use countersteer_lab::Experiment;
use countersteer_model::profile::fit::{CurveForm, FittedCurve, falling};
use countersteer_model::sample::{Event, SampleRow};
use countersteer_report::record::{Detail, Record};

/// Size of the machine's last-level cache in KiB.
const WHOLE_KIB: f64 = 30.0 * 1024.0;
/// Maximum change of occupancy between samples of a settled program, as a share of the cache.
const SETTLED: f64 = 0.02;

/// A profile of one phase; `mpki` gives misses per kilo-instruction by cache size in KiB.
fn profile(mpki: fn(f64) -> f64) -> String {
    let mut text = "schema = \"countersteer.table/1\"\nname = \"known\"\ngiga_instructions = 4.0\n\
                    source = { kind = \"made\", detail = \"\", method = \"\" }\n"
        .to_owned();
    for core_type in ["golden-cove", "gracemont"] {
        let _ = writeln!(
            text,
            "[[core]]\ncore_type = \"{core_type}\"\nfreq_ghz = 4.0"
        );
        for nth in 1..=60 {
            let cache_kib = f64::from(nth) * WHOLE_KIB / 60.0;
            let misses = mpki(cache_kib);
            let ipc = 1.0 / (0.4 + 0.05 * misses);
            let _ = writeln!(
                text,
                "[[core.points]]\ncache_kib = {cache_kib}\nipc = {ipc}\nllc_mpki = {misses}"
            );
        }
    }
    text
}

/// Writes a workload with the known program and `co_runners` others.
fn mix(dir: &Path, co_runners: usize) -> String {
    let stream = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../profiles/recorded/stream.json"
    );
    let mut text =
        "title = \"a mix\"\n[[program]]\nprofile = \"known.toml\"\nthreads = 1\n".to_owned();
    for _ in 0..co_runners {
        let _ = writeln!(text, "[[program]]\nprofile = \"{stream}\"\nthreads = 1");
    }
    let path = dir.join("mix.toml");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// Occupancy in KiB and misses per kilo-instruction by sample, once the cache has settled.
fn points(record: &Record) -> Vec<(f64, f64)> {
    let threads = record.identities();
    let known = threads.iter().find(|t| &*t.name == "known").unwrap().id;
    let mut held_kib = 0.0;
    let point = |sample: SampleRow<'_>| {
        let before_kib = held_kib;
        held_kib = sample.counts.get(Event::LlcOccupancyBytes)? / 1024.0;
        let misses = sample.counts.ratio(Event::LlcMisses, Event::Instructions)?;
        let settled = (held_kib - before_kib).abs() < SETTLED * WHOLE_KIB;
        settled.then_some((held_kib, 1e3 * misses))
    };
    let samples = record.samples.samples.iter();
    samples
        .filter(|s| s.thread() == Some(known))
        .filter_map(point)
        .collect()
}

fn fitted(mpki: fn(f64) -> f64) -> FittedCurve {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("known.toml"), profile(mpki)).unwrap();
    let mut all = Vec::new();
    for co_runners in 0..8 {
        let workload = mix(dir.path(), co_runners);
        let policy = "static:*=golden-cove";
        let mut experiment = Experiment::named("i9-12900k-8p8e", &workload, policy).unwrap();
        experiment.options.rounds = 1;
        experiment.options.max_seconds = 2.0;
        experiment.options.count = vec!["llc_misses".into()];
        experiment.detail = Some(Detail::Everything);
        all.extend(points(&experiment.run().unwrap().record.unwrap()));
    }
    falling(&all, WHOLE_KIB).unwrap()
}

#[test]
fn curves_of_simulated_mixes_are_those_of_their_profiles() {
    let steep: fn(f64) -> f64 = |kib| 2.0 + 30.0 * (-kib / 4_000.0).exp();
    let straight: fn(f64) -> f64 = |kib| 33.0 - kib / 1_024.0;
    for (mpki, form) in [(steep, CurveForm::Exponential), (straight, CurveForm::Line)] {
        let fit = fitted(mpki);
        assert_eq!(fit.form, form, "{fit:?}");
        assert!(fit.curve.len() >= 4, "{fit:?}");
        for (kib, found) in &fit.curve {
            let away = found - mpki(*kib);
            assert!(away.abs() < 1.0, "{away} with {kib} KiB of {fit:?}");
        }
    }
}
