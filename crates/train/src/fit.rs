//! Additive regression: least squares over the columns of chosen features, with a ridge, solved by Cholesky decomposition.
//!
//! It minimises the sum of squared *relative* errors. The products of all columns are summed once. Without a family, its
//! products are subtracted, so that cross-validation costs little more than one fit.

use smartcore::linalg::basic::arrays::Array;
use smartcore::linalg::basic::matrix::DenseMatrix;
use smartcore::linalg::traits::cholesky::CholeskyDecomposable;

use crate::data::{BASIS, Data, TypeRow};

/// Sums of products of columns, and of columns with the truth.
#[derive(Clone)]
struct Products {
    size: usize,
    /// Lower triangle, row by row.
    of_columns: Vec<f64>,
    with_truth: Vec<f64>,
    weight: f64,
}

impl Products {
    fn new(size: usize) -> Self {
        Self {
            size,
            of_columns: vec![0.0; size * (size + 1) / 2],
            with_truth: vec![0.0; size],
            weight: 0.0,
        }
    }

    fn add(&mut self, columns: &[f64], truth: f64, weight: f64) {
        let mut at = 0;
        for i in 0..self.size {
            let scaled = columns[i] * weight;
            for (sum, x) in self.of_columns[at..=at + i].iter_mut().zip(columns) {
                *sum += scaled * x;
            }
            at += i + 1;
            self.with_truth[i] += scaled * truth;
        }
        self.weight += weight;
    }

    fn get(&self, i: usize, j: usize) -> f64 {
        let (i, j) = (i.max(j), i.min(j));
        self.of_columns[i * (i + 1) / 2 + j]
    }

    /// Coefficients of chosen columns, the first of which is the intercept; `None` if the normal matrix is singular.
    fn solve(&self, chosen: &[usize], ridge: f64) -> Option<Vec<f64>> {
        let entry = |i: usize, j: usize| {
            let extra = if i == j && i > 0 {
                ridge * self.get(0, 0)
            } else {
                0.0
            };
            self.get(chosen[i], chosen[j]) + extra
        };
        let n = chosen.len();
        let rows: Vec<Vec<f64>> = (0..n)
            .map(|i| (0..n).map(|j| entry(i, j)).collect())
            .collect();
        let truth: Vec<Vec<f64>> = chosen.iter().map(|c| vec![self.with_truth[*c]]).collect();
        let solved = DenseMatrix::from_2d_vec(&rows)
            .ok()?
            .cholesky_solve_mut(DenseMatrix::from_2d_vec(&truth).ok()?)
            .ok()?;
        Some((0..n).map(|i| *solved.get((i, 0))).collect())
    }
}

/// Fitted sum.
#[derive(Clone, Debug)]
pub struct FittedSum {
    /// Rows of [`Data::features`].
    pub features: Vec<usize>,
    pub intercept: f64,
    /// Coefficients of each feature's columns.
    pub coefficients: Vec<[f64; BASIS]>,
}

impl FittedSum {
    /// Contribution of a feature at a value of its logarithm.
    #[must_use]
    pub fn adds(&self, data: &Data, nth: usize, logarithm: f64) -> f64 {
        let columns = data.features[self.features[nth]].columns(logarithm);
        let terms = columns.iter().zip(&self.coefficients[nth]);
        terms.map(|(x, c)| x * c).sum()
    }

    #[must_use]
    pub fn of(&self, data: &Data, row: &TypeRow) -> f64 {
        let adds = |nth| self.adds(data, nth, row.logarithms[self.features[nth]]);
        self.intercept + (0..self.features.len()).map(adds).sum::<f64>()
    }
}

/// Products of a table's rows, as a whole and for each family apart.
pub struct Fitter<'a> {
    pub data: &'a Data,
    /// Fitted quantity of each row.
    truth: Vec<f64>,
    all: Products,
    /// Products of rows that belong to a family, by family.
    of_family: Vec<Products>,
}

impl<'a> Fitter<'a> {
    /// Sums the rows that belong to no family of `left_out`. It fits `truth` with these weights.
    #[must_use]
    pub fn new(data: &'a Data, left_out: &[usize], truth: Vec<f64>, weights: &[f64]) -> Self {
        let size = Data::first_column(data.features.len());
        let mut all = Products::new(size);
        let mut of_family = vec![Products::new(size); data.families.len()];
        for (row, (truth, weight)) in data.rows.iter().zip(truth.iter().zip(weights)) {
            if *weight == 0.0 || row.families.iter().any(|f| left_out.contains(f)) {
                continue;
            }
            all.add(&row.columns, *truth, *weight);
            for family in &row.families {
                of_family[*family].add(&row.columns, *truth, *weight);
            }
        }
        Self {
            data,
            truth,
            all,
            of_family,
        }
    }

    /// Sum over chosen features, without the rows of a family; `None` if the normal matrix is singular.
    #[must_use]
    pub fn fit(&self, features: &[usize], without: Option<usize>, ridge: f64) -> Option<FittedSum> {
        let first = features.iter().map(|f| Data::first_column(*f));
        let columns: Vec<usize> = std::iter::once(0)
            .chain(first.flat_map(|c| c..c + BASIS))
            .collect();
        let left;
        let products = match without {
            None => &self.all,
            Some(family) => {
                left = self.without(family, &columns);
                &left
            }
        };
        let solved = match without {
            None => products.solve(&columns, ridge),
            Some(_) => products.solve(&(0..columns.len()).collect::<Vec<_>>(), ridge),
        }?;
        let (intercept, rest) = solved.split_first()?;
        Some(FittedSum {
            features: features.to_vec(),
            intercept: *intercept,
            coefficients: rest
                .chunks_exact(BASIS)
                .map(|c| std::array::from_fn(|i| c[i]))
                .collect(),
        })
    }

    fn without(&self, family: usize, columns: &[usize]) -> Products {
        let mut left = Products::new(columns.len());
        let gone = &self.of_family[family];
        let mut at = 0;
        for (i, column) in columns.iter().enumerate() {
            for other in &columns[..=i] {
                left.of_columns[at] = self.all.get(*column, *other) - gone.get(*column, *other);
                at += 1;
            }
            left.with_truth[i] = self.all.with_truth[*column] - gone.with_truth[*column];
        }
        left.weight = self.all.weight - gone.weight;
        left
    }

    /// Prediction for each real row of these families by a fit without its family; NaN for other rows.
    #[must_use]
    pub fn cross_validated(&self, features: &[usize], families: &[usize], ridge: f64) -> Vec<f64> {
        let mut predicted = vec![f64::NAN; self.data.rows.len()];
        for family in families {
            let Some(sum) = self.fit(features, Some(*family), ridge) else {
                continue;
            };
            for (row, into) in self.data.rows.iter().zip(&mut predicted) {
                if row.real && row.families[0] == *family {
                    *into = sum.of(self.data, row);
                }
            }
        }
        predicted
    }

    /// Weighted mean of squared relative errors of predictions.
    #[must_use]
    pub fn loss(&self, predicted: &[f64]) -> f64 {
        let rows = self.data.rows.iter().zip(predicted.iter().zip(&self.truth));
        let (mut sum, mut weights) = (0.0, 0.0);
        for (row, (predicted, truth)) in rows.filter(|(_, (p, _))| p.is_finite()) {
            sum += row.weight * (predicted / truth - 1.0).powi(2);
            weights += row.weight;
        }
        if weights > 0.0 {
            sum / weights
        } else {
            f64::INFINITY
        }
    }
}
