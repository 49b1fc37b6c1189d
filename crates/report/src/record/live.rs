//! A collector for live runs: what it takes in is on the disk within seconds, and memory does not grow with the run.
//!
//! Input: observations, metrics and decisions as they happen. Output: a record in a folder, which can be read at any moment,
//! whatever ends the run.

use std::collections::BTreeMap;
use std::path::Path;

use countersteer_model::driver::Recorder;
use countersteer_model::engine::{Applied, Observation};
use countersteer_model::metric::MetricBank;
use countersteer_model::placement::Placement;
use countersteer_model::score::Outcome;
use countersteer_model::topology::Topology;
use countersteer_model::units::Nanos;

use super::blocks::Blocks;
use super::collector::Collector;
use super::parts::Parts;
use super::words::{MOST_WORDS, Words};
use super::{Detail, Manifest};
use crate::error::ReportError;

/// Fills a record on the disk while a driver runs.
pub struct LiveCollector {
    collector: Collector,
    blocks: Blocks,
    trouble: Option<String>,
}

impl LiveCollector {
    /// Begins a record in a folder; a record that is there already is replaced.
    ///
    /// # Errors
    /// Something that is no record is in the way, or the folder cannot be written.
    pub fn begin(dir: &Path, manifest: Manifest, detail: Detail) -> Result<Self, ReportError> {
        let collector = Collector::new(manifest, detail);
        let empty = collector.record.clone();
        Ok(Self {
            blocks: Blocks::start(Parts::begin(dir, empty.clone())?, empty)?,
            collector,
            trouble: None,
        })
    }

    /// Why nothing is written any more, once.
    pub fn trouble(&mut self) -> Option<String> {
        self.trouble.take()
    }

    /// Finishes the record. `executables` has those of threads that are not named as their program; `found` is added to the options.
    ///
    /// # Errors
    /// Something could not be written; what could be stays, and can be read.
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

    /// Steps that nothing will be added to are on their way to the disk.
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
