//! Tests of bounds: every number in an input file has bounds, and an absurd value is refused with the allowed range.

#![allow(clippy::unwrap_used)] // a test helper that fails has failed its test

use std::path::Path;

use countersteer_model::machine::Machine;
use countersteer_model::profile::Profile;
use countersteer_model::textfile::TextError;
use countersteer_model::workload::Workload;
use serde_json::Value;

/// Larger than any valid value, yet finite; and below any negative one.
const ABSURD: [f64; 2] = [1e300, -1e300];

fn file(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap()
}

/// Collects the paths of all numbers in a document.
fn numbers(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Number(_) => found.push(at.to_owned()),
        Value::Array(items) => (items.iter().enumerate())
            .for_each(|(i, item)| numbers(item, &format!("{at}/{i}"), found)),
        Value::Object(fields) => {
            (fields.iter()).for_each(|(key, field)| numbers(field, &format!("{at}/{key}"), found))
        }
        _ => {}
    }
}

fn every_number_is_bounded(document: &Value, parse: impl Fn(&Value) -> Option<TextError>) {
    assert_eq!(parse(document), None);
    let mut found = Vec::new();
    numbers(document, "", &mut found);
    assert!(found.len() > 3);
    for path in found {
        for absurd in ABSURD {
            let mut changed = document.clone();
            *changed.pointer_mut(&path).unwrap() = absurd.into();
            assert!(parse(&changed).is_some(), "{path} = {absurd:?} is taken");
        }
    }
}

fn toml_document(text: &str) -> Value {
    serde_json::to_value(toml::from_str::<toml::Value>(text).unwrap()).unwrap()
}

fn as_toml(document: &Value) -> String {
    toml::to_string(document).unwrap()
}

#[test]
fn of_machines() {
    let text = file("machines/i9-12900k.toml");
    let mut machine = Machine::parse("m", &text).unwrap();
    machine.core_type[0].sf_steps = Some(
        serde_json::from_str(
            r#"{"base": 1.5, "features": [{"ratio": "instructions / cycles", "steps": [[0.5, 0.25]]}]}"#,
        )
        .unwrap(),
    );
    let document = toml_document(&machine.to_toml().unwrap());
    every_number_is_bounded(&document, |d| Machine::parse("m", &as_toml(d)).err());
}

#[test]
fn of_workloads() {
    let text = "[[cgroup]]\nname = \"g\"\nweight = 50\n[[hotplug]]\nat_s = 1.5\ncpus = \"1\"\nonline = false\n\
                [[program]]\nprofile = \"a\"\nuclamp_min = 10\nuclamp_max = 20\ncopies = 2\nthreads = 3\nnice = 1\nstart_s = 1.5\n\
                burst_mi = 2.5\nsleep_ms = 3.5\nbarriers = 4\nchunk_mi = 1.5\nscale = 0.5\n";
    every_number_is_bounded(&toml_document(text), |d| {
        Workload::parse("w", &as_toml(d)).err()
    });
}

#[test]
fn of_recorded_profiles() {
    let text = r#"{
        "schema": "countersteer.profile/1", "name": "p", "source": {"kind": "k", "detail": "d"},
        "instructions": 1000, "shape": {"threads": 2, "serial_share": 0.5},
        "behaviours": [{
            "mix": {"loads": 0.3, "stores": 0.1, "branches": 0.2, "fp": 0.0, "simd": 0.0}, "branch_mpki": 1.5,
            "locality": {"stack_distance_pki": [1.0, 2.0], "cold_pki": 0.5, "reuse_time_pki": [3.0]},
            "ilp": [{"window": 16, "ipc": 2.5}], "mlp": [{"window": 16, "cache_lines": 512, "overlap": 1.5}],
            "pipeline": {
                "operations": {"alu": 0.1, "shift": 0.1, "multiply": 0.1, "divide": 0.1,
                               "fp_add": 0.1, "fp_multiply": 0.1, "fp_divide": 0.1, "simd": 0.1},
                "fused": 0.1, "taken": 0.1, "chains": [{"window": 16, "loads": 0.5, "operations": 0.5}],
                "resolution": {"unit": 5.5, "loads": 1.5, "operations": 1.5},
                "streams": [{"cache_lines": 512, "share": 0.5}], "conflicts": [1.5]
            }
        }],
        "timeline": [{"behaviour": 0, "instructions": 1000}]
    }"#;
    every_number_is_bounded(&serde_json::from_str(text).unwrap(), |d| {
        Profile::parse("p", &d.to_string()).err()
    });
}

#[test]
fn of_tabulated_profiles() {
    let text = r#"
        schema = "countersteer.table/1"
        name = "p"
        source = { kind = "k", detail = "d" }
        giga_instructions = 1.5
        [[core]]
        core_type = "big"
        freq_ghz = 5.2
        branch_mpki = 1.5
        power_w = 10.5
        points = [{ cache_kib = 512.5, ipc = 1.5, llc_mpki = 2.5 }]
    "#;
    every_number_is_bounded(&toml_document(text), |d| {
        Profile::parse("p", &as_toml(d)).err()
    });
}
