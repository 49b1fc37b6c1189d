//! Tests that the checked-in JSON Schemas match the types, and that the types read the checked-in data files.
//!
//! `COUNTERSTEER_BLESS=1` rewrites the schemas.

#![allow(clippy::unwrap_used)] // a test helper that fails has failed its test

use std::path::{Path, PathBuf};

use countersteer_model::counters::MetricGroup;
use countersteer_model::machine::Machine;
use countersteer_model::models::ModelFile;
use countersteer_model::profile::{Published, Recorded, Tabulated};
use countersteer_model::rules::Rules;
use countersteer_model::workload::Workload;
use schemars::{Schema, schema_for};

/// File name, and the schema it must contain.
type Row = (&'static str, fn() -> Schema);

/// One row per schema.
const SCHEMAS: [Row; 8] = [
    ("machine.schema.json", || schema_for!(Machine)),
    ("metrics.schema.json", || schema_for!(MetricGroup)),
    ("model.schema.json", || schema_for!(ModelFile)),
    ("profile.schema.json", || schema_for!(Recorded)),
    ("published.schema.json", || schema_for!(Published)),
    ("rules.schema.json", || schema_for!(Rules)),
    ("table.schema.json", || schema_for!(Tabulated)),
    ("workload.schema.json", || schema_for!(Workload)),
];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn checked_in_schemas_are_those_of_the_types() {
    for (name, schema) in SCHEMAS {
        let path = repository().join("schemas").join(name);
        let made = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
        if std::env::var_os("COUNTERSTEER_BLESS").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &made).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            kept == made,
            "schemas/{name} is out of date; run the tests with COUNTERSTEER_BLESS=1 and look at the change"
        );
    }
}

#[test]
fn tabulated_profiles_are_named_after_their_files_and_hold_both_core_types() {
    let mut count = 0;
    for entry in std::fs::read_dir(repository().join("profiles/spec2017")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let table = Tabulated::parse(&path.to_string_lossy(), &text).unwrap();
        assert_eq!(
            path.file_stem().unwrap().to_str(),
            Some(table.name.as_str())
        );
        let speed = |core: &str| {
            table
                .on(core)
                .map(|t| t.freq_ghz * t.points[0].ipc)
                .unwrap()
        };
        let factor = speed("golden-cove") / speed("gracemont");
        assert!(
            (1.3..4.1).contains(&factor),
            "{}: speedup factor {factor}",
            table.name
        );
        count += 1;
    }
    assert_eq!(count, 23);
}

#[test]
fn shipped_metrics_are_what_the_type_reads_and_have_unique_names() {
    let mut names = Vec::new();
    for file in std::fs::read_dir(repository().join("metrics")).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        names.extend(
            MetricGroup::parse(&path.display().to_string(), &text)
                .unwrap()
                .into_iter()
                .map(|m| m.name),
        );
    }
    let all = names.len();
    names.sort();
    names.dedup();
    assert!(all > 5 && names.len() == all, "{names:?}");
}
