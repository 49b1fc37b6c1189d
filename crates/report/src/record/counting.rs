//! Recorder of counting sessions, whose samples become a record like that of a run.
//!
//! Input: samples per period. Output: a record with steps, threads, samples of portable events, and a table of readings with all
//! counts under their own names. The record is written to disk during the session.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use countersteer_model::counters::{BoundMetric, Outside, Owner, SetPlan};
use countersteer_model::cpunumbers::CpuNumbers;
use countersteer_model::cpuset::CpuSet;
use countersteer_model::engine::ThreadEventKind;
use countersteer_model::sample::{Sample, SampleRow, Samples};
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos};

use super::blocks::RowQueue;
use super::parts::RecordParts;
use super::rows::{EventRow, ReadingRow, StepRow, ThreadRow, VirtualRow};
use super::words::{MOST_WORDS, Words};
use super::{Manifest, Record};
use crate::error::ReportError;
use crate::readings::VirtualValue;

/// Recorder that fills a record on disk while counters are read.
pub struct CountingRecorder {
    manifest: Manifest,
    blocks: RowQueue,
    rows: Record,
    step: u32,
    plan: SetPlan,
    metrics: Vec<BoundMetric>,
    core_types: Vec<String>,
    /// Mapping between the kernel's CPU numbers and those of the topology.
    cpus: CpuNumbers,
    /// Topology of the machine.
    topology: Topology,
    /// Set of all CPUs, as the affinity mask of every thread.
    everywhere: Arc<CpuSet>,
    words: Words,
    /// Threads that were added to the record and have not exited.
    known: BTreeSet<u32>,
    /// Threads with samples in the current period.
    present: BTreeSet<u32>,
}

impl CountingRecorder {
    /// Starts a record in a folder; `os_cpus` holds the kernel's number of each CPU of the topology.
    ///
    /// # Errors
    /// Fails if the path is occupied by other files, or if the folder cannot be written.
    pub fn begin(
        dir: &Path,
        mut manifest: Manifest,
        (topology, os_cpus): (Topology, &[CpuId]),
        (plan, mut metrics): (SetPlan, Vec<BoundMetric>),
        core_types: Vec<String>,
    ) -> Result<Self, ReportError> {
        manifest.engine = "counters".into();
        // Readers of Parquet and Arrow need different names.
        metrics.retain(|m| plan.columns().iter().all(|c| c.name != m.name));
        let mut rows = Record::new(manifest.clone());
        rows.reading_counts = plan
            .columns()
            .iter()
            .map(|c| Arc::from(c.name.as_str()))
            .collect();
        rows.reading_metrics = metrics.iter().map(|m| Arc::from(m.name.as_str())).collect();
        let blocks = RowQueue::start(RecordParts::begin(dir, rows.clone())?, rows.clone())?;
        let cpus = CpuNumbers::new(os_cpus.to_vec());
        let everywhere = Arc::new(CpuSet::first(topology.cpus.len() as u32));
        let words = Words::default();
        let known = BTreeSet::new();
        let present = BTreeSet::new();
        Ok(Self {
            manifest,
            blocks,
            rows,
            step: 0,
            plan,
            metrics,
            core_types,
            cpus,
            topology,
            everywhere,
            words,
            known,
            present,
        })
    }

    /// Adds the samples of a period. Times are recorded relative to `origin`. `outside` returns the virtual counters that
    /// metrics use.
    pub fn period<'n>(
        &mut self,
        origin: Nanos,
        at: Nanos,
        last: bool,
        samples: &Samples,
        name: impl Fn(u32) -> &'n str,
        outside: &Outside<'_>,
    ) {
        let at_ns = at.since(origin).0;
        self.rows.steps.push(StepRow {
            at_ns,
            finished: last,
            ..StepRow::default()
        });
        let places = self.plan.places();
        for (index, sample) in samples.iter().enumerate() {
            let row = self.reading((samples, index), &places, origin, &name, outside);
            let cpu = row.cpu.map(CpuId);
            if let (Some(pid), Some(tid), Some(cpu)) = (row.pid, row.thread, cpu) {
                self.thread(&row, (pid, tid), cpu, at_ns);
                self.sample(sample, cpu, origin);
            }
            self.rows.readings.push(row);
        }
        self.present.clear();
    }

    fn reading<'n>(
        &mut self,
        (samples, index): (&Samples, usize),
        places: &[Vec<usize>],
        origin: Nanos,
        name: impl Fn(u32) -> &'n str,
        outside: &Outside<'_>,
    ) -> ReadingRow {
        let sample = samples.rows()[index];
        let (pid, thread, whole) = match sample.owner {
            Owner::Thread { pid, tid } => (Some(pid), Some(tid), ""),
            Owner::Process { pid } => (Some(pid), None, ""),
            Owner::Rest => (None, None, "(rest)"),
            Owner::Cpu => (None, None, "(cpu)"),
            Owner::Total => (None, None, "(total)"),
        };
        let name = self.words.text(thread.or(pid).map_or(whole, &name));
        let mut counts = vec![None; self.rows.reading_counts.len()];
        for (event, column) in places
            .get(sample.set as usize)
            .into_iter()
            .flatten()
            .enumerate()
        {
            counts[*column] = samples.value(index, event).map(|count| count as u64);
        }
        let core_type = self
            .core_types
            .get(sample.core_type.index())
            .map_or("", String::as_str);
        ReadingRow {
            step: self.step,
            start_ns: sample.start.since(origin).0,
            at_ns: sample.end.since(origin).0,
            pid,
            thread,
            name,
            cpu: sample.cpu.and_then(|c| self.cpus.own(c)).map(|c| c.0),
            core_type: self.words.text(core_type),
            set: sample.set,
            enabled_ns: sample.enabled.0,
            running_ns: sample.running.0,
            last: sample.last,
            counts: counts.into(),
            metrics: self
                .metrics
                .iter()
                .map(|m| m.value(samples, index, outside))
                .collect(),
        }
    }

    /// Adds the value of a virtual counter at the end of the period.
    pub fn value(&mut self, origin: Nanos, at: Nanos, scope: &str, value: &VirtualValue<'_>) {
        self.rows.virtuals.push(VirtualRow {
            step: self.step,
            at_ns: at.since(origin).0,
            scope: self.words.text(scope),
            place: self.words.text(value.place),
            thread: value.tid,
            cpu: value.cpu,
            name: self.words.text(value.name),
            unit: self.words.text(value.unit),
            value: value.value,
        });
    }

    /// Ends the period and passes its rows to the disk queue. Returns the reason of a write failure once.
    pub fn done(&mut self) -> Option<String> {
        self.step += 1;
        if self.words.len() > MOST_WORDS {
            self.words = Words::default();
        }
        self.blocks.give(&mut self.rows)
    }

    fn thread(&mut self, row: &ReadingRow, (pid, tid): (u32, u32), cpu: CpuId, at_ns: u64) {
        let event = |kind| EventRow {
            step: row.step,
            at_ns: row.at_ns.min(at_ns),
            thread: tid,
            kind,
        };
        if self.known.insert(tid) {
            self.rows.events.push(event(ThreadEventKind::New));
        }
        if self.present.insert(tid) {
            let name = Arc::clone(&row.name);
            let allowed = Arc::clone(&self.everywhere);
            let step = row.step;
            let thread = tid;
            let cpu = cpu.0;
            let alive = ThreadRow {
                step,
                at_ns,
                thread,
                program: pid,
                name,
                cpu,
                runnable: true,
                nice: 0,
                allowed,
            };
            self.rows.threads.push(alive);
        }
        if row.last && self.known.remove(&tid) {
            self.rows.events.push(event(ThreadEventKind::Exit));
        }
    }

    fn sample(&mut self, row: SampleRow<'_>, cpu: CpuId, origin: Nanos) {
        let sample = Sample {
            start: row.start.since(origin),
            end: row.end.since(origin),
            cpu: Some(cpu),
            core_type: self.topology.core_type_of(cpu),
            ..*row
        };
        self.rows.samples.push(self.step, sample, row.counts);
    }

    /// Adds an entry about the session to the options of the manifest.
    pub fn note(&mut self, key: &str, text: String) {
        self.manifest.options.insert(key.to_owned(), text);
    }

    /// Completes the record.
    ///
    /// # Errors
    /// Fails if rows could not be written; those written before remain readable.
    pub fn finish(mut self, elapsed: Nanos) -> Result<(), ReportError> {
        self.manifest.outcome.elapsed_s = elapsed.as_secs_f64();
        self.blocks.finish(self.manifest)
    }
}
