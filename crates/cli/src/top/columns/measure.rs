//! What a column's values are computed from.

use countersteer_model::counters::{BoundMetric, Outside, Samples};
use countersteer_sysfs::sensors;

use crate::top::tails::Tail;

/// Something that is computed from counts, or read beside them.
#[derive(Clone, Debug)]
pub struct Measure {
    pub(super) what: What,
    /// A rate: divided by the time of the interval.
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
    /// The set it is counted by; none if it is not counted.
    pub const fn set(&self) -> Option<u32> {
        match &self.what {
            What::Metric(metric) => Some(metric.set),
            What::Event { set, .. } => Some(*set),
            What::Virtual { .. } | What::Tail(_) => None,
        }
    }

    /// Whether it is zero for who did not run.
    pub fn rests(&self) -> bool {
        match &self.what {
            // What a thread holds it keeps; its part in what happened is none.
            What::Virtual { column, by_thread } => {
                *by_thread && (self.per_second || column.unit == "%")
            }
            What::Metric(_) | What::Event { .. } | What::Tail(_) => self.per_second,
        }
    }

    /// Whether it is of one interval only: what was before says nothing of now.
    pub const fn passes(&self) -> bool {
        matches!(self.what, What::Tail(_))
    }

    /// Its value for a row of its set.
    pub fn value(&self, readings: &Samples, row: usize, outside: &Outside<'_>) -> Option<f64> {
        match &self.what {
            What::Metric(metric) => metric.value(readings, row, outside),
            What::Event { place, scale, .. } => readings.value(row, *place).map(|v| v * scale),
            What::Virtual { column, .. } => outside(column.name, readings.rows().get(row)?),
            What::Tail(tail) => outside(tail.name(), readings.rows().get(row)?),
        }
    }
}
