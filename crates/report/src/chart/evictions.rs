//! Chart of evictions in the last-level caches: a matrix of shaded cells by evicting and evicted
//! program.

use maud::{Markup, html};

use super::{ChartDef, ChartRuns};
use crate::format::number;
use crate::record::Record;

pub(super) const DEF: ChartDef = ChartDef {
    key: "evictions",
    title: "Evictions from the last-level caches",
    prose: "Thousands of lines that the row's program lost to the column's, its own included; a stronger colour is a larger part of \
            what the row lost. Only simulations line by line know it.",
    heavy: true,
    draw: |experiment| Ok(draw(experiment)),
};

/// Shade in percent of a cell with all evictions of its row; text stays readable on this shade.
const DARKEST: f64 = 50.0;

fn draw(experiment: &ChartRuns<'_>) -> Option<Markup> {
    let known = |record: &&&Record| {
        record
            .manifest
            .outcome
            .evicted
            .iter()
            .flatten()
            .any(|n| *n > 0)
    };
    let records: Vec<_> = experiment.records.iter().filter(known).collect();
    (!records.is_empty()).then(|| html! { @for record in &records { (matrix(record)) } })
}

fn matrix(record: &Record) -> Markup {
    let outcome = &record.manifest.outcome;
    let names = || outcome.programs.iter().map(|p| p.name.as_str());
    let cell = |lines: u64, row: &[u64]| {
        let sum = row.iter().sum::<u64>().max(1);
        let shade = DARKEST * lines as f64 / sum as f64;
        html! { td style={ "--shade:" (format!("{shade:.0}%")) } { (number(lines as f64 * 1e-3, 4)) } }
    };
    html! {
        figure {
            figcaption { b { (record.manifest.policy) } " · seed " (record.manifest.seed) }
            div.scroll tabindex="0" role="region" aria-label=(DEF.title) {
                table.heat {
                    thead { tr { th scope="col" { "lost by" } @for name in names() { th scope="col" { "to " (name) } } } }
                    tbody {
                        @for (name, row) in names().zip(&outcome.evicted) {
                            tr { th scope="row" { (name) } @for lines in row { (cell(*lines, row)) } }
                        }
                    }
                }
            }
        }
    }
}
