//! Metrics that are formulas over the events of one sample.
//!
//! Input: a [`Metric`] from files and command lines. Output: a [`Computed`], whose names are resolved to events of the table, so
//! that reading a sample needs no look-up. Times are in seconds, energies in joules, everything else in events or bytes.

use super::{MetricSource, Round};
use crate::counters::{Dimension, Formula, Metric};
use crate::events::{EVENTS, EventOrigin};
use crate::sample::{Event, SampleRow};

/// Source of a variable's value in a formula over a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
enum FormulaOperand {
    /// Event, and the factor that converts its count to the quantity in the formula.
    Event(Event, f64),
    /// Time over which the events were counted.
    Seconds,
}

/// Formula over the events of a sample, with all names resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Computed {
    formula: Formula,
    operands: Vec<FormulaOperand>,
    events: Vec<Event>,
}

impl Computed {
    /// Resolves the names in a metric's formula to events. `None` if a name is neither an event nor a virtual counter in
    /// samples, or if the formula adds quantities of different dimensions.
    #[must_use]
    pub fn new(metric: &Metric) -> Option<Self> {
        let bound: Vec<(FormulaOperand, Dimension)> = metric
            .events
            .iter()
            .map(|event| event.as_deref().map_or(Some(TIME), operand))
            .collect::<Option<_>>()?;
        let (operands, dimensions): (Vec<_>, Vec<_>) = bound.into_iter().unzip();
        metric.formula.dimension(&dimensions).ok()?;
        let event = |operand: &FormulaOperand| match operand {
            FormulaOperand::Event(event, _) => Some(*event),
            FormulaOperand::Seconds => None,
        };
        Some(Self {
            formula: metric.formula.clone(),
            events: operands.iter().filter_map(event).collect(),
            operands,
        })
    }

    /// Returns the events of the formula. One event set must contain all of them.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }
}

const TIME: (FormulaOperand, Dimension) = (FormulaOperand::Seconds, Dimension::SECONDS);

/// Returns the event for a variable, with its factor and dimension. The name is that of an event, of a virtual counter that
/// samples contain as an event, or a processor-specific encoding.
fn operand(name: &str) -> Option<(FormulaOperand, Dimension)> {
    if let Some(event) = Event::by_name(name) {
        let (dimension, factor) = Dimension::of_unit(event.def().unit);
        return Some((FormulaOperand::Event(event, factor), dimension));
    }
    let virtual_counter = EVENTS.iter().find_map(|row| match row.source {
        EventOrigin::Virtual { counter, factor } if counter == name => {
            let unit = counter.rsplit('_').next().unwrap_or_default();
            let unit = if unit == "j" { "J" } else { row.unit };
            let (dimension, si) = Dimension::of_unit(unit);
            Some((
                FormulaOperand::Event(row.event, si / factor as f64),
                dimension,
            ))
        }
        _ => None,
    });
    virtual_counter.or_else(|| {
        let event = Event::named(name)?;
        Some((FormulaOperand::Event(event, 1.0), Dimension::EVENTS))
    })
}

/// Metric source that evaluates a formula, with a stack that is reused at every sample.
pub(super) struct FormulaSource {
    computed: &'static Computed,
    values: Vec<Option<f64>>,
    stack: Vec<f64>,
}

impl FormulaSource {
    pub(super) const fn new(computed: &'static Computed) -> Self {
        Self {
            computed,
            values: Vec::new(),
            stack: Vec::new(),
        }
    }
}

impl MetricSource for FormulaSource {
    fn read(&mut self, round: &Round<'_>) -> Option<f64> {
        let sample = round.with(&self.computed.events)?;
        let operands = self.computed.operands.iter();
        self.values.clear();
        self.values
            .extend(operands.map(|operand| value(*operand, &sample)));
        self.computed
            .formula
            .evaluate(&self.values, &mut self.stack)
    }
}

fn value(operand: FormulaOperand, sample: &SampleRow<'_>) -> Option<f64> {
    match operand {
        FormulaOperand::Event(event, factor) => Some(sample.counts.get(event)? * factor),
        FormulaOperand::Seconds => Some(sample.running.as_secs_f64()),
    }
}
