//! Miss curve drawn with characters.

use countersteer_model::profile::MissCurve;
use countersteer_model::units::LINE_BYTES;

use crate::format::{bytes, number};

/// Smallest cache size drawn, as a power of two: 32 KiB.
const LOWEST: i32 = 15;
/// Largest cache size drawn, as a power of two: 1 GiB.
const HIGHEST: i32 = 30;
/// Number of columns per doubling of the cache size.
const PER_OCTAVE: i32 = 4;
/// Height of the plot in lines.
const HEIGHT: usize = 10;
/// Characters for fill levels of a cell in eighths, from empty to full.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Returns a miss curve as columns of block characters, with axes.
pub(super) fn columns(curve: &MissCurve) -> String {
    let count = (HIGHEST - LOWEST) * PER_OCTAVE;
    let size = |column: i32| (f64::from(LOWEST) + f64::from(column) / f64::from(PER_OCTAVE)).exp2();
    let values: Vec<f64> = (0..=count)
        .map(|c| curve.mpki(size(c) / LINE_BYTES as f64))
        .collect();
    let most = values.iter().copied().fold(0.0, f64::max);
    let top = if most > 0.0 { most } else { 1.0 };
    let mut text = String::new();
    for line in (0..HEIGHT).rev() {
        let label = match line {
            l if l == HEIGHT - 1 => number(top, 3),
            l if l == HEIGHT / 2 => number(top * (l + 1) as f64 / HEIGHT as f64, 3),
            _ => String::new(),
        };
        let cell = |v: &f64| {
            let eighths = (v / top * (HEIGHT * 8) as f64).round() as usize;
            EIGHTHS[eighths.saturating_sub(line * 8).min(8)]
        };
        let row: String = values.iter().map(cell).collect();
        text += &format!("{label:>8} ┤{}\n", row.trim_end());
    }
    text += &format!("{:>8} └{}\n{:>10}", "0", "─".repeat(values.len()), "");
    let every = 4;
    for octave in (LOWEST..HIGHEST).step_by(every as usize) {
        text += &format!(
            "{:<width$}",
            bytes(f64::from(octave).exp2()),
            width = (every * PER_OCTAVE) as usize
        );
    }
    text.trim_end().to_owned() + "\n"
}
