//! Tests of reports: complete, small, self-contained, and reproducible.

use countersteer_report::html::{Axis, ReportInput, render};
use countersteer_report::judge::Facts;
use countersteer_report::record::{Detail, Record};
use countersteer_report::table::CompareRun;

use crate::synthetic::{self, CHIPLETS, HYBRID};

fn page(records: &[Record], title: &str) -> String {
    let runs: Vec<CompareRun> = records.iter().map(CompareRun::of_record).collect();
    let drawn = records.iter().filter(|r| r.manifest.seed == 1).collect();
    render(&ReportInput {
        title: title.into(),
        runs: &runs,
        records: drawn,
        axis: Axis::Time,
        facts: Facts::default(),
    })
    .unwrap()
}

fn records(detail: Detail) -> Vec<Record> {
    let of = |(policy, seed): (&str, u64)| synthetic::record(HYBRID, policy, 10, seed, detail);
    [
        ("linux", 1),
        ("linux", 2),
        ("fastest-first", 1),
        ("fastest-first", 2),
    ]
    .map(of)
    .to_vec()
}

#[test]
fn a_report_is_self_contained_light_and_repeatable() {
    let mut all = records(Detail::Everything);
    all.push(synthetic::record(
        CHIPLETS,
        "fastest-first",
        20,
        1,
        Detail::Everything,
    ));
    let html = page(&all, "Test");
    assert!(html.len() < 2_000_000, "{} bytes", html.len());
    // The only addresses are XML and schema names, never resources to load.
    for loads in ["<link", "src=", "@import", "url(", "http://", "https://"] {
        assert!(!html.contains(loads), "{loads}");
    }
    assert_eq!(
        html.matches("<script").count(),
        html.matches("<script>").count()
    );
    assert!(html == page(&all, "Test"));
}

#[test]
fn a_report_opens_with_words_and_shows_every_chart() {
    let html = page(&records(Detail::Everything), "Test");
    assert!(html.contains(
        "<b>fastest-first</b> served best: aggregate speed-up (ASP) 5.77 in the median over 2 seeds"
    ));
    assert!(html.contains("The largest gain is <b>"));
    for key in [
        "scores",
        "slowdowns",
        "places",
        "cpus",
        "occupancy",
        "curves",
    ] {
        assert!(html.contains(&format!("id=\"e0-{key}\"")), "{key}");
    }
    for part in [
        "Why threads were where they were",
        "How to repeat this",
        "steer sim --machine i9-12900k-8p8e",
        "<title>",
    ] {
        assert!(html.contains(part), "{part}");
    }
}

/// Returns a record like that of a real machine: times alone and the machine's energy are unknown.
fn live(policy: &str) -> Record {
    let mut record = synthetic::record(HYBRID, policy, 3, 1, Detail::Everything);
    record.manifest.engine = "affinity".into();
    record.manifest.outcome.energy_j = 0.0;
    for program in &mut record.manifest.outcome.programs {
        (program.alone_fast_s, program.alone_slow_s, program.cycles) = (0.0, 0.0, 0.0);
    }
    record
}

#[test]
fn timelines_of_an_experiment_have_one_time_axis_and_a_part_that_is_zoomed() {
    let html = page(&records(Detail::Everything), "Test");
    let ends: Vec<&str> = html
        .split(" data-end=\"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
        .collect();
    // Places, CPUs and caches, wide and narrow, of two records.
    assert!(ends.len() >= 12, "{ends:?}");
    assert!(ends.iter().all(|end| *end == ends[0]), "{ends:?}");
    assert_eq!(html.matches("<svg class=\"time\"").count(), ends.len());
    assert!(html.contains("Timelines share a cursor"));
}

#[test]
fn waits_for_a_cpu_are_on_the_first_screen_with_percentiles_only_if_measured() {
    let mut record = live("aarr");
    let row = r#""side":"aarr","program":"xz","times":9,"total_s":0.1,"mean_ms":0.25"#;
    let found = |more: &str| format!(r#"{{"remark":"as found","rows":[{{{row}{more}}}]}}"#);
    record.manifest.options.insert("waits".into(), found(""));
    let html = page(&[record.clone()], "Test");
    assert!(html.contains("Run-queue latency") && html.contains("250 µs"));
    assert!(html.contains("as found") && !html.contains("99 % within"));
    assert!(!html.contains("waits={"), "no raw data among the options");
    let tail = r#","p50_ms":0.1,"p99_ms":2.5,"longest_ms":3.0,"wakeups":{"p99_ms":1.5}"#;
    record.manifest.options.insert("waits".into(), found(tail));
    let html = page(&[record], "Test");
    for part in ["99 % within", "2.50 ms", "1.50 ms", "under"] {
        assert!(html.contains(part), "{part}");
    }
}

#[test]
fn a_run_on_a_real_machine_is_shown_by_what_is_known() {
    let html = page(&[live("linux"), live("aarr")], "Test");
    for part in [
        "programs took",
        "id=\"e0-completions\"",
        "completion (s)",
        "steer run --workload",
        "steer replay RECORD",
    ] {
        assert!(html.contains(part), "{part}");
    }
    for part in [
        "NaN",
        "id=\"e0-slowdowns\"",
        "<h4>ASP</h4>",
        "<h4>nJ/instruction</h4>",
        "The same inputs",
    ] {
        assert!(!html.contains(part), "{part}");
    }
    assert!(
        page(&[live("aarr")], "Test").contains("with a second policy this page would compare them")
    );
}

#[test]
fn every_tag_is_closed() {
    let html = page(&records(Detail::Everything), "Test");
    for tag in [
        "section", "div", "table", "tr", "td", "svg", "path", "polygon", "polyline", "text",
        "figure", "details", "ul", "li",
    ] {
        let opened =
            html.matches(&format!("<{tag} ")).count() + html.matches(&format!("<{tag}>")).count();
        let closed = html.matches(&format!("</{tag}>")).count()
            + html.matches("/>").count() * usize::from(tag == "path");
        assert!(
            opened <= closed && (closed == opened || tag == "path"),
            "<{tag}>: {opened} opened, {closed} closed"
        );
    }
}

#[test]
fn names_from_outside_do_not_become_markup() {
    let mut all = records(Detail::Everything);
    for record in &mut all {
        record.manifest.policy = format!("{}<script>&\"", record.manifest.policy);
        record.manifest.workload.text = "</pre><script>alert(1)</script>".into();
    }
    all[0]
        .threads
        .iter_mut()
        .for_each(|t| t.name = "aud\u{202e}\x1b[31mX".into());
    let html = page(&all, "<b>bold</b> & \"quoted\" \x1b]0;title\x07");
    // The page has one script of its own.
    assert_eq!(html.matches("<script").count(), 1);
    assert!(html.contains("&lt;b&gt;bold"));
    let steers = |c: char| c.is_control() && c != '\n' && c != '\t';
    assert!(!html.contains(steers) && !html.contains('\u{202e}'));
    assert!(html.contains("?]0;title?"));
}

#[test]
fn reports_without_timelines_runs_or_records_still_stand() {
    let scores = page(&records(Detail::Scores), "Scores");
    assert!(scores.contains("served best") && !scores.contains("id=\"e0-places\""));
    let guessed = page(&records(Detail::NoSpans), "No spans");
    assert!(guessed.contains("from observations every 100 ms"));
    let empty = render(&ReportInput {
        title: "Empty".into(),
        runs: &[],
        records: Vec::new(),
        axis: Axis::Time,
        facts: Facts::default(),
    })
    .unwrap();
    assert!(empty.contains("There is nothing to show."));
    let alone = page(&records(Detail::Everything)[..1], "One");
    assert!(alone.contains("With a second policy"));
}

#[test]
fn many_experiments_leave_heavy_charts_out_and_stay_light() {
    let mut all = Vec::new();
    for nth in 0..30 {
        for record in &records(Detail::Everything)[1..3] {
            let mut record = record.clone();
            record.manifest.seed = 1;
            record.manifest.workload.name = format!("workload-{nth}");
            all.push(record);
        }
    }
    let html = page(&all, "Many");
    assert!(html.len() < 2_200_000, "{} bytes", html.len());
    assert!(
        html.contains("Left out, to keep this page light")
            && html.matches("Details: workload-").count() == 30
    );
    assert!(
        html.contains("id=\"e29-scores\""),
        "light charts are always there"
    );
}

#[test]
fn a_report_of_counts_shows_them_by_thread_and_core_type_and_no_score() {
    let counted = synthetic::counted();
    let page = |axis| {
        render(&ReportInput {
            title: "What was counted".into(),
            runs: &[],
            records: vec![&counted],
            axis,
            facts: Facts::default(),
        })
        .unwrap()
    };
    let over_time = page(Axis::Time);
    for part in [
        "instructions (1/s) on cpu_atom",
        "llc_misses (1/s) on cpu_core",
        "llc_mpki on cpu_core",
        "energy (J)",
        "&lt;sorter&gt; (42)",
        "1,000,000,000",
    ] {
        assert!(over_time.contains(part), "{part}");
    }
    for score in ["ASP", "slowdown", "unfairness", "<sorter>", "NaN"] {
        assert!(!over_time.contains(score), "{score}");
    }
    // The machine's energy belongs to no thread, so there are no instructions for its axis.
    let over_instructions = page(Axis::Instructions);
    assert!(over_instructions.contains("llc_mpki on cpu_core"));
    assert!(!over_instructions.contains("energy (J)"));
}

#[test]
fn rates_of_counts_are_of_the_time_in_which_they_were_counted() {
    let measures = countersteer_report::counted::measures(&synthetic::counted());
    let names: Vec<&str> = measures.iter().map(|m| &*m.name).collect();
    assert_eq!(names, ["instructions", "llc_misses", "llc_mpki", "energy"]);
    let misses = &measures[1].lines[1];
    assert_eq!(
        (misses.owner.as_str(), &*misses.core_type),
        ("<sorter> (42)", "cpu_atom")
    );
    let last = misses.points.last().unwrap();
    assert_eq!((misses.points.len(), last.value), (5, 8000.0 / 0.05));
    assert_eq!((last.at_ns, last.instructions), (900_000_000, Some(9e8)));
    let energy = &measures[3].lines[0];
    assert_eq!(
        (energy.owner.as_str(), energy.points.len()),
        ("package-0", 10)
    );
}

/// Scores on a machine with equal cores.
#[test]
fn equal_cores_are_led_by_throughput() {
    let mut all = records(Detail::Scores);
    for program in all
        .iter_mut()
        .flat_map(|r| &mut r.manifest.outcome.programs)
    {
        program.alone_slow_s = program.alone_fast_s;
    }
    let html = page(&all, "Equal");
    assert!(html.contains("overall throughput (STP)"), "{html}");
    assert!(html.contains("STP adds up"));
}

#[test]
fn the_first_screen_ranks_what_can_be_used_and_simulator_only_policies_never_win() {
    let named = ["linux", "aarr", "best-static"];
    let mut all = Vec::new();
    for (record, policy) in records(Detail::Scores).into_iter().zip(named) {
        let mut record = record;
        record.manifest.policy = policy.into();
        record.manifest.seed = 1;
        all.push(record);
    }
    let html = page(&all, "Ranked");
    let front = html.split("<details class=\"more\"").next().unwrap();
    for word in [
        "mean slowdown",
        "worst loser",
        "best-static (simulator only)",
        "equal shares of every core type",
    ] {
        assert!(front.contains(word), "{word}: {front}");
    }
    assert!(!front.contains("Use best-static") && front.contains("aarr"));
}
