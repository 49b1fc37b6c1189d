//! Deviations of a program from the model, which are alike for sets of CPUs that are alike.
//!
//! Input: sets of CPUs with a trial. Output: likelihood of deviations, and the deviation to expect of another set with its spread.
//!
//! Logarithms of deviations are a Gaussian process. The correlation of two sets falls exponentially with their Jaccard distance, the
//! share of CPUs that only one of them has. Sets with different chunkings are further apart.

use countersteer_model::cpuset::CpuSet;

/// Standard deviation of a program's time from the model.
const SPREAD: f64 = 0.08;
/// Standard deviation of one set by itself, and of one run.
const NOISE: f64 = 0.04;
/// Jaccard distance over which the correlation falls to 1/e.
const REACH: f64 = 0.4;
/// Distance between chunkings, like a Jaccard distance.
const CHUNKING: f64 = 0.4;

/// CPUs, and the row of the chunking.
pub(crate) type ChunkPlace = (CpuSet, usize);

/// Deviations at some sets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Residual {
    sets: Vec<ChunkPlace>,
    /// Inverse of the deviations' covariance, by rows.
    inverse: Vec<Vec<f64>>,
    /// Sums of its rows.
    weights: Vec<f64>,
    /// Factor on [`SPREAD`] and [`NOISE`].
    scale: f64,
}

fn covariance((a, one): &ChunkPlace, (b, other): &ChunkPlace) -> f64 {
    let both = a.intersection(b).len() as f64;
    let any = (a.len() + b.len()) as f64 - both;
    let chunking = if one == other { 0.0 } else { CHUNKING };
    SPREAD * SPREAD * (-(1.0 - both / any + chunking) / REACH).exp()
}

impl Residual {
    /// Deviations at these sets, `scale` times as large as usual.
    #[must_use]
    pub fn at(sets: Vec<ChunkPlace>, scale: f64) -> Self {
        let row = |a: usize| {
            let entry = |b: usize| {
                let noise = if a == b { NOISE * NOISE } else { 0.0 };
                scale * scale * (covariance(&sets[a], &sets[b]) + noise)
            };
            (0..sets.len()).map(entry).collect::<Vec<f64>>()
        };
        let inverse = inverted((0..sets.len()).map(row).collect());
        Self {
            weights: inverse.iter().map(|row| row.iter().sum()).collect(),
            sets,
            inverse,
            scale,
        }
    }

    /// The constant that these deviations have in common, and their distance from it in squared standard deviations.
    #[must_use]
    pub fn fit(&self, deviations: &[f64]) -> (f64, f64) {
        let sum: f64 = self.weights.iter().sum();
        let weighted = deviations.iter().zip(&self.weights).map(|(d, w)| d * w);
        let common = weighted.sum::<f64>() / sum;
        let rest: Vec<f64> = deviations.iter().map(|d| d - common).collect();
        let row = |(of, row): (&f64, &Vec<f64>)| of * dot(row, &rest);
        (common, rest.iter().zip(&self.inverse).map(row).sum())
    }

    /// Weights of the known deviations in that of another set, and the standard deviation that remains.
    #[must_use]
    pub fn towards(&self, set: &ChunkPlace) -> (Vec<f64>, f64) {
        let scale = self.scale * self.scale;
        let known = self.sets.iter().map(|to| scale * covariance(set, to));
        let known: Vec<f64> = known.collect();
        let weights: Vec<f64> = self.inverse.iter().map(|row| dot(row, &known)).collect();
        let explained = dot(&weights, &known);
        let rest = (scale * (SPREAD * SPREAD + NOISE * NOISE) - explained).max(0.0);
        (weights, rest.sqrt())
    }
}

/// Sum of products.
#[must_use]
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Inverse of a positive definite matrix (Gauss and Jordan; such a matrix needs no pivoting).
fn inverted(mut left: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    let size = left.len();
    let unit = |row: usize| {
        (0..size)
            .map(|column| f64::from(u8::from(row == column)))
            .collect()
    };
    let mut right: Vec<Vec<f64>> = (0..size).map(unit).collect();
    for pivot in 0..size {
        let by = left[pivot][pivot].recip();
        left[pivot]
            .iter_mut()
            .chain(&mut right[pivot])
            .for_each(|value| *value *= by);
        for row in (0..size).filter(|row| *row != pivot) {
            let factor = left[row][pivot];
            for column in 0..size {
                left[row][column] -= factor * left[pivot][column];
                right[row][column] -= factor * right[pivot][column];
            }
        }
    }
    right
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(list: &str, chunking: usize) -> ChunkPlace {
        (list.parse().unwrap(), chunking)
    }

    fn sets(lists: &[&str]) -> Vec<ChunkPlace> {
        lists.iter().map(|list| place(list, 0)).collect()
    }

    #[test]
    fn the_inverse_is_one() {
        let inverse = inverted(vec![vec![4.0, 2.0], vec![2.0, 3.0]]);
        let expected = [[0.375, -0.25], [-0.25, 0.5]];
        for (row, expected) in inverse.iter().zip(expected) {
            assert!(
                row.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12),
                "{row:?}"
            );
        }
    }

    #[test]
    fn alike_sets_deviate_alike_and_far_ones_are_open() {
        let residual = Residual::at(sets(&["0-7"]), 1.0);
        let (near, near_rest) = residual.towards(&place("0-8", 0));
        let (far, far_rest) = residual.towards(&place("16-23", 0));
        assert!(near[0] > 0.5 && near_rest < 0.08, "{near:?} {near_rest}");
        assert!(far[0] < 0.2 && far_rest > 0.08, "{far:?} {far_rest}");
        let (other, _) = residual.towards(&place("0-7", 1));
        assert!(other[0] > far[0] && other[0] < near[0], "{other:?}");
    }

    #[test]
    fn a_common_deviation_is_the_scale_and_costs_nothing() {
        let residual = Residual::at(sets(&["0", "0-1", "0-3"]), 1.0);
        let (common, distance) = residual.fit(&[0.7, 0.7, 0.7]);
        assert!((common - 0.7).abs() < 1e-12 && distance.abs() < 1e-9);
        let (_, distance) = residual.fit(&[0.7, 0.9, 0.7]);
        assert!(distance > 2.0, "{distance}");
    }
}
