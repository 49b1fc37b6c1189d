//! Replay: an engine that shows a policy the observations of a record.
//!
//! Input: a [`Record`]. Output: an [`Engine`] that shows a policy the recorded observations, and keeps its new decisions. The
//! workload does not react to these decisions, so they are comparable only up to the first difference.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use countersteer_model::engine::{
    Applied, Engine, Observation, ProgramInfo, Span, ThreadEvent, ThreadInfo, Watch,
};
use countersteer_model::placement::Placement;
use countersteer_model::sample::Samples;
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos, ProgramId, ThreadId};

use super::rows::{ClockRow, DecisionRow, ShareRow};
use super::words::Words;
use super::{Detail, Record};
use crate::error::ReportError;

pub struct ReplayEngine<'a> {
    record: &'a Record,
    topology: Arc<Topology>,
    next: usize,
    cursors: Cursors,
    words: Words,
    programs: BTreeMap<ProgramId, ProgramInfo>,
    decisions: Vec<DecisionRow>,
    shares: Vec<ShareRow>,
    clocks: Vec<ClockRow>,
}

/// Index of the first row of each table that was not yet shown to the policy.
#[derive(Default)]
struct Cursors {
    threads: usize,
    programs: usize,
    hints: usize,
    events: usize,
    samples: usize,
    spans: usize,
}

impl<'a> ReplayEngine<'a> {
    /// Creates an engine that is at the start of a record.
    ///
    /// # Errors
    /// Fails if the record has only scores, or if its machine cannot be parsed.
    pub fn new(record: &'a Record) -> Result<Self, ReportError> {
        if record.manifest.detail == Detail::Scores {
            return Err(ReportError::NotRecorded {
                what: "observations",
                detail: Detail::Scores.name().into(),
            });
        }
        let topology = record.topology()?;
        let cursors = Cursors::default();
        let words = Words::default();
        Ok(Self {
            record,
            topology,
            next: 0,
            cursors,
            words,
            programs: BTreeMap::new(),
            decisions: Vec::new(),
            shares: Vec::new(),
            clocks: Vec::new(),
        })
    }

    /// Returns the policy's decisions so far.
    #[must_use]
    pub fn decisions(&self) -> &[DecisionRow] {
        &self.decisions
    }

    /// Returns the policy's cache partitions so far.
    #[must_use]
    pub fn shares(&self) -> &[ShareRow] {
        &self.shares
    }

    /// Returns the policy's limits on frequencies so far.
    #[must_use]
    pub fn clocks(&self) -> &[ClockRow] {
        &self.clocks
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
        let record = self.record;
        let step = self.next;
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
        let row = &self.record.steps[index];
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
