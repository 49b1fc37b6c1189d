//! Collector for live runs: rows are on the disk within seconds, and memory does not grow with the run.
//!
//! Input: observations, metrics and decisions as they happen. Output: a record in a folder, readable at any time and after any
//! end of the run.

use std::collections::BTreeMap;
use std::path::Path;

use countersteer_model::driver::Recorder;
use countersteer_model::engine::{Applied, Observation};
use countersteer_model::metric::MetricBank;
use countersteer_model::placement::Placement;
use countersteer_model::score::Outcome;
use countersteer_model::topology::Topology;
use countersteer_model::units::Nanos;

use super::blocks::RowQueue;
use super::collector::Collector;
use super::parts::RecordParts;
use super::words::{MOST_WORDS, Words};
use super::{Detail, Manifest};
use crate::error::ReportError;

/// Collector that fills a record on disk while a driver runs.
pub struct LiveCollector {
    collector: Collector,
    blocks: RowQueue,
    trouble: Option<String>,
}

impl LiveCollector {
    /// Starts a record in a folder. An existing record is replaced.
    ///
    /// # Errors
    /// Fails if the path is occupied by other files, or if the folder cannot be written.
    pub fn begin(dir: &Path, manifest: Manifest, detail: Detail) -> Result<Self, ReportError> {
        let collector = Collector::new(manifest, detail);
        let empty = collector.record.clone();
        Ok(Self {
            blocks: RowQueue::start(RecordParts::begin(dir, empty.clone())?, empty)?,
            collector,
            trouble: None,
        })
    }

    /// Returns the reason of a write failure once; `None` if rows are still written.
    pub fn trouble(&mut self) -> Option<String> {
        self.trouble.take()
    }

    /// Completes the record. `executables` holds the executable of each thread that differs from its program's name. `found` is
    /// added to the options.
    ///
    /// # Errors
    /// Fails if rows could not be written; those written before remain readable.
    pub fn finish(
        mut self,
        outcome: &Outcome,
        executables: BTreeMap<u32, String>,
        found: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(), ReportError> {
        self.hand_over();
        let mut manifest = Manifest {
            outcome: outcome.clone(),
            executables,
            ..self.collector.record.manifest
        };
        manifest.options.extend(found);
        self.blocks.finish(manifest)
    }

    /// Passes the rows of complete steps to the disk queue.
    fn hand_over(&mut self) {
        let failure = self.blocks.give(&mut self.collector.record);
        self.trouble = self.trouble.take().or(failure);
        if self.collector.words.len() > MOST_WORDS {
            self.collector.words = Words::default();
        }
    }
}

impl Recorder for LiveCollector {
    fn observation(&mut self, topology: &Topology, seen: &Observation, metrics: &MetricBank) {
        self.hand_over();
        self.collector.observation(topology, seen, metrics);
    }

    fn decision(
        &mut self,
        topology: &Topology,
        at: Nanos,
        placement: &Placement,
        applied: Applied,
    ) {
        self.collector.decision(topology, at, placement, applied);
    }
}
