//! Differences between the decisions of a record and those of a replay.
//!
//! Input: a [`Record`] and the decisions that a policy made on its observations. Output: [`Differences`]: how many, and the
//! first one shown. The same policy with the same seed must show none, to the last bit.

use std::fmt;

use serde::Serialize;

use super::Record;
use super::rows::DecisionRow;

/// How two runs of decisions differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Differences {
    /// Decisions in the record.
    pub recorded: usize,
    /// Decisions in the replay.
    pub replayed: usize,
    /// Decisions with the same step, thread, target, weight and reason.
    pub same: usize,
    /// Decisions that send the same thread elsewhere at the same step.
    pub elsewhere: usize,
    /// The first difference.
    pub first: Option<Difference>,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The observation that was answered.
    pub step: u32,
    /// When that was.
    pub at_s: f64,
    /// Whom it is about.
    pub thread: u32,
    /// Program of that thread.
    pub program: String,
    /// What the record says; `None` when it says nothing.
    pub recorded: Option<String>,
    /// What the replay says; `None` when it says nothing.
    pub replayed: Option<String>,
}

impl Differences {
    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.first.is_none()
    }
}

/// Compares the decisions of a record with those of a replay.
#[must_use]
pub fn compare_decisions(record: &Record, replayed: &[DecisionRow]) -> Differences {
    let (a, b) = (sorted(&record.decisions), sorted(replayed));
    let mut result = Differences { recorded: a.len(), replayed: b.len(), same: 0, elsewhere: 0, first: None };
    let (mut i, mut j) = (0, 0);
    while i < a.len() || j < b.len() {
        // The smaller key comes first; equal keys are a pair.
        let order = match (a.get(i), b.get(j)) {
            (Some(x), Some(y)) => key(x).cmp(&key(y)),
            (Some(_), None) => std::cmp::Ordering::Less,
            _ => std::cmp::Ordering::Greater,
        };
        let left = order.is_le().then(|| a[i]);
        let right = order.is_ge().then(|| b[j]);
        i += usize::from(left.is_some());
        j += usize::from(right.is_some());
        match (left, right) {
            (Some(x), Some(y)) if equal(x, y) => result.same += 1,
            (left, right) => {
                if let (Some(x), Some(y)) = (left, right) {
                    result.elsewhere += usize::from(x.target_cpus != y.target_cpus);
                }
                result.first.get_or_insert_with(|| difference(record, left, right));
            }
        }
    }
    result
}

/// By step, then thread: the order within one placement means nothing.
fn sorted(rows: &[DecisionRow]) -> Vec<&DecisionRow> {
    let mut rows: Vec<&DecisionRow> = rows.iter().collect();
    rows.sort_by_key(|r| key(r));
    rows
}

const fn key(row: &DecisionRow) -> (u32, u32) {
    (row.step, row.thread)
}

fn equal(a: &DecisionRow, b: &DecisionRow) -> bool {
    let same = |x: &[(std::sync::Arc<str>, f64)], y: &[(std::sync::Arc<str>, f64)]| {
        x.len() == y.len() && x.iter().zip(y).all(|(x, y)| x.0 == y.0 && x.1.to_bits() == y.1.to_bits())
    };
    (a.at_ns, a.weight, &a.target, &a.target_cpus) == (b.at_ns, b.weight, &b.target, &b.target_cpus)
        && (&a.rule, &a.unit) == (&b.rule, &b.unit)
        && same(&a.seen, &b.seen)
        && same(&a.alternatives, &b.alternatives)
}

fn difference(record: &Record, left: Option<&DecisionRow>, right: Option<&DecisionRow>) -> Difference {
    let (step, thread, at_ns) = left.or(right).map_or((0, 0, 0), |d| (d.step, d.thread, d.at_ns));
    let program = record.threads.iter().find(|t| t.thread == thread).map(|t| t.name.to_string());
    Difference {
        step,
        at_s: at_ns as f64 * 1e-9,
        thread,
        program: program.unwrap_or_default(),
        recorded: left.map(shown),
        replayed: right.map(shown),
    }
}

fn shown(d: &DecisionRow) -> String {
    let list = |pairs: &[(std::sync::Arc<str>, f64)]| {
        pairs.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
    };
    let mut text = format!("{} (CPUs {}): {}", d.target, d.target_cpus, d.rule);
    if let Some(weight) = d.weight {
        text += &format!("; weight {weight}");
    }
    if !d.seen.is_empty() {
        text += &format!("; saw {}", list(&d.seen));
    }
    if !d.alternatives.is_empty() {
        text += &format!("; alternatives ({}) {}", d.unit, list(&d.alternatives));
    }
    text
}

impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = &self.first else {
            return writeln!(f, "all {} decisions are the same", self.recorded);
        };
        let Self { recorded, replayed, same, elsewhere, .. } = self;
        writeln!(
            f,
            "{recorded} decisions in the record, {replayed} in the replay: {same} the same, {elsewhere} elsewhere"
        )?;
        let Difference { at_s, thread, program, .. } = first;
        writeln!(f, "first difference at {at_s:.3} s, thread {thread} of `{program}`:")?;
        writeln!(f, "  record  {}", first.recorded.as_deref().unwrap_or("says nothing about it"))?;
        writeln!(f, "  replay  {}", first.replayed.as_deref().unwrap_or("says nothing about it"))
    }
}
