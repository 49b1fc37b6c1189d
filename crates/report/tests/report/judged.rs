//! Tests that terminal, report and JSON print the values of one table.

use countersteer_report::html::{Axis, ReportInput, render};
use countersteer_report::judge::{Facts, Ranked, Ranking, RelativeChange, judge};
use countersteer_report::record::Detail;
use countersteer_report::table::{self, CompareRun, JudgedComparison, METRICS};

use crate::synthetic::{self, HYBRID};

/// Returns runs in which a median of ratios differs from a ratio of medians: programs take `factors` times as long as simulated.
fn runs() -> Vec<CompareRun> {
    let of = |policy: &str, seed: u64, factor: f64| {
        let record = synthetic::record(HYBRID, policy, 10, seed, Detail::Scores);
        let mut run = CompareRun::of_record(&record);
        for p in &mut run.programs {
            p.completion_s *= factor;
            p.slowdown *= factor;
        }
        let sum = |f: fn(&table::CompareProgram) -> f64| run.programs.iter().map(f).sum::<f64>();
        run.stp = sum(|p| 1.0 / p.slowdown);
        run.antt = sum(|p| p.slowdown) / run.programs.len() as f64;
        run.asp = sum(|p| p.alone_slow_s / p.completion_s - 1.0);
        run.energy_per_instruction_nj *= factor.sqrt();
        run.energy_per_run_j *= factor.powi(2);
        run
    };
    let seeds = |policy: &'static str, factors: [f64; 3]| {
        (1..)
            .zip(factors)
            .map(move |(seed, factor)| of(policy, seed, factor))
    };
    seeds("linux", [1.0, 1.2, 1.1])
        .chain(seeds("fastest-first", [0.95, 1.0, 1.15]))
        .collect()
}

/// Returns the numbers in a text with their signs; `±` is no sign.
fn numbers(text: &str) -> Vec<f64> {
    let text = text.replace('−', "-");
    let kept = |c: char| c.is_ascii_digit() || "+-.".contains(c);
    let words = text.split(|c| !kept(c));
    words.filter_map(|w| w.parse().ok()).collect()
}

/// True if a printed percentage equals a fraction, up to its digits.
fn states(printed: f64, fraction: f64) -> bool {
    (printed - fraction * 100.0).abs() <= if printed.abs() < 9.95 { 0.051 } else { 0.51 }
}

/// Returns text without tags.
fn untagged(html: &str) -> String {
    let mut text = String::new();
    let mut inside = false;
    for c in html.chars() {
        match c {
            '<' => inside = true,
            '>' => (inside, text) = (false, text + " "),
            c if !inside => text.push(c),
            _ => {}
        }
    }
    text
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let from = text.find(start).unwrap() + start.len();
    &text[from..from + text[from..].find(end).unwrap()]
}

/// Returns the columns of the terminal and of the first screen, in their order.
fn columns(p: &Ranked) -> [RelativeChange; 3] {
    [
        p.throughput,
        p.slowdown.unwrap(),
        p.loser.clone().unwrap().speed,
    ]
}

#[test]
fn figures_are_medians_of_ratios_and_not_ratios_of_medians() {
    let runs = runs();
    let best = &judge(&runs, &Facts::default())[0].deployable[0];
    let stp = |i: usize| runs[i].stp;
    let mut ratios = [stp(3) / stp(0), stp(4) / stp(1), stp(5) / stp(2)];
    ratios.sort_by(f64::total_cmp);
    assert!((best.throughput.median - (ratios[1] - 1.0)).abs() < 1e-9);
    let of_medians = stp(4) / stp(1) - 1.0;
    assert!(
        (best.throughput.median - of_medians).abs() > 0.02,
        "{of_medians}"
    );
}

#[test]
fn the_terminal_states_the_figures_of_the_table() {
    let rankings = judge(&runs(), &Facts::default());
    let text = table::ranking(&rankings);
    let best = &rankings[0].deployable[0];
    let line = text.lines().find(|l| l.starts_with(&best.policy)).unwrap();
    let loser = best.lost().map(|p| p.name.as_str()).unwrap_or_default();
    let found = numbers(&line.replace(loser, ""));
    let mut expected = columns(best)[..2].to_vec();
    expected.extend(best.lost().map(|p| p.speed));
    expected.push(best.energy_per_instruction.unwrap());
    assert_eq!(found.len(), 2 * expected.len(), "{line}");
    for (found, figure) in found.chunks(2).zip(&expected) {
        assert!(states(found[0], figure.median), "{line}: {figure:?}");
        let half = (figure.high - figure.low) * 50.0;
        assert!((found[1] - half).abs() <= 0.51, "{line}: {figure:?}");
    }
    let sentence = text[text.rfind("fastest-first").unwrap()..].replace('\n', " ");
    let said = numbers(between(&sentence, "fastest-first", "throughput"));
    assert!(
        said.iter().any(|n| states(*n, best.throughput.median)),
        "{sentence}"
    );
}

fn page(runs: &[CompareRun]) -> String {
    let input = ReportInput {
        title: "Test".into(),
        runs,
        records: Vec::new(),
        axis: Axis::Time,
        facts: Facts::default(),
    };
    render(&input).unwrap()
}

#[test]
fn the_report_states_the_figures_of_the_table() {
    let runs = runs();
    let rankings = judge(&runs, &Facts::default());
    let best = &rankings[0].deployable[0];
    let html = page(&runs);
    let row = between(&html, "<th scope=\"row\">fastest-first</th>", "</tr>");
    let cells: Vec<Vec<f64>> = row
        .split("<td")
        .skip(1)
        .map(|cell| {
            let text = untagged(&format!("<td{cell}"));
            numbers(
                &best
                    .loser
                    .as_ref()
                    .map_or(text.clone(), |l| text.replace(&l.name, "")),
            )
        })
        .collect();
    let [throughput, slowdown, loser] = columns(best);
    let shown = [
        (0, Some(throughput)),
        (1, Some(slowdown)),
        (2, best.lost().map(|_| loser)),
        (4, best.energy_per_instruction),
        (5, best.energy_per_run),
    ];
    for (column, figure) in shown {
        let Some(f) = figure else { continue };
        let found = &cells[column];
        for (printed, fraction) in found.iter().zip([f.median, f.low, f.high]) {
            assert!(
                states(*printed, fraction),
                "column {column}: {found:?} {f:?}"
            );
        }
        assert_eq!(found.len(), 3, "column {column}: {row}");
    }
    // The bars of the details, and the sentence above them.
    let mut compared = 0;
    for metric in METRICS {
        let head = format!("<h4>{}</h4>", metric.label);
        let Some((_, panel)) = html.split_once(&head) else {
            continue;
        };
        let panel = panel.split("</section>").next().unwrap();
        let Some((_, own)) = panel.split_once("title=\"fastest-first\"") else {
            continue;
        };
        let delta = numbers(&untagged(between(own, "<div class=\"delta\">", "</div>")));
        let expected = best.changes.get(metric.key);
        assert_eq!(!delta.is_empty(), expected.is_some(), "{}", metric.key);
        if let (Some(printed), Some(figure)) = (delta.first(), expected) {
            assert!(
                states(*printed, figure.median),
                "{}: {delta:?} {figure:?}",
                metric.key
            );
            compared += 1;
        }
    }
    assert!(compared > 5, "{compared}");
    let said = numbers(&untagged(between(
        &html,
        "served best: aggregate speed-up (ASP)",
        "against",
    )));
    assert!(
        said.iter().any(|n| states(*n, best.changes["asp"].median)),
        "{said:?}"
    );
}

#[test]
fn the_json_states_the_figures_of_the_table() {
    let runs = runs();
    let rankings: Vec<Ranking> = judge(&runs, &Facts::default());
    let best = &rankings[0].deployable[0];
    let json = serde_json::to_value(JudgedComparison::new(runs, &rankings)).unwrap();
    assert_eq!(json["schema"], "countersteer.compare/1");
    assert_eq!(json["runs"].as_array().unwrap().len(), 6);
    assert_eq!(json["verdict"], rankings[0].sentence());
    let stated = &json["rankings"][0]["deployable"][0];
    assert_eq!(stated["throughput"][0], best.throughput.median);
    assert_eq!(stated["slowdown"], best.slowdown.unwrap().median);
    assert_eq!(stated["loser"][1], best.loser.clone().unwrap().speed.median);
    assert_eq!(
        stated["energy_per_run"],
        best.energy_per_run.unwrap().median
    );
    for (key, figure) in &best.changes {
        assert_eq!(stated["changes"][key]["median"], figure.median, "{key}");
        assert_eq!(stated["changes"][key]["high"], figure.high, "{key}");
    }
}
