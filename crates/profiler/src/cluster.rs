//! Clustering of windows by behaviour.
//!
//! Input: one weighted feature vector per window. Output: a label per window. Method: weighted k-means from deterministic
//! starting points, for growing k. The smallest k with a Bayesian information criterion close to the best is chosen (Sherwood et
//! al. 2002). No random numbers are used: the same windows give the same labels.

const MOST: usize = 10;
const ROUNDS: usize = 50;
/// Sufficient share of the way from the worst to the best criterion.
const CLOSE: f64 = 0.9;
/// Mean squared distance below which windows differ only by noise.
const NOISE: f64 = 2e-3;

/// Features and weight of a window.
#[derive(Clone, Debug)]
pub(crate) struct WindowPoint {
    pub at: Vec<f64>,
    pub weight: f64,
}

/// Labels the points 0, 1, ...
pub fn cluster(points: &[WindowPoint]) -> Vec<usize> {
    let mut candidates = Vec::new();
    for k in 1..=MOST.min(points.len()) {
        let labels = k_means(points, k);
        let spread = spread(points, &labels, k);
        candidates.push((criterion(points, spread, k), labels));
        if spread < NOISE {
            break;
        }
    }
    let best = candidates
        .iter()
        .map(|(c, _)| *c)
        .fold(f64::NEG_INFINITY, f64::max);
    let worst = candidates
        .iter()
        .map(|(c, _)| *c)
        .fold(f64::INFINITY, f64::min);
    let enough = worst + CLOSE * (best - worst);
    candidates
        .into_iter()
        .find(|(c, _)| *c >= enough)
        .map_or_else(Vec::new, |(_, labels)| labels)
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| (x - y).powi(2)).sum()
}

fn nearest(at: &[f64], centres: &[Vec<f64>]) -> (usize, f64) {
    let mut best = (0, f64::INFINITY);
    for (index, centre) in centres.iter().enumerate() {
        let distance = distance(at, centre);
        if distance < best.1 {
            best = (index, distance);
        }
    }
    best
}

/// Returns the mean squared distance of the points from their centre.
fn spread(points: &[WindowPoint], labels: &[usize], k: usize) -> f64 {
    let centres = centres(points, labels, k);
    let total: f64 = points.iter().map(|p| p.weight).sum();
    points
        .iter()
        .zip(labels)
        .map(|(p, l)| p.weight * distance(&p.at, &centres[*l]))
        .sum::<f64>()
        / total
}

/// Returns the log-likelihood of spherical clusters, minus the penalty for their parameters.
fn criterion(points: &[WindowPoint], spread: f64, k: usize) -> f64 {
    let count = points.len() as f64;
    let dimensions = points.first().map_or(1, |p| p.at.len()) as f64;
    let variance = (spread / dimensions).max(NOISE / dimensions / 4.0);
    -0.5 * count * dimensions * variance.ln() - 0.5 * k as f64 * (dimensions + 1.0) * count.ln()
}

fn k_means(points: &[WindowPoint], k: usize) -> Vec<usize> {
    let mut centres = start(points, k);
    let mut labels = vec![0; points.len()];
    for _ in 0..ROUNDS {
        let next: Vec<usize> = points.iter().map(|p| nearest(&p.at, &centres).0).collect();
        if next == labels && centres.len() > 1 {
            break;
        }
        labels = next;
        centres = self::centres(points, &labels, k);
    }
    labels
}

/// Returns the starting points: the mean's nearest point, then repeatedly the point with the largest weighted distance.
fn start(points: &[WindowPoint], k: usize) -> Vec<Vec<f64>> {
    let mean = centres(points, &vec![0; points.len()], 1);
    let mut chosen = Vec::new();
    let first = points
        .iter()
        .min_by(|a, b| distance(&a.at, &mean[0]).total_cmp(&distance(&b.at, &mean[0])));
    chosen.extend(first.map(|p| p.at.clone()));
    while chosen.len() < k {
        let served = |p: &WindowPoint| p.weight * nearest(&p.at, &chosen).1;
        let worst = points.iter().max_by(|a, b| served(a).total_cmp(&served(b)));
        match worst {
            Some(point) => chosen.push(point.at.clone()),
            None => break,
        }
    }
    chosen
}

fn centres(points: &[WindowPoint], labels: &[usize], k: usize) -> Vec<Vec<f64>> {
    let dimensions = points.first().map_or(0, |p| p.at.len());
    let mut sums = vec![vec![0.0; dimensions]; k];
    let mut weights = vec![0.0; k];
    for (point, label) in points.iter().zip(labels) {
        weights[*label] += point.weight;
        sums[*label]
            .iter_mut()
            .zip(&point.at)
            .for_each(|(s, x)| *s += point.weight * x);
    }
    for (sum, weight) in sums.iter_mut().zip(&weights) {
        // A cluster without points gets a centre far from everything.
        sum.iter_mut().for_each(|s| {
            *s = if *weight > 0.0 {
                *s / weight
            } else {
                f64::MAX.sqrt() / 1e6
            }
        });
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(centres: &[(f64, f64)], each: usize) -> Vec<WindowPoint> {
        let jitter = |i: usize| ((i * 7919) % 100) as f64 / 100.0 * 0.05;
        let all = centres
            .iter()
            .flat_map(|(x, y)| (0..each).map(move |i| (x + jitter(i), y + jitter(i + 31))));
        all.map(|(x, y)| WindowPoint {
            at: vec![x, y],
            weight: 1.0,
        })
        .collect()
    }

    #[test]
    fn separate_clouds_get_separate_labels() {
        let labels = cluster(&points(&[(0.0, 0.0), (3.0, 0.0), (0.0, 3.0)], 40));
        let first: Vec<usize> = labels.chunks(40).map(|c| c[0]).collect();
        assert!(labels.chunks(40).all(|c| c.iter().all(|l| *l == c[0])));
        assert!(first[0] != first[1] && first[1] != first[2] && first[0] != first[2]);
    }

    #[test]
    fn one_cloud_is_one_behaviour() {
        let labels = cluster(&points(&[(1.0, 1.0)], 100));
        assert!(labels.iter().all(|l| *l == 0));
    }

    #[test]
    fn a_single_window_and_none_are_fine() {
        assert_eq!(cluster(&points(&[(1.0, 1.0)], 1)), [0]);
        assert!(cluster(&[]).is_empty());
    }
}
