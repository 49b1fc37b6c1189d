//! `steer events`: lists the events and metrics that this machine can count, and the reasons why it cannot count others.

use std::path::{Path, PathBuf};

use countersteer_counters::{CoreTypes, EventProbe, PmuFolder, Pmus, permission, probe_event};
use countersteer_model::counters::Metric;
use countersteer_model::events::{EVENTS, EventDef};
use countersteer_model::metric::{self, MetricDef, ReadBy};
use countersteer_model::printable::shortened;
use countersteer_model::suggestion::suggestion;
use countersteer_report::table::plain;
use countersteer_sysfs::sensors::{PROVIDERS, ProviderDef, SensorColumn};
use serde::Serialize;

use super::{print, print_json};
use crate::derivable::derivable;
use crate::error::{FaultKind, failure};
use crate::library;

/// Arguments of `steer events`.
#[derive(Debug, clap::Args)]
pub struct EventsArgs {
    /// List only events and metrics with this text in their name or description
    filter: Option<String>,
    /// Root folder that contains the folders sys and proc, for example a copy from another machine
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Folder of vendors' event lists (JSON in Intel's perfmon format); default: ~/.local/share/countersteer/events
    #[arg(long, value_name = "DIR")]
    event_lists: Option<PathBuf>,
    /// File of additional metrics, in the format of `metrics/`
    #[arg(long, value_name = "FILE")]
    metric_file: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Listing {
    schema: &'static str,
    core_types: Vec<EventCoreType>,
    pmus: Vec<PmuRow>,
    events: Vec<ListedEvent>,
    metrics: Vec<ListedMetric>,
}

#[derive(Serialize)]
struct EventCoreType {
    name: String,
    cpus: usize,
}

#[derive(Serialize)]
struct PmuRow {
    name: String,
    r#type: u32,
    cpus: Option<String>,
    counters: Option<u32>,
    terms: Vec<String>,
}

#[derive(Serialize)]
struct ListedEvent {
    name: String,
    pmu: String,
    available: Option<bool>,
    /// Reason why the event is not available, or is available in user mode only; `None` if it is available without limits.
    why: Option<String>,
    description: String,
}

#[derive(Serialize)]
struct ListedMetric {
    name: String,
    formula: String,
    unit: String,
    available: Option<bool>,
    /// Reason why the metric is not available; `None` if it is available.
    why: Option<String>,
    description: String,
}

/// Runs `steer events`.
pub fn run(args: &EventsArgs) -> anyhow::Result<()> {
    let pmus = library::pmus(&args.root, args.event_lists.as_deref())?;
    let types = CoreTypes::of(&pmus);
    let here = args.root == Path::new("/");
    let core_type = |(row, name): (usize, &String)| EventCoreType {
        name: name.clone(),
        cpus: types.by_cpu.iter().filter(|t| **t as usize == row).count(),
    };
    let mut events: Vec<ListedEvent> = EVENTS
        .iter()
        .filter(|row| row.is_counted())
        .map(|row| portable(row, &pmus, here))
        .collect();
    events.extend(pmus.list.iter().flat_map(|pmu| named(pmu, here)));
    events.extend(
        PROVIDERS
            .iter()
            .flat_map(|provider| virtuals(provider, &args.root)),
    );
    events.extend(
        metric::all()
            .into_iter()
            .filter(|m| matches!(m.read_by, ReadBy::Source(_)) && derivable(m.name).is_some())
            .map(|m| derived(m, &events))
            .collect::<Vec<_>>(),
    );
    let known = library::metrics(&args.metric_file)?;
    let mut metrics: Vec<ListedMetric> = known
        .iter()
        .map(|metric| metric_row(metric, &events))
        .collect();
    if let Some(filter) = &args.filter {
        let names = events.iter().map(|e| e.name.as_str());
        let near = suggestion(filter, names.chain(metrics.iter().map(|m| m.name.as_str())));
        let wanted = filter.to_lowercase().replace('-', "_");
        let has = |text: &str| text.to_lowercase().replace('-', "_").contains(&wanted);
        events.retain(|e| has(&e.name) || has(&e.description));
        metrics.retain(|m| has(&m.name) || has(&m.description));
        if events.is_empty() && metrics.is_empty() {
            let why = format!("no event or metric has `{filter}` in its name or description{near}");
            return Err(failure(FaultKind::Usage, why));
        }
    }
    let listing = Listing {
        schema: "countersteer.events/1",
        core_types: types.names.iter().enumerate().map(core_type).collect(),
        pmus: pmus.list.iter().map(pmu_row).collect(),
        events,
        metrics,
    };
    if args.json {
        print_json(&listing)
    } else if args.filter.is_some() {
        print(&found(&listing))
    } else {
        print(&text(&listing))
    }
}

/// Formats the events and metrics that passed the filter. If only events or only metrics passed, prints only these.
fn found(listing: &Listing) -> String {
    match (listing.events.is_empty(), listing.metrics.is_empty()) {
        (_, true) => events_text(listing),
        (true, _) => metrics_text(listing),
        (false, false) => format!("{}\n{}", events_text(listing), metrics_text(listing)),
    }
}

fn pmu_row(pmu: &PmuFolder) -> PmuRow {
    PmuRow {
        name: pmu.name.clone(),
        r#type: pmu.kind,
        cpus: pmu
            .cpus
            .as_ref()
            .or(pmu.mask.as_ref())
            .map(ToString::to_string),
        counters: pmu.counters,
        terms: pmu.terms().map(str::to_owned).collect(),
    }
}

/// Returns the row of a portable event. The event is available if every core PMU that has a code for it can count it.
fn portable(row: &EventDef, pmus: &Pmus, here: bool) -> ListedEvent {
    let no_pmu = !row.is_software() && pmus.cores().is_empty();
    let worst = here.then(|| probe_event(row, pmus));
    let (available, why) = match worst {
        _ if no_pmu => (
            Some(false),
            Some("no hardware counters (a virtual machine without a PMU?)".to_owned()),
        ),
        None => (None, None),
        Some(EventProbe::Counts) => (Some(true), None),
        Some(EventProbe::UserOnly) if row.is_in_kernel() => (Some(false), Some(paranoid(1))),
        Some(EventProbe::UserOnly) => {
            (Some(true), Some(format!("user mode only; {}", paranoid(1))))
        }
        Some(EventProbe::NoCounter) => (
            Some(false),
            Some("no counter for it on this processor".into()),
        ),
        Some(EventProbe::Forbidden) => (Some(false), Some(paranoid(2))),
        Some(EventProbe::Other(error)) => (Some(false), Some(error)),
    };
    let pmu = if row.is_software() {
        "software"
    } else {
        "core"
    };
    ListedEvent {
        name: row.name.into(),
        pmu: pmu.into(),
        available,
        why,
        description: row.prose.into(),
    }
}

fn paranoid(level: i32) -> String {
    format!("{} permits it", permission(level))
}

/// Returns a row for each event that a PMU names in sysfs.
fn named(pmu: &PmuFolder, here: bool) -> impl Iterator<Item = ListedEvent> {
    pmu.events.iter().map(move |(name, event)| {
        let term = |(k, v): &(String, Option<String>)| {
            v.as_ref().map_or_else(|| k.clone(), |v| format!("{k}={v}"))
        };
        let terms: Vec<String> = event.terms.iter().map(term).collect();
        let unit = event
            .unit
            .as_ref()
            .map(|u| format!(", in {u}"))
            .unwrap_or_default();
        let why = pmu
            .mask
            .is_some()
            .then(|| "for the whole machine only: -a".to_owned());
        let available = here.then_some(true);
        let terms = terms.join(",");
        let description = match &event.prose {
            Some(prose) => format!("{prose} [{terms}{unit}]"),
            None => format!("{terms}{unit}"),
        };
        ListedEvent {
            name: format!("{}/{name}/", pmu.name),
            pmu: pmu.name.clone(),
            available,
            why,
            description,
        }
    })
}

/// Returns a row for each virtual counter of a provider.
fn virtuals(provider: &ProviderDef, root: &Path) -> Vec<ListedEvent> {
    let why = (provider.open)(root)
        .err()
        .map(|unavailable| unavailable.to_string());
    let row = |column: &SensorColumn| ListedEvent {
        name: column.name.into(),
        pmu: "virtual".into(),
        available: Some(why.is_none()),
        why: why.clone(),
        description: format!("{}, in {}; -v", column.prose, column.unit),
    };
    provider.columns.iter().map(row).collect()
}

/// Returns true if all named events are available, `None` if this is unknown, and otherwise false with the reason.
fn all_available<'a>(
    names: impl Iterator<Item = &'a str>,
    events: &[ListedEvent],
) -> (Option<bool>, Option<String>) {
    let mut all = Some(true);
    for name in names {
        match events.iter().find(|e| e.name == name) {
            Some(ListedEvent {
                available: Some(true),
                ..
            }) => {}
            Some(ListedEvent {
                available: Some(false),
                why,
                ..
            }) => {
                return (
                    Some(false),
                    Some(format!(
                        "{name}: {}",
                        why.as_deref().unwrap_or("not counted here")
                    )),
                );
            }
            _ => all = None,
        }
    }
    (all, None)
}

/// Returns the row of a virtual counter that is computed from counts.
fn derived(metric: &MetricDef, events: &[ListedEvent]) -> ListedEvent {
    let (available, why) = all_available(metric.needs.iter().map(|e| e.def().name), events);
    let description = format!("{}, in {}; -v", metric.prose, metric.unit);
    ListedEvent {
        name: metric.name.into(),
        pmu: "derived".into(),
        available,
        why,
        description,
    }
}

fn metric_row(metric: &Metric, events: &[ListedEvent]) -> ListedMetric {
    let (available, why) =
        all_available(metric.events.iter().flatten().map(String::as_str), events);
    ListedMetric {
        name: metric.name.clone(),
        formula: metric.formula.text().into(),
        unit: metric.unit.clone(),
        available,
        why,
        description: metric.prose.clone(),
    }
}

const fn mark(available: Option<bool>) -> &'static str {
    match available {
        Some(true) => "yes",
        Some(false) => "no",
        None => "?",
    }
}

fn because(why: Option<&String>) -> String {
    why.map(|why| format!(" ({why})")).unwrap_or_default()
}

fn text(listing: &Listing) -> String {
    let types = listing.core_types.iter().map(|t| {
        vec![
            t.name.clone(),
            format!("{} CPU{}", t.cpus, if t.cpus == 1 { "" } else { "s" }),
        ]
    });
    let pmus = listing.pmus.iter().map(|p| {
        let counters = p.counters.map_or_else(|| "-".into(), |n| n.to_string());
        let cpus = p.cpus.clone().unwrap_or_else(|| "-".into());
        vec![
            p.name.clone(),
            p.r#type.to_string(),
            cpus,
            counters,
            p.terms.join(" "),
        ]
    });
    let types = plain(&["core type", ""], types);
    let pmus = plain(&["PMU", "type", "CPUs", "counters", "terms"], pmus);
    let (events, metrics) = (events_text(listing), metrics_text(listing));
    format!("{types}\n{pmus}\n{events}\n{metrics}")
}

fn events_text(listing: &Listing) -> String {
    let events = listing.events.iter().map(|e| {
        let what = format!("{}{}", e.description, because(e.why.as_ref()));
        vec![e.name.clone(), mark(e.available).into(), what]
    });
    plain(&["event", "counts", "what"], events)
}

/// Largest number of characters of a formula in the table; `--json` has all of them.
const LONGEST_FORMULA: usize = 200;

fn metrics_text(listing: &Listing) -> String {
    let metrics = listing.metrics.iter().map(|m| {
        let what = format!(
            "{}, in {}: {}; -m{}",
            m.description,
            m.unit,
            shortened(&m.formula, LONGEST_FORMULA),
            because(m.why.as_ref())
        );
        vec![m.name.clone(), mark(m.available).into(), what]
    });
    plain(&["metric", "counts", "what, and its formula"], metrics)
}
