//! Collector that receives the driver's reports and fills a record.
//!
//! Input: observations, metrics and decisions as they happen. Output: a [`Record`].

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_model::driver::Recorder;
use countersteer_model::engine::{Applied, Observation, ProgramInfo};
use countersteer_model::metric::MetricBank;
use countersteer_model::placement::{ClockLimit, Placement, Reason, ThreadPlacement, WayClass};
use countersteer_model::score::Outcome;
use countersteer_model::topology::Topology;
use countersteer_model::units::{Nanos, ProgramId};

use super::rows::{
    ClockRow, DecisionRow, EventRow, HintRow, ProgramRow, RecordedMetrics, ShareRow, SpanRow,
    StepRow, ThreadRow,
};
use super::words::Words;
use super::{Detail, Manifest, Record};

/// Collector that fills a record in memory while a driver runs.
#[derive(Clone, Debug)]
pub struct Collector {
    pub(super) record: Record,
    detail: Detail,
    pub(super) words: Words,
    /// Number of observations so far.
    steps: u32,
    /// Last known state of each program.
    programs: BTreeMap<ProgramId, ProgramInfo>,
}

impl Words {
    /// Converts a placement of a thread to a row of the table of decisions.
    pub(super) fn decision(
        &mut self,
        topology: &Topology,
        step: u32,
        at: Nanos,
        placed: &ThreadPlacement,
    ) -> DecisionRow {
        let reason = &placed.reason;
        DecisionRow {
            step,
            at_ns: at.0,
            thread: placed.thread.0,
            target: self.text(&placed.target.name(topology)),
            target_cpus: placed.target.cpus(topology),
            weight: placed.weight,
            clamp_least: placed.clamp.map(|c| c.least),
            clamp_most: placed.clamp.map(|c| c.most),
            rule: self.text(&reason.rule),
            seen: self.seen(reason),
            alternatives: (reason.alternatives.iter())
                .map(|(group, value)| (self.text(&topology.group(*group).name), *value))
                .collect(),
            unit: self.text(&reason.unit),
        }
    }

    /// Converts limits on frequencies to rows of the table of limits. The removal of all is a row only if there were some.
    pub(super) fn clocks(
        &mut self,
        step: u32,
        at: Nanos,
        limits: &[ClockLimit],
        into: &mut Vec<ClockRow>,
    ) {
        let were = std::mem::replace(&mut self.limited, !limits.is_empty());
        if limits.is_empty() && were {
            into.push(ClockRow {
                step,
                at_ns: at.0,
                ..ClockRow::default()
            });
        }
        into.extend(limits.iter().map(|limit| ClockRow {
            step,
            at_ns: at.0,
            cpu: Some(limit.cpu.0),
            most_mhz: limit.most_mhz,
            rule: self.text(&limit.reason.rule),
            seen: self.seen(&limit.reason),
        }));
    }

    fn seen(&mut self, reason: &Reason) -> Vec<(Arc<str>, f64)> {
        let seen = reason.seen.iter();
        seen.map(|(metric, value)| (self.text(metric), *value))
            .collect()
    }

    /// Converts cache partitions to rows of the table of partitions.
    pub(super) fn shares(
        &mut self,
        topology: &Topology,
        step: u32,
        at: Nanos,
        classes: &[WayClass],
        into: &mut Vec<ShareRow>,
    ) {
        let empty = ShareRow {
            step,
            at_ns: at.0,
            ..ShareRow::default()
        };
        for class in classes {
            let name = self.text(&class.name);
            let members = self.text(&class.members.to_string());
            let row = ShareRow {
                class: name,
                members,
                ..empty.clone()
            };
            into.extend(class.shares.iter().map(|share| ShareRow {
                llc: self.text(&topology.group(share.llc).name),
                first: share.ways.and_then(|w| w.first),
                ways: share.ways.map(|w| w.count),
                bandwidth: share.bandwidth,
                ..row.clone()
            }));
            if class.shares.is_empty() {
                into.push(row);
            }
        }
        if classes.is_empty() {
            into.push(empty);
        }
    }
}

impl Collector {
    /// Creates a collector that records a run at the given level of detail.
    #[must_use]
    pub fn new(manifest: Manifest, detail: Detail) -> Self {
        let manifest = Manifest { detail, ..manifest };
        Self {
            record: Record::new(manifest),
            detail,
            words: Words::default(),
            steps: 0,
            programs: BTreeMap::new(),
        }
    }

    /// Returns the record of the finished run, with its outcome.
    #[must_use]
    pub fn finish(mut self, outcome: &Outcome) -> Record {
        self.record.manifest.outcome = outcome.clone();
        self.record
    }

    /// Adds rows for programs that are new or changed in an observation.
    fn programs(&mut self, step: u32, seen: &Observation) {
        for info in &seen.programs {
            if self.programs.get(&info.id) != Some(info) {
                self.programs.insert(info.id, info.clone());
                self.record.programs.push(ProgramRow {
                    step,
                    at_ns: seen.at.0,
                    info: info.clone(),
                });
            }
        }
        let is_alive = |id: &ProgramId| seen.programs.iter().any(|p| p.id == *id);
        if self.programs.len() > seen.programs.len() {
            self.programs.retain(|id, _| is_alive(id));
        }
    }

    fn metrics(&mut self, step: u32, seen: &Observation, bank: &MetricBank) {
        // If the policy changes, the new one may read other metrics; columns are added for them.
        let names = &mut self.record.metric_names;
        let mut column = |name: &&'static str| {
            names
                .iter()
                .position(|known| **known == **name)
                .unwrap_or_else(|| {
                    names.push(Arc::from(*name));
                    names.len() - 1
                })
        };
        let columns: Vec<usize> = bank.names().iter().map(&mut column).collect();
        let width = names.len();
        // A thread's metrics change only with a new sample. The samples of a thread are adjacent,
        // so one row per thread suffices.
        let mut last = None;
        for (thread, _) in seen.samples.of_threads() {
            if last.replace(thread) == Some(thread) {
                continue;
            }
            if let Some(values) = bank.row(thread).filter(|row| !row.is_empty()) {
                let at_ns = seen.at.0;
                let thread = thread.0;
                let mut row = vec![None; width];
                columns
                    .iter()
                    .zip(values)
                    .for_each(|(column, value)| row[*column] = *value);
                self.record.metrics.push(RecordedMetrics {
                    step,
                    at_ns,
                    thread,
                    values: row.into(),
                });
            }
        }
    }
}

impl Recorder for Collector {
    fn observation(&mut self, _: &Topology, seen: &Observation, metrics: &MetricBank) {
        if self.detail == Detail::Scores {
            return;
        }
        let step = self.steps;
        self.steps += 1;
        let at_ns = seen.at.0;
        self.record.steps.push(StepRow {
            at_ns,
            finished: seen.finished,
            ..StepRow::default()
        });
        self.record
            .threads
            .extend(seen.threads.iter().map(|t| ThreadRow {
                step,
                at_ns,
                thread: t.id.0,
                program: t.program.0,
                name: Arc::clone(&t.name),
                cpu: t.cpu.0,
                runnable: t.runnable,
                nice: t.nice,
                allowed: Arc::clone(&t.allowed),
            }));
        self.programs(step, seen);
        let hints = seen.threads.iter().filter_map(|t| {
            Some(HintRow {
                step,
                at_ns,
                thread: t.id.0,
                hint: t.hint?,
            })
        });
        self.record.hints.extend(hints);
        let event = |e: &countersteer_model::engine::ThreadEvent| EventRow {
            step,
            at_ns: e.at.0,
            thread: e.thread.0,
            kind: e.kind,
        };
        self.record.events.extend(seen.events.iter().map(event));
        self.record.samples.extend(step, &seen.samples);
        if self.detail == Detail::Everything {
            self.record.spans.extend(seen.spans.iter().map(|s| SpanRow {
                step,
                thread: s.thread.0,
                cpu: s.cpu.0,
                start_ns: s.start.0,
                end_ns: s.end.0,
            }));
        }
        self.metrics(step, seen, metrics);
    }

    fn decision(
        &mut self,
        topology: &Topology,
        at: Nanos,
        placement: &Placement,
        applied: Applied,
    ) {
        let Some(row) = self.record.steps.last_mut() else {
            return;
        };
        let step = self.steps.saturating_sub(1);
        row.decided = true;
        (row.changed, row.gone, row.refused) = (applied.changed, applied.gone, applied.refused);
        row.unsupported = applied.unsupported;
        if let Some(table) = &placement.admission {
            let mut name = |group| self.words.text(&topology.group(group).name);
            let rows = table
                .rows
                .iter()
                .map(|(least, group)| (name(*group), *least));
            row.admission = rows.collect();
            row.admission_metric = Some(self.words.text(&table.metric));
        }
        if let Some(classes) = &placement.caches {
            self.words
                .shares(topology, step, at, classes, &mut self.record.shares);
        }
        if let Some(limits) = &placement.clocks {
            self.words.clocks(step, at, limits, &mut self.record.clocks);
        }
        for placed in &placement.threads {
            let row = self.words.decision(topology, step, at, placed);
            self.record.decisions.push(row);
        }
    }
}
