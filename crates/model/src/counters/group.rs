//! Metric groups from files: each metric has events, a formula, a unit and a description.
//!
//! Input: TOML text, or formulas from a command line. Output: [`Metric`]s, and the events that the selected metrics need.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::formula::{Dimension, Formula};
use super::plan::PlannedSet;
use super::syntax::SpecError;
use crate::sample::{Sample, Samples};
use crate::textfile::{self, TextError};
use crate::toml_lines;

/// File of metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetricGroup {
    /// Subject of the group.
    pub prose: String,
    /// Metrics of the group.
    pub metric: Vec<MetricRow>,
}

/// Metric as written in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetricRow {
    /// Name of the metric, in columns and flags.
    pub name: String,
    /// Formula, such as `1000 * llc_misses / instructions`. `seconds` is the time that the events counted.
    pub formula: String,
    /// Unit of the metric.
    pub unit: String,
    /// Description of the metric.
    pub prose: String,
    /// Event strings of the names in the formula that are not event names.
    #[serde(default)]
    pub events: BTreeMap<String, String>,
}

/// Metric with its formula, from a metric group's file or from the command line.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Name of the metric's column in tables.
    pub name: String,
    /// Unit of the metric's value; empty for formulas from a command line.
    pub unit: String,
    /// Description of the metric; empty for formulas from a command line.
    pub prose: String,
    /// Formula over events and `seconds`.
    pub formula: Formula,
    /// Event string of each variable of the formula; `None` for the variable `seconds`.
    pub events: Vec<Option<String>>,
}

/// Name of the variable for the time over which the events were counted.
pub const SECONDS: &str = "seconds";

impl MetricGroup {
    /// Parses the text of a metric group's file and checks the formulas.
    ///
    /// # Errors
    /// Fails if the text has another format or a formula is invalid; the error contains the line.
    ///
    /// ```
    /// use countersteer_model::counters::MetricGroup;
    ///
    /// let text = r#"
    /// prose = "Branches"
    ///
    /// [[metric]]
    /// name = "branch_mpki"
    /// formula = "1000 * branch_misses / instructions"
    /// unit = "1/kilo-instruction"
    /// prose = "mispredicted branches per kilo-instruction"
    /// "#;
    /// let metrics = MetricGroup::parse("branches.toml", text)?;
    /// assert_eq!(metrics[0].name, "branch_mpki");
    /// # Ok::<(), countersteer_model::textfile::TextError>(())
    /// ```
    pub fn parse(path: &str, text: &str) -> Result<Vec<Metric>, TextError> {
        let group: Self = textfile::parse_toml(path, text)?;
        let metric = |(nth, row): (usize, MetricRow)| {
            let name = row.name.clone();
            row.metric().map_err(|e| {
                let message = format!("metric `{name}`: {e}");
                match toml_lines::table_line(text, "metric", nth) {
                    Some(line) => TextError {
                        line: Some(line),
                        ..TextError::value(path, message)
                    },
                    None => TextError::value(path, message),
                }
            })
        };
        group.metric.into_iter().enumerate().map(metric).collect()
    }
}

impl MetricRow {
    fn metric(self) -> Result<Metric, SpecError> {
        Ok(Metric {
            prose: self.prose,
            ..Metric::new(self.name, self.unit, &self.formula, &self.events)?
        })
    }
}

impl Metric {
    fn new(
        name: String,
        unit: String,
        text: &str,
        events: &BTreeMap<String, String>,
    ) -> Result<Self, SpecError> {
        let formula = Formula::parse(text)?;
        let event = |v: &super::formula::Variable| {
            (v.name != SECONDS).then(|| {
                events
                    .get(&v.name)
                    .cloned()
                    .unwrap_or_else(|| v.name.clone())
            })
        };
        let events = formula.variables.iter().map(event).collect();
        Ok(Self {
            name,
            unit,
            prose: String::new(),
            formula,
            events,
        })
    }

    /// Returns the metrics of a comma-separated list of names of `known` metrics and formulas.
    ///
    /// # Errors
    /// Fails on an item that is neither a known name nor a formula; the error contains the item's column.
    pub fn choose(list: &str, known: &[Self]) -> Result<Vec<Self>, SpecError> {
        let mut chosen: Vec<Self> = Vec::new();
        let mut offset = 0;
        for item in list.split(',') {
            let name = item.trim();
            let metric = match known.iter().find(|m| m.name == name) {
                Some(metric) => metric.clone(),
                None => Self::new(name.into(), String::new(), item, &BTreeMap::new())
                    .map_err(|e| e.within(list, offset))?,
            };
            if chosen.iter().any(|m| m.name == metric.name) {
                return Err(SpecError::new(
                    list,
                    offset,
                    format!("`{name}` is there twice"),
                ));
            }
            chosen.push(metric);
            offset += item.len() + 1;
        }
        Ok(chosen)
    }
}

/// Source of a variable's value in a formula over a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// Event, by the index of its column in the event set.
    Event(usize),
    /// Time over which the events were counted.
    Seconds,
    /// Virtual counter, whose value does not come from a PMU.
    Outside {
        /// Name of the virtual counter.
        name: &'static str,
        /// Unit of the virtual counter's values.
        unit: &'static str,
    },
}

/// Function that returns the value of a virtual counter, given by name, for a sample: the change over the sample's interval,
/// or the level at the end.
pub type Outside<'a> = dyn Fn(&str, &Sample) -> Option<f64> + 'a;

/// Metric whose variables are bound to the columns of an event set.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundMetric {
    /// Name of the metric's column in tables.
    pub name: String,
    /// Unit of the metric's value.
    pub unit: String,
    /// Index of the event set that counts the metric's events.
    pub set: u32,
    formula: Formula,
    /// Source of each variable's value, and the factor that converts the value to seconds, joules or bytes.
    operands: Vec<(Operand, f64)>,
}

impl BoundMetric {
    /// Binds the variables of a metric to an event set; `operands` holds the source of each variable's value.
    ///
    /// # Errors
    /// Fails if the formula adds quantities of different dimensions; the error contains the operator's column.
    pub fn new(
        metric: &Metric,
        set: u32,
        planned: &PlannedSet,
        operands: Vec<Operand>,
    ) -> Result<Self, SpecError> {
        let unit_of = |operand: &Operand| match operand {
            Operand::Seconds => (Dimension::SECONDS, 1.0),
            Operand::Outside { unit, .. } => Dimension::of_unit(unit),
            Operand::Event(place) => {
                planned
                    .events
                    .get(*place)
                    .map_or((Dimension::EVENTS, 1.0), |event| {
                        let (dimension, factor) = Dimension::of_unit(&event.unit);
                        (dimension, factor * event.scale)
                    })
            }
        };
        let (dimensions, factors): (Vec<_>, Vec<_>) = operands.iter().map(unit_of).unzip();
        let dimension = metric.formula.dimension(&dimensions)?;
        let unit = if metric.unit.is_empty() {
            dimension.to_string()
        } else {
            metric.unit.clone()
        };
        Ok(Self {
            name: metric.name.clone(),
            unit,
            set,
            formula: metric.formula.clone(),
            operands: operands.into_iter().zip(factors).collect(),
        })
    }

    /// Returns the names of the virtual counters in the formula.
    pub fn outside(&self) -> impl Iterator<Item = &'static str> {
        self.operands
            .iter()
            .filter_map(|(operand, _)| match operand {
                Operand::Outside { name, .. } => Some(*name),
                Operand::Event(_) | Operand::Seconds => None,
            })
    }

    /// Returns the metric's value for a row of samples. `None` if the row is of another event set, an event was not counted,
    /// or a virtual counter has no value.
    #[must_use]
    pub fn value(&self, samples: &Samples, row: usize, outside: &Outside<'_>) -> Option<f64> {
        let sample = samples.row(row).filter(|r| r.set == self.set)?;
        let value = |(operand, factor): &(Operand, f64)| match operand {
            Operand::Event(event) => sample.counts.at(*event).map(|v| v * factor),
            Operand::Seconds => Some(sample.running.as_secs_f64()),
            Operand::Outside { name, .. } => outside(name, &sample).map(|v| v * factor),
        };
        let values: Vec<Option<f64>> = self.operands.iter().map(value).collect();
        self.formula.evaluate(&values, &mut Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: &str = r#"
        prose = "p"
        [[metric]]
        name = "ipc"
        formula = "instructions / cycles"
        unit = "instructions/cycle"
        prose = "instructions per cycle"
        [[metric]]
        name = "switch_rate"
        formula = "cs / seconds"
        unit = "1/s"
        prose = "p"
        events = { cs = "context_switches:k" }
    "#;

    #[test]
    fn a_list_mixes_names_and_formulas() {
        let known = MetricGroup::parse("g.toml", GROUP).unwrap();
        let chosen = Metric::choose("ipc,switch_rate,1000*page_faults/seconds", &known).unwrap();
        assert_eq!(
            chosen[1].events,
            [Some("context_switches:k".to_owned()), None]
        );
        assert_eq!(
            (chosen[2].name.as_str(), chosen[2].events.len()),
            ("1000*page_faults/seconds", 2)
        );
        assert_eq!(Metric::choose("ipc,ipc", &known).unwrap_err().column(), 5);
        assert_eq!(Metric::choose("ipc,(a", &known).unwrap_err().column(), 7);
    }

    #[test]
    fn errors_of_files_name_the_line() {
        let broken = GROUP.replace("cs / seconds", "cs / ");
        let error = MetricGroup::parse("g.toml", &broken).unwrap_err();
        assert_eq!(error.line, Some(8), "{error}");
        let strange = GROUP.replace("unit = \"1/s\"", "units = \"1/s\"");
        assert!(
            MetricGroup::parse("g.toml", &strange)
                .unwrap_err()
                .to_string()
                .contains("units")
        );
    }

    #[test]
    fn virtual_counters_have_units_and_may_be_absent() {
        use crate::counters::{Owner, PlannedEvent};
        use crate::units::{CoreTypeId, Nanos};
        let event = |name: &str| PlannedEvent {
            name: name.into(),
            unit: String::new(),
            scale: 1.0,
            event: None,
        };
        let set = PlannedSet {
            events: vec![event("instructions")],
        };
        let energy = || Operand::Outside {
            name: "energy_j",
            unit: "J",
        };
        let chosen = |text| Metric::choose(text, &[]).unwrap().remove(0);
        let bound = |text, operands| BoundMetric::new(&chosen(text), 0, &set, operands);
        let metric = bound("energy_j/instructions", vec![energy(), Operand::Event(0)]).unwrap();
        assert_eq!(
            (metric.unit.as_str(), metric.outside().collect::<Vec<_>>()),
            ("event^-1 J", vec!["energy_j"])
        );
        let error = bound("energy_j+instructions", vec![energy(), Operand::Event(0)]).unwrap_err();
        assert!(error.to_string().contains("not J and event"), "{error}");
        let mut samples = Samples::default();
        let row = Sample {
            present: 1,
            running: Nanos(5),
            ..Sample::new(Owner::Total, None, CoreTypeId(0), 0)
        };
        samples.push(row, [1000.0]);
        assert_eq!(
            metric.value(&samples, 0, &|name, _| (name == "energy_j").then_some(2.5)),
            Some(0.0025)
        );
        assert_eq!(metric.value(&samples, 0, &|_, _| None), None);
    }
}
