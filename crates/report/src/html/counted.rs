//! Page section of a counting session: counts over time or over instructions, and totals. The live page has the same plots.
//!
//! A record of a counting session has no scores, so this section shows none.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use maud::{Markup, PreEscaped, html};

use crate::chart::legend;
use crate::counted::{CountedLine, CountedMeasure, CountedPoint, Total, measures, totals};
use crate::error::ReportError;
use crate::format::{count, number, prefixed, seconds};
use crate::record::Record;
use crate::svg::{Mark, Plot, Role, SERIES};

/// Quantity on the horizontal axis of counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Axis {
    #[default]
    Time,
    /// Instructions of the owner since its first sample.
    Instructions,
}

/// Limit on the number of points per line, which is the resolution of a plot.
const BINS: usize = 300;
/// Limit on the number of owners drawn, those with the most CPU time: one per series colour.
pub(super) const OWNERS: usize = SERIES;
/// Limit on the number of rows in the table of totals.
const ROWS: usize = 200;

pub(super) fn section(record: &Record, axis: Axis) -> Result<Markup, ReportError> {
    let totals = totals(record);
    let owners = largest(&totals);
    let plots = plots(&measures(record), &owners, axis, None)?;
    let m = &record.manifest;
    let threads: BTreeSet<&str> = totals.iter().map(|t| t.owner.as_str()).collect();
    Ok(html! {
        section.counted {
            h2 { "Counted: " (m.workload.name) " on " (m.machine.name) }
            p.prose {
                (seconds(m.outcome.elapsed_s)) ", samples every " (seconds(m.period_ns as f64 * 1e-9)) ". "
                "Events are rates while they were counted; metrics and virtual counters are as read. "
                @if threads.len() > OWNERS { "Lines are of the " (OWNERS) " of " (threads.len()) " threads with most CPU time. " }
                @if axis == Axis::Instructions && plots.is_empty() { "Instructions were not counted, so there is no such axis." }
            }
            @if axis == Axis::Time { p.note.hint { (crate::svg::HINT) } }
            (panels(&owners, &plots))
            (table(record, &totals))
        }
    })
}

/// Returns a plot of each measure and core type, with its title. A plot has all times, or those of `span` in s.
pub(super) fn plots(
    measures: &[CountedMeasure],
    owners: &[String],
    axis: Axis,
    span: Option<&Range<f64>>,
) -> Result<Vec<(String, String)>, ReportError> {
    let mut plots = Vec::new();
    for measure in measures {
        for core_type in core_types(measure) {
            if let Some(svg) = plot(measure, &core_type, owners, (axis, span))? {
                plots.push((title(measure, &core_type), svg));
            }
        }
    }
    Ok(plots)
}

/// Returns the legend of the owners, whose colours follow from their positions, and the plots. An empty name has no entry.
pub(super) fn panels(owners: &[String], plots: &[(String, String)]) -> Markup {
    let colours = owners.iter().cloned().zip(0..);
    let colours: Vec<(String, usize)> = colours.filter(|(name, _)| !name.is_empty()).collect();
    html! {
        (legend(&colours))
        div.panels {
            @for (title, svg) in plots { section.panel { h4 { (title) } (PreEscaped(svg)) } }
        }
    }
}

/// Returns the names of the owners with the most CPU time, in descending order.
pub(super) fn largest(totals: &[Total]) -> Vec<String> {
    let mut owners: Vec<(u64, &str)> = Vec::new();
    for total in totals {
        match owners.iter_mut().find(|o| o.1 == total.owner) {
            Some(owner) => owner.0 += total.enabled_ns,
            None => owners.push((total.enabled_ns, &total.owner)),
        }
    }
    owners.sort_by_key(|o| std::cmp::Reverse(o.0));
    let names = owners.into_iter().take(OWNERS);
    names.map(|(_, name)| name.to_owned()).collect()
}

fn core_types(measure: &CountedMeasure) -> BTreeSet<Arc<str>> {
    let types = measure.lines.iter().map(|l| Arc::clone(&l.core_type));
    types.collect()
}

fn title(measure: &CountedMeasure, core_type: &str) -> String {
    let unit = match measure.unit.as_str() {
        "" => String::new(),
        unit => format!(" ({unit})"),
    };
    if core_type.is_empty() {
        format!("{}{unit}", measure.name)
    } else {
        format!("{}{unit} on {core_type}", measure.name)
    }
}

fn plot(
    measure: &CountedMeasure,
    core_type: &str,
    owners: &[String],
    (axis, span): (Axis, Option<&Range<f64>>),
) -> Result<Option<String>, ReportError> {
    let abscissa = |p: &CountedPoint| match axis {
        Axis::Time => Some(p.at_ns as f64 * 1e-9),
        Axis::Instructions => p.instructions,
    };
    let mut marks = Vec::new();
    let mut end = 0.0f64;
    let mut least = 0.0f64;
    let mut most = 0.0f64;
    for line in measure.lines.iter().filter(|l| &*l.core_type == core_type) {
        // Virtual counters of thermal zones and of the machine have no series colour of their own.
        let role = owners.iter().position(|o| *o == line.owner);
        if role.is_none() && measure.lines.len() > OWNERS {
            continue;
        }
        let points = binned(line, |p| abscissa(p).filter(|x| shows(span, *x)));
        for (x, y) in &points {
            (end, least, most) = (end.max(*x), least.min(*y), most.max(*y));
        }
        // A value that is no number interrupts the line.
        for part in points.split(|(_, y)| y.is_nan()).filter(|p| !p.is_empty()) {
            marks.push(Mark::Line {
                points: part.to_vec(),
                role: role.map_or(Role::Mark, Role::Series),
                title: line.owner.clone(),
            });
        }
    }
    if marks.is_empty() || end <= 0.0 {
        return Ok(None);
    }
    let most = if most > least {
        most + 0.08 * (most - least)
    } else {
        least + 1.0
    };
    let label = title(measure, core_type);
    let svg = Plot {
        name: "counted",
        label,
        size: (380, 160),
        x: span.cloned().unwrap_or(0.0..end),
        y: least..most,
        ticks: (4, 4),
        left: 44,
        timed: axis == Axis::Time && span.is_none(),
        x_text: &|x| match axis {
            Axis::Time => format!("{} s", number(*x, 3)),
            Axis::Instructions => prefixed(*x),
        },
        y_text: &|y| prefixed(*y),
    };
    svg.draw(&marks).map(Some)
}

fn shows(span: Option<&Range<f64>>, x: f64) -> bool {
    span.is_none_or(|span| span.start <= x && x <= span.end)
}

/// Returns a line's points. Adjacent points are averaged if there are more than a plot can resolve.
fn binned(line: &CountedLine, abscissa: impl Fn(&CountedPoint) -> Option<f64>) -> Vec<(f64, f64)> {
    let points: Vec<(f64, f64)> = line
        .points
        .iter()
        .filter_map(|p| Some((abscissa(p)?, p.value)))
        .collect();
    let each = points.len().div_ceil(BINS).max(1);
    let mean = |part: &[(f64, f64)]| {
        let n = part.len() as f64;
        let sums = part.iter().fold((0.0, 0.0), |s, p| (s.0 + p.0, s.1 + p.1));
        (sums.0 / n, sums.1 / n)
    };
    points.chunks(each).map(mean).collect()
}

fn table(record: &Record, totals: &[Total]) -> Markup {
    let several = totals.iter().any(|t| !t.core_type.is_empty());
    html! {
        details {
            summary { "Totals, as counted" }
            div.scroll tabindex="0" role="region" aria-label="Totals" {
                table {
                    thead { tr {
                        th scope="col" { "owner" }
                        @if several { th scope="col" { "core type" } }
                        th scope="col" { "enabled" }
                        @for name in &record.reading_counts { th scope="col" { (name) } }
                    } }
                    tbody { @for total in totals.iter().take(ROWS) { tr {
                        th scope="row" { (total.owner) }
                        @if several { td { (total.core_type) } }
                        td { (seconds(total.enabled_ns as f64 * 1e-9)) }
                        @for value in &total.counts { td { (value.map_or("–".into(), count)) } }
                    } } }
                }
            }
            @if totals.len() > ROWS { p.note { (totals.len() - ROWS) " more rows not shown; the record has them" } }
        }
    }
}
