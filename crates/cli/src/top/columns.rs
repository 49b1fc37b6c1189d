//! What `steer top` can show: one table, and the columns a user adds.
//!
//! Input: metrics and events as planned. Output: columns, and what to measure for them.

use countersteer_core::counters::{BoundMetric, Metric, PlannedEvent, Readings};
use countersteer_host::counters::{CatalogRow, Probe, probe};

use crate::counted::Counted;

/// A row of the table of columns.
struct ColumnDef {
    name: &'static str,
    width: u16,
    of: Of,
    shown: bool,
    prose: &'static str,
}

/// What a column shows.
enum Of {
    /// Something that is known without counting it.
    Known(Source),
    /// Counts of this metric per second of the interval.
    Rate(&'static str),
    /// This metric as it is.
    Value(&'static str),
}

const fn def(name: &'static str, width: u16, of: Of, shown: bool, prose: &'static str) -> ColumnDef {
    ColumnDef { name, width, of, shown, prose }
}

/// Every column, in order; the metrics among them are counted together.
static COLUMNS: &[ColumnDef] = &[
    def("pid", 7, Of::Known(Source::Pid), true, "the process"),
    def("tid", 7, Of::Known(Source::Tid), true, "the thread"),
    def("name", 16, Of::Known(Source::Name), true, "the name of the thread"),
    def("cpu", 4, Of::Known(Source::Cpu), true, "the CPU it ran on last"),
    def("type", 9, Of::Known(Source::CoreType), true, "the type of core it ran on most"),
    def("cpu%", 6, Of::Known(Source::Share), true, "time on a CPU, in percent of one"),
    def("ipc", 6, Of::Value("ipc"), true, "instructions per cycle"),
    def("llc_mpki", 8, Of::Value("llc_mpki"), true, "misses of the last-level cache per kilo-instruction"),
    def("cs/s", 7, Of::Rate("context_switches"), true, "times per second that it left a CPU"),
    def("faults/s", 8, Of::Rate("page_faults"), true, "page faults per second"),
    def("migr/s", 7, Of::Rate("cpu_migrations"), false, "times per second that it came to another CPU"),
    def("history", 20, Of::Known(Source::History), true, "cpu% over the last intervals, the newest at the right"),
];

/// Where a column's value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Pid,
    Tid,
    Name,
    Cpu,
    CoreType,
    Share,
    /// A measure, by its number; absent where this machine does not count it.
    Measure(Option<usize>),
    History,
}

/// A column of the table.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    pub width: u16,
    pub source: Source,
    pub prose: String,
    pub shown: bool,
}

/// Something that is computed from counts.
#[derive(Clone, Debug)]
pub struct Measure {
    what: What,
    /// A rate: divided by the time of the interval, zero for who did not run.
    pub per_second: bool,
}

#[derive(Clone, Debug)]
enum What {
    Metric(BoundMetric),
    Event { set: u32, place: usize, scale: f64 },
}

impl Measure {
    /// The set it is counted by.
    pub const fn set(&self) -> u32 {
        match &self.what {
            What::Metric(metric) => metric.set,
            What::Event { set, .. } => *set,
        }
    }

    /// Its value for a row of its set.
    pub fn value(&self, readings: &Readings, row: usize) -> Option<f64> {
        match &self.what {
            What::Metric(metric) => metric.value(readings, row, &|_, _| None),
            What::Event { place, scale, .. } => readings.value(row, *place).map(|v| v as f64 * scale),
        }
    }
}

/// The metrics of the table that this machine counts, as a list for [`Metric::choose`]. The clock is always among them, so
/// that something is counted, and who may not count anything hears so.
pub fn base_metrics(known: &[Metric]) -> String {
    let names = COLUMNS.iter().filter_map(|def| match def.of {
        Of::Rate(name) | Of::Value(name) => Some(name),
        Of::Known(_) => None,
    });
    let here = names.filter(|name| Metric::choose(name, known).is_ok_and(|m| m.iter().all(counts_here)));
    ["task_clock"].into_iter().chain(here).collect::<Vec<_>>().join(",")
}

fn counts_here(metric: &Metric) -> bool {
    let events = metric.events.iter().flatten();
    events.map(|name| CatalogRow::by_name(name)).all(|row| {
        row.is_some_and(|row| match probe(row.kind, row.config) {
            Probe::Counts => true,
            Probe::UserOnly => !row.in_kernel,
            _ => false,
        })
    })
}

/// The columns and what is measured for them. `own` sets of events are the user's; so are metrics that the table lacks.
pub fn columns(counted: &Counted, own: usize, hybrid: bool) -> (Vec<Column>, Vec<Measure>) {
    let mut measures = Vec::new();
    let mut columns: Vec<Column> = COLUMNS.iter().map(|def| column(def, counted, hybrid, &mut measures)).collect();
    let taken = |name: &str| name == "task_clock" || COLUMNS.iter().any(|def| def.of.metric() == Some(name));
    for metric in counted.metrics.iter().filter(|m| !taken(&m.name)) {
        let measure = Measure { what: What::Metric(metric.clone()), per_second: false };
        columns.push(added(&metric.name, &metric.unit, measure, &mut measures));
    }
    for (set, planned) in (0..).zip(&counted.plan.sets).take(own) {
        for (place, event) in planned.events.iter().enumerate() {
            let measure = Measure { what: What::Event { set, place, scale: event.scale }, per_second: true };
            let unit = format!("{}/s", event.unit);
            columns.push(added(&title(event), unit.trim_start_matches('/'), measure, &mut measures));
        }
    }
    (columns, measures)
}

fn title(event: &PlannedEvent) -> String {
    format!("{}/s", event.name)
}

fn column(def: &ColumnDef, counted: &Counted, hybrid: bool, measures: &mut Vec<Measure>) -> Column {
    let source = match def.of {
        Of::Known(source) => source,
        Of::Rate(name) | Of::Value(name) => {
            let found = counted.metrics.iter().find(|m| m.name == name);
            Source::Measure(found.map(|metric| {
                let per_second = matches!(def.of, Of::Rate(_));
                measures.push(Measure { what: What::Metric(metric.clone()), per_second });
                measures.len() - 1
            }))
        }
    };
    // Where all cores are alike, their type is no news.
    let shown = def.shown && (hybrid || source != Source::CoreType);
    Column { name: def.name.into(), width: def.width, source, prose: def.prose.into(), shown }
}

fn added(name: &str, unit: &str, measure: Measure, measures: &mut Vec<Measure>) -> Column {
    measures.push(measure);
    let source = Source::Measure(Some(measures.len() - 1));
    let width = u16::try_from(name.chars().count()).unwrap_or(u16::MAX).clamp(7, 24);
    Column { name: name.into(), width, source, prose: unit.into(), shown: true }
}

impl Of {
    const fn metric(&self) -> Option<&'static str> {
        match self {
            Self::Known(_) => None,
            Self::Rate(name) | Self::Value(name) => Some(name),
        }
    }
}

impl Column {
    /// Text stands at the left, numbers at the right.
    pub fn is_text(&self) -> bool {
        matches!(self.source, Source::Name | Source::CoreType)
    }

    /// What it sorts by comes in this order at first: the greatest number, or the first name or number of a thread.
    pub fn descends(&self) -> bool {
        matches!(self.source, Source::Share | Source::Measure(_) | Source::History)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::testing;

    #[test]
    fn what_is_not_counted_here_keeps_its_column() {
        let (columns, measures) = columns(&testing::counted(), 0, false);
        let of = |name: &str| columns.iter().find(|c| c.name == name).map(|c| c.source);
        assert_eq!(of("ipc"), Some(Source::Measure(None)));
        assert_eq!(of("cs/s"), Some(Source::Measure(Some(0))));
        assert!(measures[0].per_second && !measures[1].per_second);
        assert!(!columns.iter().any(|c| c.source == Source::CoreType && c.shown));
    }

    #[test]
    fn metrics_and_events_of_ones_own_come_last() {
        let (columns, measures) = columns(&testing::counted(), 1, true);
        let names: Vec<&str> = columns.iter().skip(COLUMNS.len()).map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["clock_share", "task_clock/s", "context_switches/s"]);
        assert_eq!(measures.len(), 4);
    }

    #[test]
    fn names_of_columns_are_unique() {
        let mut names: Vec<&str> = COLUMNS.iter().map(|c| c.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), COLUMNS.len());
    }
}
