//! Fit of a miss curve to noisy points: a program's misses while it occupied different amounts of a shared cache.
//!
//! Input: points (KiB occupied, misses per kilo-instruction), measured while programs ran together. Output: the fitted curve of
//! the form with the smallest cross-validation error. PMCTrack, section 4.3.1, mentions regression; the forms were decided here.
//! The curve does not extend beyond the measured sizes.

use std::fmt;

/// Number of bins of equal size into which the cache is divided. Each bin is represented by the median of its points.
const BINS: usize = 16;
/// Minimum number of bins with points for a fit. Fewer bins do not distinguish the forms.
const LEAST_BINS: usize = 3;
/// Range of sizes over which an exponential falls to 1/e, in fractions of the cache: smallest, largest, and number of values
/// tried.
const FALLS: (f64, f64, usize) = (0.02, 4.0, 80);

/// Form of the function that is fitted to the points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CurveForm {
    /// Nearest non-increasing curve (pool adjacent violators), linear between bins.
    Falling,
    /// Exponential `a + b exp(-x / c)`, which falls steeply and then is flat.
    Exponential,
    Line,
}

impl fmt::Display for CurveForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Falling => "falling",
            Self::Exponential => "exponential",
            Self::Line => "line",
        })
    }
}

/// Bin of cache sizes with its measured points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bin {
    /// Mean size of the points in the bin, in KiB.
    pub cache_kib: f64,
    /// Median of the values of the bin's points.
    pub value: f64,
    pub points: usize,
}

/// Fitted curve with its cross-validation error.
#[derive(Clone, Debug, PartialEq)]
pub struct FittedCurve {
    pub form: CurveForm,
    /// Pairs (KiB, value), one for each bin with points, smallest size first.
    pub curve: Vec<(f64, f64)>,
    /// Mean absolute difference between the median of a bin and the curve fitted to the other bins.
    pub error: f64,
    pub bins: Vec<Bin>,
}

/// Fits a non-increasing curve to points of a cache of `whole_kib` KiB. `None` if fewer than three of the sixteen bins have
/// points.
#[must_use]
pub fn falling(points: &[(f64, f64)], whole_kib: f64) -> Option<FittedCurve> {
    let bins = bins(points, whole_kib);
    if bins.len() < LEAST_BINS {
        return None;
    }
    let judged = |form: CurveForm| {
        let others = |left_out: usize| {
            let kept = bins.iter().enumerate().filter(|(nth, _)| *nth != left_out);
            kept.map(|(_, bin)| *bin).collect::<Vec<_>>()
        };
        let away = bins.iter().enumerate().map(|(nth, bin)| {
            let predicted = FitPoints::fitted(form, &others(nth), whole_kib).at(bin.cache_kib);
            (predicted - bin.value).abs() * bin.points as f64
        });
        let points: usize = bins.iter().map(|bin| bin.points).sum();
        (form, away.sum::<f64>() / points as f64)
    };
    // Of forms with equal errors, the first is taken, which has the fewest parameters.
    let forms = [CurveForm::Line, CurveForm::Exponential, CurveForm::Falling].map(judged);
    let (form, error) = forms
        .into_iter()
        .reduce(|best, other| if other.1 < best.1 { other } else { best })?;
    let curve = FitPoints::fitted(form, &bins, whole_kib);
    Some(FittedCurve {
        form,
        curve: bins
            .iter()
            .map(|b| (b.cache_kib, curve.at(b.cache_kib)))
            .collect(),
        error,
        bins,
    })
}

/// Fits the nearest non-decreasing curve, for quantities that grow with cache size. Returns one pair (KiB, value) per bin with
/// points.
#[must_use]
pub fn rising(points: &[(f64, f64)], whole_kib: f64) -> Vec<(f64, f64)> {
    let mut bins = bins(points, whole_kib);
    bins.iter_mut().for_each(|bin| bin.value = -bin.value);
    let pooled = pooled(&bins).into_iter();
    pooled
        .map(|(cache_kib, value)| (cache_kib, -value))
        .collect()
}

fn bins(points: &[(f64, f64)], whole_kib: f64) -> Vec<Bin> {
    let mut members: Vec<Vec<(f64, f64)>> = vec![Vec::new(); BINS];
    for (kib, value) in points.iter().copied() {
        if kib > 0.0 && kib.is_finite() && value.is_finite() {
            let nth = (kib / whole_kib * BINS as f64) as usize;
            members[nth.min(BINS - 1)].push((kib, value));
        }
    }
    members.retain(|members| !members.is_empty());
    members.iter().map(|members| Bin::of(members)).collect()
}

impl Bin {
    fn of(members: &[(f64, f64)]) -> Self {
        let mut values: Vec<f64> = members.iter().map(|m| m.1).collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let value = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Self {
            cache_kib: members.iter().map(|m| m.0).sum::<f64>() / members.len() as f64,
            value,
            points: members.len(),
        }
    }
}

enum FitPoints {
    /// Points with linear interpolation between them and constant values outside.
    Points(Vec<(f64, f64)>),
    /// Exponential `a + b exp(-x / c)`.
    Exponential {
        a: f64,
        b: f64,
        c: f64,
    },
    Line {
        a: f64,
        b: f64,
    },
}

impl FitPoints {
    fn fitted(form: CurveForm, bins: &[Bin], whole_kib: f64) -> Self {
        match form {
            CurveForm::Falling => Self::Points(pooled(bins)),
            CurveForm::Line => {
                let (a, b) = least_squares(bins, |kib| -kib);
                Self::Line { a, b }
            }
            CurveForm::Exponential => exponential(bins, whole_kib),
        }
    }

    fn at(&self, kib: f64) -> f64 {
        match self {
            Self::Line { a, b } => a - b * kib,
            Self::Exponential { a, b, c } => a + b * (-kib / c).exp(),
            Self::Points(points) => between(points, kib),
        }
    }
}

fn between(points: &[(f64, f64)], kib: f64) -> f64 {
    let next = points.partition_point(|p| p.0 < kib);
    match (next.checked_sub(1).map(|n| points[n]), points.get(next)) {
        (Some(left), Some(right)) => {
            let part = (kib - left.0) / (right.0 - left.0);
            left.1 + part * (right.1 - left.1)
        }
        (Some(last), None) => last.1,
        (None, first) => first.map_or(0.0, |p| p.1),
    }
}

/// Merges adjacent bins, weighted by their number of points, until no value is larger than the one before (pool adjacent
/// violators).
fn pooled(bins: &[Bin]) -> Vec<(f64, f64)> {
    // (mean, weight, number of bins) of each pool.
    let mut pools: Vec<(f64, f64, usize)> = Vec::new();
    for bin in bins {
        pools.push((bin.value, bin.points as f64, 1));
        while let [.., left, right] = pools.as_slice()
            && left.0 < right.0
        {
            let weight = left.1 + right.1;
            let mean = (left.0 * left.1 + right.0 * right.1) / weight;
            let joined = (mean, weight, left.2 + right.2);
            pools.truncate(pools.len() - 2);
            pools.push(joined);
        }
    }
    let values = pools
        .into_iter()
        .flat_map(|(mean, _, n)| std::iter::repeat_n(mean, n));
    bins.iter()
        .zip(values)
        .map(|(bin, value)| (bin.cache_kib, value))
        .collect()
}

/// Returns `a` and `b` of `a + b f(x)` by least squares, weighted by the number of points, with `b` at least zero.
fn least_squares(bins: &[Bin], f: impl Fn(f64) -> f64) -> (f64, f64) {
    let weight: f64 = bins.iter().map(|b| b.points as f64).sum();
    let mean = |of: &dyn Fn(&Bin) -> f64| {
        bins.iter().map(|b| b.points as f64 * of(b)).sum::<f64>() / weight
    };
    let value = mean(&|b| b.value);
    let x = mean(&|b| f(b.cache_kib));
    let both = mean(&|b| (f(b.cache_kib) - x) * (b.value - value));
    let spread = mean(&|b| (f(b.cache_kib) - x).powi(2));
    let b = if spread > 0.0 {
        (both / spread).max(0.0)
    } else {
        0.0
    };
    (value - b * x, b)
}

fn exponential(bins: &[Bin], whole_kib: f64) -> FitPoints {
    let (least, most, tried) = FALLS;
    let curve = |nth: usize| {
        let part = nth as f64 / (tried - 1) as f64;
        let c = whole_kib * least * (most / least).powf(part);
        let (a, b) = least_squares(bins, |kib| (-kib / c).exp());
        FitPoints::Exponential { a, b, c }
    };
    let away = |curve: &FitPoints| -> f64 {
        let squares = bins
            .iter()
            .map(|b| b.points as f64 * (curve.at(b.cache_kib) - b.value).powi(2));
        squares.sum()
    };
    let first = curve(0);
    (1..tried).map(curve).fold(first, |best, other| {
        if away(&other) < away(&best) {
            other
        } else {
            best
        }
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test helper that fails has failed its test
mod tests {
    use super::*;

    const WHOLE: f64 = 16_384.0;

    fn sampled(of: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        (1..=48)
            .map(|n| f64::from(n) * WHOLE / 48.0)
            .map(|kib| (kib, of(kib)))
            .collect()
    }

    fn farthest(fit: &FittedCurve, of: impl Fn(f64) -> f64) -> f64 {
        fit.curve
            .iter()
            .map(|(kib, value)| (value - of(*kib)).abs())
            .fold(0.0, f64::max)
    }

    #[test]
    fn each_form_is_recognised_and_recovered() {
        let line = |kib: f64| 20.0 - kib / 1024.0;
        let fit = falling(&sampled(line), WHOLE).unwrap();
        assert_eq!(fit.form, CurveForm::Line);
        assert!(farthest(&fit, line) < 1e-9 && fit.error < 1e-9, "{fit:?}");

        let steep = |kib: f64| 2.0 + 30.0 * (-kib / 2_000.0).exp();
        let fit = falling(&sampled(steep), WHOLE).unwrap();
        assert_eq!(fit.form, CurveForm::Exponential);
        assert!(farthest(&fit, steep) < 0.7, "{fit:?}");

        let cliff = |kib: f64| if kib < 9_000.0 { 30.0 } else { 1.0 };
        let fit = falling(&sampled(cliff), WHOLE).unwrap();
        assert_eq!(fit.form, CurveForm::Falling);
        assert!(farthest(&fit, cliff) < 1e-9, "{fit:?}");
    }

    #[test]
    fn a_curve_never_rises_and_outliers_do_not_move_it() {
        let mut points = sampled(|kib| 20.0 - kib / 1024.0);
        points.extend(sampled(|kib| 20.0 - kib / 1024.0));
        points[10].1 = 500.0;
        let fit = falling(&points, WHOLE).unwrap();
        assert!(fit.curve.windows(2).all(|w| w[1].1 <= w[0].1), "{fit:?}");
        assert!(farthest(&fit, |kib| 20.0 - kib / 1024.0) < 0.5, "{fit:?}");
    }

    #[test]
    fn neighbours_that_rise_are_pooled_by_their_points() {
        let bin = |kib: f64, value: f64, points| Bin {
            cache_kib: kib,
            value,
            points,
        };
        let bins = [
            bin(1.0, 9.0, 1),
            bin(2.0, 2.0, 1),
            bin(3.0, 5.0, 2),
            bin(4.0, 1.0, 1),
        ];
        assert_eq!(
            pooled(&bins),
            [(1.0, 9.0), (2.0, 4.0), (3.0, 4.0), (4.0, 1.0)]
        );
        let fallen = [bin(1.0, 3.0, 1), bin(2.0, 2.0, 1)];
        assert_eq!(pooled(&fallen), [(1.0, 3.0), (2.0, 2.0)]);
        let rising = rising(&[(1_024.0, 2.0), (5_000.0, 1.0), (9_000.0, 4.0)], WHOLE);
        assert_eq!(
            rising.iter().map(|p| p.1).collect::<Vec<_>>(),
            [1.5, 1.5, 4.0]
        );
    }

    #[test]
    fn too_few_sizes_make_no_curve() {
        assert_eq!(falling(&[], WHOLE), None);
        let same = [
            (5_000.0, 3.0),
            (5_010.0, 2.0),
            (12_000.0, 1.0),
            (f64::NAN, 1.0),
        ];
        assert_eq!(falling(&same, WHOLE), None);
    }
}
