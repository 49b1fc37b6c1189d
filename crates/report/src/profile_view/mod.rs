//! Profiles for people.
//!
//! Input: a [`Profile`]. Output: text for a terminal: where it comes from, its phases, its miss curve, its class; and the
//! miss curve as an SVG file.

mod plot;
mod recorded;
mod tabulated;

use countersteer_core::profile::{MissCurve, Profile, Recorded, Source};
use countersteer_core::units::LINE_BYTES;

use crate::error::ReportError;
use crate::format::{bytes, number};

#[must_use]
pub fn text(profile: &Profile) -> String {
    let mut text = match profile {
        Profile::Recorded(recorded) => recorded::text(recorded),
        Profile::Tabulated(tabulated) => tabulated::text(tabulated),
    };
    match miss_curve(profile) {
        Some(curve) => {
            text += "\nmisses per kilo-instruction against cache size\n";
            text += &plot::columns(&curve);
            text += &format!("class     {}\n", classified(&curve));
        }
        None => {
            text += "\nno miss curve: it holds misses for fewer than two cache sizes, so it takes no part in contention\n"
        }
    }
    text
}

/// The miss curve of a profile as an SVG file.
///
/// # Errors
/// The profile holds no miss curve.
pub fn svg(profile: &Profile) -> Result<String, ReportError> {
    let curve = miss_curve(profile).ok_or_else(|| ReportError::Draw {
        chart: "miss curve",
        why: format!(
            "profile `{}` holds misses for fewer than two cache sizes",
            profile.name()
        ),
    })?;
    curve_svg(profile.name(), &curve)
}

/// A miss curve as an SVG file.
///
/// # Errors
/// A curve that cannot be drawn.
pub fn curve_svg(name: &str, curve: &MissCurve) -> Result<String, ReportError> {
    let drawn = crate::chart::curve_plot(name, curve, (760, 380))?;
    let head = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"760\" height=\"380\"";
    let styled = format!("{head}{}", drawn.trim_start_matches("<svg"));
    let style = format!(
        "<style>{}svg{{background:var(--page)}}</style>",
        crate::html::COLOURS
    );
    let words = "misses per kilo-instruction against cache size";
    let name = crate::svg::escaped(name);
    let heading = format!("<text class=\"ti\" x=\"34\" y=\"11\">{name}: {words}</text></svg>");
    let styled = styled.replacen("</svg>", &heading, 1);
    // The style comes first inside the element, so that the file looks the same on its own as in a report.
    Ok(styled.replacen('>', &format!(">{style}"), 1) + "\n")
}

/// The miss curve of a whole run; `None` when the profile does not hold one.
#[must_use]
pub fn miss_curve(profile: &Profile) -> Option<MissCurve> {
    match profile {
        Profile::Recorded(recorded) => Some(mean_curve(recorded)),
        Profile::Tabulated(tabulated) => {
            let points = |core: &countersteer_core::profile::CoreTable| -> Vec<(f64, f64)> {
                core.points
                    .iter()
                    .filter_map(|p| Some((p.cache_kib * 1024.0 / LINE_BYTES as f64, p.llc_mpki?)))
                    .collect()
            };
            tabulated
                .core
                .iter()
                .map(points)
                .find(|p| p.len() > 1)
                .map(MissCurve::from_points)
        }
    }
}

/// The curves of the behaviours, each by its share of the instructions.
fn mean_curve(recorded: &Recorded) -> MissCurve {
    let parts: Vec<(f64, MissCurve)> = (recorded.behaviours.iter().zip(shares(recorded)))
        .map(|(behaviour, share)| (share, MissCurve::from_locality(&behaviour.locality)))
        .collect();
    let mut lines: Vec<f64> = parts
        .iter()
        .flat_map(|(_, curve)| curve.points().iter().map(|p| p.0))
        .collect();
    lines.sort_by(f64::total_cmp);
    lines.dedup();
    let mean = |at: f64| {
        parts
            .iter()
            .map(|(share, curve)| share * curve.mpki(at))
            .sum()
    };
    MissCurve::from_points(lines.into_iter().map(|at| (at, mean(at))).collect())
}

/// Share of the instructions of each behaviour.
fn shares(recorded: &Recorded) -> Vec<f64> {
    let mut shares = vec![0.0; recorded.behaviours.len()];
    for segment in &recorded.timeline {
        shares[segment.behaviour as usize] +=
            segment.instructions as f64 / recorded.instructions.max(1) as f64;
    }
    shares
}

/// The class of a curve with the figures that decide it.
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

/// Where a profile comes from, as lines.
fn source(source: &Source) -> String {
    let mut text = format!("source    {}: {}\n", source.kind, source.detail);
    if !source.method.is_empty() {
        text += &format!("method    {}\n", source.method);
    }
    text
}
