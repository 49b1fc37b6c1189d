//! Virtual counters derived from counts: the metrics of the core's table, as policies read them (`-v sf`, `-m sf*ipc`).
//!
//! Input: samples of threads. Output: the latest value of each metric per thread, and the value at each row of samples for
//! formulas.

use std::sync::Arc;

use countersteer_model::counters::Samples;
use countersteer_model::cpunumbers::CpuNumbers;
use countersteer_model::engine::{Observation, ThreadEvent, ThreadEventKind};
use countersteer_model::metric::{MetricBank, MetricDef};
use countersteer_model::sample::{Event, Sample};
use countersteer_model::topology::Topology;
use countersteer_model::units::ThreadId;
use countersteer_sysfs::sensors::{SensorColumn, SensorPlace, SensorValue, ValueKind};

use crate::derivable;
use crate::error::{FaultKind, failure};

/// Value of a metric at one row of samples; `row` is the row's index.
pub(crate) struct OfRow {
    pub row: usize,
    pub name: &'static str,
    pub value: f64,
}

/// Metrics that are computed from the samples of threads, and updated with each sample.
pub(crate) struct Derived {
    /// Metrics, each with its column index in the bank.
    metrics: Vec<(usize, &'static MetricDef)>,
    bank: MetricBank,
    topology: Arc<Topology>,
    cpus: CpuNumbers,
}

impl Derived {
    /// Prepares metrics for this machine; returns `None` if the list is empty.
    pub fn open(metrics: &[&'static MetricDef]) -> anyhow::Result<Option<Self>> {
        if metrics.is_empty() {
            return Ok(None);
        }
        let here = derivable::here()?;
        let missing = |metric: &&MetricDef| derivable::without_model(metric, &here.topology);
        if let Some(why) = metrics.iter().copied().find_map(|m| missing(&m)) {
            return Err(failure(FaultKind::Missing, why));
        }
        let topology = Arc::clone(&here.topology);
        Ok(Some(Self::new(metrics, topology, here.cpus.clone())))
    }

    fn new(metrics: &[&'static MetricDef], topology: Arc<Topology>, cpus: CpuNumbers) -> Self {
        let names: Vec<&str> = metrics.iter().map(|m| m.name).collect();
        let bank = MetricBank::new(&topology, &names);
        let column = |metric: &&'static MetricDef| Some((bank.column(metric.name)?, *metric));
        Self {
            metrics: metrics.iter().filter_map(column).collect(),
            bank,
            topology,
            cpus,
        }
    }

    /// Processes samples: appends the latest metrics of each thread to `into`, and the metrics of each row to `of_rows`.
    pub fn read(
        &mut self,
        samples: &Samples,
        into: &mut Vec<SensorValue>,
        of_rows: &mut Vec<OfRow>,
    ) {
        let mut seen = Observation::default();
        let mut threads: Vec<ThreadId> = Vec::new();
        for row in samples.order() {
            let own = samples.row(row).and_then(|sample| {
                let cpu = self.cpus.own(sample.cpu?)?;
                Some((sample, sample.thread()?, cpu))
            });
            let Some((sample, thread, cpu)) = own else {
                continue;
            };
            let has = |event: &Event| sample.counts.get(*event).is_some();
            let counted = |(_, m): &&(usize, &MetricDef)| m.needs.iter().all(has);
            let of_sample: Vec<_> = self.metrics.iter().filter(counted).copied().collect();
            threads.push(thread);
            let own = Sample {
                cpu: Some(cpu),
                core_type: self.topology.core_type_of(cpu),
                ..*sample
            };
            seen.samples.clear();
            seen.samples.push_with(own, sample.counts);
            self.bank.update(&seen);
            for (column, metric) in of_sample {
                let value = self.bank.at(thread, column);
                of_rows.extend(value.map(|value| OfRow {
                    row,
                    name: metric.name,
                    value,
                }));
            }
        }
        threads.dedup();
        for thread in &threads {
            for (column, metric) in &self.metrics {
                let value = self.bank.at(*thread, *column);
                into.extend(value.map(|value| SensorValue {
                    column: SensorColumn {
                        name: metric.name,
                        unit: metric.unit,
                        kind: ValueKind::Level,
                        prose: metric.prose,
                    },
                    place: SensorPlace::Thread(thread.0),
                    value,
                }));
            }
        }
        seen.samples.clear();
        for (thread, row) in samples.of_threads().filter(|(_, row)| row.last) {
            seen.events.push(ThreadEvent {
                at: row.end,
                thread,
                kind: ThreadEventKind::Exit,
            });
        }
        self.bank.update(&seen);
    }
}

#[cfg(test)]
mod tests {
    use countersteer_model::counters::{Owner, PlannedEvent, PlannedSet, SetPlan};
    use countersteer_model::machine::Machine;
    use countersteer_model::units::{CoreTypeId, CpuId, Nanos};

    use super::*;
    use crate::derivable::derivable;

    const MACHINE: &str = include_str!("../../../../machines/opteron-8356-12-4.toml");
    const JUNO: &str = include_str!("../../../../machines/juno-2-4.toml");

    #[test]
    fn a_thread_has_its_speed_up_factor_until_it_ends() {
        let mut topology = Topology::new(&Machine::parse("m", MACHINE).unwrap());
        topology.models.clear();
        let topology = Arc::new(topology);
        let events = [Event::Instructions, Event::Cycles, Event::LlcMisses];
        let planned = |event: Event| PlannedEvent {
            name: event.def().name.into(),
            unit: String::new(),
            scale: 1.0,
            event: Some(event),
        };
        let plan = SetPlan::new(
            vec![PlannedSet {
                events: events.map(planned).into(),
            }],
            None,
        )
        .unwrap();
        let os = (0..topology.cpus.len() as u32).map(CpuId).collect();
        let mut derived = Derived::new(&[derivable("sf").unwrap()], topology, CpuNumbers::new(os));
        let mut derived_value = |misses: f64, last: bool| {
            let mut samples = Samples::by_sets(plan.event_sets());
            let owner = Owner::Thread { pid: 1, tid: 7 };
            let blank = Sample::new(owner, Some(CpuId(0)), CoreTypeId(0), 0);
            let time = Nanos(1_000_000);
            samples.push(
                Sample {
                    enabled: time,
                    running: time,
                    present: 7,
                    last,
                    ..blank
                },
                [4000.0, 2000.0, misses],
            );
            let mut values = Vec::new();
            let mut rows = Vec::new();
            derived.read(&samples, &mut values, &mut rows);
            assert_eq!(
                (values.len(), &values[0].place),
                (1, &SensorPlace::Thread(7))
            );
            assert_eq!(
                (rows.len(), rows[0].row, rows[0].value),
                (1, 0, values[0].value)
            );
            values[0].value
        };
        let computes = derived_value(0.0, false);
        let waits = derived_value(10.0, true);
        assert!(computes > 1.0 && waits < computes, "{computes} {waits}");
        assert_eq!(derived.bank.row(ThreadId(7)), None, "it has ended");
    }

    #[test]
    fn trained_models_give_factors_with_their_intervals() {
        let machine = Machine::parse("m", JUNO).unwrap();
        let topology = Arc::new(Topology::new(&machine));
        let model = topology.models[0].ef.as_ref().unwrap();
        let events = model.events();
        let planned = |event: &Event| PlannedEvent {
            name: event.def().name.into(),
            unit: String::new(),
            scale: 1.0,
            event: Some(*event),
        };
        let set = PlannedSet {
            events: events.iter().map(planned).collect(),
        };
        let plan = SetPlan::new(vec![set], None).unwrap();
        let os = (0..topology.cpus.len() as u32).map(CpuId).collect();
        let wanted = ["sf", "sf_error", "ef", "ef_error", "phase"].map(|m| derivable(m).unwrap());
        let cpu = topology
            .cpus
            .iter()
            .find(|c| c.core_type.0 == 0)
            .unwrap()
            .id;
        let mut derived = Derived::new(&wanted, Arc::clone(&topology), CpuNumbers::new(os));
        let time = Nanos(1_000_000);
        let own = Owner::Thread { pid: 1, tid: 7 };
        let sample = Sample {
            enabled: time,
            running: time,
            present: (1 << events.len()) - 1,
            ..Sample::new(own, Some(cpu), CoreTypeId(0), 0)
        };
        let counted = |cycles: f64, others: f64| {
            let count = |event: &Event| match event {
                Event::Instructions => 1e6,
                Event::Cycles => cycles,
                _ => others,
            };
            let mut samples = Samples::by_sets(plan.event_sets());
            samples.push(sample, events.iter().map(count).collect::<Vec<f64>>());
            samples
        };
        // A model abstains on counts unlike those it was trained on.
        let rates = [3.0, 30.0, 300.0, 3e3, 3e4, 1e5, 3e5];
        let tried = rates.map(|others| [6e5, 1e6, 2e6, 5e6].map(|cycles| counted(cycles, others)));
        let predict = |samples: &Samples| {
            let round = countersteer_model::metric::Round::of(samples)?;
            model.predict(&round).filter(|p| p.confident().is_some())
        };
        let confident = |samples: &&Samples| predict(samples).is_some();
        let samples = tried.iter().flatten().find(confident).unwrap();
        let predicted = predict(samples).unwrap();
        let (mut values, mut rows) = (Vec::new(), Vec::new());
        derived.read(samples, &mut values, &mut rows);
        let value = |name: &str| {
            values
                .iter()
                .find(|v| v.column.name == name)
                .map(|v| v.value)
        };
        assert_eq!(value("ef"), Some(predicted.factor));
        assert_eq!(value("ef_error"), Some(predicted.width));
        assert_eq!(value("phase"), Some(1.0));
        assert_eq!(rows.iter().filter(|r| r.name == "ef").count(), 1);
        let mut none = (*topology).clone();
        none.models.clear();
        let why = crate::derivable::without_model(wanted[2], &none).unwrap();
        assert!(why.starts_with("`ef` needs a trained model"), "{why}");
        assert_eq!(crate::derivable::without_model(wanted[0], &none), None);
    }

    #[test]
    fn only_what_pmus_count_can_be_derived() {
        assert!(derivable("sf").is_some() && derivable("ipc").is_some());
        assert!(derivable("ef").is_some() && derivable("phase").is_some());
        assert!(derivable("sf_oracle").is_none() && derivable("power").is_none());
        assert!(derivable("l2_mpki").is_some());
    }
}
