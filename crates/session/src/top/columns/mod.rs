//! Columns of `steer top`: those of a fixed table, one per virtual counter, and those that the user requests.
//!
//! Input: planned metrics and events, and the virtual counters of this machine. Output: columns, and the measures that supply
//! their values.

mod measure;
mod table;

use std::collections::BTreeMap;
use std::path::Path;

use countersteer_counters::{EventProbe, Pmus, probe_event};
use countersteer_model::counters::{BoundMetric, Metric, PlannedEvent};
use countersteer_model::events::EventDef;
use countersteer_model::metric::MetricDef;
use countersteer_sysfs::sensors::{self, PROVIDERS, ProviderDef, ValueKind};

use crate::bpf::Bpf;
use crate::counted::CountedMetrics;
use crate::derivable::derivable;
use crate::error::{self, failure};
use crate::modules::declared::{column_of, declared};
use crate::top::tails::{self, LatencyPercentile};
pub use measure::ColumnMeasure;
use measure::MeasureSource;
use table::{COLUMNS, ColumnDef, Of};

/// Source of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnSource {
    Pid,
    Tid,
    Name,
    Cpu,
    CoreType,
    Share,
    /// Index of the measure that supplies the values; `None` if this machine cannot count it.
    Measure(Option<usize>),
    History,
}

/// Column of the table on the screen.
#[derive(Clone, Debug)]
pub struct TopColumn {
    pub name: String,
    pub width: u16,
    pub source: ColumnSource,
    pub prose: String,
    pub shown: bool,
    /// Virtual counters that the column's values are computed from.
    pub reads: Vec<&'static str>,
    /// Reason why the column has no values on this machine; `None` if it has values.
    pub absent: Option<String>,
}

/// Reasons why providers of virtual counters are not available on this machine, by the provider's name.
pub(crate) type Silent = BTreeMap<&'static str, String>;

pub fn silent(root: &Path, bpf: Bpf) -> Silent {
    PROVIDERS
        .iter()
        .filter_map(|p| Some((p.name, (p.open)(root).err()?.to_string())))
        .chain(tails::silent(bpf).map(|why| (tails::PROVIDER, why)))
        .collect()
}

/// Returns a list of metrics for [`Metric::choose`]: those of the table that this machine can count, and those of `more`.
/// `task_clock` is always included, so that at least one event is counted. Users who may not count at all then get an error.
pub(crate) fn base_metrics(
    known: &[Metric],
    hybrid: bool,
    more: &[&'static MetricDef],
    pmus: &Pmus,
) -> String {
    let names = COLUMNS.iter().filter_map(|def| def.of.metric());
    // `sf` compares core types, so it is not useful if all cores are equal.
    let names = names.filter(|name| hybrid || *name != "sf");
    let counts = |metric: &Metric| counts_here(metric, pmus);
    let here = names.filter(|name| Metric::choose(name, known).is_ok_and(|m| m.iter().all(counts)));

    let mut names: Vec<&str> = ["task_clock"].into_iter().chain(here).collect();
    for metric in more {
        if !names.contains(&metric.name) {
            names.push(metric.name);
        }
    }
    names.join(",")
}

fn counts_here(metric: &Metric, pmus: &Pmus) -> bool {
    metric
        .events
        .iter()
        .flatten()
        .all(|name| match derivable(name) {
            Some(derived) => derived
                .needs
                .iter()
                .all(|event| event_counts_here(event.def().name, pmus)),
            None => event_counts_here(name, pmus),
        })
}

fn event_counts_here(name: &str, pmus: &Pmus) -> bool {
    EventDef::by_name(name).is_some_and(|row| match probe_event(row, pmus) {
        EventProbe::Counts => true,
        EventProbe::UserOnly => !row.is_in_kernel(),
        _ => false,
    })
}

/// Builds the columns and the measures that supply their values. The first `own` event sets are the user's. Each of their
/// events, and each metric that the table lacks, gets an additional column.
pub fn columns(
    counted: &CountedMetrics,
    own: usize,
    hybrid: bool,
    silent: &Silent,
) -> (Vec<TopColumn>, Vec<ColumnMeasure>) {
    let mut measures = Vec::new();
    let mut columns: Vec<TopColumn> = COLUMNS
        .iter()
        .map(|def| column(def, counted, hybrid, silent, &mut measures))
        .collect();
    let taken = |name: &str| {
        name == "task_clock" || COLUMNS.iter().any(|def| def.of.metric() == Some(name))
    };
    for metric in counted.metrics.iter().filter(|m| !taken(&m.name)) {
        let reads = read_by(metric);
        let measure = ColumnMeasure {
            what: MeasureSource::Metric(metric.clone()),
            per_second: false,
        };
        columns.push(TopColumn {
            reads,
            ..added(&metric.name, &metric.unit, measure, &mut measures)
        });
    }
    for (set, planned) in (0..).zip(&counted.plan.sets).take(own) {
        for (place, event) in planned.events.iter().enumerate() {
            let measure = ColumnMeasure {
                what: MeasureSource::Event {
                    set,
                    place,
                    scale: event.scale,
                },
                per_second: true,
            };
            let unit = format!("{}/s", event.unit);
            columns.push(added(
                &title(event),
                unit.trim_start_matches('/'),
                measure,
                &mut measures,
            ));
        }
    }
    let has = |name: &str| {
        COLUMNS
            .iter()
            .any(|def| matches!(def.of, Of::Virtual(n) if n == name))
    };
    let others = PROVIDERS
        .iter()
        .chain(declared())
        .flat_map(|p| p.columns)
        .filter(|c| !has(c.name));
    columns.extend(others.map(|column| of_registry(column, silent, &mut measures)));
    (columns, measures)
}

/// Returns the virtual counters that a metric's formula uses, except those derived from counts.
fn read_by(metric: &BoundMetric) -> Vec<&'static str> {
    metric
        .outside()
        .filter(|name| column_of(name).is_some())
        .collect()
}

/// Returns a column for a virtual counter that the fixed table does not contain.
fn of_registry(
    column: &'static sensors::SensorColumn,
    silent: &Silent,
    measures: &mut Vec<ColumnMeasure>,
) -> TopColumn {
    let per = if column.kind == ValueKind::Since {
        "/s"
    } else {
        ""
    };
    let name = format!("{}{per}", column.name);
    let prose = format!("{}, in {}{per}", column.prose, column.unit);
    let (source, reads, absent) = of_virtual(column.name, silent, measures);
    TopColumn {
        name: name.clone(),
        width: width(&name),
        source,
        prose,
        shown: false,
        reads,
        absent,
    }
}

/// Adds a measure for a virtual counter. Returns the column's source, the counters to read, and the reason if there are no
/// values.
fn of_virtual(
    name: &'static str,
    silent: &Silent,
    measures: &mut Vec<ColumnMeasure>,
) -> (ColumnSource, Vec<&'static str>, Option<String>) {
    let Some((provider, column)) = column_of(name) else {
        return (ColumnSource::Measure(None), Vec::new(), None);
    };
    if let Some(why) = silent.get(provider.name) {
        return (ColumnSource::Measure(None), Vec::new(), Some(why.clone()));
    }
    let what = MeasureSource::Virtual {
        column,
        by_thread: provider.by_thread,
    };
    measures.push(ColumnMeasure {
        what,
        per_second: column.kind == ValueKind::Since,
    });
    (
        ColumnSource::Measure(Some(measures.len() - 1)),
        vec![column.name],
        None,
    )
}

/// Adds a measure for a percentile of run-queue latency. Returns the column's source, the counters to read, and the reason if
/// there are no values.
fn of_tail(
    tail: LatencyPercentile,
    silent: &Silent,
    measures: &mut Vec<ColumnMeasure>,
) -> (ColumnSource, Vec<&'static str>, Option<String>) {
    if let Some(why) = silent.get(tails::PROVIDER) {
        return (ColumnSource::Measure(None), Vec::new(), Some(why.clone()));
    }
    measures.push(ColumnMeasure {
        what: MeasureSource::Tail(tail),
        per_second: false,
    });
    let source = ColumnSource::Measure(Some(measures.len() - 1));
    (source, vec![tail.name()], None)
}

/// Returns the index of a column, found by its name or by the name of its virtual counter.
pub fn find(columns: &[TopColumn], name: &str) -> anyhow::Result<usize> {
    let of_counter = |(_, counter): (&ProviderDef, &sensors::SensorColumn)| {
        let short = COLUMNS
            .iter()
            .find(|def| matches!(def.of, Of::Virtual(n) if n == counter.name));
        let title = short.map_or(counter.name, |def| def.name);
        columns
            .iter()
            .position(|c| c.name.trim_end_matches("/s") == title)
    };
    let found = columns
        .iter()
        .position(|c| c.name == name)
        .or_else(|| column_of(name).and_then(of_counter));
    found.ok_or_else(|| {
        let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
        failure(
            error::FaultKind::Usage,
            format!(
                "there is no column `{name}`; there are {}",
                names.join(", ")
            ),
        )
    })
}

/// Marks a requested column as shown; returns an error if the column has no values on this machine.
pub fn show(columns: &mut [TopColumn], name: &str) -> anyhow::Result<()> {
    let column = &mut columns[find(columns, name)?];
    column.shown = true;
    match &column.absent {
        Some(why) => Err(failure(
            error::FaultKind::Missing,
            format!("column `{name}` has nothing to show here: {why}"),
        )),
        None => Ok(()),
    }
}

/// Shows only the columns with these names, in this order.
pub fn only(columns: &mut [TopColumn], names: &[String]) -> anyhow::Result<()> {
    columns.iter_mut().for_each(|c| c.shown = false);
    for (place, name) in names.iter().enumerate() {
        show(columns, name)?;
        let from = find(columns, name)?;
        // A repeated name is skipped.
        if from >= place {
            columns[place..=from].rotate_right(1);
        }
    }
    Ok(())
}

fn title(event: &PlannedEvent) -> String {
    format!("{}/s", event.name)
}

fn column(
    def: &ColumnDef,
    counted: &CountedMetrics,
    hybrid: bool,
    silent: &Silent,
    measures: &mut Vec<ColumnMeasure>,
) -> TopColumn {
    let (source, reads, absent) = match def.of {
        Of::Known(source) => (source, Vec::new(), None),
        Of::Virtual(name) => of_virtual(name, silent, measures),
        Of::Tail(tail) => of_tail(tail, silent, measures),
        Of::Rate(name) | Of::Value(name) => match counted.metrics.iter().find(|m| m.name == name) {
            Some(metric) => {
                let per_second = matches!(def.of, Of::Rate(_));
                measures.push(ColumnMeasure {
                    what: MeasureSource::Metric(metric.clone()),
                    per_second,
                });
                (
                    ColumnSource::Measure(Some(measures.len() - 1)),
                    read_by(metric),
                    None,
                )
            }
            None => (
                ColumnSource::Measure(None),
                Vec::new(),
                Some("not counted here".into()),
            ),
        },
    };
    // The core type, and the gain of another core type, are not useful if all cores are equal.
    let of_types = source == ColumnSource::CoreType || def.name == "sf";
    let offered = absent.is_none() || !matches!(def.of, Of::Virtual(_));
    let shown = def.shown && offered && (hybrid || !of_types);
    TopColumn {
        name: def.name.into(),
        width: def.width,
        source,
        prose: def.prose.into(),
        shown,
        reads,
        absent,
    }
}

fn added(
    name: &str,
    unit: &str,
    measure: ColumnMeasure,
    measures: &mut Vec<ColumnMeasure>,
) -> TopColumn {
    measures.push(measure);
    let source = ColumnSource::Measure(Some(measures.len() - 1));
    let width = width(name);
    let reads = Vec::new();
    let absent = None;
    TopColumn {
        name: name.into(),
        width,
        source,
        prose: unit.into(),
        shown: true,
        reads,
        absent,
    }
}

fn width(name: &str) -> u16 {
    u16::try_from(name.chars().count())
        .unwrap_or(u16::MAX)
        .clamp(7, 26)
}

impl TopColumn {
    /// Returns true if the column contains text, which is left-aligned. Numbers are right-aligned.
    pub fn is_text(&self) -> bool {
        matches!(self.source, ColumnSource::Name | ColumnSource::CoreType)
    }

    /// Returns true if the column is first sorted in descending order: measured values start with the greatest, names and PIDs
    /// with the smallest.
    pub(crate) fn descends(&self) -> bool {
        matches!(
            self.source,
            ColumnSource::Share | ColumnSource::Measure(_) | ColumnSource::History
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::testing;

    #[test]
    fn what_is_not_counted_here_keeps_its_column() {
        let (columns, measures) = columns(&testing::counted(), 0, false, &testing::silent());
        let of = |name: &str| columns.iter().find(|c| c.name == name).map(|c| c.source);
        assert_eq!(of("ipc"), Some(ColumnSource::Measure(None)));
        assert_eq!(of("cs/s"), Some(ColumnSource::Measure(Some(0))));
        assert!(measures[0].per_second && !measures[1].per_second);
        assert!(
            !columns
                .iter()
                .any(|c| c.source == ColumnSource::CoreType && c.shown)
        );
    }

    #[test]
    fn metrics_and_events_of_ones_own_come_last() {
        let (columns, measures) = columns(&testing::counted(), 1, true, &testing::silent());
        let names: Vec<&str> = columns
            .iter()
            .skip(COLUMNS.len())
            .take(3)
            .map(|c| c.name.as_str())
            .collect();
        assert_eq!(names, ["clock_share", "task_clock/s", "context_switches/s"]);
        assert_eq!(measures.len(), 4);
    }

    #[test]
    fn every_virtual_counter_has_a_column_and_what_is_not_offered_says_why() {
        let silent = Silent::from([("resctrl", "no resctrl; mount it".to_owned())]);
        let (mut columns, measures) = columns(&testing::counted(), 0, true, &silent);
        for counter in PROVIDERS.iter().flat_map(|p| p.columns) {
            let column = &columns[find(&columns, counter.name).unwrap()];
            let absent = column_of(counter.name).unwrap().0.name == "resctrl";
            assert_eq!(
                (column.absent.is_some(), column.reads.is_empty()),
                (absent, absent),
                "{}",
                counter.name
            );
            if let ColumnSource::Measure(Some(nth)) = column.source {
                assert_eq!(
                    measures[nth].per_second,
                    counter.kind == ValueKind::Since,
                    "{}",
                    counter.name
                );
            }
        }
        assert!(columns.iter().any(|c| c.name == "energy%" && c.shown));
        let error = show(&mut columns, "llc_occupancy").unwrap_err().to_string();
        assert!(
            error.contains("`llc_occupancy` has nothing to show here: no resctrl; mount it"),
            "{error}"
        );
    }

    #[test]
    fn columns_that_are_picked_come_alone_and_in_their_order() {
        let (mut columns, _) = columns(&testing::counted(), 0, false, &Silent::new());
        only(
            &mut columns,
            &["energy", "name", "name", "cs/s"].map(String::from),
        )
        .unwrap();
        let shown: Vec<&str> = columns
            .iter()
            .filter(|c| c.shown)
            .map(|c| c.name.as_str())
            .collect();
        assert_eq!(shown, ["energy_j/s", "name", "cs/s"]);
        assert!(only(&mut columns, &["ipc".into()]).is_err() && find(&columns, "nix").is_err());
    }

    #[test]
    fn names_of_columns_are_unique() {
        let mut names: Vec<&str> = COLUMNS.iter().map(|c| c.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), COLUMNS.len());
    }
}
