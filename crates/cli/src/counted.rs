//! What `steer stat` counts: sets of events from `-e` and `-m`, planned, with the metrics that come of them.

use std::path::PathBuf;

use countersteer_core::counters::{BoundMetric, Metric, Operand, Plan, PlannedSet, SpecError, parse_count, parse_set};
use countersteer_core::metric::MetricDef;
use countersteer_core::units::Nanos;
use countersteer_host::counters::{CatalogRow, CounterError, Pmus, Probe, Resolved, probe, resolve};
use countersteer_host::virtuals::column_of;

use crate::library;

/// What is counted when nothing is named: what every machine can count.
const DEFAULT_EVENTS: &str = "task_clock,context_switches,cpu_migrations,page_faults";

/// The same for a user who may not count what happens in the kernel.
const USER_EVENTS: &str = "task_clock,page_faults";

/// What gives rows their time where nothing else is counted.
const CLOCK: &str = "task_clock";

/// What is asked for.
pub struct Asked<'a> {
    /// Sets of events.
    pub events: &'a [String],
    /// Lists of metrics; the events of each form a set.
    pub metrics: &'a [String],
    /// Files of metrics, besides those that ship.
    pub files: &'a [PathBuf],
    /// `100M:instructions`: a reading each so many events.
    pub every: Option<&'a str>,
    /// Virtual counters that come of counts.
    pub derived: &'a [&'static MetricDef],
}

/// What is counted.
pub struct Counted {
    /// Events by set.
    pub sets: Vec<Vec<Resolved>>,
    /// The sets as a plan.
    pub plan: Plan,
    /// Metrics of them.
    pub metrics: Vec<BoundMetric>,
    /// Set, place in it and number of events after which a reading is due.
    pub every: Option<(usize, usize, u64)>,
    /// Virtual counters that formulas name.
    pub outside: Vec<&'static str>,
}

/// Plans what is asked for on this machine.
pub fn plan(asked: &Asked<'_>, pmus: &Pmus, interval: Option<Nanos>) -> anyhow::Result<Counted> {
    let mut sets = Vec::new();
    for text in asked.events {
        sets.push(events(text, pmus)?);
    }
    let known = library::metrics(asked.files)?;
    let (mut metrics, mut outside) = (Vec::new(), Vec::new());
    for list in asked.metrics {
        let chosen = Metric::choose(list, &known).map_err(CounterError::Metric)?;
        let mut found = OfMetrics { pmus, events: Vec::new(), outside: &mut outside };
        metrics.extend(found.bind(&chosen, sets.len() as u32).map_err(CounterError::Metric)?);
        sets.push(found.events);
    }
    sets.extend(of_derived(asked.derived, &sets, pmus)?);
    if sets.is_empty() {
        let user_only = CatalogRow::by_name("task_clock").is_some_and(|r| probe(r.kind, r.config) == Probe::UserOnly);
        sets.push(events(if user_only { USER_EVENTS } else { DEFAULT_EVENTS }, pmus)?);
    }
    let every = asked.every.map(|text| every(text, &mut sets, pmus)).transpose().map_err(CounterError::from)?;
    // PMCTrack's strings say it inside a set.
    let inside = || {
        let places = |(set, events): (usize, &Vec<Resolved>)| {
            events.iter().enumerate().find_map(|(place, e)| e.every.map(|n| (set, place, n)))
        };
        sets.iter().enumerate().find_map(places)
    };
    let every = every.or_else(inside);
    let plan = Plan::new(sets.iter().map(|s| planned(s)).collect(), interval).map_err(CounterError::from)?;
    Ok(Counted { sets, plan, metrics, every, outside })
}

/// The events of derived virtual counters, as a set of their own unless one of the others has what they need.
fn of_derived(
    metrics: &[&MetricDef],
    sets: &[Vec<Resolved>],
    pmus: &Pmus,
) -> Result<Option<Vec<Resolved>>, CounterError> {
    let has = |set: &Vec<Resolved>, event| set.iter().any(|e| e.planned.event == Some(event));
    let served = |m: &&&MetricDef| sets.iter().any(|set| m.needs.iter().all(|event| has(set, *event)));
    let metrics: Vec<_> = metrics.iter().filter(|m| !served(m)).collect();
    if metrics.is_empty() {
        return Ok(None);
    }
    let helps = metrics.iter().flat_map(|m| m.helps).filter(|event| {
        let row = CatalogRow::by_name(event.def().name);
        row.is_some_and(|row| matches!(probe(row.kind, row.config), Probe::Counts | Probe::UserOnly))
    });
    let mut names: Vec<&str> = Vec::new();
    for event in metrics.iter().flat_map(|m| m.needs).chain(helps) {
        let name = event.def().name;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    events(&names.join(","), pmus).map(Some)
}

fn events(text: &str, pmus: &Pmus) -> Result<Vec<Resolved>, CounterError> {
    Ok(resolve(text, &parse_set(text)?, pmus)?)
}

/// The event of `100M:instructions`, which joins the first set if it is in none.
fn every(text: &str, sets: &mut Vec<Vec<Resolved>>, pmus: &Pmus) -> Result<(usize, usize, u64), SpecError> {
    let Some((number, event)) = text.split_once(':') else {
        return Err(SpecError::new(text, text.len(), "a colon and an event should follow, as in 100M:instructions"));
    };
    let inside = |offset: usize| move |e: SpecError| SpecError::new(text, offset + e.offset, e.message);
    let number_of_events = parse_count(number).map_err(inside(0))?;
    let after = number.len() + 1;
    let specs = parse_set(event).map_err(inside(after))?;
    let mut found = resolve(event, &specs, pmus).map_err(inside(after))?;
    let (Some(event), true) = (found.pop(), found.is_empty()) else {
        return Err(SpecError::new(text, after, "one event decides when a reading is due"));
    };
    for (set, events) in sets.iter().enumerate() {
        if let Some(place) = events.iter().position(|e| e.planned.name == event.planned.name) {
            return Ok((set, place, number_of_events));
        }
    }
    match sets.first_mut() {
        Some(first) => first.push(event),
        None => sets.push(vec![event]),
    }
    Ok((0, sets[0].len() - 1, number_of_events))
}

fn planned(set: &[Resolved]) -> PlannedSet {
    PlannedSet { events: set.iter().map(|e| e.planned.clone()).collect() }
}

/// The events of metrics, each once.
struct OfMetrics<'a> {
    pmus: &'a Pmus,
    events: Vec<Resolved>,
    /// Virtual counters that were named.
    outside: &'a mut Vec<&'static str>,
}

impl OfMetrics<'_> {
    /// Metrics bound to a set of their events.
    fn bind(&mut self, metrics: &[Metric], set: u32) -> Result<Vec<BoundMetric>, SpecError> {
        let mut operands = Vec::new();
        for metric in metrics {
            operands.push(self.operands(metric)?);
        }
        if self.events.is_empty() {
            // What only virtual counters tell has rows by the time that threads ran.
            self.events = resolve(CLOCK, &parse_set(CLOCK)?, self.pmus)?;
        }
        let columns = planned(&self.events);
        metrics.iter().zip(operands).map(|(m, operands)| BoundMetric::new(m, set, &columns, operands)).collect()
    }

    fn operands(&mut self, metric: &Metric) -> Result<Vec<Operand>, SpecError> {
        let mut operands = Vec::new();
        for (variable, event) in metric.formula.variables.iter().zip(&metric.events) {
            let Some(text) = event else {
                operands.push(Operand::Seconds);
                continue;
            };
            if let Some((_, column)) = column_of(text) {
                self.outside.push(column.name);
                operands.push(Operand::Outside { name: column.name, unit: column.unit });
                continue;
            }
            let found = parse_set(text).and_then(|specs| resolve(text, &specs, self.pmus));
            let found = found.map_err(|e| SpecError::new(metric.formula.text(), variable.offset, e.message))?;
            for event in found {
                let known = self.events.iter().position(|e| e.planned.name == event.planned.name);
                operands.push(Operand::Event(known.unwrap_or(self.events.len())));
                if known.is_none() {
                    self.events.push(event);
                }
            }
        }
        Ok(operands)
    }
}
