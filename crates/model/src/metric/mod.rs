//! Metrics: what a policy asks for by name.
//!
//! Input: [`crate::sample::Samples`]. Output: per thread, the latest value of each metric that was asked for. A metric is a formula over
//! events, by name or spelled out, or a source of its own. A policy is architecture-independent; a metric source is not.
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

/// Turns the samples of all threads into one metric.
pub trait MetricSource: Send {
    /// The metric after the newest sample of this round; `None` when that cannot tell.
    fn read(&mut self, round: &Round<'_>) -> Option<f64>;

    /// A second metric that came of the last reading, where the table has one ([`ReadBy::Beside`]).
    fn beside(&self) -> Option<f64> {
        None
    }

    /// Forgets a thread that ended.
    fn forget(&mut self, _thread: ThreadId) {}
}

/// A row of the metric table.
pub struct MetricDef {
    /// The name that policies, flags and records use.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    pub prose: &'static str,
    /// Events that a sample, or the samples of a round, must have.
    pub needs: &'static [Event],
    /// Events that make it more exact.
    pub helps: &'static [Event],
    pub read_by: ReadBy,
}

/// How a metric is read.
pub enum ReadBy {
    /// By a formula over the newest sample that has its events.
    Formula(&'static Computed),
    /// By a source of its own, made for a machine: what remembers something, or knows core types.
    Source(fn(&Arc<Topology>) -> Box<dyn MetricSource>),
    /// By the source of another metric, which comes by both at once.
    Beside(&'static str),
}

impl MetricDef {
    /// Only a trained model tells it.
    #[must_use]
    pub fn is_trained_only(&self) -> bool {
        [trained::SF_DOUBT.name, trained::EF_MODEL.name].contains(&self.name)
    }

    /// The events behind it on a core type: those of the trained model if it is evaluated and there is one.
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

/// Metrics that a trained model tells where there is one.
const TRAINED: [(&str, Target); 4] = [
    (trained::SF_MODEL.name, Target::Sf),
    (trained::SF_DOUBT.name, Target::Sf),
    (steps::SF_STEPS.name, Target::Sf),
    (trained::EF_MODEL.name, Target::Ef),
];

impl MetricDef {
    /// Starts to read it; none where it stands beside a metric that is not in the table.
    fn source(&self, topology: &Arc<Topology>) -> Option<Box<dyn MetricSource>> {
        match self.read_by {
            ReadBy::Formula(computed) => Some(Box::new(formula::Evaluated::new(computed))),
            ReadBy::Source(make) => Some(make(topology)),
            ReadBy::Beside(other) => by_name(other)?.source(topology),
        }
    }

    /// The metric whose source it is read by.
    fn read_with(&self) -> &'static str {
        match self.read_by {
            ReadBy::Beside(other) => other,
            _ => self.name,
        }
    }
}

/// A source and the columns that it fills.
struct Reading {
    metric: &'static str,
    source: Box<dyn MetricSource>,
    own: Option<usize>,
    beside: Option<usize>,
}

/// The sources of metrics in columns: one where two come of the same.
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

/// The events behind these metrics, each once, in the order in which they are first needed, but for those that trained models
/// read; unknown names need none.
#[must_use]
pub fn events_of(names: &[&str]) -> Vec<Event> {
    let metrics = names.iter().filter_map(|n| resolve(n));
    unique(metrics.flat_map(|m| m.needs.iter().chain(m.helps).copied()))
}

/// The events behind these metrics on a core type.
#[must_use]
pub fn events_on(topology: &Topology, core_type: CoreTypeId, names: &[&str]) -> Vec<Event> {
    let metrics = names.iter().filter_map(|n| resolve(n));
    unique(metrics.flat_map(|m| m.events(topology, core_type)))
}

/// The events behind these metrics on some core type.
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

/// The events behind these metrics on a core type, in groups that are to be counted together: what a metric needs is one, and
/// each event that helps it is one of its own.
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

/// The same of all core types: for PMUs that are counted alike.
#[must_use]
pub fn groups_on_any(topology: &Topology, names: &[&str]) -> Vec<Vec<Event>> {
    let types = (0..topology.core_types.len()).map(CoreTypeId::from_index);
    types
        .flat_map(|core_type| groups_on(topology, core_type, names))
        .collect()
}

/// The metrics that somebody asked for, with their latest values per thread.
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
    /// A bank for these metrics; unknown names are left out, so their values stay unavailable.
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

    /// The same where samples of different phases are put together, for measuring what looking for phases is worth.
    #[must_use]
    pub fn blind_to_phases(self) -> Self {
        Self {
            rounds: self.rounds.blind(),
            ..self
        }
    }

    /// Takes in an observation: new samples update values, threads that are gone are forgotten.
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

    /// The bank of another policy's metrics, with the usage of this one.
    #[must_use]
    pub fn succeed(self, topology: &Arc<Topology>, names: &[&str]) -> Self {
        Self {
            usage: self.usage,
            ..Self::new(topology, names)
        }
    }

    /// CPU time and instructions of threads and programs.
    #[must_use]
    pub const fn usage(&self) -> &UsageBank {
        &self.usage
    }

    /// The column of a metric, for those who read it of many threads.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|n| *n == name)
    }

    /// The latest value of the metric in a column.
    #[must_use]
    pub fn at(&self, thread: ThreadId, column: usize) -> Option<f64> {
        self.values.get(thread)?[column]
    }

    /// The latest value of a metric.
    #[must_use]
    pub fn get(&self, thread: ThreadId, name: &str) -> Option<f64> {
        self.at(thread, self.column(name)?)
    }

    /// The metrics' names, in column order.
    #[must_use]
    pub fn names(&self) -> &[&'static str] {
        &self.names
    }

    /// All values of a thread, in column order.
    #[must_use]
    pub fn row(&self, thread: ThreadId) -> Option<&[Option<f64>]> {
        self.values.get(thread).map(AsRef::as_ref)
    }

    /// One metric of many threads, by a name that is looked up once.
    #[must_use]
    pub fn read_column(&self, name: &str) -> Column<'_> {
        Column {
            rows: self.values.reader(),
            column: self.column(name),
        }
    }
}

/// Reads one metric of one thread after the other; cheapest in the order of threads.
#[derive(Debug)]
pub struct Column<'a> {
    rows: Reader<'a, ThreadId, Box<[Option<f64>]>>,
    column: Option<usize>,
}

impl Column<'_> {
    /// The latest value.
    pub fn get(&mut self, thread: ThreadId) -> Option<f64> {
        let column = self.column?;
        self.rows.get(thread)?[column]
    }
}
