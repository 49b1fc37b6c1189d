//! Charts of a report.
//!
//! Input: an [`Experiment`]: one machine with one workload under several policies. Output: HTML with SVG inside. A chart is one
//! file and one row in [`CHARTS`].

mod bars;
mod curves;
mod evictions;
mod occupancy;
mod residence;
mod slowdowns;
mod strips;
mod timeline;
pub mod vega;

use std::sync::Arc;

use countersteer_model::topology::Topology;
use maud::Markup;

use crate::error::ReportError;
use crate::record::Record;
use crate::table::Summary;

pub(crate) use curves::{classified, curve_plot};
pub(crate) use residence::Residence;
pub(crate) use timeline::legend;

/// One machine with one workload under several policies.
#[derive(Clone)]
pub struct Experiment<'a> {
    pub machine: &'a str,
    pub workload: &'a str,
    pub summaries: Vec<Summary<'a>>,
    /// Records with more detail than scores, by policy.
    pub records: Vec<&'a Record>,
    /// Machine, if there is a record.
    pub topology: Option<Arc<Topology>>,
}

/// Row of the table of charts.
pub struct ChartDef {
    /// Short name; also the anchor in the page.
    pub key: &'static str,
    pub title: &'static str,
    /// Description of the chart, and how to read it.
    pub prose: &'static str,
    /// True if its size grows with threads and caches, so that a page with many experiments leaves it out.
    pub heavy: bool,
    /// Draws the chart; returns `None` without data.
    pub draw: fn(&Experiment<'_>) -> Result<Option<Markup>, ReportError>,
}

/// Every chart, in the order of the page.
pub static CHARTS: &[ChartDef] = &[
    bars::DEF,
    slowdowns::DEF,
    slowdowns::COMPLETIONS,
    timeline::BY_PROGRAM,
    timeline::BY_CPU,
    occupancy::DEF,
    evictions::DEF,
    curves::DEF,
];

/// Number of records drawn; more timelines would make the page too large.
const RECORDS_DRAWN: usize = 8;

impl<'a> Experiment<'a> {
    /// Returns the baseline, if it took part.
    #[must_use]
    pub fn linux(&self) -> Option<&Summary<'a>> {
        self.summaries.iter().find(|s| s.policy == "linux")
    }

    /// Returns the record of a policy.
    #[must_use]
    pub fn record(&self, policy: &str) -> Option<&'a Record> {
        self.records
            .iter()
            .find(|r| r.manifest.policy == policy)
            .copied()
    }

    /// Returns the records to draw, the machine, and the duration of the longest.
    fn drawn(&self) -> Option<(&[&'a Record], &Topology, u64)> {
        let records = &self.records[..self.records.len().min(RECORDS_DRAWN)];
        let end = records.iter().map(|r| r.end().0).max().filter(|e| *e > 0)?;
        Some((records, self.topology.as_deref()?, end))
    }
}

/// Returns the names of the programs in a record, in order of first appearance; each position has a series colour.
fn programs(record: &Record) -> Vec<Arc<str>> {
    let mut names: Vec<(u32, Arc<str>)> = Vec::new();
    for identity in record.identities() {
        if !names.iter().any(|(_, n)| *n == identity.name) {
            names.push((identity.program, identity.name));
        }
    }
    names.sort_by_key(|(program, _)| *program);
    names.into_iter().map(|(_, name)| name).collect()
}

/// Returns programs with their series colours.
fn coloured(programs: &[Arc<str>]) -> Vec<(String, usize)> {
    programs
        .iter()
        .enumerate()
        .map(|(i, name)| (name.to_string(), i % crate::svg::SERIES))
        .collect()
}

/// Returns the programs of all records if they are equal, so that one legend suffices.
fn common_programs(records: &[&Record]) -> Option<Vec<Arc<str>>> {
    let mut lists = records.iter().map(|r| programs(r));
    let first = lists.next()?;
    lists.all(|l| l == first).then_some(first)
}
