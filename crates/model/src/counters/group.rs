//! Groups of metrics, as files: events, formula, unit, prose.
//!
//! Input: TOML text, or formulas from a command line. Output: [`Metric`]s, and for a choice of them the events they need.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::formula::{Dimension, Formula};
use super::plan::PlannedSet;
use super::syntax::SpecError;
use crate::sample::{Sample, Samples};
use crate::textfile::{self, TextError};

/// A file of metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetricGroup {
    /// What the group is about.
    pub prose: String,
    /// Its metrics.
    pub metric: Vec<MetricRow>,
}

/// A metric as a file has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetricRow {
    /// Its name; columns and flags use it.
    pub name: String,
    /// `1000 * llc_misses / instructions`. `seconds` is the time that the events counted.
    pub formula: String,
    /// Its unit.
    pub unit: String,
    /// What it tells.
    pub prose: String,
    /// Event strings for names in the formula that are no events themselves.
    #[serde(default)]
    pub events: BTreeMap<String, String>,
}

/// A metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Its column.
    pub name: String,
    /// Its unit; empty for formulas of a command line.
    pub unit: String,
    /// What it tells; empty for formulas of a command line.
    pub prose: String,
    /// How it is computed.
    pub formula: Formula,
    /// By variable of the formula, the event string behind it; none for `seconds`.
    pub events: Vec<Option<String>>,
}

/// The variable that is no event.
pub const SECONDS: &str = "seconds";

impl MetricGroup {
    /// Reads a file's text and checks its formulas.
    ///
    /// # Errors
    /// What is no such file, or no formula, with its line.
    pub fn parse(path: &str, text: &str) -> Result<Vec<Metric>, TextError> {
        let group: Self = textfile::parse_toml(path, text)?;
        let metric = |(nth, row): (usize, MetricRow)| {
            let name = row.name.clone();
            row.metric().map_err(|e| {
                let message = format!("metric `{name}`: {e}");
                match textfile::table_line(text, "metric", nth) {
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

    /// The metrics that a comma-separated list names or spells out as formulas.
    ///
    /// # Errors
    /// What is neither, with its column.
    pub fn choose(list: &str, known: &[Self]) -> Result<Vec<Self>, SpecError> {
        let mut chosen: Vec<Self> = Vec::new();
        let mut offset = 0;
        for item in list.split(',') {
            let name = item.trim();
            let metric = match known.iter().find(|m| m.name == name) {
                Some(metric) => metric.clone(),
                None => Self::new(name.into(), String::new(), item, &BTreeMap::new())
                    .map_err(|e| SpecError::new(list, offset + e.offset, e.message))?,
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

/// What a variable of a formula stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// An event, by its position in the set.
    Event(usize),
    /// The time counted.
    Seconds,
    /// What no PMU counts: a virtual counter.
    Outside {
        /// Its name.
        name: &'static str,
        /// Its unit.
        unit: &'static str,
    },
}

/// What virtual counters said, by name, that belongs to a row: the change over its interval, or the level at its end.
pub type Outside<'a> = dyn Fn(&str, &Sample) -> Option<f64> + 'a;

/// A metric of a set that counts its events.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundMetric {
    /// Its column.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// The set.
    pub set: u32,
    formula: Formula,
    /// By variable: what it stands for, and what makes a value seconds, joules or bytes.
    operands: Vec<(Operand, f64)>,
}

impl BoundMetric {
    /// Binds a metric to a set; `operands` has, by variable, what it stands for.
    ///
    /// # Errors
    /// The formula adds what is unlike, with its column.
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
        let units: Vec<(Dimension, f64)> = operands.iter().map(unit_of).collect();
        let dimensions: Vec<Dimension> = units.iter().map(|u| u.0).collect();
        let dimension = metric.formula.dimension(&dimensions)?;
        let unit = if metric.unit.is_empty() {
            dimension.to_string()
        } else {
            metric.unit.clone()
        };
        let operands = operands
            .into_iter()
            .zip(units)
            .map(|(operand, (_, factor))| (operand, factor))
            .collect();
        Ok(Self {
            name: metric.name.clone(),
            unit,
            set,
            formula: metric.formula.clone(),
            operands,
        })
    }

    /// The virtual counters that it names.
    pub fn outside(&self) -> impl Iterator<Item = &'static str> {
        self.operands
            .iter()
            .filter_map(|(operand, _)| match operand {
                Operand::Outside { name, .. } => Some(*name),
                Operand::Event(_) | Operand::Seconds => None,
            })
    }

    /// Its value for a row; unavailable for rows of other sets, where an event was not counted, and where a virtual counter
    /// had nothing to say.
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
