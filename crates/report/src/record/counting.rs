//! Recording readings: what a counting session tells becomes a record like any other.
//!
//! Input: readings per period. Output: a [`Record`] with steps, threads, samples of portable events, and everything that was
//! counted under its own name in the table of readings.

use std::sync::Arc;

use countersteer_core::counters::{BoundMetric, Owner, Plan, Readings};
use countersteer_core::cpunumbers::CpuNumbers;
use countersteer_core::cpuset::CpuSet;
use countersteer_core::engine::ThreadEventKind;
use countersteer_core::topology::Topology;
use countersteer_core::units::{CpuId, Nanos};

use super::collector::Words;
use super::rows::{EventRow, ReadingRow, SampleRow, StepRow, ThreadRow};
use super::{Manifest, Record};

/// Fills a record while counters are read.
pub struct CountingRecorder {
    record: Record,
    plan: Plan,
    metrics: Vec<BoundMetric>,
    core_types: Vec<String>,
    /// CPU of the record by the kernel's number.
    cpus: CpuNumbers,
    topology: Topology,
    everywhere: Arc<CpuSet>,
    words: Words,
    known: std::collections::BTreeSet<u32>,
}

impl CountingRecorder {
    /// A recorder; `os_cpus` has the kernel's numbers of the topology's CPUs, in order.
    #[must_use]
    pub fn new(
        mut manifest: Manifest,
        (topology, os_cpus): (Topology, &[CpuId]),
        (plan, metrics): (Plan, Vec<BoundMetric>),
        core_types: Vec<String>,
    ) -> Self {
        manifest.engine = "counters".into();
        let mut record = Record::new(manifest);
        record.reading_counts = plan.columns().iter().map(|c| Arc::from(c.name.as_str())).collect();
        record.reading_metrics = metrics.iter().map(|m| Arc::from(m.name.as_str())).collect();
        let cpus = CpuNumbers::new(os_cpus.to_vec());
        let everywhere = Arc::new(CpuSet::first(topology.cpus.len() as u32));
        let (words, known) = (Words::default(), std::collections::BTreeSet::new());
        Self { record, plan, metrics, core_types, cpus, topology, everywhere, words, known }
    }

    /// Takes in the readings of a period; their times are since `origin` on.
    pub fn period<'n>(
        &mut self,
        origin: Nanos,
        at: Nanos,
        last: bool,
        readings: &Readings,
        name: impl Fn(u32) -> &'n str,
    ) {
        let step = u32::try_from(self.record.steps.len()).unwrap_or(u32::MAX);
        let at_ns = at.since(origin).0;
        self.record.steps.push(StepRow { at_ns, finished: last, ..StepRow::default() });
        let places = self.plan.places();
        for (index, reading) in readings.rows().iter().enumerate() {
            let (pid, thread) = match reading.owner {
                Owner::Thread { pid, tid } => (Some(pid), Some(tid)),
                Owner::Process { pid } => (Some(pid), None),
                _ => (None, None),
            };
            let whole = match reading.owner {
                Owner::Rest => "(rest)",
                Owner::Cpu => "(cpu)",
                _ => "(total)",
            };
            let name = self.words.text(thread.or(pid).map_or(whole, &name));
            let mut counts = vec![None; self.record.reading_counts.len()];
            for (event, column) in places.get(reading.set as usize).into_iter().flatten().enumerate() {
                counts[*column] = readings.value(index, event);
            }
            let cpu = reading.cpu.and_then(|c| self.cpus.own(c));
            let core_type = self.core_types.get(reading.core_type as usize).map_or("", String::as_str);
            let row = ReadingRow {
                step,
                start_ns: reading.start.since(origin).0,
                at_ns: reading.end.since(origin).0,
                pid,
                thread,
                name: Arc::clone(&name),
                cpu: cpu.map(|c| c.0),
                core_type: self.words.text(core_type),
                set: reading.set,
                enabled_ns: reading.enabled.0,
                running_ns: reading.running.0,
                last: reading.last,
                counts: counts.into(),
                metrics: self.metrics.iter().map(|m| m.value(readings, index)).collect(),
            };
            if let (Some(pid), Some(tid), Some(cpu)) = (pid, thread, cpu) {
                self.thread(&row, (pid, tid), cpu, at_ns);
                self.sample(step, readings, index, cpu, origin);
            }
            self.record.readings.push(row);
        }
    }

    fn thread(&mut self, row: &ReadingRow, (pid, tid): (u32, u32), cpu: CpuId, at_ns: u64) {
        let event = |kind| EventRow { step: row.step, at_ns: row.at_ns.min(at_ns), thread: tid, kind };
        if self.known.insert(tid) {
            self.record.events.push(event(ThreadEventKind::New));
        }
        let already = self.record.threads.iter().rev().take_while(|t| t.step == row.step).any(|t| t.thread == tid);
        if !already {
            let (name, allowed) = (Arc::clone(&row.name), Arc::clone(&self.everywhere));
            let (step, thread, cpu) = (row.step, tid, cpu.0);
            let alive = ThreadRow { step, at_ns, thread, program: pid, name, cpu, runnable: true, nice: 0, allowed };
            self.record.threads.push(alive);
        }
        if row.last && self.known.remove(&tid) {
            self.record.events.push(event(ThreadEventKind::Exit));
        }
    }

    fn sample(&mut self, step: u32, readings: &Readings, index: usize, cpu: CpuId, origin: Nanos) {
        let set = self.plan.sets.get(readings.rows()[index].set as usize);
        let Some(mut sample) = set.and_then(|set| readings.sample(index, set)) else { return };
        sample.at = Nanos(sample.at.since(origin).0);
        (sample.cpu, sample.core_type) = (cpu, self.topology.core_type_of(cpu));
        self.record.samples.push(SampleRow { step, sample });
    }

    /// The record.
    #[must_use]
    pub fn finish(mut self, elapsed: Nanos) -> Record {
        self.record.manifest.outcome.elapsed_s = elapsed.as_secs_f64();
        self.record
    }
}
