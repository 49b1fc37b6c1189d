//! Counters as data: specifications of the events to count, and their counts.
//!
//! Stage: before and after a source of counters. Input: event strings and raw observations of counters. Output: event
//! specifications, a [`SetPlan`] of sets, and [`Sample`]s with the counts of one thread in one interval. No I/O: a host opens the
//! events of a plan and feeds a [`Ledger`] with the kernel's reports, as does a replay or a test.

mod fold;
mod formula;
mod group;
mod ledger;
mod plan;
mod spec;
mod syntax;

pub use crate::sample::{Owner, Sample, Samples};

pub use fold::{Fold, Per};
pub use formula::{Dimension, Formula, Variable};
pub use group::{BoundMetric, Metric, MetricGroup, MetricRow, Operand, Outside, SECONDS};
pub use ledger::{Cumulative, Ledger, NO_TREE, Which};
pub use plan::{PlanError, PlannedEvent, PlannedSet, SetPlan, divide};

pub use spec::{EventSource, EventSpec, RawCounter, Space, Term, TermValue, parse_set};
pub use syntax::{SpecError, parse_count, parse_duration};
