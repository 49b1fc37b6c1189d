//! Strips: rows over time whose bins are filled in proportion to a value, a compact form of a Gantt chart.
//!
//! Input: for each row, fractions by category and time bin. Output: one SVG path per row and category. The size does not
//! depend on the length of the run, because equal adjacent bins are merged.

use std::fmt::Write;

use maud::{Markup, PreEscaped};

use crate::format::seconds;
use crate::svg::{escaped, pane};

/// Shape for wide screens, whose time bins are no finer than pixels.
const WIDE: StripShape = StripShape {
    class: "wide",
    width: 760,
    left: 128,
    row: 15,
    bins: 600,
};
const NARROW: StripShape = StripShape {
    class: "narrow",
    width: 360,
    left: 92,
    row: 15,
    bins: 240,
};
/// Width of the margin to the right of the rows, in pixels.
const RIGHT: u32 = 8;
/// Number of levels into which the height of a bin is divided.
const LEVELS: i32 = 10;

#[derive(Clone, Copy)]
struct StripShape {
    class: &'static str,
    width: u32,
    left: u32,
    row: u32,
    bins: usize,
}

/// Segment of a row that a category fills from one time to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct StripPiece {
    pub(super) row: usize,
    pub(super) category: usize,
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    /// Fraction of the row's height that the segment fills.
    pub(super) share: f64,
}

pub(super) struct Strips<'a> {
    /// Label of the chart for screen readers.
    pub(super) label: String,
    /// Labels of the rows.
    pub(super) rows: Vec<String>,
    /// Names of the categories, with the indices of their series colours.
    pub(super) categories: Vec<(String, usize)>,
    pub(super) pieces: &'a [StripPiece],
    /// End of the time axis, in ns.
    pub(super) end_ns: u64,
    /// End of this run's rows in ns; other charts on the same time axis may last longer.
    pub(super) own_end_ns: u64,
    /// Indices of the rows with additional space above them.
    pub(super) gaps: Vec<usize>,
}

impl Strips<'_> {
    /// Returns the chart in two shapes, for wide and for narrow screens. A style sheet shows one of them.
    pub(super) fn draw(&self) -> Markup {
        PreEscaped(self.shaped(WIDE) + &self.shaped(NARROW))
    }

    fn shaped(&self, shape: StripShape) -> String {
        let top = |row: usize| {
            let gaps = self.gaps.iter().filter(|g| **g <= row).count() as u32;
            4 + row as u32 * shape.row + gaps * 6
        };
        let height = top(self.rows.len()) + 20;
        let StripShape {
            class, width, left, ..
        } = shape;
        let mut svg = format!(
            "<svg class=\"plot strips {class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\" data-end=\"{}\">",
            escaped(&self.label),
            self.end_ns as f64 * 1e-9
        );
        let shares = self.shares(shape.bins);
        for (row, label) in self.rows.iter().enumerate() {
            let y = top(row);
            let text = escaped(&shortened(label, if class == "wide" { 19 } else { 13 }));
            // Writing to a string cannot fail.
            let _ = write!(
                svg,
                "<text class=\"ti\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{text}</text>",
                left - 6,
                y + 11
            );
        }
        let bottom = top(self.rows.len());
        svg += &pane((left, 4), (width - left - RIGHT, bottom - 4));
        for (row, label) in self.rows.iter().enumerate() {
            svg += &self.row(shape, top(row), label, &shares[row]);
        }
        svg += "</svg>";
        svg += &self.axis(shape, top(self.rows.len()));
        svg + "</svg>"
    }

    /// Returns the filled fraction by row, category and time bin.
    fn shares(&self, bins: usize) -> Vec<Vec<Vec<f64>>> {
        let mut shares = vec![vec![Vec::new(); self.categories.len()]; self.rows.len()];
        let width = self.end_ns as f64 / bins as f64;
        let own_end = self.own_end_ns as f64 / width;
        for piece in self.pieces {
            let row: &mut Vec<f64> = &mut shares[piece.row][piece.category];
            row.resize(bins, 0.0);
            let start = piece.start_ns as f64 / width;
            let end = piece.end_ns as f64 / width;
            for (bin, value) in row
                .iter_mut()
                .enumerate()
                .take(end.ceil() as usize)
                .skip(start as usize)
            {
                let overlap = (end.min(bin as f64 + 1.0) - start.max(bin as f64)).max(0.0);
                // The bin that contains the end of the run is scaled up as if the run filled it.
                *value += overlap * piece.share / (own_end - bin as f64).clamp(1e-6, 1.0);
            }
        }
        shares
    }

    fn row(&self, shape: StripShape, y: u32, label: &str, shares: &[Vec<f64>]) -> String {
        let height = shape.row - 3;
        let scale = f64::from(shape.width - shape.left - RIGHT) / shape.bins as f64;
        let mut below = vec![0.0; shape.bins];
        let track = f64::from(shape.width - shape.left - RIGHT) * self.own_end_ns as f64
            / self.end_ns as f64;
        let left = shape.left;
        let mut svg = format!(
            "<rect class=\"track\" x=\"{left}\" y=\"{y}\" width=\"{track:.1}\" height=\"{height}\"/>"
        );
        for (category, bins) in shares.iter().enumerate().filter(|(_, b)| !b.is_empty()) {
            let mut path = String::new();
            let level = |v: f64| (v.min(1.0) * f64::from(LEVELS)).round() as i32;
            let cells: Vec<(i32, i32)> = bins
                .iter()
                .zip(&below)
                .map(|(share, below)| (level(*below), level(below + share)))
                .collect();
            let mut start = 0;
            for run in cells.chunk_by(|a, b| a == b) {
                let (low, high) = run[0];
                if high > low {
                    let x = f64::from(shape.left) + start as f64 * scale;
                    let w = run.len() as f64 * scale;
                    let unit = f64::from(height) / f64::from(LEVELS);
                    let top = f64::from(y + height) - f64::from(high) * unit;
                    let h = f64::from(high - low) * unit;
                    let _ = write!(path, "M{x:.1} {top:.1}h{w:.1}v{h:.1}h-{w:.1}z");
                }
                start += run.len();
            }
            let share = bins.iter().sum::<f64>()
                / (shape.bins as f64 * self.own_end_ns as f64 / self.end_ns as f64).max(1.0);
            below.iter_mut().zip(bins).for_each(|(b, v)| *b += v);
            if path.is_empty() {
                continue;
            }
            let (name, series) = &self.categories[category];
            let title = escaped(&format!("{label}: {name} {:.0} %", share * 100.0));
            let _ = write!(
                svg,
                "<path class=\"f{series}\" d=\"{path}\"><title>{title}</title></path>"
            );
        }
        svg
    }

    fn axis(&self, shape: StripShape, y: u32) -> String {
        let end_s = self.end_ns as f64 * 1e-9;
        let step = nice_step(end_s, if shape.class == "wide" { 8.0 } else { 4.0 });
        let scale = f64::from(shape.width - shape.left - RIGHT) / end_s;
        let mut svg = String::new();
        let mut t = 0.0;
        while t <= end_s * 1.0001 {
            let x = f64::from(shape.left) + t * scale;
            let anchor = if x > f64::from(shape.width) - 30.0 {
                "end"
            } else {
                "middle"
            };
            let _ = write!(svg, "<path class=\"lg tick\" d=\"M{x:.1} {y}v4\"/>");
            let text = if t == 0.0 {
                "0".into()
            } else {
                seconds(t)
                    .replace(".000", "")
                    .replace(".00 ", " ")
                    .replace(".0 ", " ")
            };
            let _ = write!(
                svg,
                "<text class=\"tm tick\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{text}</text>",
                y + 15
            );
            t += step;
        }
        svg
    }
}

/// Returns a step of 1, 2 or 5 times a power of ten that divides `span` into about `parts` parts.
pub(super) fn nice_step(span: f64, parts: f64) -> f64 {
    let raw = (span / parts).max(1e-9);
    let power = 10f64.powf(raw.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|m| m * power)
        .into_iter()
        .find(|s| *s >= raw)
        .unwrap_or(raw)
}

/// Shortens a label to `most` characters. The middle is removed, because the end of a name distinguishes copies.
fn shortened(label: &str, most: usize) -> String {
    let chars: Vec<char> = label.chars().collect();
    if chars.len() <= most {
        return label.to_owned();
    }
    let head = most - most / 3 - 1;
    let tail = most / 3;
    chars[..head]
        .iter()
        .chain(&['…'])
        .chain(&chars[chars.len() - tail..])
        .collect()
}
