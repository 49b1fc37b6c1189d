//! Chart of the slowdown of each program under each policy, as a table of shaded cells. If the time alone is unknown,
//! completion times are shown.

use maud::{Markup, html};

use super::{ChartDef, ChartRuns};
use crate::format::number;
use crate::table::{CompareProgram, CompareRun, PolicySummary, SeedSpread};

pub(super) const DEF: ChartDef = ChartDef {
    key: "slowdowns",
    title: "Slowdown of each program",
    prose: "Completion time over the time alone on the fastest cores, median over seeds: 1 is undisturbed, a \
            stronger colour is slower. A strong cell in a pale row is a program that one policy slows down far more than others do.",
    heavy: false,
    draw: |experiment| {
        Ok(draw(
            experiment,
            "Slowdown of each program",
            |p| p.slowdown,
            |_| 1.0,
        ))
    },
};

pub(super) const COMPLETIONS: ChartDef = ChartDef {
    key: "completions",
    title: "Completion time of each program",
    prose: "Seconds, median over runs; a stronger colour is slower than under the best policy. How fast the programs are alone is \
            not known, so there are no slowdowns.",
    heavy: false,
    draw: |experiment| {
        let known = |s: &PolicySummary<'_>| {
            s.runs
                .iter()
                .flat_map(|r| &r.programs)
                .any(|p| !p.slowdown.is_nan())
        };
        let needed = !experiment.summaries.iter().any(known);
        let best = |row: &SlowdownRow| {
            row.iter()
                .flatten()
                .map(|s| s.median)
                .fold(f64::INFINITY, f64::min)
        };
        Ok(draw(
            experiment,
            "Completion time of each program",
            |p| p.completion_s,
            best,
        )
        .filter(|_| needed))
    },
};

/// Shade in percent of the slowest cell; text stays readable on this shade.
const DARKEST: f64 = 50.0;

/// Values of a program, by policy; `None` for a policy without a value.
type SlowdownRow = Vec<Option<SeedSpread>>;

/// Returns the table of cells; `None` without values. The larger the ratio of a value to its row's `base`, the darker the cell.
fn draw(
    experiment: &ChartRuns<'_>,
    label: &str,
    of: fn(&CompareProgram) -> f64,
    base: fn(&SlowdownRow) -> f64,
) -> Option<Markup> {
    let first = experiment.summaries.first().and_then(|s| s.runs.first())?;
    let names: Vec<&str> = first.programs.iter().map(|p| p.name.as_str()).collect();
    let rows: Vec<SlowdownRow> = names
        .iter()
        .map(|n| {
            experiment
                .summaries
                .iter()
                .map(|s| spread(s, n, of))
                .collect()
        })
        .collect();
    let times = |row: &SlowdownRow, s: &SeedSpread| s.median / base(row);
    let worst = rows
        .iter()
        .flat_map(|r| r.iter().flatten().map(|s| times(r, s)))
        .fold(None, |a: Option<f64>, b| Some(a.map_or(b, |a| a.max(b))))?;
    let shade = |v: f64| {
        if worst > 1.0 {
            ((v - 1.0) / (worst - 1.0)).clamp(0.0, 1.0) * DARKEST
        } else {
            0.0
        }
    };
    Some(html! {
        div.scroll tabindex="0" role="region" aria-label=(label) {
            table.heat {
                thead { tr { th scope="col" { "program" } @for s in &experiment.summaries { th scope="col" { (s.policy) } } } }
                tbody {
                    @for (name, row) in names.iter().zip(&rows) {
                        tr {
                            th scope="row" { (name) }
                            @for (cell, summary) in row.iter().zip(&experiment.summaries) {
                                @match cell {
                                    Some(s) => td style={ "--shade:" (format!("{:.0}%", shade(times(row, s)))) }
                                        title={ (name) " under " (summary.policy) ": " (number(s.median, 3)) " (" (number(s.min, 3)) " to " (number(s.max, 3)) ")" }
                                        { (format!("{:.2}", s.median)) },
                                    None => td { "–" },
                                }
                            }
                        }
                    }
                }
            }
        }
    })
}

pub(super) fn spread(
    summary: &PolicySummary<'_>,
    program: &str,
    of: fn(&CompareProgram) -> f64,
) -> Option<SeedSpread> {
    let value = |run: &&CompareRun| {
        run.programs
            .iter()
            .find(|p| p.name == program)
            .map(of)
            .filter(|v| !v.is_nan())
    };
    let values: Vec<f64> = summary.runs.iter().filter_map(value).collect();
    (!values.is_empty()).then(|| SeedSpread::of(values))
}
