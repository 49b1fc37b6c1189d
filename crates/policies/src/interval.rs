//! Decision intervals of policies that are called more often than they decide. On a real machine, the policy is called in
//! every period of the run.

use countersteer_model::policy::{Params, PolicyError};
use countersteer_model::units::Nanos;

/// Interval between two decisions of a policy.
#[derive(Clone, Copy)]
pub(crate) struct DecisionInterval {
    pub every: Nanos,
    /// Start of the current interval; `None` before the first one, which may begin at any time.
    began: Option<Nanos>,
}

impl DecisionInterval {
    pub(crate) const fn new(every: Nanos) -> Self {
        let began = None;
        Self { every, began }
    }

    /// Creates an interval whose length is a parameter in milliseconds.
    pub(crate) fn of(params: &Params, key: &str) -> Result<Self, PolicyError> {
        let seconds = params.number(key, 1.0)? * 1e-3;
        Ok(Self::new(Nanos::from_secs_f64(seconds)))
    }

    /// Sets the start of the first interval.
    pub(crate) const fn from(self, began: Nanos) -> Self {
        let began = Some(began);
        Self { began, ..self }
    }

    /// Returns a copy of this interval with the length of another.
    pub(crate) const fn as_long_as(self, other: Self) -> Self {
        let every = other.every;
        Self { every, ..self }
    }

    /// True if the current interval has passed, or if none has begun.
    pub(crate) fn is_over(&self, now: Nanos) -> bool {
        self.began
            .is_none_or(|began| now.since(began) >= self.every)
    }

    /// Begins the next interval.
    pub(crate) const fn begin(&mut self, now: Nanos) {
        self.began = Some(now);
    }
}

/// Mean of a metric's values in an interval.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mean {
    sum: f64,
    samples: u32,
    /// Mean of the last interval that had at least one value; 0 before.
    pub last: f64,
}

impl Mean {
    /// Adds a value of the metric; ignores `None` and values that are not finite.
    pub(crate) fn note(&mut self, value: Option<f64>) {
        if let Some(value) = value.filter(|v| v.is_finite()) {
            self.sum += value;
            self.samples += 1;
        }
    }

    /// Ends the interval and stores its mean, if it had values.
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
