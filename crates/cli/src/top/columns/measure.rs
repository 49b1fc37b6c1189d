//! Sources of a column's values.

use countersteer_model::counters::{BoundMetric, Outside, Samples};
use countersteer_sysfs::sensors;

use crate::top::tails::Tail;

/// A value computed from counts, or read with them.
#[derive(Clone, Debug)]
pub struct Measure {
    pub(super) what: What,
    /// True for a rate: the value is divided by the interval's time.
    pub per_second: bool,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    Metric(BoundMetric),
    Event {
        set: u32,
        place: usize,
        scale: f64,
    },
    Virtual {
        column: &'static sensors::Column,
        by_thread: bool,
    },
    Tail(Tail),
}

impl Measure {
    /// Event set that counts it; `None` if it is not counted.
    pub const fn set(&self) -> Option<u32> {
        match &self.what {
            What::Metric(metric) => Some(metric.set),
            What::Event { set, .. } => Some(*set),
            What::Virtual { .. } | What::Tail(_) => None,
        }
    }

    /// True if its value is zero for threads that did not run.
    pub fn rests(&self) -> bool {
        match &self.what {
            // A thread keeps what it holds; its share of events is zero.
            What::Virtual { column, by_thread } => {
                *by_thread && (self.per_second || column.unit == "%")
            }
            What::Metric(_) | What::Event { .. } | What::Tail(_) => self.per_second,
        }
    }

    /// True if its value applies to one interval only.
    pub const fn passes(&self) -> bool {
        matches!(self.what, What::Tail(_))
    }

    /// Value for a row of its set.
    pub fn value(&self, readings: &Samples, row: usize, outside: &Outside<'_>) -> Option<f64> {
        match &self.what {
            What::Metric(metric) => metric.value(readings, row, outside),
            What::Event { place, scale, .. } => readings.value(row, *place).map(|v| v * scale),
            What::Virtual { column, .. } => outside(column.name, readings.rows().get(row)?),
            What::Tail(tail) => outside(tail.name(), readings.rows().get(row)?),
        }
    }
}
