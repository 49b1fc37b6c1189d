//! Tests of CPU numbers: texts for readers have the kernel's, even where offline CPUs make them differ from the record's own.

use std::sync::Arc;

use countersteer_report::html::{Axis, ReportInput, render};
use countersteer_report::judge::Facts;
use countersteer_report::perfetto::{decode, export};
use countersteer_report::record::{Detail, Record, compare_decisions};
use countersteer_report::table::CompareRun;
use countersteer_report::why;

use crate::synthetic::{self, HYBRID};

/// Returns equal runs on the machine and on one whose first 100 CPUs are offline.
fn records() -> [Record; 2] {
    let shifted = format!("os_cpus = \"100-115\"\n{HYBRID}");
    [HYBRID, &shifted]
        .map(|machine| synthetic::record(machine, "fastest-first", 10, 1, Detail::Everything))
}

fn page(record: &Record) -> String {
    let input = ReportInput {
        title: "title".into(),
        runs: &[CompareRun::of_record(record)],
        records: vec![record],
        axis: Axis::Time,
        facts: Facts::default(),
    };
    render(&input).unwrap()
}

/// Returns the names and notes of a trace's packets.
fn texts(record: &Record) -> String {
    let tracks = decode(&export(record)).unwrap();
    let mut texts = String::new();
    for packet in tracks.into_values().flatten() {
        let track = packet.track_descriptor.and_then(|track| track.name);
        let event = packet.track_event.unwrap_or_default();
        let notes = event.debug_annotations.into_iter();
        let notes = notes.filter_map(|note| note.string_value);
        for text in track.into_iter().chain(event.name).chain(notes) {
            texts += &format!("{text}\n");
        }
    }
    texts
}

#[test]
fn explanations_have_the_kernels_numbers() {
    let [own, shifted] = records().map(|record| why::why(&record, "505.mcf_r", 12.34).unwrap());
    assert_eq!((own.cpu, shifted.cpu), (9, 109));
    assert_eq!(shifted.allowed, "108-115");
    assert_eq!(shifted.next_move.clone().unwrap().cpu, 110);
    let text = shifted.to_string();
    assert!(text.contains("on CPU 109 (gracemont"), "{text}");
    assert!(text.contains("decision gracemont (CPUs 108-115)"), "{text}");
    assert!(text.contains("moved to CPU 110"), "{text}");
}

#[test]
fn reports_have_the_kernels_numbers() {
    let [_, shifted] = records();
    let page = page(&shifted);
    for (text, other) in [
        ("golden-cove 100<", "golden-cove 0<"),
        ("gracemont 115<", "gracemont 15<"),
        ("on CPU 1", "on CPU 8 "),
    ] {
        assert!(page.contains(text) && !page.contains(other), "{text}");
    }
}

#[test]
fn traces_have_the_kernels_numbers() {
    let [own, shifted] = records().map(|record| texts(&record));
    for (record, texts) in [
        (
            &own,
            [
                "CPU 0 golden-cove\n",
                "CPU 15 gracemont\n",
                "\n8-15\n",
                "CPU 9 → 10\n",
            ],
        ),
        (
            &shifted,
            [
                "CPU 100 golden-cove\n",
                "CPU 115 gracemont\n",
                "\n108-115\n",
                "CPU 109 → 110\n",
            ],
        ),
    ] {
        for text in texts {
            assert!(record.contains(text), "{text}");
        }
    }
    assert_eq!(own.lines().count(), shifted.lines().count());
}

#[test]
fn differences_have_the_kernels_numbers() {
    let [_, shifted] = records();
    let mut decisions = shifted.decisions.clone();
    let first = &mut decisions[0];
    first.target_cpus = Arc::new("8-9".parse().unwrap());
    first.target = "8-9".into();
    let differences = compare_decisions(&shifted, &decisions).to_string();
    assert!(
        differences.contains("108-109 (CPUs 108-109)"),
        "{differences}"
    );
}

#[test]
fn counts_by_cpu_have_the_kernels_numbers() {
    let mut record = synthetic::counted();
    record.manifest.machine.text = format!("os_cpus = \"100-115\"\n{HYBRID}");
    for row in &mut record.readings {
        (row.thread, row.pid, row.cpu) = (None, None, Some(3));
    }
    let texts = texts(&record);
    assert!(texts.contains("CPU 103 llc_misses"), "{texts}");
    assert!(page(&record).contains("CPU 103"));
}
