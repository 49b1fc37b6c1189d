//! Records for one purpose: rows that it does not need are dropped while a long record is read.
//!
//! Input: the folder of a record. Output: a [`Record`] that serves `steer why` or a report as the whole record would. Tables with
//! few rows are kept as they are. Memory depends on the number of threads and programs, not on the length of the run.

mod coarse;
mod moment;

use std::path::Path;

use moment::ExplainedMoment;

use crate::error::ReportError;
use crate::html::telling;
use crate::record::{Record, Reduction};

impl Record {
    /// Reads the rows of a record that explain the CPUs of its threads at `at_s` seconds after the start, for
    /// [`why`](crate::why::why).
    ///
    /// # Errors
    /// Fails as [`Record::load`] does.
    pub fn load_for_why(dir: &Path, at_s: f64) -> Result<Self, ReportError> {
        Self::load_reduced(dir, &why(at_s))
    }

    /// Reads the rows of a record that a report shows: time is divided into intervals that are shorter than a pixel.
    ///
    /// # Errors
    /// Fails as [`Record::load`] does.
    pub fn load_for_report(dir: &Path) -> Result<Self, ReportError> {
        let sketch = Self::load_reduced(dir, &Sketch)?;
        let mut record = Self::load_reduced(dir, &report(&sketch))?;
        moment::decisions(&mut record, &moments(&sketch));
        Ok(record)
    }

    /// Reads the rows of a record from which profiles and models are made: samples, events and the names of threads.
    ///
    /// # Errors
    /// Fails as [`Record::load`] does.
    pub fn load_samples(dir: &Path) -> Result<Self, ReportError> {
        Self::load_reduced(dir, &ReportSamples)
    }

    /// Reads the inputs of a run and its scores, and no rows of tables.
    ///
    /// # Errors
    /// Fails as [`Record::load`] does.
    pub fn load_inputs(dir: &Path) -> Result<Self, ReportError> {
        Self::load_reduced(dir, &Inputs)
    }
}

/// Rows that explain one time of a run.
struct WhyRows(ExplainedMoment);

fn why(at_s: f64) -> WhyRows {
    WhyRows(ExplainedMoment {
        at_ns: crate::why::nanos(at_s),
        thread: None,
    })
}

impl Reduction for WhyRows {
    fn reads(&self, table: &str) -> bool {
        let tables = [
            "steps",
            "threads",
            "events",
            "samples",
            "metrics",
            "decisions",
            "spans",
        ];
        tables.contains(&table)
    }

    fn reduce(&self, table: &str, record: &mut Record) {
        let moments = std::slice::from_ref(&self.0);
        match table {
            "threads" => moment::threads(record, moments),
            "events" => moment::events(record, moments),
            "samples" => moment::samples(record, moments, |_, _| false),
            "metrics" => moment::metrics(record, moments),
            "decisions" => moment::decisions(record, moments),
            "spans" => moment::spans(record),
            _ => {}
        }
    }
}

/// Rows that tell which moments of a run a report explains.
struct Sketch;

impl Reduction for Sketch {
    fn reads(&self, table: &str) -> bool {
        ["steps", "decisions", "spans"].contains(&table)
    }

    fn reduce(&self, table: &str, record: &mut Record) {
        match table {
            "decisions" => coarse::decisions(record),
            "spans" => moment::spans(record),
            _ => {}
        }
    }
}

fn moments(sketch: &Record) -> Vec<ExplainedMoment> {
    let chosen = telling(sketch, crate::html::DECISIONS);
    let moment = |row: &&crate::record::DecisionRow| ExplainedMoment {
        at_ns: row.at_ns,
        thread: Some(row.thread),
    };
    chosen.iter().map(moment).collect()
}

/// Rows that a report shows.
struct ShownRows {
    moments: Vec<ExplainedMoment>,
    /// End of the run in ns.
    end_ns: u64,
    /// True if the record has the run intervals of threads.
    has_spans: bool,
}

fn report(sketch: &Record) -> ShownRows {
    ShownRows {
        moments: moments(sketch),
        end_ns: sketch.end().0,
        has_spans: !sketch.spans.is_empty(),
    }
}

impl Reduction for ShownRows {
    fn reads(&self, table: &str) -> bool {
        table != "told"
    }

    fn reduce(&self, table: &str, record: &mut Record) {
        match table {
            "threads" => coarse::threads(record, &self.moments, !self.has_spans),
            "events" => moment::events(record, &self.moments),
            "samples" => coarse::samples(record, &self.moments, self.end_ns),
            "metrics" => moment::metrics(record, &self.moments),
            "decisions" => moment::decisions(record, &self.moments),
            "spans" => coarse::spans(record, self.end_ns),
            "readings" => coarse::readings(record, self.end_ns),
            "virtuals" => coarse::virtuals(record, self.end_ns),
            _ => {}
        }
    }
}

/// Samples, events and names of threads.
struct ReportSamples;

impl Reduction for ReportSamples {
    fn reads(&self, table: &str) -> bool {
        ["steps", "threads", "events", "samples"].contains(&table)
    }

    fn reduce(&self, table: &str, record: &mut Record) {
        if table == "threads" {
            coarse::names(record);
        }
    }
}

/// Inputs of a run.
struct Inputs;

impl Reduction for Inputs {
    fn reads(&self, table: &str) -> bool {
        ["steps", "profiles"].contains(&table)
    }

    fn reduce(&self, _: &str, _: &mut Record) {}
}

#[cfg(test)]
mod tests;
