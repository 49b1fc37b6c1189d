//! Intervals of policies that are asked more often than they decide: a real machine is observed every period of the run, whatever
//! a policy needs.

use countersteer_model::policy::{Params, PolicyError};
use countersteer_model::units::Nanos;

/// The time from one decision to the next.
#[derive(Clone, Copy)]
pub(crate) struct Interval {
    pub every: Nanos,
    /// None: the first is still to begin, which it may at any time.
    began: Option<Nanos>,
}

impl Interval {
    pub(crate) const fn new(every: Nanos) -> Self {
        let began = None;
        Self { every, began }
    }

    /// As long as a parameter in milliseconds says.
    pub(crate) fn of(params: &Params, key: &str) -> Result<Self, PolicyError> {
        let seconds = params.number(key, 1.0)? * 1e-3;
        Ok(Self::new(Nanos::from_secs_f64(seconds)))
    }

    /// The first has begun at that time.
    pub(crate) const fn from(self, began: Nanos) -> Self {
        let began = Some(began);
        Self { began, ..self }
    }

    /// The same one with the length of another.
    pub(crate) const fn as_long_as(self, other: Self) -> Self {
        let every = other.every;
        Self { every, ..self }
    }

    /// Whether it is over.
    pub(crate) fn is_over(&self, now: Nanos) -> bool {
        self.began
            .is_none_or(|began| now.since(began) >= self.every)
    }

    /// Begins the next one.
    pub(crate) const fn begin(&mut self, now: Nanos) {
        self.began = Some(now);
    }
}

/// The mean of what was measured in an interval.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mean {
    sum: f64,
    samples: u32,
    /// That of the last interval in which anything was measured.
    pub last: f64,
}

impl Mean {
    /// Takes in what was measured, if it is a number.
    pub(crate) fn note(&mut self, value: Option<f64>) {
        if let Some(value) = value.filter(|v| v.is_finite()) {
            self.sum += value;
            self.samples += 1;
        }
    }

    /// Ends the interval.
    pub(crate) fn close(&mut self) {
        let Self { sum, samples, last } = *self;
        let last = if samples > 0 {
            sum / f64::from(samples)
        } else {
            last
        };
        *self = Self {
            last,
            ..Self::default()
        };
    }
}
