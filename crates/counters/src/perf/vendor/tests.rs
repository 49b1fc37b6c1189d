//! Tests of event lists as vendors write them, with maps and with mistakes.

use proptest::prelude::*;

use super::map::pattern;
use super::*;

fn one(text: &str) -> Result<VendorEvent, String> {
    parse(Path::new("f.json"), text, &Common::new())
        .map(|mut e| e.remove(0))
        .map_err(|e| e.to_string())
}

fn terms_of(event: &VendorEvent) -> Vec<(&str, &str)> {
    event
        .terms
        .iter()
        .map(|(t, v)| (t.as_str(), v.as_str()))
        .collect()
}

#[test]
fn an_intel_event_becomes_terms_of_its_pmu() {
    let event =
        one(r#"{"Header": {"Version": "1"}, "Events": [{"Unit": "cpu_core", "EventCode": "0x2e", "UMask": "0x41",
        "EventName": "LONGEST_LAT_CACHE.MISS", "BriefDescription": "Misses.", "CounterMask": "0", "Invert": "0",
        "EdgeDetect": "1", "MSRIndex": "0x00", "Deprecated": "0"}]}"#)
        .unwrap();
    assert_eq!(
        (event.name.as_str(), event.pmu.as_deref()),
        ("longest_lat_cache.miss", Some("cpu_core"))
    );
    assert_eq!(
        terms_of(&event),
        [("event", "0x2e"), ("umask", "0x41"), ("edge", "0x1")]
    );
    assert_eq!(event.prose, "Misses.");
}

#[test]
fn registers_beside_the_event_have_terms_too() {
    let event =
        one(r#"[{"EventCode": "0xB7,0xBB", "UMask": "0x01", "EventName": "OCR.X", "MSRIndex": "0x1a6,0x1a7",
        "MSRValue": "0x10003C0001"}]"#)
        .unwrap();
    assert_eq!(
        terms_of(&event),
        [
            ("event", "0xb7"),
            ("umask", "0x1"),
            ("offcore_rsp", "0x10003c0001")
        ]
    );
    // The newest lists have events for newer kernels.
    let text = r#"[{"EventCode": "1", "EventName": "X", "MSRIndex": "0x3e0"}, {"EventCode": "2", "EventName": "Y"}]"#;
    let events = parse(Path::new("f.json"), text, &Common::new()).unwrap();
    let names: Vec<&str> = events.iter().map(|event| &*event.name).collect();
    assert_eq!(names, ["y"]);
}

#[test]
fn withdrawn_events_and_metrics_are_left_out() {
    let text = r#"[{"EventCode": "1", "EventName": "OLD", "Deprecated": "1"}, {"MetricName": "IPC"}, {"EventName": "X"},
        {"EventCode": 17, "EventName": "CPU_CYCLES"}, {"ConfigCode": "0x105", "EventName": "C", "Unit": "iMC"}]"#;
    let events = parse(Path::new("f.json"), text, &Common::new()).unwrap();
    let seen: Vec<_> = events
        .iter()
        .map(|e| (e.name.as_str(), e.pmu.as_deref(), terms_of(e)))
        .collect();
    assert_eq!(
        seen,
        [
            ("cpu_cycles", None, vec![("event", "0x11")]),
            ("c", Some("uncore_imc"), vec![("config", "0x105")])
        ]
    );
}

#[test]
fn errors_say_which_event_or_line() {
    assert!(
        one(r#"[{"EventCode": "1"}]"#)
            .unwrap_err()
            .contains("event 1: it has no EventName")
    );
    assert!(
        one(r#"[{"EventName": "X", "EventCode": "zz"}]"#)
            .unwrap_err()
            .contains("`zz` is no number")
    );
    let long = format!(
        r#"[{{"EventName": "{0}", "EventCode": "{0}"}}]"#,
        "ä".repeat(9_999)
    );
    let refused = one(&long).unwrap_err();
    assert!(refused.contains("ää...` is no number"), "{refused}");
    assert!(refused.len() < 500, "{} bytes", refused.len());
    assert!(one(r#"{"Events": 3}"#).unwrap_err().contains("f.json"));
    assert!(one("[{").unwrap_err().contains("line 1"));
}

#[test]
fn maps_choose_by_processor() {
    let fits = |text: &str, processor: &str| pattern(text).unwrap().is_match(processor);
    assert!(fits("GenuineIntel-6-(97|9A|B7)", "GenuineIntel-6-9A-2"));
    assert!(!fits("GenuineIntel-6-(97|9A|B7)", "GenuineIntel-6-9B"));
    assert!(!fits("GenuineIntel-6-55-[01234]", "GenuineIntel-6-55-5"));
    assert!(fits(
        "AuthenticAMD-25-([245][[:xdigit:]]|[[:xdigit:]])",
        "AuthenticAMD-25-4f"
    ));
    assert!(
        !fits("GenuineIntel-6-5", "GenuineIntel-6-55-4"),
        "a number is not the beginning of another"
    );
    assert!(pattern("(97").unwrap_err().contains("(97"));
}

#[test]
fn a_folder_is_read_by_its_map_and_not_left() {
    let folder = tempfile::tempdir().unwrap();
    assert!(
        load(&folder.path().join("absent"), "x")
            .unwrap_err()
            .to_string()
            .contains("absent")
    );
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("a.json", r#"[{"EventCode": "1", "EventName": "A"}]"#);
    write("b.json", r#"[{"EventCode": "2", "EventName": "B"}]"#);
    let names = |processor: &str| -> Vec<String> {
        load(folder.path(), processor)
            .unwrap()
            .into_iter()
            .map(|e| e.name)
            .collect()
    };
    assert_eq!(names("GenuineIntel-6-1"), ["a", "b"]);
    write(
        "mapfile.csv",
        "Family-model,Version,Filename,EventType\nGenuineIntel-6-1,V1,/b.json,core\n",
    );
    assert_eq!(names("GenuineIntel-6-1"), ["b"]);
    assert!(names("GenuineIntel-6-2").is_empty());
    write("mapfile.csv", "GenuineIntel-6-1,V1,/../b.json,core\n");
    let error = load(folder.path(), "GenuineIntel-6-1")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("mapfile.csv:1") && error.contains("leads out"),
        "{error}"
    );
}

#[test]
fn a_folder_of_intel_has_files_of_metrics_that_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write(
        "mapfile.csv",
        "Family-model,Version,Filename,EventType,Core Type,Native Model ID,Core Role Name\n\
         GenuineIntel-6-55-[5-9A-F],V1.25,/CLX/events/core.json,core,,,\n\
         GenuineIntel-6-55-[5-9A-F],V1.25,/CLX/events/inst.json,fp_arith_inst,,,\n\
         GenuineIntel-6-55-[5-9A-F],V1.25,/CLX/events/uncore.json,uncore experimental,,,\n\
         GenuineIntel-6-55-[5-9A-F],V1.0,/CLX/metrics/metrics.json,metrics,,,\n\
         GenuineIntel-6-55-[5-9A-F],V1.08,/CLX/metrics/latency.json,retire latency,,,\n\
         GenuineIntel-6-97,V1.40,/ADL/events/atom.json,hybridcore,0x20,0x000001,Atom\n",
    );
    let event = |name: &str| {
        format!(r#"{{"Header": {{}}, "Events": [{{"EventCode": "1", "EventName": "{name}"}}]}}"#)
    };
    for file in ["core", "inst", "uncore"] {
        write(&format!("CLX/events/{file}.json"), &event(file));
    }
    write("ADL/events/atom.json", &event("atom"));
    write(
        "CLX/metrics/metrics.json",
        r#"{"Header": {}, "Metrics": [{"MetricName": "CPI"}]}"#,
    );
    write("CLX/metrics/latency.json", r#"{"Header": {}, "Data": {}}"#);
    let names = |processor: &str| -> Vec<String> {
        let events = load(folder.path(), processor).unwrap().into_iter();
        events.map(|e| e.name).collect()
    };
    assert_eq!(names("GenuineIntel-6-55-7"), ["core", "inst", "uncore"]);
    assert_eq!(names("GenuineIntel-6-97-2"), ["atom"]);
}

#[test]
fn a_folder_of_the_kernel_has_folders_of_processors_and_common_events() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    std::fs::create_dir_all(folder.path().join("arm/cortex-a53")).unwrap();
    write(
        "mapfile.csv",
        "# Format:\n0x00000000410fd030,v1,arm/cortex-a53,core\n",
    );
    write(
        "common.json",
        r#"[{"EventCode": "0x7A", "EventName": "BR_INDIRECT_SPEC", "BriefDescription": "Indirect, [a,]"}]"#,
    );
    // Commas behind last elements are in the kernel's sources.
    write(
        "arm/cortex-a53/branch.json",
        "[ {\"ArchStdEvent\": \"BR_INDIRECT_SPEC\",\n}, {\"ArchStdEvent\": \"ABSENT\"},]",
    );
    write(
        "arm/cortex-a53/bus.json",
        r#"[{"EventCode": "0xC9", "EventName": "BR_COND"}]"#,
    );
    let of = |processor: &str| load(folder.path(), processor).unwrap();
    let events = of("0x00000000410fd034");
    let shown: Vec<_> = events
        .iter()
        .map(|e| (&*e.name, &*e.terms[0].1, &*e.prose))
        .collect();
    assert_eq!(
        shown,
        [
            ("br_cond", "0xc9", ""),
            ("br_indirect_spec", "0x7a", "Indirect, [a,]")
        ]
    );
    assert_eq!(of("0x00000000412fd030").len(), 2, "another variant");
    assert!(of("0x00000000410fd040").is_empty());
}

#[test]
fn no_changed_file_makes_it_fall() {
    let intel = br#"{"Header": {"Version": "1"}, "Events": [{"Unit": "cpu_core", "EventCode": "0x2e", "UMask": "0x41",
        "EventName": "LONGEST_LAT_CACHE.MISS", "CounterMask": "0", "Invert": "0", "EdgeDetect": "1", "MSRIndex": "0x1a6,0x1a7",
        "MSRValue": "0x10003", "SampleAfterValue": "100003", "Deprecated": "0"}]}"#;
    let kernel = br#"[{"EventName": "ls_dispatch.ld", "EventCode": "0x29", "UMask": "0x01", "BriefDescription": "Loads."},
        {"ArchStdEvent": "CPU_CYCLES"}, {"ConfigCode": "0x11", "EventName": "cycles"}]"#;
    countersteer_fuzz::storm("vendor JSON", &[intel, kernel], 1.0, |input| {
        let _ = parse(
            Path::new("f.json"),
            &String::from_utf8_lossy(input),
            &Common::new(),
        );
    });
}

proptest! {
    #[test]
    fn no_text_makes_it_fall(text in "\\PC*", map in "[()\\[\\]|a-c0-9,-]{0,12}") {
        let _ = parse(Path::new("f.json"), &text, &Common::new());
        let _ = pattern(&map);
    }

    #[test]
    fn no_fields_make_it_fall(code in "\\PC{0,8}", mask in "\\PC{0,8}", register in "\\PC{0,8}") {
        let event = serde_json::json!([{"EventName": "X", "EventCode": code, "UMask": mask, "MSRIndex": register}]);
        let _ = parse(Path::new("f.json"), &event.to_string(), &Common::new());
    }
}

#[test]
fn fields_without_meaning_are_passed_over_whatever_they_hold() {
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let text = format!(
        r#"[1, null, {{"EventCode": "1", "EventName": "X", "UMask": null, "Deprecated": false, "Any": {deep}, "Unit": {{}}}}]"#
    );
    let event = one(&text).unwrap();
    assert_eq!(
        (event.name.as_str(), event.pmu.as_deref(), terms_of(&event)),
        ("x", None, vec![("event", "0x1")])
    );
}
