//! Metrics that several parts of a behaviour share.

use countersteer_model::profile::LogHistogram;

use super::layout::{STACK_BUCKETS, record};

/// Returns the touches with a stack distance of at least `lines`, including first touches.
pub(super) fn beyond(record: &[u64], lines: u64) -> u64 {
    let from = LogHistogram::bucket(lines);
    record[record::STACK + from..record::STACK + STACK_BUCKETS]
        .iter()
        .sum::<u64>()
        + record[record::COLD]
}

/// Rounds to four digits: files stay small, and equal for equal measurements.
pub(super) fn round(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}
