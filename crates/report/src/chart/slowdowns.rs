//! Slowdown of each program under each policy, as a table whose cells are shaded.

use maud::{Markup, html};

use super::{ChartDef, Experiment};
use crate::error::ReportError;
use crate::format::number;
use crate::table::{Spread, Summary};

pub(super) const DEF: ChartDef = ChartDef {
    key: "slowdowns",
    title: "Slowdown of each program",
    prose: "Completion time over the time alone on the fastest cores, median over seeds: 1 is undisturbed, a \
            stronger colour is slower. A strong cell in a pale row tells of a program that one policy sacrificed.",
    heavy: false,
    draw,
};

/// Shade of the slowest cell; text stays readable on it.
const DARKEST: f64 = 50.0;

fn draw(experiment: &Experiment<'_>) -> Result<Option<Markup>, ReportError> {
    let Some(first) = experiment.summaries.first().and_then(|s| s.runs.first()) else { return Ok(None) };
    let names: Vec<&str> = first.programs.iter().map(|p| p.name.as_str()).collect();
    let rows: Vec<Vec<Option<Spread>>> =
        names.iter().map(|n| experiment.summaries.iter().map(|s| spread(s, n)).collect()).collect();
    let worst = rows.iter().flatten().flatten().map(|s| s.median).fold(1.0, f64::max);
    let shade = |v: f64| if worst > 1.0 { ((v - 1.0) / (worst - 1.0)).clamp(0.0, 1.0) * DARKEST } else { 0.0 };
    Ok(Some(html! {
        div.scroll tabindex="0" role="region" aria-label="Slowdown of each program" {
            table.heat {
                thead { tr { th scope="col" { "program" } @for s in &experiment.summaries { th scope="col" { (s.policy) } } } }
                tbody {
                    @for (name, row) in names.iter().zip(&rows) {
                        tr {
                            th scope="row" { (name) }
                            @for (cell, summary) in row.iter().zip(&experiment.summaries) {
                                @match cell {
                                    Some(s) => td style={ "--shade:" (format!("{:.0}%", shade(s.median))) }
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
    }))
}

fn spread(summary: &Summary<'_>, program: &str) -> Option<Spread> {
    let of = |run: &&crate::table::CompareRun| run.programs.iter().find(|p| p.name == program).map(|p| p.slowdown);
    let values: Vec<f64> = summary.runs.iter().filter_map(of).collect();
    (!values.is_empty()).then(|| Spread::of(values))
}
