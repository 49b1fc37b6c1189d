//! What `steer stat` counts: sets of events from `-e` and `-m`, planned, with the metrics that come of them.

use std::path::PathBuf;

use countersteer_core::counters::{BoundMetric, Metric, Plan, PlannedSet, SpecError, parse_set};
use countersteer_core::units::Nanos;
use countersteer_host::counters::{CounterError, Pmus, Resolved, resolve};

use crate::library;

/// What is counted when nothing is named: what every machine can count.
const DEFAULT_EVENTS: &str = "task_clock,context_switches,cpu_migrations,page_faults";

/// What is asked for.
pub struct Asked<'a> {
    /// Sets of events.
    pub events: &'a [String],
    /// Lists of metrics; the events of each form a set.
    pub metrics: &'a [String],
    /// Files of metrics, besides those that ship.
    pub files: &'a [PathBuf],
}

/// What is counted.
pub struct Counted {
    /// Events by set.
    pub sets: Vec<Vec<Resolved>>,
    /// The sets as a plan.
    pub plan: Plan,
    /// Metrics of them.
    pub metrics: Vec<BoundMetric>,
}

/// Plans what is asked for on this machine.
pub fn plan(asked: &Asked<'_>, pmus: &Pmus, interval: Option<Nanos>) -> anyhow::Result<Counted> {
    let mut sets = Vec::new();
    for text in asked.events {
        sets.push(events(text, pmus)?);
    }
    let known = library::metrics(asked.files)?;
    let mut metrics = Vec::new();
    for list in asked.metrics {
        let chosen = Metric::choose(list, &known).map_err(CounterError::Metric)?;
        let (set, bound) = of_metrics(&chosen, sets.len() as u32, pmus).map_err(CounterError::Metric)?;
        metrics.extend(bound);
        sets.push(set);
    }
    if sets.is_empty() {
        sets.push(events(DEFAULT_EVENTS, pmus)?);
    }
    let plan = Plan::new(sets.iter().map(|s| planned(s)).collect(), interval).map_err(CounterError::from)?;
    Ok(Counted { sets, plan, metrics })
}

fn events(text: &str, pmus: &Pmus) -> Result<Vec<Resolved>, CounterError> {
    Ok(resolve(text, &parse_set(text)?, pmus)?)
}

fn planned(set: &[Resolved]) -> PlannedSet {
    PlannedSet { events: set.iter().map(|e| e.planned.clone()).collect() }
}

/// The events of metrics, each once, and the metrics bound to them.
fn of_metrics(metrics: &[Metric], set: u32, pmus: &Pmus) -> Result<(Vec<Resolved>, Vec<BoundMetric>), SpecError> {
    let mut events: Vec<Resolved> = Vec::new();
    let mut places: Vec<Vec<Option<usize>>> = Vec::new();
    for metric in metrics {
        let mut of_metric = Vec::new();
        for (variable, event) in metric.formula.variables.iter().zip(&metric.events) {
            let Some(text) = event else {
                of_metric.push(None);
                continue;
            };
            let found = parse_set(text).and_then(|specs| resolve(text, &specs, pmus));
            let found = found.map_err(|e| SpecError::new(metric.formula.text(), variable.offset, e.message))?;
            for event in found {
                let known = events.iter().position(|e| e.planned.name == event.planned.name);
                of_metric.push(Some(known.unwrap_or(events.len())));
                if known.is_none() {
                    events.push(event);
                }
            }
        }
        places.push(of_metric);
    }
    let columns = planned(&events);
    let bound = metrics.iter().zip(&places).map(|(m, p)| BoundMetric::new(m, set, &columns, p));
    Ok((events, bound.collect::<Result<_, _>>()?))
}
