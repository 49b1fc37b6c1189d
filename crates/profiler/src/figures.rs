//! Figures that several parts of a behaviour are made of.

use countersteer_model::profile::LogHistogram;

use super::layout::{STACK_BUCKETS, record};

/// Touches whose distance is at least `lines`, first ones included.
pub(super) fn beyond(record: &[u64], lines: u64) -> u64 {
    let from = LogHistogram::bucket(lines);
    record[record::STACK + from..record::STACK + STACK_BUCKETS]
        .iter()
        .sum::<u64>()
        + record[record::COLD]
}

/// Four digits: files stay small, and equal where measurements are.
pub(super) fn round(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}
