//! Plan of a `steer stat` run: event sets from `-e` and `-m`, and the metrics computed from them.

use std::path::PathBuf;

use countersteer_counters::resolve;
use countersteer_counters::{CounterError, EventProbe, Pmus, Resolved, fit_together, probe_event};
use countersteer_model::counters::{
    BoundMetric, Metric, Operand, PlanError, PlannedSet, SetPlan, SpecError, divide, parse_count,
    parse_set,
};
use countersteer_model::events::{Event, EventDef};
use countersteer_model::metric::MetricDef;
use countersteer_model::units::Nanos;

use crate::derivable::{derivable, helps};
use crate::error::{FaultKind, failure};
use crate::library;
use crate::modules::declared::column_of;

/// Events that are counted by default; every machine can count them.
const DEFAULT_EVENTS: &str = "task_clock,context_switches,cpu_migrations,page_faults";

/// Default events for users who may not count in kernel mode.
const USER_EVENTS: &str = "task_clock,page_faults";

/// Event that is counted if a metric needs no PMU event, so that the rows have a run time.
const CLOCK: &str = "task_clock";

pub struct RequestedMetrics<'a> {
    pub events: &'a [String],
    /// Lists of metrics, one per `-m`. The events of each list form one set.
    pub metrics: &'a [String],
    /// Files that define additional metrics.
    pub files: &'a [PathBuf],
    /// Event-based sampling interval: `100M:instructions` takes a sample every 100 million instructions.
    pub every: Option<&'a str>,
    /// Requested virtual counters that are computed from PMU counts.
    pub derived: &'a [&'static MetricDef],
}

pub struct CountedMetrics {
    pub sets: Vec<Vec<Resolved>>,
    /// Plan to count the sets, multiplexed if there are several.
    pub plan: SetPlan,
    pub metrics: Vec<BoundMetric>,
    /// Event that triggers samples: index of its set, index in the set, and number of events between two samples.
    pub every: Option<(usize, usize, u64)>,
    /// Virtual counters that formulas use and that providers read, e.g. from sensors.
    pub outside: Vec<&'static str>,
    /// Virtual counters that formulas use and that are computed from PMU counts.
    pub derived: Vec<&'static MetricDef>,
}

impl CountedMetrics {
    /// Returns a plan that counts nothing.
    #[must_use]
    pub fn nothing() -> Self {
        let sets = Vec::new();
        let plan = SetPlan::nothing();
        let metrics = Vec::new();
        Self {
            sets,
            plan,
            metrics,
            every: None,
            outside: Vec::new(),
            derived: Vec::new(),
        }
    }
}

/// Plans event sets, multiplexing and metrics for the requested events and metrics on this machine.
pub fn plan(
    asked: &RequestedMetrics<'_>,
    pmus: &Pmus,
    interval: Option<Nanos>,
) -> anyhow::Result<CountedMetrics> {
    let mut sets = Vec::new();
    for text in asked.events {
        sets.push(events(text, pmus)?);
    }
    let known = library::metrics(asked.files)?;
    let mut metrics = Vec::new();
    let mut outside = Vec::new();
    let mut derived = Vec::new();
    for list in asked.metrics {
        let chosen = Metric::choose(list, &known).map_err(CounterError::Metric)?;
        let counts = counts_here as _;
        let fits = fit_together as _;
        let mut found = OfMetrics {
            pmus,
            counts,
            fits,
            outside: &mut outside,
            derived: &mut derived,
        };
        let of_list = found
            .bind(&chosen, sets.len() as u32)
            .map_err(CounterError::Metric)?;
        sets.extend(of_list.sets);
        metrics.extend(of_list.metrics);
    }
    sets.extend(of_derived(asked.derived, &sets, pmus)?);
    if sets.is_empty() {
        let user_only = probe_event(Event::TaskClock.def(), pmus) == EventProbe::UserOnly;
        let default = if user_only {
            USER_EVENTS
        } else {
            DEFAULT_EVENTS
        };
        sets.push(events(default, pmus)?);
    }
    let every = asked
        .every
        .map(|text| every(text, &mut sets, pmus))
        .transpose()
        .map_err(CounterError::from)?;
    let every = every.or_else(|| every_inside(&sets));
    let plan = SetPlan::new(sets.iter().map(|s| planned(s)).collect(), interval);
    let divided = sets.len()
        > asked.events.len() + asked.metrics.len() + usize::from(!asked.derived.is_empty());
    if let (Err(PlanError::NoPeriod { sets }), true) = (&plan, divided) {
        let why = "this machine cannot count all requested events at once";
        let then = format!(
            "{sets} event sets would be multiplexed, which needs a period: give one with -i, as in -i 100ms"
        );
        return Err(failure(FaultKind::Usage, format!("{why}; {then}")));
    }
    let plan = plan.map_err(CounterError::from)?;
    Ok(CountedMetrics {
        sets,
        plan,
        metrics,
        every,
        outside,
        derived,
    })
}

/// Finds an event that triggers samples inside a set, as in PMCTrack's strings. Returns the indices of the set and the event,
/// and the number of events between two samples.
fn every_inside(sets: &[Vec<Resolved>]) -> Option<(usize, usize, u64)> {
    let places = |(set, events): (usize, &Vec<Resolved>)| {
        let mut places = events.iter().enumerate();
        places.find_map(|(place, event)| event.every.map(|n| (set, place, n)))
    };
    sets.iter().enumerate().find_map(places)
}

/// Returns event sets for the virtual counters derived from counts. A counter whose events are in an existing set needs no new
/// set.
fn of_derived(
    metrics: &[&MetricDef],
    sets: &[Vec<Resolved>],
    pmus: &Pmus,
) -> Result<Vec<Vec<Resolved>>, CounterError> {
    let has = |set: &Vec<Resolved>, event| set.iter().any(|e| e.planned.event == Some(event));
    let served = |m: &&&MetricDef| {
        sets.iter()
            .any(|set| m.needs.iter().all(|event| has(set, *event)))
    };
    let metrics: Vec<_> = metrics.iter().filter(|m| !served(m)).copied().collect();
    if metrics.is_empty() {
        return Ok(Vec::new());
    }
    let (needed, helpful) = events_behind(&metrics, |name| counts_here(name, pmus));
    let needed = events(&needed.join(","), pmus)?;
    let helpful = if helpful.is_empty() {
        Vec::new()
    } else {
        events(&helpful.join(","), pmus)?
    };
    Ok(spread(needed.clone(), &needed, &helpful, fit_together))
}

/// Returns the events of derived virtual counters without duplicates: the required events, and the optional events that this
/// machine can count.
fn events_behind(
    metrics: &[&MetricDef],
    counts: impl Fn(&str) -> bool,
) -> (Vec<&'static str>, Vec<&'static str>) {
    let names = |events: &[Event]| {
        events
            .iter()
            .map(|event| event.def().name)
            .collect::<Vec<_>>()
    };
    let mut needed = Vec::new();
    let mut helpful = Vec::new();
    for name in metrics.iter().flat_map(|m| names(m.needs)) {
        if !needed.contains(&name) {
            needed.push(name);
        }
    }
    for name in metrics
        .iter()
        .flat_map(|m| names(&helps(m)))
        .filter(|name| counts(name))
    {
        if !needed.contains(&name) && !helpful.contains(&name) {
            helpful.push(name);
        }
    }
    (needed, helpful)
}

/// Adds optional (`helpful`) events to a set if all events can be counted together. The others form further sets, each with the
/// required events.
fn spread(
    mut set: Vec<Resolved>,
    needed: &[Resolved],
    helpful: &[Resolved],
    fits: fn(&[Resolved]) -> bool,
) -> Vec<Vec<Resolved>> {
    let mut rest = Vec::new();
    for event in helpful
        .iter()
        .filter(|event| !set.contains(event))
        .cloned()
        .collect::<Vec<_>>()
    {
        set.push(event);
        if !fits(&set) {
            rest.extend(set.pop());
        }
    }
    let more = if rest.is_empty() {
        Vec::new()
    } else {
        let rest: Vec<Vec<Resolved>> = rest.into_iter().map(|event| vec![event]).collect();
        divide(needed, &rest, fits).0
    };
    std::iter::once(set).chain(more).collect()
}

fn counts_here(name: &str, pmus: &Pmus) -> bool {
    let row = EventDef::by_name(name);
    row.is_some_and(|row| {
        matches!(
            probe_event(row, pmus),
            EventProbe::Counts | EventProbe::UserOnly
        )
    })
}

/// Resolves an event set on this machine.
pub fn events(text: &str, pmus: &Pmus) -> Result<Vec<Resolved>, CounterError> {
    Ok(resolve(text, &parse_set(text)?, pmus)?)
}

/// Parses `100M:instructions`. If no set contains the event, adds it to the first set. Returns the indices of the set and the
/// event, and the number of events between two samples.
fn every(
    text: &str,
    sets: &mut Vec<Vec<Resolved>>,
    pmus: &Pmus,
) -> Result<(usize, usize, u64), SpecError> {
    let Some((number, event)) = text.split_once(':') else {
        return Err(SpecError::new(
            text,
            text.len(),
            "a colon and an event should follow, as in 100M:instructions",
        ));
    };
    let inside = |offset: usize| move |e: SpecError| e.within(text, offset);
    let number_of_events = parse_count(number).map_err(inside(0))?;
    let after = number.len() + 1;
    let specs = parse_set(event).map_err(inside(after))?;
    let mut found = resolve(event, &specs, pmus).map_err(inside(after))?;
    let (Some(event), true) = (found.pop(), found.is_empty()) else {
        return Err(SpecError::new(
            text,
            after,
            "a single event must determine the time of a sample",
        ));
    };
    for (set, events) in sets.iter().enumerate() {
        if let Some(place) = events
            .iter()
            .position(|e| e.planned.name == event.planned.name)
        {
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
    PlannedSet {
        events: set.iter().map(|e| e.planned.clone()).collect(),
    }
}

/// Resolver of the events that the metrics of one `-m` list need.
struct OfMetrics<'a> {
    pmus: &'a Pmus,
    /// Returns true if this machine can count the event with a portable name.
    counts: fn(&str, &Pmus) -> bool,
    /// Returns true if the PMUs can count all these events at the same time.
    fits: fn(&[Resolved]) -> bool,
    /// Virtual counters that the metrics use and that providers read.
    outside: &'a mut Vec<&'static str>,
    /// Virtual counters that the metrics use and that are computed from PMU counts.
    derived: &'a mut Vec<&'static MetricDef>,
}

/// Events of several metrics, counted in one set.
#[derive(Clone, Default)]
struct Together {
    events: Vec<Resolved>,
    /// Events that derived virtual counters require.
    needed: Vec<Resolved>,
    /// Optional events, which make derived virtual counters more accurate.
    helpful: Vec<Resolved>,
}

/// Metrics, and the event sets whose counts they use.
struct BoundMetrics {
    sets: Vec<Vec<Resolved>>,
    metrics: Vec<BoundMetric>,
}

impl OfMetrics<'_> {
    /// Assigns metrics to event sets: to one set if all events can be counted together. `first` is the index of the first new
    /// set.
    fn bind(&mut self, metrics: &[Metric], first: u32) -> Result<BoundMetrics, SpecError> {
        let mut bound = BoundMetrics {
            sets: Vec::new(),
            metrics: Vec::new(),
        };
        let (mut together, mut of_set): (Together, Vec<(&Metric, Vec<Operand>)>) =
            Default::default();
        for metric in metrics {
            let before = together.clone();
            let mut operands = self.operands(metric, &mut together)?;
            if !of_set.is_empty()
                && together.events.len() > before.events.len()
                && !(self.fits)(&together.events)
            {
                self.close(&before, &of_set, first, &mut bound)?;
                (together, of_set) = Default::default();
                operands = self.operands(metric, &mut together)?;
            }
            of_set.push((metric, operands));
        }
        self.close(&together, &of_set, first, &mut bound)?;
        Ok(bound)
    }

    /// Adds an event set with its metrics, and further multiplexed sets for derived virtual counters.
    fn close(
        &self,
        together: &Together,
        metrics: &[(&Metric, Vec<Operand>)],
        first: u32,
        bound: &mut BoundMetrics,
    ) -> Result<(), SpecError> {
        let Together {
            mut events,
            needed,
            helpful,
        } = together.clone();
        if events.is_empty() {
            // Metrics that use only virtual counters get their rows from the clock event.
            events = self.resolve(CLOCK)?;
        }
        let columns = planned(&events);
        let set = first + bound.sets.len() as u32;
        for (metric, operands) in metrics {
            bound
                .metrics
                .push(BoundMetric::new(metric, set, &columns, operands.clone())?);
        }
        bound
            .sets
            .extend(spread(events, &needed, &helpful, self.fits));
        Ok(())
    }

    fn operands(
        &mut self,
        metric: &Metric,
        together: &mut Together,
    ) -> Result<Vec<Operand>, SpecError> {
        let mut operands = Vec::new();
        for (variable, event) in metric.formula.variables.iter().zip(&metric.events) {
            let Some(text) = event else {
                operands.push(Operand::Seconds);
                continue;
            };
            if let Some((_, column)) = column_of(text) {
                if !self.outside.contains(&column.name) {
                    self.outside.push(column.name);
                }
                operands.push(Operand::Outside {
                    name: column.name,
                    unit: column.unit,
                });
                continue;
            }
            let wrong =
                |message: String| SpecError::new(metric.formula.text(), variable.offset, message);
            if let Some(metric) = derivable(text) {
                operands.push(self.derive(metric, text, together).map_err(wrong)?);
                continue;
            }
            let of_formula = |error: SpecError| SpecError {
                text: metric.formula.text().to_owned(),
                offset: variable.offset,
                ..error
            };
            let found = self.resolve(text).map_err(of_formula)?;
            operands.extend(
                found
                    .into_iter()
                    .map(|event| Operand::Event(place(&mut together.events, event))),
            );
        }
        Ok(operands)
    }

    /// Resolves a derived virtual counter and adds its events to `together`; returns the reason if it is not available.
    fn derive(
        &mut self,
        metric: &'static MetricDef,
        text: &str,
        together: &mut Together,
    ) -> Result<Operand, String> {
        let (needed, helpful) = events_behind(&[metric], |name| (self.counts)(name, self.pmus));
        let all = [&needed[..], &helpful].concat();
        let because =
            |e: SpecError| format!("`{text}` is derived from {}: {}", all.join(", "), e.message);
        let mut found = self.resolve(&all.join(",")).map_err(because)?;
        let mut needs = metric.needs.iter().map(|e| e.def().name);
        if let Some(event) = needs.find(|name| !(self.counts)(name, self.pmus)) {
            let why = "which this machine does not count (`steer events` says why)";
            return Err(format!("`{text}` is derived from `{event}`, {why}"));
        }
        let helpful = found.split_off(needed.len());
        for event in found {
            place(&mut together.events, event.clone());
            place(&mut together.needed, event);
        }
        let helped = helpful.into_iter();
        helped.for_each(|event| _ = place(&mut together.helpful, event));
        if self.derived.iter().all(|known| known.name != metric.name) {
            self.derived.push(metric);
        }
        Ok(Operand::Outside {
            name: metric.name,
            unit: metric.unit,
        })
    }

    fn resolve(&self, text: &str) -> Result<Vec<Resolved>, SpecError> {
        parse_set(text).and_then(|specs| resolve(text, &specs, self.pmus))
    }
}

/// Returns the index of an event in a list without duplicates; appends the event if it is new.
fn place(events: &mut Vec<Resolved>, event: Resolved) -> usize {
    let known = events
        .iter()
        .position(|e| e.planned.name == event.planned.name);
    known.unwrap_or_else(|| {
        events.push(event);
        events.len() - 1
    })
}

#[cfg(test)]
mod tests;
