//! Charts of the HTML report.
//!
//! Input: a `ChartRuns`, which is one machine with one workload under several policies. Output: HTML with SVG inside. A
//! chart is one file and one row in `CHARTS`.

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
use crate::record::{KernelCpus, Record};
use crate::table::PolicySummary;

pub(crate) use curves::{classified, curve_plot};
pub(crate) use residence::Residence;
pub(crate) use timeline::legend;

/// Runs of one workload on one machine under several policies.
#[derive(Clone)]
pub(crate) struct ChartRuns<'a> {
    pub machine: &'a str,
    pub workload: &'a str,
    pub summaries: Vec<PolicySummary<'a>>,
    /// Records of some of the runs, with more data than scores, in the order of the policies.
    pub records: Vec<&'a Record>,
    /// Topology of the machine; `None` without a record.
    pub topology: Option<Arc<Topology>>,
}

/// Row of the table of charts.
pub(crate) struct ChartDef {
    /// Short name of the chart, also used as the anchor in the page.
    pub key: &'static str,
    /// Title of the chart.
    pub title: &'static str,
    /// Description of the chart for readers of the report.
    pub prose: &'static str,
    /// True if the chart's size grows with threads and caches, so that a page with many experiments omits it.
    pub heavy: bool,
    /// Draws the chart as HTML; returns `None` if the experiment lacks the data.
    pub draw: fn(&ChartRuns<'_>) -> Result<Option<Markup>, ReportError>,
}

/// Charts of the report, in the order of the page.
pub(crate) static CHARTS: &[ChartDef] = &[
    bars::DEF,
    slowdowns::DEF,
    slowdowns::COMPLETIONS,
    timeline::BY_PROGRAM,
    timeline::BY_CPU,
    occupancy::DEF,
    evictions::DEF,
    curves::DEF,
];

/// Limit on the number of records drawn, which limits the size of the page.
const RECORDS_DRAWN: usize = 8;

impl<'a> ChartRuns<'a> {
    /// Returns the runs under the baseline `linux`; `None` if it was not run.
    #[must_use]
    pub fn linux(&self) -> Option<&PolicySummary<'a>> {
        self.summaries
            .iter()
            .find(|s| s.policy == countersteer_policies::LINUX)
    }

    /// Returns the record of a policy; `None` if there is none.
    #[must_use]
    pub fn record(&self, policy: &str) -> Option<&'a Record> {
        self.records
            .iter()
            .find(|r| r.manifest.policy == policy)
            .copied()
    }

    /// Returns the kernel's numbers of the machine's CPUs.
    fn kernel_cpus(&self) -> KernelCpus {
        let first = self.records.first();
        first.map_or_else(KernelCpus::default, |record| record.kernel_cpus())
    }

    /// Returns the records to draw, the topology, and the duration of the longest of them in ns. `None` without a record.
    fn drawn(&self) -> Option<(&[&'a Record], &Topology, u64)> {
        let records = &self.records[..self.records.len().min(RECORDS_DRAWN)];
        let end = records.iter().map(|r| r.end().0).max().filter(|e| *e > 0)?;
        Some((records, self.topology.as_deref()?, end))
    }
}

/// Returns the names of the programs in a record, in order of first appearance. The index of a name determines its series
/// colour.
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

/// Returns the names of programs with the indices of their series colours.
fn coloured(programs: &[Arc<str>]) -> Vec<(String, usize)> {
    programs
        .iter()
        .enumerate()
        .map(|(i, name)| (name.to_string(), i % crate::svg::SERIES))
        .collect()
}

/// Returns the programs of the records if all records have the same, so that one legend suffices; otherwise `None`.
fn common_programs(records: &[&Record]) -> Option<Vec<Arc<str>>> {
    let mut lists = records.iter().map(|r| programs(r));
    let first = lists.next()?;
    lists.all(|l| l == first).then_some(first)
}
