//! Miss curves of threads, estimated while they run: misses per instruction by the cache lines that a thread holds.
//!
//! Input: pairs of lines held and misses per instruction, from any cache level. Output: a curve that never rises with size, and
//! the number of instructions that fill each size. Between and beyond samples, misses follow the square root of the size
//! (Hartstein et al., JILP 2008).

use countersteer_model::corun::Footprint;

/// Sizes of the grid: quarter octaves from 16 KiB to 256 MiB.
const SIZES: usize = 57;
/// Lines of the smallest size.
const SMALLEST: f64 = 256.0;
/// Factor on a point's weight at each further point.
const KEPT: f64 = 0.97;
/// Weight below which a point is ignored.
const FAINT: f64 = 0.02;
/// Misses of a size over those of the next smaller one without samples: 2^(-1/8).
const SLOPE: f64 = 0.917_004_043_204_671_2;
/// Lower bound on misses per instruction; keeps times finite.
const LEAST: f64 = 1e-7;
/// Upper bound on misses per instruction.
const MOST: f64 = 0.5;

/// Sums over the samples.
#[derive(Clone, Debug)]
pub(crate) struct CurveSums {
    weight: [f32; SIZES],
    sum: [f32; SIZES],
    /// Lines beyond which the thread had no use for more, when last seen with room to spare.
    footprint: Option<f64>,
}

/// Miss curve.
#[derive(Clone, Debug)]
pub(crate) struct ThreadCurve {
    /// Misses per instruction by size.
    misses: [f64; SIZES],
    /// Lines by instructions, from empty.
    fill: Footprint,
}

/// Lines of a row of the grid.
fn size(row: usize) -> f64 {
    SMALLEST * (row as f64 * 0.25).exp2()
}

/// Position of a number of lines on the grid: row, and fraction to the next row.
fn place(lines: f64) -> (usize, f64) {
    let at = (4.0 * (lines.max(1.0) / SMALLEST).log2()).clamp(0.0, (SIZES - 1) as f64);
    let row = (at as usize).min(SIZES - 2);
    (row, at - row as f64)
}

impl Default for CurveSums {
    fn default() -> Self {
        Self {
            weight: [0.0; SIZES],
            sum: [0.0; SIZES],
            footprint: None,
        }
    }
}

impl CurveSums {
    /// Adds a sample: `misses` per instruction with `lines` lines.
    pub fn note(&mut self, lines: f64, misses: f64, weight: f64) {
        if !(misses.is_finite() && lines.is_finite()) || lines < SMALLEST / 4.0 {
            return;
        }
        let (row, part) = place(lines);
        let misses = misses.clamp(LEAST, MOST) as f32;
        for (row, share) in [(row, 1.0 - part), (row + 1, part)] {
            let weight = (weight * share) as f32;
            self.weight[row] += weight;
            self.sum[row] += weight * misses;
        }
    }

    /// Scales the weights of old samples by `kept`.
    pub fn fade(&mut self, kept: f64) {
        for row in 0..SIZES {
            self.weight[row] *= kept as f32;
            self.sum[row] *= kept as f32;
        }
    }

    /// Applies the usual decay between two intervals.
    pub fn age(&mut self) {
        self.fade(KEPT);
    }

    /// Stores that the cache had room to spare: the thread wants no more than `lines`.
    pub fn room_to_spare(&mut self, lines: f64) {
        self.footprint = Some(lines);
    }

    /// Stores that the cache was full.
    pub fn squeezed(&mut self, lines: f64) {
        if self.footprint.is_some_and(|footprint| footprint < lines) {
            self.footprint = None;
        }
    }

    /// Curve through the samples.
    pub fn curve(&self) -> ThreadCurve {
        let mut misses = [f64::NAN; SIZES];
        for (row, value) in monotone(&self.weight, &self.sum) {
            misses[row] = value;
        }
        bridge(&mut misses);
        if let Some(footprint) = self.footprint {
            let (row, part) = place(footprint);
            let last = (row + usize::from(part > 0.0)).min(SIZES - 1);
            let level = misses[last];
            misses[last..].fill(level);
        }
        ThreadCurve::new(misses)
    }
}

/// Known rows with their means, pooled so that they never rise (pool adjacent violators).
fn monotone(weight: &[f32; SIZES], sum: &[f32; SIZES]) -> Vec<(usize, f64)> {
    let mut pools: Vec<(Vec<usize>, f64, f64)> = Vec::new();
    for row in (0..SIZES).filter(|row| f64::from(weight[*row]) > FAINT) {
        pools.push((vec![row], f64::from(weight[row]), f64::from(sum[row])));
        while let [.., left, right] = pools.as_slice() {
            if left.2 / left.1 >= right.2 / right.1 {
                break;
            }
            if let Some((rows, w, s)) = pools.pop()
                && let Some(last) = pools.last_mut()
            {
                last.0.extend(rows);
                (last.1, last.2) = (last.1 + w, last.2 + s);
            }
        }
    }
    let spread =
        |(rows, w, s): (Vec<usize>, f64, f64)| rows.into_iter().map(move |row| (row, s / w));
    pools.into_iter().flat_map(spread).collect()
}

/// Fills in rows without samples: logarithmically between known rows, by the square root beyond them.
fn bridge(misses: &mut [f64; SIZES]) {
    let known: Vec<usize> = (0..SIZES).filter(|row| misses[*row].is_finite()).collect();
    let (Some(&first), Some(&last)) = (known.first(), known.last()) else {
        misses.fill(LEAST);
        return;
    };
    for row in (0..first).rev() {
        misses[row] = (misses[row + 1] / SLOPE).min(MOST);
    }
    for row in last + 1..SIZES {
        misses[row] = (misses[row - 1] * SLOPE).max(LEAST);
    }
    for pair in known.windows(2) {
        let (from, to) = (misses[pair[0]].max(LEAST), misses[pair[1]].max(LEAST));
        let steps = (pair[1] - pair[0]) as f64;
        for (nth, row) in misses[pair[0] + 1..pair[1]].iter_mut().enumerate() {
            *row = from * (to / from).powf((nth + 1) as f64 / steps);
        }
    }
}

impl ThreadCurve {
    fn new(misses: [f64; SIZES]) -> Self {
        let rate = |row: usize| 0.5 * (misses[row] + misses[row.saturating_sub(1)]);
        let rates: [f64; SIZES] = std::array::from_fn(|row| rate(row).max(LEAST));
        Self {
            fill: Footprint::new(std::array::from_fn(size), rates, 0.0),
            misses,
        }
    }

    /// Misses per instruction with `lines` lines.
    pub fn at(&self, lines: f64) -> f64 {
        let (row, part) = place(lines);
        self.misses[row] + part * (self.misses[row + 1] - self.misses[row])
    }

    /// Lines of the thread in an initially empty cache after a number of instructions.
    pub fn lines_after(&self, instructions: f64) -> f64 {
        self.fill.after(instructions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_given_back_and_sizes_around_follow_the_square_root() {
        let mut points = CurveSums::default();
        points.note(size(10), 0.01, 1.0);
        let curve = points.curve();
        assert!((curve.at(size(10)) - 0.01).abs() < 1e-6);
        assert!((curve.at(size(18)) - 0.005).abs() < 1e-6);
        assert!((curve.at(size(2)) - 0.02).abs() < 1e-6);
    }

    #[test]
    fn noise_never_makes_a_curve_rise() {
        let mut points = CurveSums::default();
        for (row, misses) in [(4, 0.02), (8, 0.005), (9, 0.006), (10, 0.001)] {
            points.note(size(row), misses, 1.0);
        }
        let curve = points.curve();
        assert!(curve.misses.is_sorted_by(|a, b| a >= b), "{curve:?}");
        assert!((curve.at(size(8)) - 0.0055).abs() < 1e-6);
    }

    #[test]
    fn filling_takes_as_long_as_the_misses_say() {
        let mut points = CurveSums::default();
        (0..SIZES).for_each(|row| points.note(size(row), 0.01, 1.0));
        let curve = points.curve();
        assert!((curve.lines_after(1e6) / 1e4 - 1.0).abs() < 1e-3);
    }

    #[test]
    fn more_room_than_was_wanted_saves_nothing() {
        let mut points = CurveSums::default();
        points.note(size(12), 0.002, 1.0);
        points.room_to_spare(size(12));
        assert_eq!(points.curve().at(size(20)), points.curve().at(size(12)));
        points.squeezed(size(14));
        assert!(points.curve().at(size(20)) < points.curve().at(size(12)));
    }
}
