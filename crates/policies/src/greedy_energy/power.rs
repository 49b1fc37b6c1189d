//! Power model of a slice: a weighted sum of uses. The weights of a core type are fitted by least squares to the energy
//! charged to threads.

use countersteer_model::topology::Topology;

/// Number of uses in the power model: CPU time, floating-point instructions (1e9 per second), and last-level cache misses
/// (1e9 per second).
pub(super) const USES: usize = 3;

/// Number of slices between two fits, and before the first fit.
const FIT_EVERY: u32 = 50;
/// Factor by which the weight of older slices is multiplied at each new slice.
const KEPT: f64 = 0.99;
/// Regularisation: penalty on weights that the data do not determine, relative to the sums of squares of their uses.
const RIDGE: f64 = 1e-6;

/// Weights of the uses in W, and the sums from which they are fitted.
pub(super) struct PowerWeights {
    /// Weights of the uses by core type, in W.
    weights: Vec<[f64; USES]>,
    /// Matrix of the normal equations: sums of products of two uses, over all core types.
    squares: Vec<Vec<f64>>,
    /// Right side of the normal equations: sums of products of a use and the power.
    products: Vec<f64>,
    /// Number of slices added.
    seen: u32,
    /// True once the weights were fitted to measured energy.
    pub is_fitted: bool,
}

impl PowerWeights {
    /// Creates a model with fixed weights: 1 W for a busy CPU, .5 nJ per floating-point instruction, and the machine file's
    /// energy per cache line.
    pub fn new(topology: &Topology) -> Self {
        let line_nj = topology.memory.first().map_or(0.0, |m| m.access_nj);
        let columns = USES * topology.core_types.len();
        Self {
            weights: vec![[1.0, 0.5, line_nj]; topology.core_types.len()],
            squares: vec![vec![0.0; columns]; columns],
            products: vec![0.0; columns],
            seen: 0,
            is_fitted: false,
        }
    }

    /// Adds a slice to the fit: the uses by core type, and the power charged to the threads, in W.
    pub fn learn(&mut self, uses: &[[f64; USES]], power_w: f64) {
        let row: Vec<f64> = uses.iter().flatten().copied().collect();
        for (a, squares) in self.squares.iter_mut().enumerate() {
            for (b, sum) in squares.iter_mut().enumerate() {
                *sum = KEPT * *sum + row[a] * row[b];
            }
            self.products[a] = KEPT * self.products[a] + row[a] * power_w;
        }
        self.seen += 1;
        if self.seen.is_multiple_of(FIT_EVERY) {
            self.fit();
        }
    }

    fn fit(&mut self) {
        let mut matrix = self.squares.clone();
        for (row, line) in matrix.iter_mut().enumerate() {
            line[row] += RIDGE * line[row] + f64::MIN_POSITIVE.sqrt();
        }
        let solution = solve(matrix, self.products.clone());
        if solution.iter().any(|v| !v.is_finite()) {
            return;
        }
        for (weights, found) in self.weights.iter_mut().zip(solution.chunks(USES)) {
            for (weight, found) in weights.iter_mut().zip(found) {
                *weight = found.max(0.0);
            }
        }
        self.is_fitted = true;
    }

    /// Returns the predicted power of a core type's uses, in W.
    pub fn of(&self, core_type: usize, uses: [f64; USES]) -> f64 {
        let weights = self.weights[core_type];
        weights.iter().zip(uses).map(|(w, use_)| w * use_).sum()
    }
}

/// Solves a system of linear equations by Gaussian elimination. The matrix is positive definite, so pivots are on the
/// diagonal.
fn solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Vec<f64> {
    let n = right.len();
    for pivot in 0..n {
        let line = matrix[pivot].clone();
        for row in pivot + 1..n {
            let factor = matrix[row][pivot] / line[pivot];
            for (value, above) in matrix[row].iter_mut().zip(&line).skip(pivot) {
                *value -= factor * above;
            }
            right[row] -= factor * right[pivot];
        }
    }
    for row in (0..n).rev() {
        let known: f64 = (row + 1..n).map(|c| matrix[row][c] * right[c]).sum();
        right[row] = (right[row] - known) / matrix[row][row];
    }
    right
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test helper that fails has failed its test
mod tests {
    use super::*;
    use countersteer_model::machine::Machine;

    fn power() -> PowerWeights {
        let text = include_str!("../../tests/toy/two-big-two-small.toml");
        PowerWeights::new(&Topology::new(&Machine::parse("m", text).unwrap()))
    }

    #[test]
    fn weights_are_found_again() {
        let mut power = power();
        let truth = [[7.0, 0.4, 30.0], [1.5, 0.1, 12.0]];
        for slice in 0..200 {
            let level = |n: u32| f64::from((slice * n) % 17) / 17.0;
            let uses = [
                [2.0 * level(3), level(5), 0.1 * level(7)],
                [2.0 * level(11), level(13), 0.1 * level(2)],
            ];
            let watts = truth.iter().flatten().zip(uses.iter().flatten());
            power.learn(&uses, watts.map(|(w, u)| w * u).sum());
        }
        assert!(power.is_fitted);
        for (found, truth) in power.weights.iter().flatten().zip(truth.iter().flatten()) {
            assert!((found / truth - 1.0).abs() < 0.01, "{found} {truth}");
        }
    }

    #[test]
    fn what_never_varies_is_still_predicted() {
        let mut power = power();
        let uses = [[2.0, 0.5, 0.01], [0.0; 3]];
        (0..FIT_EVERY).for_each(|_| power.learn(&uses, 20.0));
        assert!((power.of(0, uses[0]) - 20.0).abs() < 0.1);
    }

    #[test]
    fn weights_are_fixed_until_energy_was_seen() {
        let power = power();
        assert!(!power.is_fitted);
        assert_eq!(power.of(0, [1.0, 2.0, 0.0]), 2.0);
    }
}
