//! Golden tests of texts: `golden/<case>/expected.txt`; `COUNTERSTEER_BLESS=1` rewrites them.

use std::fs;
use std::path::Path;

use countersteer_model::profile::Profile;
use countersteer_report::record::{Detail, Record, compare_decisions};
use countersteer_report::table::{self, CompareRun, Comparison};
use countersteer_report::{ReportError, profile_view, why};

use crate::synthetic::{self, HYBRID};

fn check(case: &str, got: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(case)
        .join("expected.txt");
    if std::env::var_os("COUNTERSTEER_BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, got).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        got == expected,
        "{case} differs; COUNTERSTEER_BLESS=1 accepts it:\n{got}"
    );
}

fn runs() -> Vec<CompareRun> {
    let of = |(policy, seed): (&str, u64)| {
        CompareRun::of_record(&synthetic::record(HYBRID, policy, 10, seed, Detail::Scores))
    };
    [
        ("linux", 1),
        ("linux", 2),
        ("linux", 3),
        ("fastest-first", 1),
        ("fastest-first", 2),
    ]
    .map(of)
    .to_vec()
}

/// Returns runs in which slow cores are as fast as the others, so that ASP can only be negative.
fn on_equal_cores() -> Vec<CompareRun> {
    let mut runs = runs();
    for run in &mut runs {
        for program in &mut run.programs {
            program.alone_slow_s = program.alone_fast_s;
        }
        run.asp = run.stp - run.programs.len() as f64;
    }
    runs
}

fn recorded() -> Record {
    synthetic::record(HYBRID, "fastest-first", 10, 1, Detail::Everything)
}

#[test]
fn comparison_tables() {
    let runs = runs();
    check("table-terminal", &table::comparison(&runs));
    check("table-equal-cores", &table::comparison(&on_equal_cores()));
    check("table-markdown", &table::markdown(&runs));
    check("table-csv", &table::csv(&runs));
    check("table-csv-summary", &table::csv_summary(&runs));
    check("table-programs", &table::programs(&runs[0]));
    check(
        "table-plain",
        &table::plain(
            &["a", "long head"],
            [vec!["1".into(), "2".into()], vec!["three".into()]],
        ),
    );
}

#[test]
fn programs_that_the_slow_cores_serve_better_are_named() {
    let mut run = runs().swap_remove(0);
    assert!(!table::programs(&run).contains("Faster alone"));
    let program = &mut run.programs[1];
    program.alone_slow_s = program.alone_fast_s * 0.8;
    let text = table::programs(&run);
    assert!(text.contains("more cache: 505.mcf_r. Their"), "{text}");
}

#[test]
fn comparison_json_has_exactly_its_fields_and_comes_back() {
    let comparison = Comparison::new(runs()[..1].to_vec());
    let text = serde_json::to_string_pretty(&comparison).unwrap();
    check("compare-json", &(text.clone() + "\n"));
    assert_eq!(
        serde_json::from_str::<Comparison>(&text).unwrap(),
        comparison
    );
}

#[test]
fn answers_by_program_and_by_thread() {
    let record = recorded();
    check(
        "why-program",
        &why::why(&record, "525.x264_r", 5.0).unwrap().to_string(),
    );
    check(
        "why-thread",
        &why::why(&record, "thread1", 12.34).unwrap().to_string(),
    );
    let linux = synthetic::record(HYBRID, "linux", 10, 1, Detail::NoSpans);
    check(
        "why-linux",
        &why::why(&linux, "505.mcf_r", 7.0).unwrap().to_string(),
    );
    let json = serde_json::to_string_pretty(&why::why(&record, "505.mcf_r", 5.0).unwrap()).unwrap();
    check("why-json", &(json + "\n"));
}

#[test]
fn questions_without_an_answer_are_answered_with_what_there_is() {
    let record = recorded();
    let error = why::why(&record, "firefox", 1.0).unwrap_err().to_string();
    assert!(
        error.contains("firefox")
            && error.contains("505.mcf_r")
            && error.contains("threads 0 to 9"),
        "{error}"
    );
    let error = why::why(&record, "505.mcf_r", 1e9).unwrap_err();
    assert!(matches!(error, ReportError::OutsideRun { .. }), "{error}");
    assert!(why::why(&record, "505.mcf_r", f64::NAN).is_err());
    let scores = synthetic::record(HYBRID, "linux", 10, 1, Detail::Scores);
    assert!(matches!(
        why::why(&scores, "505.mcf_r", 1.0),
        Err(ReportError::NotRecorded { .. })
    ));
}

#[test]
fn differences_between_a_record_and_no_decisions() {
    check(
        "differences",
        &compare_decisions(&recorded(), &[]).to_string(),
    );
}

/// Profile with two behaviours, small enough to read.
const RECORDED: &str = r#"{
  "schema": "countersteer.profile/1", "name": "sorter", "instructions": 1000000000,
  "source": {"kind": "instrumentation", "detail": "steer profile -- sorter words.txt", "method": "every access"},
  "partial": "stopped after 1 G instructions",
  "shape": {"threads": 4, "serial_share": 0.125, "runnable": [0.3, 0.1, 0.0, 0.6], "serial_by": [0.25, 0.75]},
  "behaviours": [
    {"mix": {"loads": 0.3, "stores": 0.1, "branches": 0.2, "fp": 0.0, "simd": 0.0}, "branch_mpki": 4.5,
     "locality": {"stack_distance_pki": RATES, "cold_pki": 0.5, "reuse_time_pki": []},
     "ilp": [{"window": 512, "ipc": 3.1}], "mlp": [{"window": 512, "cache_lines": 8192, "overlap": 2.5}]},
    {"mix": {"loads": 0.2, "stores": 0.05, "branches": 0.1, "fp": 0.4, "simd": 0.1}, "branch_mpki": 0.2,
     "locality": {"stack_distance_pki": [200.0, 50.0, 10.0], "cold_pki": 0.0, "reuse_time_pki": []},
     "ilp": [{"window": 512, "ipc": 5.0}], "mlp": []}],
  "timeline": [{"behaviour": 0, "instructions": 300000000}, {"behaviour": 1, "instructions": 400000000},
    {"behaviour": 0, "instructions": 300000000}]
}"#;

fn sorter() -> Profile {
    // Rates decrease slowly over 120 buckets: a working set of about 2 MiB.
    let rates: Vec<f64> = (0..120).map(|b| if b < 20 { 10.0 } else { 0.3 }).collect();
    Profile::parse(
        "sorter.json",
        &RECORDED.replace("RATES", &serde_json::to_string(&rates).unwrap()),
    )
    .unwrap()
}

#[test]
fn profiles_of_both_kinds() {
    check("profile-recorded", &profile_view::text(&sorter()));
    let tables = synthetic::profiles();
    let (name, text) = tables.iter().next().unwrap();
    check(
        "profile-tabulated",
        &profile_view::text(&Profile::parse(name, text).unwrap()),
    );
}

#[test]
fn a_single_size_makes_no_curve() {
    let text = include_str!("../../../../profiles/spec2017/519.lbm_r.toml");
    let profile = Profile::parse("519.lbm_r.toml", text).unwrap();
    assert!(profile_view::text(&profile).contains("no miss curve"));
    assert!(
        profile_view::svg(&profile)
            .unwrap_err()
            .to_string()
            .contains("519.lbm_r")
    );
    let svg = profile_view::svg(&sorter()).unwrap();
    assert!(
        svg.starts_with("<svg xmlns=")
            && svg.contains("<style>")
            && svg.trim_end().ends_with("</svg>")
    );
}

#[test]
fn a_thread_sent_to_one_core_was_sent_to_the_type_of_that_core() {
    let mut record = recorded();
    for decision in &mut record.decisions {
        decision.target = "core9".into();
        decision.target_cpus = std::sync::Arc::new("9".parse().unwrap());
    }
    let answer = why::why(&record, "505.mcf_r", 5.0).unwrap();
    let chosen: Vec<_> = answer
        .decision
        .unwrap()
        .alternatives
        .into_iter()
        .filter(|a| a.chosen)
        .collect();
    assert_eq!(
        chosen.iter().map(|a| a.group.as_str()).collect::<Vec<_>>(),
        ["gracemont"]
    );
}
