//! Chart of miss curves: misses against cache size, with one small plot per program, the machine's cache sizes and
//! the program's class.

use std::collections::BTreeMap;

use countersteer_model::profile::{CacheClass, MissCurve};
use countersteer_model::topology::{GroupBy, Topology};
use countersteer_model::units::LINE_BYTES;
use maud::{Markup, PreEscaped, html};

use super::{ChartDef, ChartRuns};
use crate::error::ReportError;
use crate::format::{bytes, number};
use crate::svg::{Mark, Plot, Role};

pub(super) const DEF: ChartDef = ChartDef {
    key: "curves",
    title: "What cache would do for each program",
    prose: "Misses per kilo-instruction against the size of the cache, for one run alone. The vertical line is the machine's \
            last-level cache. Vulnerable programs gain from cache and lose it to others; poison takes it and gains nothing.",
    heavy: true,
    draw,
};

/// Limit on the number of miss curves drawn.
const CURVES: usize = 24;

fn draw(experiment: &ChartRuns<'_>) -> Result<Option<Markup>, ReportError> {
    let Some(topology) = experiment.topology.as_deref() else {
        return Ok(None);
    };
    let mut curves: BTreeMap<String, MissCurve> = BTreeMap::new();
    for record in &experiment.records {
        for (_, profile) in record.profiles()? {
            if let Some(curve) = profile.miss_curve() {
                curves.insert(profile.name().to_owned(), curve);
            }
        }
    }
    let sizes = cache_sizes(topology);
    let mut panels = Vec::new();
    for (name, curve) in curves.iter().take(CURVES) {
        let svg = plot(name, curve, &sizes, (190, 130))?;
        panels.push((name, curve.class(), svg));
    }
    let left_out = curves.len().saturating_sub(CURVES);
    Ok((!panels.is_empty()).then(|| {
        html! {
            div.panels.small {
                @for (name, class, svg) in &panels {
                    section.panel { h4 { (name) " " span.class { (class) } } (PreEscaped(svg)) }
                }
            }
            @if left_out > 0 { p.note { (left_out) " more programs not shown" } }
        }
    }))
}

/// Returns the class of a miss curve, with the misses at the two cache sizes that determine it.
pub(crate) fn classified(curve: &MissCurve) -> String {
    let at = |size: f64| {
        format!(
            "{} with {}",
            number(curve.mpki(size / LINE_BYTES as f64), 3),
            bytes(size)
        )
    };
    format!(
        "{}: {}, {} misses per kilo-instruction",
        curve.class(),
        at(524_288.0),
        at(4_194_304.0)
    )
}

/// Returns the plot of a miss curve as an SVG element of its own.
pub(crate) fn curve_plot(
    name: &str,
    curve: &MissCurve,
    size: (u32, u32),
) -> Result<String, ReportError> {
    plot(name, curve, &[], size)
}

/// Smallest cache size drawn, as a power of two: 32 KiB.
const LOWEST: f64 = 15.0;
/// Largest cache size drawn, as a power of two: 1 GiB.
const HIGHEST: f64 = 30.0;

/// Returns the points (log2 of bytes, misses per kilo-instruction) of a curve within the displayed sizes.
fn visible(curve: &MissCurve) -> impl Iterator<Item = (f64, f64)> + '_ {
    (0..=120)
        .map(|i| LOWEST + (HIGHEST - LOWEST) * f64::from(i) / 120.0)
        .map(|x| (x, curve.mpki(x.exp2() / 64.0)))
}

fn plot(
    name: &str,
    curve: &MissCurve,
    sizes: &[(f64, String)],
    size: (u32, u32),
) -> Result<String, ReportError> {
    let points: Vec<(f64, f64)> = visible(curve).collect();
    // The vertical scale ends at 1 miss per kilo-instruction or more, so that a curve near zero is not magnified.
    let most = points.iter().map(|p| p.1 * 1.08).fold(1.0, f64::max);
    let class = curve.class();
    let marks = sizes.iter().enumerate().map(|(i, (b, who))| {
        let title = format!(
            "{who}: {}, {} misses per kilo-instruction",
            bytes(*b),
            number(curve.mpki(b / 64.0), 3)
        );
        // Only the smallest and the largest cache size are labelled; the others have tooltips.
        let first = i == 0;
        let last = i + 1 == sizes.len();
        let label = if first || last {
            bytes(*b)
        } else {
            String::new()
        };
        Mark::At {
            x: b.log2(),
            label,
            title,
            side: i32::from(last) - i32::from(first),
        }
    });
    let title = format!("{name}: {}", classified(curve));
    let line = Mark::Line {
        points,
        role: Role::Series(series(class)),
        title: title.clone(),
    };
    Plot {
        name: "curves",
        label: title,
        size,
        x: LOWEST..HIGHEST,
        y: 0.0..most,
        ticks: (if size.0 < 400 { 2 } else { 8 }, 4),
        left: 28,
        timed: false,
        x_text: &|x| bytes(x.exp2()),
        y_text: &|y| {
            if most < 3.0 {
                format!("{y:.1}")
            } else {
                format!("{y:.0}")
            }
        },
    }
    .draw(&marks.chain([line]).collect::<Vec<_>>())
}

/// Returns the sizes of the last-level caches in bytes, each with the names of the caches of that size.
fn cache_sizes(topology: &Topology) -> Vec<(f64, String)> {
    let mut sizes: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for group in topology.groups_by(GroupBy::Llc) {
        if let Some(cpu) = group.cpus.lowest() {
            let lines = topology.caches[topology.llc_of(cpu).index()].lines;
            sizes
                .entry((lines * 64.0) as u64)
                .or_default()
                .push(&group.name);
        }
    }
    sizes
        .into_iter()
        .map(|(size, names)| (size as f64, names.join(", ")))
        .collect()
}

/// Returns the index of a class's series colour, the same for all programs.
const fn series(class: CacheClass) -> usize {
    match class {
        CacheClass::Poison => 7,
        CacheClass::Vulnerable => 0,
        CacheClass::Neutral => 6,
        CacheClass::Compute => 4,
    }
}
