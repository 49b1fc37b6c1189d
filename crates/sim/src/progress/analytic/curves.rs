//! Curves of a behaviour: parallelism over window and cache size, misses over the geometry of a real cache.
//!
//! Input: a [`Behaviour`]'s points. Output: values for the windows and caches of an actual core.

use countersteer_model::profile::{IlpPoint, MissCurve, MlpPoint};

/// Minimum number of ways at which a cache counts as fully associative.
///
/// The binomial correction (Smith 1978; Hill and Smith 1989) assumes that lines map to sets at random. Compared with direct
/// simulation it smooths the cliffs of loops, and is wrong by up to .29 on strided code. Caches with eight or more ways behave
/// like LRU stacks to within a few per cent. With fewer ways conflicts matter, and the correction is better than none.
const ASSOCIATIVE_WAYS: u32 = 8;

/// Returns the instructions per cycle that dependences allow in a window: a power law between the recorded windows. A window of
/// one instruction gives one per cycle. Karkhanis and Smith (2004) fit one power law to all windows.
pub fn ilp(points: &[IlpPoint], window: f64) -> f64 {
    let mut before = (1.0f64, 1.0f64);
    for point in points {
        let after = (f64::from(point.window).max(1.0), point.ipc);
        if window <= after.0 {
            if after.0 <= before.0 {
                return after.1;
            }
            let x = (window / before.0).ln() / (after.0 / before.0).ln();
            return before.1 * (after.1 / before.1).powf(x.clamp(0.0, 1.0));
        }
        before = after;
    }
    before.1
}

/// Returns the number of misses that overlap in `window` instructions behind a cache of `lines` lines; 1 if nothing was recorded.
pub fn overlap(points: &[MlpPoint], window: f64, lines: f64) -> f64 {
    let mut sizes: Vec<u64> = points.iter().map(|p| p.cache_lines).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let by_size: Vec<(f64, f64)> = sizes
        .iter()
        .map(|size| {
            (
                (*size).max(1) as f64,
                overlap_by_window(points, window, *size),
            )
        })
        .collect();
    interpolate(&by_size, lines.max(1.0))
        .unwrap_or(1.0)
        .max(1.0)
}

fn overlap_by_window(points: &[MlpPoint], window: f64, size: u64) -> f64 {
    let mut of_size: Vec<(f64, f64)> = points
        .iter()
        .filter(|p| p.cache_lines == size)
        .map(|p| (f64::from(p.window).max(1.0), p.overlap))
        .collect();
    of_size.push((1.0, 1.0));
    of_size.sort_by(|a, b| a.0.total_cmp(&b.0));
    interpolate(&of_size, window.max(1.0)).unwrap_or(1.0)
}

/// Interpolates linearly in the logarithm of x, and continues with constants beyond the ends; `None` without points.
pub(crate) fn interpolate(points: &[(f64, f64)], x: f64) -> Option<f64> {
    let after = points.partition_point(|p| p.0 <= x);
    let low = after.checked_sub(1).map(|i| points[i]);
    match (low, points.get(after)) {
        (Some((x0, y0)), Some(&(x1, y1))) => Some(y0 + (y1 - y0) * (x / x0).ln() / (x1 / x0).ln()),
        (Some((_, y)), None) | (None, Some(&(_, y))) => Some(y),
        (None, None) => None,
    }
}

/// Returns the misses per instruction of a private cache of `lines` lines and `ways` ways.
pub(crate) fn private_misses(curve: &MissCurve, lines: f64, ways: u32) -> f64 {
    if ways >= ASSOCIATIVE_WAYS || f64::from(ways) >= lines {
        return curve.mpki(lines) / 1000.0;
    }
    let sets = (lines / f64::from(ways.max(1))).max(1.0);
    let points = curve.points();
    // The sum starts with the misses at any cache size. Each section of the curve is added at its middle distance.
    let mut misses = points.last().map_or(0.0, |p| p.1);
    for pair in points.windows(2) {
        let distance = 0.5 * (pair[0].0 + pair[1].0);
        misses += (pair[0].1 - pair[1].1) * conflict(distance, sets, ways.max(1));
    }
    misses / 1000.0
}

/// Probability that at least `ways` of `distance` other lines map to one of `sets` sets.
fn conflict(distance: f64, sets: f64, ways: u32) -> f64 {
    if sets <= 1.0 {
        return if distance >= f64::from(ways) {
            1.0
        } else {
            0.0
        };
    }
    let p = 1.0 / sets;
    let q = 1.0 - 1.0 / sets;
    let mut term = q.powf(distance);
    let mut fewer = 0.0;
    for k in 0..ways {
        fewer += term;
        let k = f64::from(k);
        term *= ((distance - k) / (k + 1.0) * p / q).max(0.0);
    }
    (1.0 - fewer).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parallelism_follows_a_power_law_between_windows_and_starts_at_one() {
        let points = [
            IlpPoint {
                window: 16,
                ipc: 4.0,
            },
            IlpPoint {
                window: 256,
                ipc: 16.0,
            },
        ];
        assert!((ilp(&points, 64.0) - 8.0).abs() < 1e-9);
        assert!((ilp(&points, 4.0) - 2.0).abs() < 1e-9);
        assert_eq!(ilp(&points, 1000.0), 16.0);
    }

    #[test]
    fn overlap_interpolates_over_window_and_cache() {
        let point = |window, cache_lines, overlap| MlpPoint {
            window,
            cache_lines,
            overlap,
        };
        let points = [
            point(16, 1024, 2.0),
            point(256, 1024, 6.0),
            point(16, 65536, 1.0),
            point(256, 65536, 2.0),
        ];
        assert!((overlap(&points, 64.0, 1024.0) - 4.0).abs() < 1e-9);
        assert!((overlap(&points, 64.0, 8192.0) - 2.75).abs() < 1e-9);
        assert_eq!(overlap(&[], 64.0, 8192.0), 1.0);
    }

    #[test]
    fn few_ways_miss_more_and_many_ways_miss_like_a_stack() {
        let curve = MissCurve::from_points(vec![(0.0, 100.0), (400.0, 50.0), (2000.0, 0.0)]);
        let full = private_misses(&curve, 512.0, 8);
        let two = private_misses(&curve, 512.0, 2);
        assert!((full - curve.mpki(512.0) / 1000.0).abs() < 1e-12);
        assert!(two > full && two < 0.1, "{two} {full}");
    }
}
