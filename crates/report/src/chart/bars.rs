//! Chart of scores by policy: a bar shows the median over seeds, a whisker the range.

use maud::{Markup, html};

use super::{ChartDef, ChartRuns};
use crate::error::ReportError;
use crate::format::number;
use crate::judge::{change, percent as in_percent};
use crate::table::{Better, ScoreMetric, SeedSpread, measured};

pub(super) const DEF: ChartDef = ChartDef {
    key: "scores",
    title: "Scores by policy",
    prose: "Bars show the median over seeds, whiskers the range from the least to the most. The best policy of each score has the strong colour; linux is grey unless it is the best.",
    heavy: false,
    draw,
};

fn draw(experiment: &ChartRuns<'_>) -> Result<Option<Markup>, ReportError> {
    let drawn = measured(&experiment.summaries)
        .into_iter()
        .map(|metric| panel(experiment, metric));
    Ok(Some(
        html! { div.panels { @for markup in drawn { (markup) } } },
    ))
}

fn panel(experiment: &ChartRuns<'_>, metric: &ScoreMetric) -> Markup {
    let spreads: Vec<SeedSpread> = experiment
        .summaries
        .iter()
        .map(|s| s.spread(metric))
        .collect();
    // Bars start at zero, or at the lowest score if a score is below zero.
    let low = spreads.iter().map(|s| s.min).fold(0.0, f64::min);
    let high = spreads.iter().map(|s| s.max).fold(0.0, f64::max);
    let span = if high > low { high - low } else { 1.0 };
    let percent = |v: f64| format!("{:.2}%", (v - low) / span * 100.0);
    let width = |a: f64, b: f64| format!("{:.2}%", (b - a) / span * 100.0);
    let linux = experiment.linux();
    let best = |s: &SeedSpread| {
        spreads.len() > 1 && spreads.iter().all(|o| !metric.beats(o.median, s.median))
    };
    let aim = match metric.better {
        Better::Higher => "more is better",
        Better::Lower => "less is better",
        Better::Neither => "neither more nor less is better",
    };
    html! {
        section.panel {
            h4 { (metric.label) }
            p.note { (metric.prose) "; " (aim) }
            div.bars {
                @for (summary, spread) in experiment.summaries.iter().zip(&spreads) {
                    @let is_linux = summary.policy == countersteer_policies::LINUX;
                    @let class = if metric.better != Better::Neither && best(spread) { "bar best" } else if is_linux { "bar base" } else { "bar" };
                    div.name title=(summary.policy) { (summary.policy) }
                    div.rail title=(tooltip(summary.policy, metric, spread, summary.runs.len())) {
                        div class=(class) style={ "left:" (percent(spread.median.min(0.0))) ";width:" (width(spread.median.min(0.0), spread.median.max(0.0))) } {}
                        @if spread.max > spread.min {
                            div.whisker style={ "left:" (percent(spread.min)) ";width:" (width(spread.min, spread.max)) } {}
                        }
                    }
                    div.value { (figure(metric, spread.median)) }
                    div.delta { @if let Some(f) = linux.filter(|_| !is_linux).and_then(|l| change(summary, l, metric)) { (in_percent(f.median)) } }
                }
            }
        }
    }
}

fn figure(metric: &ScoreMetric, value: f64) -> String {
    if metric.key == "migrations" {
        crate::format::count(value.max(0.0).round() as u64)
    } else {
        number(value, 3)
    }
}

fn tooltip(policy: &str, metric: &ScoreMetric, spread: &SeedSpread, seeds: usize) -> String {
    let median = figure(metric, spread.median);
    let min = figure(metric, spread.min);
    let max = figure(metric, spread.max);
    format!(
        "{policy}: {} {median} ({min} to {max} over {seeds} seeds)",
        metric.label
    )
}
