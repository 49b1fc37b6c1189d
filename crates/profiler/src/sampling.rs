//! Errors of the figures of a sampled recording.
//!
//! Input: the sum of all records. Output: the figures that come from a sample, with their standard errors. Errors of misses are those of
//! random groups of lines (Wolter, Introduction to Variance Estimation, 2007, chapter 2).

use countersteer_model::profile::SampledFigure;

use super::branches::mispredictions;
use super::figures::{beyond, round};
use super::layout::{GROUPS, ILP_WINDOWS, MLP_LINES, record};

/// Returns the sampled figures of a run; none if it was too short for a sample.
pub fn figures(whole: &[u64]) -> Vec<SampledFigure> {
    let instructions = whole[record::INSTRUCTIONS] as f64;
    if whole[record::WINDOWS] == 0 {
        return Vec::new();
    }
    let figure = |figure: String, value: f64, error: f64| SampledFigure {
        figure,
        value: round(value),
        error: round(error),
    };
    let per_ki = 1000.0 / instructions;
    let branches = mispredictions(whole, whole);
    let mut figures = vec![figure(
        "branch_mpki".into(),
        branches.value * per_ki,
        branches.error * per_ki,
    )];
    for (size, lines) in MLP_LINES.iter().enumerate() {
        let error =
            group_error(|group| whole[record::GROUPS + group * MLP_LINES.len() + size] as f64);
        figures.push(figure(
            format!("mpki_{lines}"),
            beyond(whole, *lines) as f64 * per_ki,
            error * per_ki,
        ));
    }
    for (lane, window) in ILP_WINDOWS.iter().enumerate() {
        let captures = whole[record::CAPTURES] as f64;
        let cycles = whole[record::ILP_CYCLES + lane] as f64;
        if captures < 2.0 {
            continue;
        }
        let mean = cycles / captures;
        let variance = whole[record::ILP_SQUARES + lane] as f64 / captures - mean * mean;
        let ipc = whole[record::SAMPLED] as f64 / cycles;
        let error = ipc * (variance.max(0.0) / (captures - 1.0)).sqrt() / mean;
        figures.push(figure(format!("ilp_{window}"), ipc, error));
    }
    figures
}

/// Returns the standard error of a sum over random groups.
fn group_error(of: impl Fn(usize) -> f64) -> f64 {
    let count = GROUPS as f64;
    let mean = (0..GROUPS).map(&of).sum::<f64>() / count;
    let squares: f64 = (0..GROUPS).map(|group| (of(group) - mean).powi(2)).sum();
    (squares * count / (count - 1.0)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_between_windows_and_groups_are_errors() {
        let mut whole = vec![0; record::WORDS];
        whole[record::INSTRUCTIONS] = 1_000_000;
        assert_eq!(figures(&whole), []);
        // Ten windows of 1,000 instructions, in half of which 4 and in the others 6 of 1,000 branches are mispredicted.
        whole[record::WINDOWS] = 10;
        whole[record::WINDOWED] = 10_000;
        whole[record::SIMPLE] = 10_000;
        let sums = [50, 100, 5 * 16 + 5 * 36, 10 * 100, 500];
        whole[record::WINDOW_SUMS..record::WINDOW_SUMS + 5].copy_from_slice(&sums);
        for group in 0..GROUPS {
            whole[record::GROUPS + group * MLP_LINES.len()] = 100;
        }
        whole[record::GROUPS] = 180;
        let found = figures(&whole);
        let of = |name: &str| found.iter().find(|f| f.figure == name).unwrap();
        assert_eq!(of("branch_mpki").value, 5.0);
        // The standard deviation is 1 in 1,000 instructions.
        assert!((of("branch_mpki").error - 1.0 / 8f64.sqrt()).abs() < 1e-3);
        assert!(
            (of("mpki_512").error - 0.08).abs() < 1e-9,
            "{:?}",
            of("mpki_512")
        );
        assert_eq!(of("mpki_2048").error, 0.0);
        // More mispredictions in the warm-up, by 2 for each of the simple predictor's.
        whole[record::BEFORE] = 70;
        whole[record::BEFORE + 1] = 100;
        let found = figures(&whole);
        let error = (1.0f64 / 8.0 + 1.0).sqrt();
        assert!((found[0].error - error).abs() < 2e-3, "{:?}", found[0]);
    }
}
