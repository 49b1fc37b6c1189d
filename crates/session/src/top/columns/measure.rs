//! Measures, which supply the values of columns.

use countersteer_model::counters::{BoundMetric, Outside, Samples};
use countersteer_sysfs::sensors;

use crate::top::tails::LatencyPercentile;

/// Source of a column's values: they are computed from counts, or read together with the counts.
#[derive(Clone, Debug)]
pub struct ColumnMeasure {
    pub(super) what: MeasureSource,
    /// True if the value is divided by the interval's length, i.e. is a rate per second.
    pub per_second: bool,
}

#[derive(Clone, Debug)]
pub(super) enum MeasureSource {
    Metric(BoundMetric),
    Event {
        set: u32,
        place: usize,
        scale: f64,
    },
    Virtual {
        column: &'static sensors::SensorColumn,
        by_thread: bool,
    },
    Tail(LatencyPercentile),
}

impl ColumnMeasure {
    /// Index of the event set that the value is computed from; `None` if the value does not come from an event set.
    pub const fn set(&self) -> Option<u32> {
        match &self.what {
            MeasureSource::Metric(metric) => Some(metric.set),
            MeasureSource::Event { set, .. } => Some(*set),
            MeasureSource::Virtual { .. } | MeasureSource::Tail(_) => None,
        }
    }

    /// Returns true if the value is zero for threads that did not run.
    pub(crate) fn rests(&self) -> bool {
        match &self.what {
            // A thread that does not run keeps the occupancy it has (a level), but its rates and percentages are zero.
            MeasureSource::Virtual { column, by_thread } => {
                *by_thread && (self.per_second || column.unit == "%")
            }
            MeasureSource::Metric(_) | MeasureSource::Event { .. } | MeasureSource::Tail(_) => {
                self.per_second
            }
        }
    }

    /// Returns true if the value applies to one interval only, and becomes unknown at the next.
    pub const fn passes(&self) -> bool {
        matches!(self.what, MeasureSource::Tail(_))
    }

    /// Returns the value for one row of samples; `None` if it is unknown.
    pub fn value(&self, readings: &Samples, row: usize, outside: &Outside<'_>) -> Option<f64> {
        match &self.what {
            MeasureSource::Metric(metric) => metric.value(readings, row, outside),
            MeasureSource::Event { place, scale, .. } => {
                readings.value(row, *place).map(|v| v * scale)
            }
            MeasureSource::Virtual { column, .. } => {
                outside(column.name, readings.rows().get(row)?)
            }
            MeasureSource::Tail(tail) => outside(tail.name(), readings.rows().get(row)?),
        }
    }
}
