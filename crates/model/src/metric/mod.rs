//! Metrics that policies request by name.
//!
//! Input: [`crate::sample::Samples`]. Output: for each thread, the latest value of each requested metric. A metric is a formula
//! over events, or has a source in code. Policies are independent of the processor architecture; metric sources are not. Several
//! sources run at once.

mod director;
mod formula;
mod history;
mod phases;
mod registry;
mod round;
mod sf;
pub mod steps;
mod trained;
mod work;

use std::fmt;
use std::sync::Arc;

use crate::by_id::{ByIdReader, ByThread};
use crate::models::{FixedPointModel, Target};
use crate::observation::{Observation, ThreadEventKind};
use crate::sample::Event;
use crate::topology::Topology;
use crate::units::{CoreTypeId, ThreadId};
use crate::usage::UsageBank;
use round::Rounds;

pub use formula::Computed;
pub use registry::{FILES, NameTaken, add, all, by_name, resolve, shipped};
pub use round::Round;
pub use sf::untrained as untrained_sf;

/// Source of one metric, computed from the samples of all threads.
pub trait MetricSource: Send {
    /// Returns the metric's value after the newest sample of this round; `None` if it is unavailable.
    fn read(&mut self, round: &Round<'_>) -> Option<f64>;

    /// Returns the value of a second metric, computed by the last call of `read`, if the source has one ([`ReadBy::Beside`]).
    fn beside(&self) -> Option<f64> {
        None
    }

    /// Drops the state of an exited thread.
    fn forget(&mut self, _thread: ThreadId) {}
}

/// Row of the metric table: a metric with its name, unit and events.
pub struct MetricDef {
    /// Name of the metric in policies, flags and records.
    pub name: &'static str,
    /// Unit of the metric's values.
    pub unit: &'static str,
    pub prose: &'static str,
    /// Events that a sample, or the samples of a multiplexing cycle, must contain for this metric.
    pub needs: &'static [Event],
    /// Optional events that improve the metric's accuracy.
    pub helps: &'static [Event],
    pub read_by: ReadBy,
}

/// Method by which a metric is computed from samples.
pub enum ReadBy {
    /// A formula is evaluated over the newest sample that has its events.
    Formula(&'static Computed),
    /// A source created for a machine computes the metric, since the metric has state or depends on core types.
    Source(fn(&Arc<Topology>) -> Box<dyn MetricSource>),
    /// The source of another metric, given by name, computes both metrics at once.
    Beside(&'static str),
}

impl MetricDef {
    /// True if the metric is available only with a trained model.
    #[must_use]
    pub fn is_trained_only(&self) -> bool {
        let names = [
            &trained::SF_DOUBT,
            &trained::SF_ERROR,
            &trained::EF_MODEL,
            &trained::EF_ERROR,
        ];
        names.iter().any(|metric| metric.name == self.name)
    }

    /// Returns the events that the metric needs on a core type, including those of the trained model if the metric uses one.
    fn events(&self, topology: &Topology, core_type: CoreTypeId) -> Vec<Event> {
        let models = topology.models.get(core_type.index());
        let model = self.target().and_then(|target| models?.of(target));
        let more = model.map_or_else(|| self.helps.to_vec(), FixedPointModel::events);
        let mut events: Vec<Event> = self.needs.iter().copied().chain(more).collect();
        if history::by_model(self.name) && core_type == topology.extremes().0 {
            events.extend(
                models
                    .and_then(|m| m.sf.as_ref())
                    .map_or_else(|| trained::SF_MODEL.helps.to_vec(), FixedPointModel::events),
            );
        }
        events
    }
}

/// Metrics computed by a trained model, with the model's target.
const TRAINED: [(&str, Target); 6] = [
    (trained::SF_MODEL.name, Target::Sf),
    (trained::SF_DOUBT.name, Target::Sf),
    (trained::SF_ERROR.name, Target::Sf),
    (trained::EF_ERROR.name, Target::Ef),
    (steps::SF_STEPS.name, Target::Sf),
    (trained::EF_MODEL.name, Target::Ef),
];

impl MetricDef {
    /// Target of the trained model that the metric is computed by; `None` if there is none.
    #[must_use]
    pub fn target(&self) -> Option<Target> {
        let found = TRAINED.iter().find(|(name, _)| *name == self.name);
        found.map(|(_, target)| *target)
    }

    /// Creates the metric's source. `None` if the metric belongs to another metric's source and that metric is not in the table.
    fn source(&self, topology: &Arc<Topology>) -> Option<Box<dyn MetricSource>> {
        match self.read_by {
            ReadBy::Formula(computed) => Some(Box::new(formula::FormulaSource::new(computed))),
            ReadBy::Source(make) => Some(make(topology)),
            ReadBy::Beside(other) => by_name(other)?.source(topology),
        }
    }

    /// Returns the name of the metric whose source computes this one.
    fn read_with(&self) -> &'static str {
        match self.read_by {
            ReadBy::Beside(other) => other,
            _ => self.name,
        }
    }
}

/// Metric source, with the columns of the metric bank that it fills.
struct MetricReading {
    metric: &'static str,
    source: Box<dyn MetricSource>,
    own: Option<usize>,
    beside: Option<usize>,
}

/// Returns the metric sources for the columns of these metrics. Two metrics with the same source share one instance.
fn readings(rows: &[&MetricDef], topology: &Arc<Topology>) -> Vec<MetricReading> {
    let mut all: Vec<MetricReading> = Vec::new();
    for (column, metric) in rows.iter().enumerate() {
        let name = metric.read_with();
        let row = match all.iter().position(|r| r.metric == name) {
            Some(row) => row,
            None => {
                let Some(source) = metric.source(topology) else {
                    continue;
                };
                all.push(MetricReading {
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

/// Returns the events that these metrics need, without duplicates, in the order of first need, and without the events of trained
/// models. Unknown names need no events.
#[must_use]
pub fn events_of(names: &[&str]) -> Vec<Event> {
    let metrics = names.iter().filter_map(|n| resolve(n));
    unique(metrics.flat_map(|m| m.needs.iter().chain(m.helps).copied()))
}

/// Returns the events that these metrics need on a core type, without duplicates.
#[must_use]
pub fn events_on(topology: &Topology, core_type: CoreTypeId, names: &[&str]) -> Vec<Event> {
    let metrics = names.iter().filter_map(|n| resolve(n));
    unique(metrics.flat_map(|m| m.events(topology, core_type)))
}

/// Returns the events that these metrics need on at least one core type, without duplicates.
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

/// Returns the events that these metrics need on a core type, in groups to be counted at the same time. The required events of a
/// metric form one group; each optional event forms a group by itself.
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

/// Returns the event groups of [`groups_on`] for all core types together, for PMUs that are all programmed with the same event
/// sets.
#[must_use]
pub fn groups_on_any(topology: &Topology, names: &[&str]) -> Vec<Vec<Event>> {
    let types = (0..topology.core_types.len()).map(CoreTypeId::from_index);
    types
        .flat_map(|core_type| groups_on(topology, core_type, names))
        .collect()
}

/// Requested metrics with their latest values per thread.
///
/// ```
/// use std::sync::Arc;
///
/// use countersteer_model::engine::Observation;
/// use countersteer_model::machine::Machine;
/// use countersteer_model::metric::MetricBank;
/// use countersteer_model::sample::{Event, Sample, Samples};
/// use countersteer_model::topology::Topology;
/// use countersteer_model::units::{CoreTypeId, CpuId, Nanos, ThreadId};
///
/// # let text = include_str!("../../../../machines/quickia-2b-2s.toml");
/// let machine = Machine::parse("quickia-2b-2s.toml", text)?;
/// let mut bank = MetricBank::new(&Arc::new(Topology::new(&machine)), &["llc_mpki"]);
///
/// let (thread, core_type) = (ThreadId(1), CoreTypeId::from_index(0));
/// let at = Nanos::from_millis(100);
/// let head = Sample::of_thread(thread, CpuId(0), core_type, at, at);
/// let counts = [(Event::Instructions, 2e8), (Event::LlcMisses, 1e6)];
/// let samples = Samples::of(head, 1, &counts);
/// bank.update(&Observation { at, samples, ..Observation::default() });
/// assert_eq!(bank.get(thread, "llc_mpki"), Some(5.0));
/// // A metric whose events were not counted is absent, never zero.
/// assert_eq!(bank.get(ThreadId(2), "llc_mpki"), None);
/// # Ok::<(), countersteer_model::textfile::TextError>(())
/// ```
pub struct MetricBank {
    names: Vec<&'static str>,
    readings: Vec<MetricReading>,
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
    /// Creates a bank for the metrics with these names. Values of unknown names stay unavailable.
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

    /// Disables the detection of phase changes, so that samples of different phases are combined. Experiments use this to
    /// measure the benefit of phase detection.
    #[must_use]
    pub fn blind_to_phases(self) -> Self {
        Self {
            rounds: self.rounds.blind(),
            ..self
        }
    }

    /// Updates the values of metrics by the samples of an observation, and drops the state of exited threads.
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

    /// Creates a bank for the metrics of another policy, which keeps the CPU usage of this bank.
    #[must_use]
    pub fn succeed(self, topology: &Arc<Topology>, names: &[&str]) -> Self {
        Self {
            usage: self.usage,
            ..Self::new(topology, names)
        }
    }

    /// Returns the CPU time and instructions of threads and programs.
    #[must_use]
    pub const fn usage(&self) -> &UsageBank {
        &self.usage
    }

    /// Returns the column of a metric, for callers that read the metric of many threads. `None` if the bank does not have it.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|n| *n == name)
    }

    /// Returns a thread's latest value of the metric in a column; `None` if it is unavailable.
    #[must_use]
    pub fn at(&self, thread: ThreadId, column: usize) -> Option<f64> {
        self.values.get(thread)?[column]
    }

    /// Returns a thread's latest value of a metric; `None` if it is unavailable.
    #[must_use]
    pub fn get(&self, thread: ThreadId, name: &str) -> Option<f64> {
        self.at(thread, self.column(name)?)
    }

    /// Returns the names of the metrics in column order.
    #[must_use]
    pub fn names(&self) -> &[&'static str] {
        &self.names
    }

    /// Returns the latest values of all metrics of a thread, in column order. `None` for a thread without samples.
    #[must_use]
    pub fn row(&self, thread: ThreadId) -> Option<&[Option<f64>]> {
        self.values.get(thread).map(AsRef::as_ref)
    }

    /// Returns a reader of one metric for many threads. The name is looked up only once.
    #[must_use]
    pub fn read_column(&self, name: &str) -> MetricColumn<'_> {
        MetricColumn {
            rows: self.values.reader(),
            column: self.column(name),
        }
    }
}

/// Reader of one metric, thread by thread. Access in ascending order of thread ids is cheapest.
#[derive(Debug)]
pub struct MetricColumn<'a> {
    rows: ByIdReader<'a, ThreadId, Box<[Option<f64>]>>,
    column: Option<usize>,
}

impl MetricColumn<'_> {
    /// Returns a thread's latest value of the metric; `None` if it is unavailable.
    pub fn get(&mut self, thread: ThreadId) -> Option<f64> {
        let column = self.column?;
        self.rows.get(thread)?[column]
    }
}
