//! Fuzz tests of parsers of files and strings from outside: they return an error or a value for any input.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::path::Path;
use std::sync::Arc;

use countersteer_fuzz::storm;
use countersteer_model::counters::{Formula, MetricGroup, parse_count, parse_duration, parse_set};
use countersteer_model::machine::Machine;
use countersteer_model::models::{FixedPointModel, ModelFile};
use countersteer_model::profile::{MissCurve, Profile};
use countersteer_model::rules::{RuledProcess, Rules};
use countersteer_model::topology::Topology;
use countersteer_model::workload::Workload;

/// Returns the texts of the files in a folder of the repository, the shortest `most`.
fn files(folder: &str, ending: &str, most: usize) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(folder);
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path());
    let texts = entries.filter(|p| p.to_string_lossy().ends_with(ending));
    let mut texts: Vec<Vec<u8>> = texts.map(|p| std::fs::read(p).unwrap()).collect();
    texts.sort_by_key(Vec::len);
    texts.truncate(most);
    assert!(!texts.is_empty());
    texts
}

fn fuzz(name: &str, examples: &[Vec<u8>], share: f64, parse: impl Fn(&str)) {
    let examples: Vec<&[u8]> = examples.iter().map(Vec::as_slice).collect();
    storm(name, &examples, share, |input| {
        parse(&String::from_utf8_lossy(input))
    });
}

fn lines(examples: &[&str]) -> Vec<Vec<u8>> {
    examples.iter().map(|e| e.as_bytes().to_vec()).collect()
}

#[test]
fn machine_files() {
    fuzz("machine", &files("machines", ".toml", 8), 0.3, |text| {
        if let Ok(machine) = Machine::parse("m", text) {
            let topology = Arc::new(Topology::new(&machine));
            assert_eq!(topology.cpus.len(), machine.cpu_count());
            assert_eq!(
                Machine::parse("m", &machine.to_toml().unwrap()).unwrap(),
                machine
            );
        }
    });
}

#[test]
fn model_files() {
    fuzz("model", &files("models/zen4", ".toml", 2), 0.3, |text| {
        if let Ok(file) = ModelFile::parse("m", text) {
            let _ = FixedPointModel::new(&file).events();
            let _ = ModelFile::parse("m", &file.to_toml().unwrap()).unwrap();
        }
    });
}

#[test]
fn workload_files() {
    fuzz("workload", &files("workloads", ".toml", 3), 0.3, |text| {
        drop(Workload::parse("w", text))
    });
}

#[test]
fn rules_files() {
    fuzz("rules", &files("systemd", "rules.toml", 1), 1.0, |text| {
        if let Ok(rules) = Rules::parse("r", text) {
            let _ = rules.covers(&RuledProcess::default());
        }
    });
}

fn profile(text: &str) {
    if let Ok(Profile::Recorded(profile)) = Profile::parse("p", text) {
        for behaviour in &profile.behaviours {
            assert!(
                MissCurve::from_locality(&behaviour.locality)
                    .mpki(512.0)
                    .is_finite()
            );
        }
    }
}

#[test]
fn recorded_profiles() {
    fuzz(
        "profile",
        &files("profiles/recorded", ".json", 1),
        0.2,
        profile,
    );
}

#[test]
fn tabulated_profiles() {
    fuzz(
        "table",
        &files("profiles/spec2017", ".toml", 3),
        1.0,
        profile,
    );
}

#[test]
fn metric_files() {
    fuzz("metric file", &files("metrics", ".toml", 4), 0.3, |text| {
        drop(MetricGroup::parse("m", text))
    });
}

#[test]
fn event_strings() {
    let examples = lines(&[
        "instructions,cycles:u,cpu_core/event=0xc0,umask=0x1,name=x/:uk",
        "{cycles,instructions}:S,cpu/llc-misses/",
        "pmc0=0xc0,umask0=0x1,usr0=1,pmc1=0x3c,ebs0=1000000",
        "r1a2b:pp,task_clock,page_faults",
    ]);
    fuzz("event string", &examples, 1.0, |text| drop(parse_set(text)));
}

#[test]
fn formulas() {
    let examples = lines(&[
        "1000 * llc_misses / instructions",
        "(a + b) / max(c, 1) * 1e3 - d",
        "a / b if c > 2",
    ]);
    fuzz("formula", &examples, 1.0, |text| {
        if let Ok(formula) = Formula::parse(text) {
            let of = [Some(1.0), None, Some(0.0), Some(f64::MAX)];
            let value = formula.evaluate(&of, &mut Vec::new());
            assert!(value.is_none_or(f64::is_finite), "{text}: {value:?}");
        }
    });
}

#[test]
fn times_and_counts() {
    let examples = lines(&["100ms", "5s", "1.5m", "2000000", "10M", "3k"]);
    fuzz("time", &examples, 1.0, |text| {
        drop((parse_duration(text), parse_count(text)))
    });
}
