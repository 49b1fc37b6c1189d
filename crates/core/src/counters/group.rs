//! Groups of metrics, as files: events, formula, unit, prose.
//!
//! Input: TOML text, or formulas from a command line. Output: [`Metric`]s, and for a choice of them the events they need.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::formula::{Dimension, Formula};
use super::plan::PlannedSet;
use super::reading::Readings;
use super::syntax::SpecError;
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
                    Some(line) => TextError { line: Some(line), ..TextError::value(path, message) },
                    None => TextError::value(path, message),
                }
            })
        };
        group.metric.into_iter().enumerate().map(metric).collect()
    }
}

impl MetricRow {
    fn metric(self) -> Result<Metric, SpecError> {
        Metric::new(self.name, self.unit, &self.formula, &self.events)
    }
}

impl Metric {
    fn new(name: String, unit: String, text: &str, events: &BTreeMap<String, String>) -> Result<Self, SpecError> {
        let formula = Formula::parse(text)?;
        let event = |v: &super::formula::Variable| {
            (v.name != SECONDS).then(|| events.get(&v.name).cloned().unwrap_or_else(|| v.name.clone()))
        };
        let events = formula.variables.iter().map(event).collect();
        Ok(Self { name, unit, formula, events })
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
                return Err(SpecError::new(list, offset, format!("`{name}` is there twice")));
            }
            chosen.push(metric);
            offset += item.len() + 1;
        }
        Ok(chosen)
    }
}

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
    /// By variable: the event's position in the set (none for `seconds`), and what makes a count seconds, joules or bytes.
    places: Vec<(Option<usize>, f64)>,
}

impl BoundMetric {
    /// Binds a metric to a set; `places` has, by variable, the position of its event there.
    ///
    /// # Errors
    /// The formula adds what is unlike, with its column.
    pub fn new(metric: &Metric, set: u32, planned: &PlannedSet, places: &[Option<usize>]) -> Result<Self, SpecError> {
        let unit_of = |place: Option<usize>| match place.and_then(|p| planned.events.get(p)) {
            Some(event) => {
                let (dimension, factor) = Dimension::of_unit(&event.unit);
                (dimension, factor * event.scale)
            }
            None => (Dimension::SECONDS, 1.0),
        };
        let units: Vec<(Dimension, f64)> = places.iter().map(|p| unit_of(*p)).collect();
        let dimensions: Vec<Dimension> = units.iter().map(|u| u.0).collect();
        let dimension = metric.formula.dimension(&dimensions)?;
        let unit = if metric.unit.is_empty() { dimension.to_string() } else { metric.unit.clone() };
        let places = places.iter().zip(units).map(|(place, (_, factor))| (*place, factor)).collect();
        Ok(Self { name: metric.name.clone(), unit, set, formula: metric.formula.clone(), places })
    }

    /// Its value for a row; unavailable for rows of other sets, and where an event was not counted.
    #[must_use]
    pub fn value(&self, readings: &Readings, row: usize) -> Option<f64> {
        let reading = readings.rows().get(row).filter(|r| r.set == self.set)?;
        let value = |(place, factor): &(Option<usize>, f64)| match place {
            Some(event) => readings.value(row, *event).map(|v| v as f64 * factor),
            None => Some(reading.running.as_secs_f64()),
        };
        let values: Vec<Option<f64>> = self.places.iter().map(value).collect();
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
        assert_eq!(chosen[1].events, [Some("context_switches:k".to_owned()), None]);
        assert_eq!((chosen[2].name.as_str(), chosen[2].events.len()), ("1000*page_faults/seconds", 2));
        assert_eq!(Metric::choose("ipc,ipc", &known).unwrap_err().column(), 5);
        assert_eq!(Metric::choose("ipc,(a", &known).unwrap_err().column(), 7);
    }

    #[test]
    fn errors_of_files_name_the_line() {
        let broken = GROUP.replace("cs / seconds", "cs / ");
        let error = MetricGroup::parse("g.toml", &broken).unwrap_err();
        assert_eq!(error.line, Some(8), "{error}");
        let strange = GROUP.replace("unit = \"1/s\"", "units = \"1/s\"");
        assert!(MetricGroup::parse("g.toml", &strange).unwrap_err().to_string().contains("units"));
    }
}
