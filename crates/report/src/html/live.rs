//! Page that shows counts while they are made, or a recorded session again.
//!
//! Input: the measures of several hosts or records. Output: the page's files, and its panels as HTML, which the page's script
//! requests again and again. Nothing in the page is loaded from elsewhere, and no script or style stands inside the HTML, so that
//! the strictest Content-Security-Policy holds.

use std::ops::Range;
use std::time::Duration;

use countersteer_model::printable::printable_lines;
use maud::{DOCTYPE, html};

use super::counted::{self, Axis, panels, plots};
use super::{STYLE, counted::largest};
use crate::counted::{CountedMeasure, measures, totals};
use crate::error::ReportError;
use crate::record::Record;
use crate::svg::COLOURS;

/// Script of the page.
pub const SCRIPT: &str = include_str!("live.js");

/// Limit on the number of threads drawn for each host: one per colour.
pub const OWNERS: usize = 8;

/// Counts of one host or record, as the panels show them.
pub struct WatchedHost<'a> {
    /// Name of the host or of the record.
    pub name: &'a str,
    /// Message about the host; empty if there is none.
    pub note: &'a str,
    /// Values over time; a value that is no number interrupts its line.
    pub measures: &'a [CountedMeasure],
    /// Owners that are drawn. The position of an owner determines its colour, and an empty name is a free position.
    pub owners: &'a [String],
    /// Times of the horizontal axis, in s.
    pub span: Range<f64>,
}

/// Recorded session, to be shown again.
pub struct RecordedSession {
    /// Every event, metric and virtual counter of the record.
    pub measures: Vec<CountedMeasure>,
    /// The threads with the most CPU time.
    pub owners: Vec<String>,
    /// Length of the session in s.
    pub end_s: f64,
}

impl RecordedSession {
    /// Reads the measures of a record. They are empty if nothing was counted.
    #[must_use]
    pub fn of(record: &Record) -> Self {
        let mut owners = largest(&totals(record));
        owners.truncate(OWNERS);
        Self {
            measures: measures(record),
            owners,
            end_s: record.end().as_secs_f64(),
        }
    }
}

/// Returns the page. The script requests panels once in `period`; `replayed` is the length in s of recorded sessions.
#[must_use]
pub fn page(title: &str, period: Duration, replayed: Option<f64>) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                link rel="stylesheet" href="style.css";
                script src="live.js" defer {}
            }
            body data-period=(period.as_millis()) data-end=[replayed] {
                h1 { (title) }
                form.controls id="controls" {
                    label { "Threads " input id="threads" type="search" placeholder="all" title="Parts of thread names, separated by commas"; }
                    label { "Quantities " input id="measures" type="search" placeholder="all" title="Parts of names, separated by commas"; }
                    label { "Time " select id="span" {
                        option value="60" { "1 min" } option value="300" { "5 min" } option value="900" { "15 min" }
                        option value="" selected[replayed.is_some()] { "all" }
                    } }
                    @if let Some(end) = replayed {
                        button id="play" type="button" { "Pause" }
                        label { "Speed " select id="speed" {
                            option value="1" { "1×" } option value="10" { "10×" } option value="100" { "100×" }
                        } }
                        label { "Position " input id="at" type="range" min="0" max=(end) step="any" value="0"; }
                        output id="clock" for="at" {}
                    }
                }
                p.note id="state" role="status" { "Panels need this page's script." }
                main id="panels" {}
            }
        }
    };
    page.into_string()
}

/// Returns the page's style sheet.
#[must_use]
pub fn style() -> String {
    let own = ".controls { display: flex; flex-wrap: wrap; gap: .4rem 1rem; align-items: center; font-size: .85rem; margin: .75rem 0; }\n\
               .controls input, .controls select, .controls button { font: inherit; }\n\
               .hosts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 28rem), 1fr)); gap: 0 2rem; }\n\
               .hosts h2 { margin-top: 1rem; } body { max-width: none; }\n\
               .panels { grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr)); }\n";
    format!("{COLOURS}{STYLE}{own}")
}

/// Returns the panels of all hosts side by side. Names that contain none of the words are left out; no words are all names.
///
/// # Errors
/// A plot cannot be drawn.
pub fn side_by_side(
    hosts: &[WatchedHost<'_>],
    threads: &[&str],
    quantities: &[&str],
) -> Result<String, ReportError> {
    let fits = |words: &[&str], name: &str| {
        words.is_empty() || words.iter().any(|word| name.contains(word))
    };
    let mut drawn = Vec::new();
    for host in hosts {
        let named = |name: &String| {
            if fits(threads, name) {
                name.clone()
            } else {
                String::new()
            }
        };
        let owners: Vec<String> = host.owners.iter().map(named).collect();
        let of_owners = |measure: &CountedMeasure| {
            let left_out = |owner: &String| host.owners.contains(owner) && !owners.contains(owner);
            let mut measure = measure.clone();
            measure.lines.retain(|line| !left_out(&line.owner));
            measure
        };
        let shown = host.measures.iter().filter(|m| fits(quantities, &m.name));
        let shown: Vec<CountedMeasure> = shown.map(of_owners).collect();
        let plots = plots(&shown, &owners, Axis::Time, Some(&host.span))?;
        drawn.push(html! {
            section.counted {
                h2 { (host.name) }
                @if !host.note.is_empty() { p.note { (host.note) } }
                (panels(&owners, &plots))
            }
        });
    }
    let all = html! { div.hosts { @for host in &drawn { (host) } } };
    Ok(printable_lines(&all.into_string()).into_owned())
}

const _: () = assert!(OWNERS <= counted::OWNERS);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::counted::{CountedLine, CountedPoint};

    fn line(owner: &str, values: &[f64]) -> CountedLine {
        let point = |(n, value): (usize, &f64)| CountedPoint {
            at_ns: (n as u64 + 1) * 1_000_000_000,
            instructions: None,
            value: *value,
        };
        CountedLine {
            owner: owner.into(),
            core_type: Arc::from(""),
            points: values.iter().enumerate().map(point).collect(),
        }
    }

    fn drawn(threads: &[&str], quantities: &[&str]) -> String {
        let measure = |name: &str| CountedMeasure {
            name: name.into(),
            unit: String::new(),
            lines: vec![
                line("<b>one", &[1.0, 2.0, f64::NAN, 4.0, 3.0]),
                line("two", &[5.0, 6.0]),
            ],
        };
        let measures = [measure("ipc"), measure("cpu%")];
        let owners = ["two".to_owned(), String::new(), "<b>one".to_owned()];
        let host = |name| WatchedHost {
            name,
            note: "it \"ended\"",
            measures: &measures,
            owners: &owners,
            span: 0.0..60.0,
        };
        side_by_side(&[host("here"), host("there")], threads, quantities).unwrap()
    }

    #[test]
    fn hosts_stand_side_by_side_with_a_plot_for_each_quantity() {
        let html = drawn(&[], &[]);
        assert_eq!(html.matches("<svg class=\"plot\"").count(), 4, "{html}");
        for host in ["<h2>here</h2>", "<h2>there</h2>"] {
            assert!(html.contains(host), "{html}");
        }
        // The third colour is that of the third position, and a gap cuts a line in two.
        assert_eq!(
            html.matches("<title>&lt;b&gt;one</title>").count(),
            8,
            "{html}"
        );
        assert!(
            html.contains("b2\"") && html.contains("l0") && !html.contains("b1\""),
            "{html}"
        );
        assert!(
            !html.contains("<b>") && !html.contains("style=") && !html.contains(" on"),
            "{html}"
        );
    }

    #[test]
    fn words_choose_threads_and_quantities() {
        let html = drawn(&["tw", "no"], &["ip"]);
        assert_eq!(html.matches("<svg class=\"plot\"").count(), 2, "{html}");
        assert!(html.contains("two") && !html.contains("one"), "{html}");
        assert_eq!(drawn(&["none"], &[]).matches("<svg").count(), 0);
    }

    #[test]
    fn the_page_has_no_script_style_or_address_inside() {
        for replayed in [None, Some(2.5)] {
            let page = page("a <title>", Duration::from_millis(500), replayed);
            assert!(page.contains("data-period=\"500\"") && page.contains("a &lt;title&gt;"));
            assert_eq!(page.contains("id=\"play\""), replayed.is_some());
            for inside in ["style=", " on", "http:", "https:", "//"] {
                assert!(!page.contains(inside), "{inside}: {page}");
            }
        }
    }
}
