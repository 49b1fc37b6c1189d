//! Display of a profile as text and as a picture.
//!
//! Input: a [`Profile`]. Output: text for a terminal with its origin, phases, miss curve and class; and the miss curve as an SVG
//! file.

mod plot;
mod recorded;
mod tabulated;

use countersteer_model::profile::{MissCurve, Profile, Source};

use crate::chart::{classified, curve_plot};
use crate::error::ReportError;
use crate::table::{labelled, prose};

#[must_use]
pub fn text(profile: &Profile) -> String {
    let mut text = match profile {
        Profile::Recorded(recorded) => recorded::text(recorded),
        Profile::Tabulated(tabulated) => tabulated::text(tabulated),
    };
    match profile.miss_curve() {
        Some(curve) => {
            text += "\nmisses per kilo-instruction against cache size\n";
            text += &plot::columns(&curve);
            text += &labelled("class     ", &classified(&curve));
        }
        None => {
            text += &prose(
                "\nno miss curve: it holds misses for fewer than two cache sizes, so it takes no part in contention\n",
            );
        }
    }
    text
}

/// Returns the miss curve of a profile as the text of an SVG file.
///
/// # Errors
/// Fails if the profile has no miss curve.
pub fn svg(profile: &Profile) -> Result<String, ReportError> {
    let curve = profile.miss_curve().ok_or_else(|| ReportError::Draw {
        chart: "miss curve",
        why: format!(
            "profile `{}` holds misses for fewer than two cache sizes",
            profile.name()
        ),
    })?;
    curve_svg(profile.name(), &curve)
}

/// Returns a miss curve as the text of an SVG file.
///
/// # Errors
/// Fails if the curve cannot be drawn.
pub fn curve_svg(name: &str, curve: &MissCurve) -> Result<String, ReportError> {
    let drawn = curve_plot(name, curve, (760, 380))?;
    let head = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"760\" height=\"380\"";
    let styled = format!("{head}{}", drawn.trim_start_matches("<svg"));
    let style = format!(
        "<style>{}svg{{background:var(--page)}}</style>",
        crate::svg::COLOURS
    );
    let words = "misses per kilo-instruction against cache size";
    let name = crate::svg::escaped(name);
    let heading = format!("<text class=\"ti\" x=\"34\" y=\"11\">{name}: {words}</text></svg>");
    let styled = styled.replacen("</svg>", &heading, 1);
    // The style is inside the element, so that the file looks the same as in a report.
    Ok(styled.replacen('>', &format!(">{style}"), 1) + "\n")
}

/// Returns the origin of a profile as lines of text.
fn source(source: &Source) -> String {
    let mut text = labelled("source    ", &format!("{}: {}", source.kind, source.detail));
    if !source.method.is_empty() {
        text += &labelled("method    ", &source.method);
    }
    text
}
