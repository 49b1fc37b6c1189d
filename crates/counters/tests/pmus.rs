//! Tests of event strings on machines made of files. Every folder of `pmus/` has a machine (`tree.txt`), strings (`events`),
//! possibly vendors' lists (`lists/`), and the results (`expected`). `COUNTERSTEER_BLESS=1` rewrites the results.

#![allow(clippy::unwrap_used)] // a test helper that fails has failed its test

use std::fmt::Write;
use std::path::Path;

use countersteer_counters::resolve;
use countersteer_counters::{CoreTypes, Pmus, Resolved, add_vendor_events};
use countersteer_fuzz::fake_root::unpack;
use countersteer_model::counters::parse_set;
use countersteer_model::events::Event;

fn shown(event: &Resolved) -> String {
    let mut text = format!("  {}", event.planned.name);
    if event.planned.scale != 1.0 {
        let _ = write!(text, " x {} {}", event.planned.scale, event.planned.unit);
    }
    for e in &event.encodings {
        let words = e.config.map(|w| format!("{w:#x}")).join(" ");
        let cpus = e
            .cpus
            .as_ref()
            .map_or_else(|| "all".into(), ToString::to_string);
        let system = if e.system { ", system" } else { "" };
        let _ = write!(
            text,
            "\n    {} (CPUs {cpus}{system}): type {}, config {words}",
            e.pmu, e.kind
        );
    }
    text + "\n"
}

fn meaning(strings: &str, pmus: &Pmus) -> String {
    let types = CoreTypes::of(pmus);
    let by_cpu: String = types.by_cpu.iter().map(ToString::to_string).collect();
    let mut text = format!("core types: {} ({by_cpu})\n", types.names.join(", "));
    for string in strings.lines() {
        let _ = writeln!(text, "{string}");
        match parse_set(string).and_then(|specs| resolve(string, &specs, pmus)) {
            Ok(events) => events.iter().for_each(|e| text += &shown(e)),
            Err(error) => {
                let _ = writeln!(text, "  {error}");
            }
        }
    }
    text
}

#[test]
fn event_strings_mean_what_the_machine_says() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pmus");
    for case in std::fs::read_dir(cases).unwrap() {
        let case = case.unwrap().path();
        let root = unpack(&std::fs::read_to_string(case.join("tree.txt")).unwrap());
        let mut pmus = Pmus::read(root.path()).unwrap();
        let lists = case.join("lists");
        if lists.is_dir() {
            add_vendor_events(&lists, root.path(), &mut pmus).unwrap();
        }
        let got = meaning(
            &std::fs::read_to_string(case.join("events")).unwrap(),
            &pmus,
        );
        let golden = case.join("expected");
        if std::env::var_os("COUNTERSTEER_BLESS").is_some() {
            std::fs::write(&golden, &got).unwrap();
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        assert!(
            got == expected,
            "{}: expected\n{expected}\ngot\n{got}",
            case.display()
        );
    }
}

#[test]
fn an_event_of_one_processor_is_the_one_that_a_formula_named() {
    let tree = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pmus/hybrid/tree.txt");
    let root = unpack(&std::fs::read_to_string(tree).unwrap());
    let pmus = Pmus::read(root.path()).unwrap();
    for text in ["r01c2", "cpu_core/event=0x2e,umask=0x41/"] {
        let event = |pmus| {
            resolve(text, &parse_set(text).unwrap(), pmus).unwrap()[0]
                .planned
                .event
        };
        assert_eq!(event(&pmus), None);
        let named = Event::named(text);
        assert!(named.is_some() && event(&pmus) == named, "{text}");
    }
}

#[test]
fn a_file_that_holds_something_else_is_named() {
    let root = unpack("sys/bus/event_source/devices/cpu/type: four");
    let error = Pmus::read(root.path()).unwrap_err().to_string();
    assert!(
        error.contains("event_source/devices/cpu/type: `four` is no number"),
        "{error}"
    );
    let root = unpack(
        "sys/bus/event_source/devices/cpu/type: 4\nsys/bus/event_source/devices/cpu/cpus: 0..3",
    );
    assert!(
        Pmus::read(root.path())
            .unwrap_err()
            .to_string()
            .contains("CPU list")
    );
    assert!(
        Pmus::read(Path::new("/nonexistent-root"))
            .unwrap()
            .list
            .is_empty()
    );
}

#[test]
fn a_list_that_is_none_is_named() {
    let root = unpack("lists/a.json: [{\"EventCode\": 3}]");
    let error = add_vendor_events(
        &root.path().join("lists"),
        root.path(),
        &mut Pmus::default(),
    )
    .unwrap_err()
    .to_string();
    assert!(
        error.contains("lists/a.json") && error.contains("EventName"),
        "{error}"
    );
    assert!(
        add_vendor_events(
            &root.path().join("nonesuch"),
            root.path(),
            &mut Pmus::default()
        )
        .is_err()
    );
}
