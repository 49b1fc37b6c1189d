//! Replay: an engine that shows a policy the observations of a record.
//!
//! Input: a [`Record`]. Output: an [`Engine`] that shows a policy the recorded observations, and compares its new decisions with the recorded ones.
//! The workload does not react to these decisions, so they are comparable only up to the first difference.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use countersteer_model::engine::{
    Applied, Engine, Observation, ProgramInfo, Span, ThreadEvent, ThreadInfo, Watch,
};
use countersteer_model::placement::Placement;
use countersteer_model::sample::Samples;
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos, ProgramId, ThreadId};

use super::differences::{Differences, compare_requests};
use super::rows::{ClockRow, DecisionRow, ShareRow};
use super::stream::{Cursors, RecordStream};
use super::words::Words;
use super::{Detail, KernelCpus, Manifest, Record};
use crate::error::ReportError;

pub struct ReplayEngine<'a> {
    source: ReplaySource<'a>,
    topology: Arc<Topology>,
    kernel: KernelCpus,
    next: usize,
    cursors: Cursors,
    words: Words,
    programs: BTreeMap<ProgramId, ProgramInfo>,
    /// Name of each thread so far.
    names: BTreeMap<u32, Arc<str>>,
    /// The policy's decisions about the last observation.
    decisions: Vec<DecisionRow>,
    shares: Vec<ShareRow>,
    clocks: Vec<ClockRow>,
    differences: Differences,
}

/// Record in memory, or the rows of a folder that are needed next.
enum ReplaySource<'a> {
    Whole(&'a Record),
    Stream(Box<RecordStream>),
}

impl ReplaySource<'_> {
    fn record(&self) -> &Record {
        match self {
            Self::Whole(record) => record,
            Self::Stream(stream) => stream.record(),
        }
    }
}

impl<'a> ReplayEngine<'a> {
    /// Creates an engine that is at the start of a record.
    ///
    /// # Errors
    /// Fails if the record has only scores, or if its machine cannot be parsed.
    pub fn new(record: &'a Record) -> Result<Self, ReportError> {
        Self::of(ReplaySource::Whole(record))
    }

    /// Creates an engine that is at the start of the record in a folder. The folder is read while the engine is used, so that
    /// memory does not grow with the length of the run.
    ///
    /// # Errors
    /// Fails if the folder is no record, if the record has only scores, or if its machine cannot be parsed.
    pub fn open(dir: &Path) -> Result<Self, ReportError> {
        Self::of(ReplaySource::Stream(Box::new(RecordStream::open(dir)?)))
    }

    fn of(source: ReplaySource<'a>) -> Result<Self, ReportError> {
        let record = source.record();
        if record.manifest.detail == Detail::Scores {
            return Err(ReportError::NotRecorded {
                what: "observations",
                detail: Detail::Scores.name().into(),
            });
        }
        let topology = record.topology()?;
        let kernel = record.kernel_cpus();
        Ok(Self {
            source,
            topology,
            kernel,
            next: 0,
            cursors: Cursors::default(),
            words: Words::default(),
            programs: BTreeMap::new(),
            names: BTreeMap::new(),
            decisions: Vec::new(),
            shares: Vec::new(),
            clocks: Vec::new(),
            differences: Differences::default(),
        })
    }

    /// Returns the manifest of the record.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.source.record().manifest
    }

    /// Sentence about the early end of the record from the folder `dir`; `None` if the record is complete.
    #[must_use]
    pub fn cut_short(&self, dir: &Path) -> Option<String> {
        self.source.record().cut_short(dir)
    }

    /// Returns the differences between the recorded decisions and those of the replay.
    ///
    /// # Errors
    /// Fails if the record is damaged.
    pub fn differences(mut self) -> Result<Differences, ReportError> {
        self.compare();
        while self.next < self.source.record().steps.len() {
            self.next += 1;
            self.fill(self.next - 1)?;
            self.compare();
        }
        let record = self.source.record();
        compare_requests(record, &self.shares, &self.clocks, &mut self.differences);
        Ok(self.differences)
    }

    /// Compares the decisions about the last observation.
    fn compare(&mut self) {
        if let Some(step) = self.next.checked_sub(1) {
            let cursor = &mut self.cursors.decisions;
            let recorded = take(&self.source.record().decisions, cursor, step, |r| r.step);
            let name = |thread| self.names.get(&thread).map(ToString::to_string);
            let kernel = &self.kernel;
            (self.differences).compare(recorded, &self.decisions, kernel, name);
        }
        self.decisions.clear();
    }

    /// Reads the rows of a step, and drops those of earlier ones.
    fn fill(&mut self, step: usize) -> Result<(), ReportError> {
        let ReplaySource::Stream(stream) = &mut self.source else {
            return Ok(());
        };
        stream.fill(step, &mut self.cursors)
    }
}

/// Returns the rows of one step from `cursor` on, and advances the cursor past them.
fn take<'r, T>(rows: &'r [T], cursor: &mut usize, step: usize, of: impl Fn(&T) -> u32) -> &'r [T] {
    let start = *cursor;
    *cursor += rows[start..]
        .iter()
        .take_while(|r| of(r) as usize == step)
        .count();
    &rows[start..*cursor]
}

impl Engine for ReplayEngine<'_> {
    type Error = ReportError;

    fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    fn observe(&mut self, _: &Watch<'_>, _: Nanos) -> Result<Observation, ReportError> {
        self.compare();
        let step = self.next;
        self.fill(step)?;
        let record = self.source.record();
        let Some(row) = record.steps.get(step) else {
            // If the recorded process was killed, it had decided on its last observation and made no further one.
            let killed = record.steps.last().filter(|last| last.decided);
            let last = killed.ok_or(ReportError::ReplayOver { steps: step })?;
            return Ok(Observation {
                at: Nanos(last.at_ns),
                finished: true,
                ..Observation::default()
            });
        };
        self.next += 1;
        let threads = take(&record.threads, &mut self.cursors.threads, step, |r| r.step);
        let hints = take(&record.hints, &mut self.cursors.hints, step, |r| r.step);
        let events = take(&record.events, &mut self.cursors.events, step, |r| r.step);
        let steps = take(
            &record.samples.steps,
            &mut self.cursors.samples,
            step,
            |s| *s,
        );
        let rows = self.cursors.samples - steps.len()..self.cursors.samples;
        let mut samples = Samples::default();
        (record.samples.range(rows)).for_each(|row| samples.push_row(row));
        let spans = take(&record.spans, &mut self.cursors.spans, step, |r| r.step);
        let cursor = &mut self.cursors.programs;
        for row in take(&record.programs, cursor, step, |r| r.step) {
            self.programs.insert(row.info.id, row.info.clone());
        }
        for row in threads {
            let name = self.names.entry(row.thread);
            name.or_insert_with(|| Arc::clone(&row.name));
        }
        let alive: BTreeSet<ProgramId> = threads.iter().map(|t| ProgramId(t.program)).collect();
        let programs = self.programs.values().filter(|p| alive.contains(&p.id));
        Ok(Observation {
            at: Nanos(row.at_ns),
            programs: programs.cloned().collect(),
            threads: threads.iter().map(|row| thread_info(row, hints)).collect(),
            events: (events.iter())
                .map(|e| ThreadEvent {
                    at: Nanos(e.at_ns),
                    thread: ThreadId(e.thread),
                    kind: e.kind,
                })
                .collect(),
            // No policy uses this field, so records do not contain it.
            ended: Vec::new(),
            samples,
            spans: spans.iter().map(span).collect(),
            // A run that was stopped by its time limit also ends at the last observation.
            finished: row.finished || (self.next == record.steps.len() && !row.decided),
            tells_phases: true,
        })
    }

    fn apply(&mut self, placement: &Placement) -> Result<Applied, ReportError> {
        let Some(index) = self.next.checked_sub(1) else {
            return Ok(Applied::default());
        };
        let row = &self.source.record().steps[index];
        let step = u32::try_from(index).unwrap_or(u32::MAX);
        if let Some(classes) = &placement.caches {
            self.words.shares(
                &self.topology,
                step,
                Nanos(row.at_ns),
                classes,
                &mut self.shares,
            );
        }
        if let Some(limits) = &placement.clocks {
            self.words
                .clocks(step, Nanos(row.at_ns), limits, &mut self.clocks);
        }
        for placed in &placement.threads {
            self.decisions.push(self.words.decision(
                &self.topology,
                step,
                Nanos(row.at_ns),
                placed,
            ));
        }
        Ok(Applied {
            changed: row.changed,
            gone: row.gone,
            refused: row.refused,
            unsupported: row.unsupported,
            ..Applied::default()
        })
    }
}

fn thread_info(row: &super::ThreadRow, hints: &[super::HintRow]) -> ThreadInfo {
    let hint = hints
        .binary_search_by_key(&row.thread, |t| t.thread)
        .ok()
        .map(|found| hints[found].hint);
    ThreadInfo {
        id: ThreadId(row.thread),
        program: ProgramId(row.program),
        name: Arc::clone(&row.name),
        cpu: CpuId(row.cpu),
        runnable: row.runnable,
        nice: row.nice,
        allowed: Arc::clone(&row.allowed),
        hint,
    }
}

fn span(row: &super::SpanRow) -> Span {
    Span {
        thread: ThreadId(row.thread),
        cpu: CpuId(row.cpu),
        start: Nanos(row.start_ns),
        end: Nanos(row.end_ns),
    }
}
