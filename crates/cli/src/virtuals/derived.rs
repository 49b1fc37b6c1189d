//! Virtual counters that are derived from counts: the metrics of the core's table, as policies see them (`-v sf`, `-m sf*ipc`).
//!
//! Input: readings of threads. Output: the latest value of each metric by thread, and by row what it was then, for formulas.

use std::path::Path;
use std::sync::Arc;

use countersteer_core::counters::{Owner, Plan, Readings};
use countersteer_core::cpunumbers::CpuNumbers;
use countersteer_core::engine::{Observation, ThreadEvent, ThreadEventKind};
use countersteer_core::metric::{MetricBank, MetricDef};
use countersteer_core::sample::Sample;
use countersteer_core::topology::Topology;
use countersteer_core::units::ThreadId;
use countersteer_host::virtuals::Place;

use super::Named;

/// A metric as it was with a row of readings.
pub struct OfRow {
    pub row: usize,
    pub name: &'static str,
    pub value: f64,
}

/// Metrics that are kept up to date.
pub struct Derived {
    metrics: Vec<&'static MetricDef>,
    bank: MetricBank,
    topology: Arc<Topology>,
    cpus: CpuNumbers,
    plan: Plan,
}

impl Derived {
    /// Metrics of this machine; none if none are wanted.
    pub fn open(metrics: &[&'static MetricDef], plan: &Plan) -> anyhow::Result<Option<Self>> {
        if metrics.is_empty() {
            return Ok(None);
        }
        let machine = countersteer_host::topology::detect(Path::new("/"))?;
        let cpus = CpuNumbers::new(machine.os_cpu_numbers());
        Ok(Some(Self::new(
            metrics,
            plan,
            Arc::new(Topology::new(&machine)),
            cpus,
        )))
    }

    fn new(
        metrics: &[&'static MetricDef],
        plan: &Plan,
        mut topology: Arc<Topology>,
        cpus: CpuNumbers,
    ) -> Self {
        // What trained models read besides is not counted here.
        Arc::make_mut(&mut topology).models.clear();
        let names: Vec<&str> = metrics.iter().map(|m| m.name).collect();
        let bank = MetricBank::new(&topology, &names);
        Self {
            metrics: metrics.to_vec(),
            bank,
            topology,
            cpus,
            plan: plan.clone(),
        }
    }

    /// Takes in readings, and tells the metrics of the threads in them.
    pub fn read(&mut self, readings: &Readings, into: &mut Vec<Named>, of_rows: &mut Vec<OfRow>) {
        let mut seen = Observation::default();
        let mut threads: Vec<ThreadId> = Vec::new();
        for (row, sample) in self.samples(readings) {
            let thread = sample.thread;
            let counted = |m: &&&MetricDef| {
                m.needs
                    .iter()
                    .all(|event| sample.counts.get(*event).is_some())
            };
            let told: Vec<&MetricDef> = self.metrics.iter().filter(counted).copied().collect();
            threads.push(thread);
            seen.samples = vec![sample];
            self.bank.update(&seen);
            for metric in told {
                let value = self.bank.get(thread, metric.name);
                of_rows.extend(value.map(|value| OfRow {
                    row,
                    name: metric.name,
                    value,
                }));
            }
        }
        threads.dedup();
        for thread in &threads {
            for metric in &self.metrics {
                let value = self.bank.get(*thread, metric.name);
                let named = |value| Named {
                    name: metric.name,
                    unit: metric.unit,
                    place: Place::Thread(thread.0),
                    value,
                };
                into.extend(value.map(named));
            }
        }
        seen.samples.clear();
        for row in readings.rows().iter().filter(|r| r.last) {
            if let Owner::Thread { tid, .. } = row.owner {
                let at = row.end;
                let thread = ThreadId(tid);
                seen.events.push(ThreadEvent {
                    at,
                    thread,
                    kind: ThreadEventKind::Exit,
                });
            }
        }
        self.bank.update(&seen);
    }

    /// Rows of threads as samples, thread by thread in the order of time.
    fn samples(&self, readings: &Readings) -> Vec<(usize, Sample)> {
        let sample = |row: usize| {
            let mut sample = readings.sample(row, &self.plan)?;
            sample.cpu = self.cpus.own(sample.cpu)?;
            sample.core_type = self.topology.core_type_of(sample.cpu);
            Some((row, sample))
        };
        let mut samples: Vec<(usize, Sample)> =
            (0..readings.rows().len()).filter_map(sample).collect();
        samples.sort_by_key(|(_, s)| (s.thread, s.at));
        samples
    }
}

#[cfg(test)]
mod tests {
    use countersteer_core::counters::{PlannedEvent, PlannedSet, Reading};
    use countersteer_core::machine::Machine;
    use countersteer_core::sample::Event;
    use countersteer_core::units::{CpuId, Nanos};

    use super::*;
    use crate::derivable::derivable;

    const MACHINE: &str = include_str!("../../../../machines/i9-12900k-8p8e.toml");

    #[test]
    fn a_thread_has_its_speed_up_factor_until_it_ends() {
        let topology = Arc::new(Topology::new(&Machine::parse("m", MACHINE).unwrap()));
        let events = [Event::Instructions, Event::Cycles, Event::LlcMisses];
        let planned = |event: Event| PlannedEvent {
            name: event.def().name.into(),
            unit: String::new(),
            scale: 1.0,
            event: Some(event),
        };
        let plan = Plan::new(
            vec![PlannedSet {
                events: events.map(planned).into(),
            }],
            None,
        )
        .unwrap();
        let os = (0..topology.cpus.len() as u32).map(CpuId).collect();
        let mut derived = Derived::new(
            &[derivable("sf").unwrap()],
            &plan,
            topology,
            CpuNumbers::new(os),
        );
        let mut told = |misses: u64, last: bool| {
            let mut readings = Readings::default();
            let blank = Reading::new(Owner::Thread { pid: 1, tid: 7 }, Some(CpuId(0)), 0, 0);
            let time = Nanos(1_000_000);
            readings.push(
                Reading {
                    enabled: time,
                    running: time,
                    present: 7,
                    last,
                    ..blank
                },
                [4000, 2000, misses],
            );
            let mut values = Vec::new();
            let mut rows = Vec::new();
            derived.read(&readings, &mut values, &mut rows);
            assert_eq!((values.len(), &values[0].place), (1, &Place::Thread(7)));
            assert_eq!(
                (rows.len(), rows[0].row, rows[0].value),
                (1, 0, values[0].value)
            );
            values[0].value
        };
        let computes = told(0, false);
        let waits = told(10, true);
        assert!(computes > 1.0 && waits < computes, "{computes} {waits}");
        assert_eq!(derived.bank.row(ThreadId(7)), None, "it has ended");
    }

    #[test]
    fn only_what_pmus_count_can_be_derived() {
        assert!(derivable("sf").is_some() && derivable("ipc").is_some());
        assert!(derivable("sf_oracle").is_none() && derivable("power").is_none());
        assert!(derivable("l2_mpki").is_some());
    }
}
