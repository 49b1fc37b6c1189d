//! Counters as data: what is to be counted, and what was.
//!
//! Stage: before and after a source of counters. Input: event strings and raw observations of counters. Output: event
//! specifications, a [`Plan`] of sets, and [`Sample`]s: what one thread did in one interval. No I/O: a host opens what a plan
//! says and feeds a [`Ledger`] with what the kernel tells; a replay or a test feeds it just as well.

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
pub use plan::{Plan, PlanError, PlannedEvent, PlannedSet, divide};

pub use spec::{EventSource, EventSpec, RawCounter, Space, Term, TermValue, parse_set};
pub use syntax::{SpecError, parse_count, parse_duration};
