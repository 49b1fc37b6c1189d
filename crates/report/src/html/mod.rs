//! Self-contained HTML report about a set of runs.
//!
//! Input: a [`ReportInput`] with the scores of all runs and records of some. Output: HTML text that loads nothing from the
//! network. It works on phones, on desktops, on paper, in dark mode, and for readers without colour vision.

mod counted;
mod front;
pub mod live;
mod sections;
mod verdict;

use std::sync::Arc;

use countersteer_model::printable::printable_lines;
use maud::{DOCTYPE, Markup, PreEscaped, html};

pub use counted::Axis;
pub(crate) use sections::{DECISIONS, order, telling};

use crate::chart::{CHARTS, ChartRuns};
use crate::counted::is_counted;
use crate::error::ReportError;
use crate::judge::{Facts, Ranking, judge};
use crate::record::{Detail, Record};
use crate::table::{CompareRun, summarise};

const STYLE: &str = include_str!("style.css");
/// Script for the cursor and zoom that timelines share. Without it, timelines are static pictures.
const TIMELINES: &str = include_str!("timelines.js");

/// Limit on the bytes of charts, beyond which large ones are omitted, so that the page opens on a phone over a slow network.
const BUDGET: usize = 1_400_000;

/// Runs and records of a report, with its options.
#[derive(Clone, Debug)]
pub struct ReportInput<'a> {
    pub title: String,
    pub runs: &'a [CompareRun],
    /// Records for timelines and decisions; usually one seed for each machine, workload and policy.
    pub records: Vec<&'a Record>,
    /// Quantity on the horizontal axis of counts, for records of counting sessions.
    pub axis: Axis,
    /// Further facts about the runs, for the verdict.
    pub facts: Facts,
}

/// Returns the result of each experiment as HTML for notebooks; `None` without a baseline.
#[must_use]
pub fn answers(runs: &[CompareRun]) -> Option<String> {
    let mut rankings = judge(runs, &Facts::default());
    rankings.retain(front::is_ranked);
    let several = rankings.len() > 1;
    let shown = html! {
        @for r in &rankings {
            @if several { h4 { (r.workload) " on " (r.machine) } }
            (front::answer(r, 0, false))
        }
    };
    (!rankings.is_empty()).then(|| shown.into_string())
}

/// Returns the report as HTML text.
///
/// # Errors
/// Fails if a machine or profile inside a record cannot be read.
pub fn render(input: &ReportInput<'_>) -> Result<String, ReportError> {
    let (experiments, folded) = experiments(input)?;
    let rankings = rankings(input, &experiments);
    let counted: Vec<Markup> = input
        .records
        .iter()
        .filter(|r| is_counted(r))
        .map(|r| counted::section(r, input.axis))
        .collect::<Result<_, _>>()?;
    let mut budget = BUDGET;
    let mut bodies: Vec<Markup> = Vec::new();
    for (i, e) in experiments.iter().enumerate() {
        let body = experiment(
            (e, &rankings[i]),
            &folded[i],
            i,
            experiments.len() > 1,
            &mut budget,
        )?;
        bodies.push(html! {
            details.more id={ "e" (i) } open[experiments.len() == 1] {
                summary { "Details: " (e.workload) " on " (e.machine) }
                (body)
            }
        });
    }
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (input.title) }
                style { (PreEscaped(crate::svg::COLOURS)) (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { (input.title) }
                    p.prose { (scope(input, &experiments)) }
                    @if let [only] = experiments.as_slice() { @if !input.title.contains(only.machine) { p.prose { (only.workload) " on " (only.machine) } } }
                    div.answers {
                    @for record in &input.records { @if let Some(trial) = front::trial(record) { (trial) } }
                    @for record in &input.records { @if let Some(waits) = front::waits(record) { (waits) } }
                    @for (i, (e, r)) in experiments.iter().zip(&rankings).enumerate() {
                        @if front::is_ranked(r) { (front::answer(r, i, experiments.len() > 1)) }
                        @else { @if experiments.len() > 1 { h2.small { a href={ "#e" (i) } { (e.workload) " on " (e.machine) } } } (verdict::verdict(e, r)) }
                    }
                    }
                    @if rankings.iter().any(front::is_ranked) { (front::meanings(&rankings)) }
                }
                main {
                    @for body in counted.iter().chain(&bodies) { (body) }
                    // Only the first screen is printed on paper, so this part is hidden there.
                    div.offpaper {
                        @if !input.records.is_empty() { (sections::repeat(&input.records)) }
                        @if !experiments.is_empty() { (sections::words()) }
                    }
                }
                script { (PreEscaped(TIMELINES)) }
            }
        }
    };
    // Control characters in names are replaced, so that they cannot reorder the text.
    Ok(printable_lines(&page.into_string()).into_owned() + "\n")
}

/// Returns the rankings of experiments. The records show which workloads fix the start CPUs of programs.
fn rankings(input: &ReportInput<'_>, experiments: &[ChartRuns<'_>]) -> Vec<Ranking> {
    let mut facts = input.facts.clone();
    let workloads = input.records.iter().map(|r| &r.manifest.workload);
    let pinned = workloads.filter(|w| w.text.contains("launch_on"));
    facts.pinned.extend(pinned.map(|w| w.name.clone()));
    let of = |e: &ChartRuns<'_>| Ranking::of(&e.summaries.iter().collect::<Vec<_>>(), &facts);
    experiments.iter().map(of).collect()
}

/// Pairs of policies with identical runs: the policy that is not drawn, and the one that is.
type Folded<'a> = Vec<(&'a str, &'a str)>;

/// Groups runs and records by machine and workload. Of several identical records, only the first is kept.
fn experiments<'a>(
    input: &ReportInput<'a>,
) -> Result<(Vec<ChartRuns<'a>>, Vec<Folded<'a>>), ReportError> {
    let mut experiments: Vec<ChartRuns<'a>> = Vec::new();
    for summary in summarise(input.runs) {
        match experiments
            .iter_mut()
            .find(|e| (e.machine, e.workload) == (summary.machine, summary.workload))
        {
            Some(experiment) => experiment.summaries.push(summary),
            None => experiments.push(ChartRuns {
                machine: summary.machine,
                workload: summary.workload,
                summaries: vec![summary],
                records: Vec::new(),
                topology: None,
            }),
        }
    }
    let mut folded: Vec<Folded<'a>> = experiments.iter().map(|_| Vec::new()).collect();
    for record in input
        .records
        .iter()
        .filter(|r| r.manifest.detail != Detail::Scores && !is_counted(r))
    {
        let machine = &record.manifest.machine.name;
        let workload = &record.manifest.workload.name;
        let policy = record.manifest.policy.as_str();
        if let Some((e, folded)) = experiments
            .iter_mut()
            .zip(&mut folded)
            .find(|(e, _)| e.machine == machine && e.workload == workload)
        {
            let same = e
                .records
                .iter()
                .find(|r| !r.spans.is_empty() && r.spans == record.spans);
            // One seed per policy is enough for the charts.
            if e.record(policy).is_some() || folded.iter().any(|f| f.0 == policy) {
            } else if let Some(same) = same {
                folded.push((policy, same.manifest.policy.as_str()));
            } else {
                e.records.push(record);
            }
            if e.topology.is_none() {
                e.topology = Some(record.topology()?);
            }
        }
    }
    Ok((experiments, folded))
}

fn scope(input: &ReportInput<'_>, experiments: &[ChartRuns<'_>]) -> String {
    let distinct = |f: fn(&CompareRun) -> String| {
        let names: std::collections::BTreeSet<String> = input.runs.iter().map(f).collect();
        names.len()
    };
    let plural =
        |n: usize, one: &str, many: &str| format!("{n} {}", if n == 1 { one } else { many });
    let counted = input.records.iter().filter(|r| is_counted(r)).count();
    let only_counted = counted > 0 && input.runs.is_empty();
    let mut text = if only_counted {
        plural(counted, "counting session", "counting sessions") + "."
    } else {
        format!(
            "{}: {}, {}, {}, {}.",
            plural(input.runs.len(), "run", "runs"),
            plural(distinct(|r| r.machine.clone()), "machine", "machines"),
            plural(distinct(|r| r.workload.clone()), "workload", "workloads"),
            plural(distinct(|r| r.policy.clone()), "policy", "policies"),
            plural(distinct(|r| r.seed.to_string()), "seed", "seeds"),
        )
    };
    let engines: std::collections::BTreeSet<&str> = input
        .records
        .iter()
        .map(|r| r.manifest.engine.as_str())
        .collect();
    if engines.contains("sim") {
        text += " The machine is simulated.";
    }
    if input.records.iter().any(|r| r.manifest.unfinished) {
        text += " A record ends early: its run was killed, its disk was full, or it goes on.";
    }
    if experiments.is_empty() && !only_counted {
        text += " There is nothing to show.";
    }
    text
}

fn experiment(
    (e, ranking): (&ChartRuns<'_>, &Ranking),
    folded: &Folded<'_>,
    nth: usize,
    several: bool,
    budget: &mut usize,
) -> Result<Markup, ReportError> {
    let mut charts = Vec::new();
    let mut left_out = Vec::new();
    for chart in CHARTS {
        if chart.heavy && *budget == 0 && !e.records.is_empty() {
            left_out.push(chart.title);
            continue;
        }
        let Some(drawing) = (chart.draw)(e)? else {
            continue;
        };
        let size = drawing.0.len();
        if chart.heavy && size > *budget {
            // If one chart does not fit, all later ones are omitted, rather than an arbitrary selection.
            *budget = 0;
            left_out.push(chart.title);
            continue;
        }
        *budget = budget.saturating_sub(size);
        charts.push((chart, drawing));
    }
    let decisions = sections::decisions(e)?;
    let topology: Option<&Arc<_>> = e.topology.as_ref();
    Ok(html! {
        section {
            @if several { h2 class=[(nth == 0).then_some("first")] { (e.workload) " on " (e.machine) } }
            @if let Some(topology) = topology { p.prose { (sections::machine(topology)) } }
            (verdict::verdict(e, ranking))
            @if !folded.is_empty() {
                p.note { "Drawn once, since all threads ran in the same places: "
                    @for (i, (policy, same)) in folded.iter().enumerate() { @if i > 0 { ", " } (policy) " as " (same) } "." }
            }
            @for (i, (chart, drawing)) in charts.iter().enumerate() {
                section id={ "e" (nth) "-" (chart.key) } {
                    h3 { (chart.title) }
                    p.prose { (chart.prose) }
                    (drawing)
                }
                // The table of scores follows the bar chart, where readers look for the numbers.
                @if i == 0 { (sections::scores(e)) }
            }
            @if !left_out.is_empty() {
                p.note { "Left out, to keep this page light: " (left_out.join(", ")) ". A report of fewer records shows them." }
            }
            @if let Some(decisions) = decisions { (decisions) }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    /// Returns the custom properties of each theme: light, dark, print.
    fn themes() -> Vec<BTreeMap<String, [f64; 3]>> {
        crate::svg::COLOURS
            .split(":root {")
            .skip(1)
            .map(|block| {
                let declarations = block.split('}').next().unwrap().split(';');
                declarations
                    .filter_map(|d| d.trim().strip_prefix("--")?.split_once(": #"))
                    .map(|(name, hex)| {
                        let channel = |i: usize| {
                            f64::from(u8::from_str_radix(&hex[i..i + 2], 16).unwrap()) / 255.0
                        };
                        (name.to_owned(), [channel(0), channel(2), channel(4)])
                    })
                    .collect()
            })
            .collect()
    }

    fn linear(c: f64) -> f64 {
        if c <= 0.04045 {
            c / 12.92
        } else {
            ((c + 0.055) / 1.055).powf(2.4)
        }
    }

    fn luminance(c: [f64; 3]) -> f64 {
        0.2126 * linear(c[0]) + 0.7152 * linear(c[1]) + 0.0722 * linear(c[2])
    }

    fn contrast(a: [f64; 3], b: [f64; 3]) -> f64 {
        let a = luminance(a);
        let b = luminance(b);
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn text_and_marks_stand_out_from_the_page_in_every_theme() {
        for theme in themes() {
            for (name, least) in [
                ("ink", 7.0),
                ("soft", 4.5),
                ("accent", 4.5),
                ("base", 3.0),
                ("best", 4.5),
            ] {
                let c = contrast(theme[name], theme["page"]);
                assert!(c >= least, "--{name} has contrast {c:.2}");
            }
            for i in 0..8 {
                let c = contrast(theme[&format!("s{i}")], theme["page"]);
                assert!(c >= 3.0, "--s{i} has contrast {c:.2}");
            }
        }
    }

    /// Colour transformations of dichromatic vision (Machado, Oliveira and Fernandes 2009, severity 1).
    const VISIONS: [(&str, [[f64; 3]; 3]); 3] = [
        (
            "all cones",
            [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        ),
        (
            "no red cones",
            [
                [0.152_286, 1.052_583, -0.204_868],
                [0.114_503, 0.786_281, 0.099_216],
                [-0.003_882, -0.048_116, 1.051_998],
            ],
        ),
        (
            "no green cones",
            [
                [0.367_322, 0.860_646, -0.227_968],
                [0.280_085, 0.672_501, 0.047_413],
                [-0.011_820, 0.042_940, 0.968_881],
            ],
        ),
    ];

    fn oklab(c: [f64; 3]) -> [f64; 3] {
        let lms = [
            0.412_221 * c[0] + 0.536_333 * c[1] + 0.051_446 * c[2],
            0.211_903 * c[0] + 0.680_700 * c[1] + 0.107_397 * c[2],
            0.088_302 * c[0] + 0.281_719 * c[1] + 0.629_979 * c[2],
        ]
        .map(|v: f64| v.max(0.0).cbrt());
        [
            0.210_454 * lms[0] + 0.793_618 * lms[1] - 0.004_072 * lms[2],
            1.977_998 * lms[0] - 2.428_592 * lms[1] + 0.450_594 * lms[2],
            0.025_904 * lms[0] + 0.782_772 * lms[1] - 0.808_676 * lms[2],
        ]
    }

    #[test]
    fn all_series_differ_for_readers_without_colour_vision() {
        for theme in themes() {
            for (vision, m) in VISIONS {
                let seen = |i: usize| {
                    let c = theme[&format!("s{i}")].map(linear);
                    oklab(m.map(|row| row[0] * c[0] + row[1] * c[1] + row[2] * c[2]))
                };
                for (i, j) in (0..8).flat_map(|i| (i + 1..8).map(move |j| (i, j))) {
                    let a = seen(i);
                    let b = seen(j);
                    let distance = (0..3).map(|k| (a[k] - b[k]).powi(2)).sum::<f64>().sqrt();
                    assert!(
                        distance >= 0.1,
                        "series {i} and {j} with {vision}: {distance:.3}"
                    );
                }
            }
        }
    }
}
