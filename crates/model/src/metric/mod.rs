//! Metrics, which policies request by name.
//!
//! Input: [`crate::sample::Samples`]. Output: for each thread, the latest value of each requested metric. A metric is a formula
//! over events, by name or written out, or has its own source. A policy is architecture-independent; a metric source is not.
//! Several sources run at once.

mod director;
mod formula;
mod history;
mod registry;
mod round;
mod sf;
pub mod steps;
mod trained;
mod work;

use std::fmt;
use std::sync::Arc;

use crate::by_id::{ByThread, Reader};
use crate::models::{Model, Target};
use crate::observation::{Observation, ThreadEventKind};
use crate::sample::Event;
use crate::topology::Topology;
use crate::units::{CoreTypeId, ThreadId};
use crate::usage::UsageBank;
use round::Rounds;

pub use formula::Computed;
pub use registry::{FILES, NameTaken, add, all, by_name, resolve, shipped};
pub use round::Round;

/// Source that turns the samples of all threads into one metric.
pub trait MetricSource: Send {
    /// Returns the metric after the newest sample of this round; `None` if it is unavailable.
    fn read(&mut self, round: &Round<'_>) -> Option<f64>;

    /// Returns a second metric from the last call of `read`, if the table has one ([`ReadBy::Beside`]).
    fn beside(&self) -> Option<f64> {
        None
    }

    /// Forgets an exited thread.
    fn forget(&mut self, _thread: ThreadId) {}
}

/// Row of the metric table.
pub struct MetricDef {
    /// Name in policies, flags and records.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    pub prose: &'static str,
    /// Events that a sample, or the samples of a round, must have.
    pub needs: &'static [Event],
    /// Events that improve its accuracy.
    pub helps: &'static [Event],
    pub read_by: ReadBy,
}

/// Method of reading a metric.
pub enum ReadBy {
    /// By a formula over the newest sample with its events.
    Formula(&'static Computed),
    /// By its own source, created for a machine: for metrics with state or knowledge of core types.
    Source(fn(&Arc<Topology>) -> Box<dyn MetricSource>),
    /// By the source of another metric, which yields both at once.
    Beside(&'static str),
}

impl MetricDef {
    /// True if only a trained model provides the metric.
    #[must_use]
    pub fn is_trained_only(&self) -> bool {
        [trained::SF_DOUBT.name, trained::EF_MODEL.name].contains(&self.name)
    }

    /// Returns the events behind it on a core type: those of the trained model, if it is evaluated and exists.
    fn events(&self, topology: &Topology, core_type: CoreTypeId) -> Vec<Event> {
        let models = topology.models.get(core_type.index());
        let target = TRAINED.iter().find(|(name, _)| *name == self.name);
        let model = target.and_then(|(_, target)| models?.of(*target));
        let more = model.map_or_else(|| self.helps.to_vec(), Model::events);
        let mut events: Vec<Event> = self.needs.iter().copied().chain(more).collect();
        if history::by_model(self.name) && core_type == topology.extremes().0 {
            events.extend(
                models
                    .and_then(|m| m.sf.as_ref())
                    .map_or_else(|| trained::SF_MODEL.helps.to_vec(), Model::events),
            );
        }
        events
    }
}

/// Metrics that a trained model provides, if there is one.
const TRAINED: [(&str, Target); 4] = [
    (trained::SF_MODEL.name, Target::Sf),
    (trained::SF_DOUBT.name, Target::Sf),
    (steps::SF_STEPS.name, Target::Sf),
    (trained::EF_MODEL.name, Target::Ef),
];

impl MetricDef {
    /// Creates its source; `None` if it accompanies a metric that is not in the table.
    fn source(&self, topology: &Arc<Topology>) -> Option<Box<dyn MetricSource>> {
        match self.read_by {
            ReadBy::Formula(computed) => Some(Box::new(formula::Evaluated::new(computed))),
            ReadBy::Source(make) => Some(make(topology)),
            ReadBy::Beside(other) => by_name(other)?.source(topology),
        }
    }

    /// Returns the metric whose source reads it.
    fn read_with(&self) -> &'static str {
        match self.read_by {
            ReadBy::Beside(other) => other,
            _ => self.name,
        }
    }
}

/// Source, with the columns that it fills.
struct Reading {
    metric: &'static str,
    source: Box<dyn MetricSource>,
    own: Option<usize>,
    beside: Option<usize>,
}

/// Returns the sources of the metrics in columns; two metrics of one source share it.
fn readings(rows: &[&MetricDef], topology: &Arc<Topology>) -> Vec<Reading> {
    let mut all: Vec<Reading> = Vec::new();
    for (column, metric) in rows.iter().enumerate() {
        let name = metric.read_with();
        let row = match all.iter().position(|r| r.metric == name) {
            Some(row) => row,
            None => {
                let Some(source) = metric.source(topology) else {
                    continue;
                };
                all.push(Reading {
                    metric: name,
                    source,
                    own: None,
                    beside: None,
                });
                all.len() - 1
            }
        };
        let place = match metric.read_by {
            ReadBy::Beside(_) => &mut all[row].beside,
            _ => &mut all[row].own,
        };
        *place = Some(column);
    }
    all
}

/// Returns the events behind these metrics, each once, in the order of first need, without those of trained models. Unknown
/// names need none.
#[must_use]
pub fn events_of(names: &[&str]) -> Vec<Event> {
    let metrics = names.iter().filter_map(|n| resolve(n));
    unique(metrics.flat_map(|m| m.needs.iter().chain(m.helps).copied()))
}

/// Returns the events behind these metrics on a core type.
#[must_use]
pub fn events_on(topology: &Topology, core_type: CoreTypeId, names: &[&str]) -> Vec<Event> {
    let metrics = names.iter().filter_map(|n| resolve(n));
    unique(metrics.flat_map(|m| m.events(topology, core_type)))
}

/// Returns the events behind these metrics on any core type.
#[must_use]
pub fn events_on_any(topology: &Topology, names: &[&str]) -> Vec<Event> {
    let types = (0..topology.core_types.len()).map(CoreTypeId::from_index);
    unique(types.flat_map(|core_type| events_on(topology, core_type, names)))
}

fn unique(all: impl Iterator<Item = Event>) -> Vec<Event> {
    let mut events = Vec::new();
    for event in all {
        if !events.contains(&event) {
            events.push(event);
        }
    }
    events
}

/// Returns the events behind these metrics on a core type, in groups that are to be counted together. The needs of a metric form
/// one group, and each helping event its own.
#[must_use]
pub fn groups_on(topology: &Topology, core_type: CoreTypeId, names: &[&str]) -> Vec<Vec<Event>> {
    let mut groups: Vec<Vec<Event>> = Vec::new();
    for metric in names.iter().filter_map(|n| resolve(n)) {
        groups.push(metric.needs.to_vec());
        let events = metric.events(topology, core_type);
        let helps = events.iter().filter(|event| !metric.needs.contains(event));
        groups.extend(helps.map(|event| vec![*event]));
    }
    groups
}

/// Returns the groups of all core types, like [`groups_on`]: for PMUs that are programmed alike.
#[must_use]
pub fn groups_on_any(topology: &Topology, names: &[&str]) -> Vec<Vec<Event>> {
    let types = (0..topology.core_types.len()).map(CoreTypeId::from_index);
    types
        .flat_map(|core_type| groups_on(topology, core_type, names))
        .collect()
}

/// Requested metrics, with their latest values per thread.
pub struct MetricBank {
    names: Vec<&'static str>,
    readings: Vec<Reading>,
    rounds: Rounds,
    values: ByThread<Box<[Option<f64>]>>,
    usage: UsageBank,
}

impl fmt::Debug for MetricBank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MetricBank").field(&self.names).finish()
    }
}

impl MetricBank {
    /// Creates a bank for these metrics. Unknown names are left out, so their values stay unavailable.
    #[must_use]
    pub fn new(topology: &Arc<Topology>, names: &[&str]) -> Self {
        let mut rows: Vec<&MetricDef> = names.iter().filter_map(|n| resolve(n)).collect();
        let mut seen = std::collections::BTreeSet::new();
        rows.retain(|m| seen.insert(m.name));
        Self {
            names: rows.iter().map(|m| m.name).collect(),
            readings: readings(&rows, topology),
            rounds: Rounds::new(Arc::clone(topology)),
            values: ByThread::default(),
            usage: UsageBank::default(),
        }
    }

    /// Combines samples of different phases, to measure the value of phase detection.
    #[must_use]
    pub fn blind_to_phases(self) -> Self {
        Self {
            rounds: self.rounds.blind(),
            ..self
        }
    }

    /// Takes in an observation: new samples update values, and exited threads are forgotten.
    pub fn update(&mut self, observation: &Observation) {
        self.usage.update(observation);
        for (thread, sample) in observation.samples.of_threads() {
            let row = (self.values).entry(thread, || vec![None; self.names.len()].into());
            let round = self.rounds.add(thread, sample);
            for reading in &mut self.readings {
                let read = reading.source.read(&round);
                if let Some(column) = reading.own {
                    row[column] = read.or(row[column]);
                }
                if let Some(column) = reading.beside {
                    row[column] = reading.source.beside().or(row[column]);
                }
            }
        }
        let exits = observation.events.iter();
        let exits = exits.filter(|event| event.kind == ThreadEventKind::Exit);
        exits.for_each(|event| self.forget(event.thread));
        for thread in self.usage.late(observation) {
            self.forget(thread);
        }
    }

    fn forget(&mut self, thread: ThreadId) {
        self.values.remove(thread);
        self.rounds.forget(thread);
        let sources = self.readings.iter_mut().map(|r| &mut r.source);
        sources.for_each(|s| s.forget(thread));
    }

    /// Returns the bank for another policy's metrics, with the usage of this one.
    #[must_use]
    pub fn succeed(self, topology: &Arc<Topology>, names: &[&str]) -> Self {
        Self {
            usage: self.usage,
            ..Self::new(topology, names)
        }
    }

    /// Returns CPU time and instructions of threads and programs.
    #[must_use]
    pub const fn usage(&self) -> &UsageBank {
        &self.usage
    }

    /// Returns the column of a metric, for callers that read it for many threads.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|n| *n == name)
    }

    /// Returns the latest value of the metric in a column.
    #[must_use]
    pub fn at(&self, thread: ThreadId, column: usize) -> Option<f64> {
        self.values.get(thread)?[column]
    }

    /// Returns the latest value of a metric.
    #[must_use]
    pub fn get(&self, thread: ThreadId, name: &str) -> Option<f64> {
        self.at(thread, self.column(name)?)
    }

    /// Returns the metrics' names, in column order.
    #[must_use]
    pub fn names(&self) -> &[&'static str] {
        &self.names
    }

    /// Returns all values of a thread, in column order.
    #[must_use]
    pub fn row(&self, thread: ThreadId) -> Option<&[Option<f64>]> {
        self.values.get(thread).map(AsRef::as_ref)
    }

    /// Returns a reader of one metric for many threads; the name is looked up once.
    #[must_use]
    pub fn read_column(&self, name: &str) -> Column<'_> {
        Column {
            rows: self.values.reader(),
            column: self.column(name),
        }
    }
}

/// Reader of one metric, thread by thread; cheapest in the order of threads.
#[derive(Debug)]
pub struct Column<'a> {
    rows: Reader<'a, ThreadId, Box<[Option<f64>]>>,
    column: Option<usize>,
}

impl Column<'_> {
    /// Returns the latest value.
    pub fn get(&mut self, thread: ThreadId) -> Option<f64> {
        let column = self.column?;
        self.rows.get(thread)?[column]
    }
}
