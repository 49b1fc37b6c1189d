//! Differences between the decisions of a record and those of a replay.
//!
//! Input: a [`Record`] and the decisions that a policy made on its observations. Output: [`Differences`] with counts, and with
//! the first difference in full. The same policy with the same seed must have none, bit by bit.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::rows::{ClockRow, DecisionRow, ShareRow};
use super::{KernelCpus, Record};

/// Differences between the decisions of two runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Differences {
    pub recorded: usize,
    pub replayed: usize,
    /// Number of decisions with equal step, thread, target, weight, hint and reason.
    pub same: usize,
    /// Number of decisions with another target for the same thread at the same step.
    pub elsewhere: usize,
    /// Number of steps with different cache partitions.
    pub shares: usize,
    /// Number of steps with different limits on frequencies.
    pub clocks: usize,
    /// First difference; `None` if there is none.
    pub first: Option<Difference>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Index of the observation to which the decision belongs.
    pub step: u32,
    pub at_s: f64,
    /// Thread of the decision; `None` for cache partitions and limits on frequencies.
    pub thread: Option<u32>,
    /// Name of the thread's program; `caches` or `clocks` without a thread.
    pub program: String,
    /// Decision in the record; `None` if the record has none here.
    pub recorded: Option<String>,
    /// Decision of the replay; `None` if the replay has none here.
    pub replayed: Option<String>,
}

impl Differences {
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Takes a difference as the first one if it is before the first so far.
    fn propose(&mut self, other: Option<Difference>) {
        let Some(other) = other else { return };
        if self.first.as_ref().is_none_or(|f| other.step < f.step) {
            self.first = Some(other);
        }
    }
}

/// Compares the decisions of a record with those of a replay.
#[must_use]
pub fn compare_decisions(record: &Record, replayed: &[DecisionRow]) -> Differences {
    let mut differences = Differences::default();
    let name = |thread| {
        let row = record.threads.iter().find(|t| t.thread == thread)?;
        Some(row.name.to_string())
    };
    differences.compare(&record.decisions, replayed, &record.kernel_cpus(), name);
    differences
}

impl Differences {
    /// Compares decisions of the same steps, which are after all steps that were compared before. `name` is the name of a thread.
    pub(super) fn compare(
        &mut self,
        recorded: &[DecisionRow],
        replayed: &[DecisionRow],
        kernel: &KernelCpus,
        name: impl Fn(u32) -> Option<String>,
    ) {
        self.recorded += recorded.len();
        self.replayed += replayed.len();
        let a = sorted(recorded);
        let b = sorted(replayed);
        let mut i = 0;
        let mut j = 0;
        while i < a.len() || j < b.len() {
            // Both lists are merged by key: an entry with the smaller key has no counterpart, equal keys form a pair.
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
                (Some(x), Some(y)) if equal(x, y) => self.same += 1,
                (left, right) => {
                    if let (Some(x), Some(y)) = (left, right) {
                        self.elsewhere += usize::from(x.target_cpus != y.target_cpus);
                    }
                    self.first
                        .get_or_insert_with(|| difference((&name, kernel), left, right));
                }
            }
        }
    }
}

/// Compares the cache partitions and the limits on frequencies of a record with those of a replay, and adds the result to
/// `differences`.
pub(super) fn compare_requests(
    record: &Record,
    shares: &[ShareRow],
    clocks: &[ClockRow],
    differences: &mut Differences,
) {
    let step = |row: &ShareRow| row.step;
    let (count, first) = compare_steps(record, "caches", &record.shares, shares, step, share);
    differences.shares = count;
    differences.propose(first);
    let step = |row: &ClockRow| row.step;
    let kernel = record.kernel_cpus();
    let (count, first) = compare_steps(record, "clocks", &record.clocks, clocks, step, |row| {
        limit(&kernel, row)
    });
    differences.clocks = count;
    differences.propose(first);
}

/// Compares the rows of a table step by step. Returns the number of steps that differ, and the first of them.
fn compare_steps<R: Clone + PartialEq>(
    record: &Record,
    what: &'static str,
    recorded: &[R],
    replayed: &[R],
    step: impl Fn(&R) -> u32,
    text: impl Fn(&R) -> String,
) -> (usize, Option<Difference>) {
    let by_step = |rows: &[R]| {
        let mut steps: BTreeMap<u32, Vec<R>> = BTreeMap::new();
        rows.iter()
            .for_each(|row| steps.entry(step(row)).or_default().push(row.clone()));
        steps
    };
    let old = by_step(recorded);
    let new = by_step(replayed);
    let steps: BTreeSet<u32> = old.keys().chain(new.keys()).copied().collect();
    let mut other = steps
        .into_iter()
        .filter(|step| old.get(step) != new.get(step))
        .peekable();
    let first = other.peek().map(|step| {
        let shown = |rows: Option<&Vec<R>>| {
            rows.map(|rows| rows.iter().map(&text).collect::<Vec<_>>().join("; "))
        };
        let at_ns = record.steps.get(*step as usize).map_or(0, |s| s.at_ns);
        Difference {
            step: *step,
            at_s: at_ns as f64 * 1e-9,
            thread: None,
            program: what.into(),
            recorded: shown(old.get(step)),
            replayed: shown(new.get(step)),
        }
    });
    (other.count(), first)
}

fn limit(kernel: &KernelCpus, row: &ClockRow) -> String {
    row.cpu.map_or_else(
        || "no clock has a limit".into(),
        |cpu| format!("CPU {} at most {} MHz", kernel.cpu(cpu), row.most_mhz),
    )
}

fn share(row: &ShareRow) -> String {
    if row.class.is_empty() {
        return "all programs share all caches".into();
    }
    let number =
        |what: &str, n: Option<u32>| n.map_or_else(String::new, |n| format!(" {what} {n}"));
    let ways = number("ways", row.ways);
    let from = number("from", row.first);
    format!(
        "{} ({}): {}{ways}{from}{}",
        row.class,
        row.members,
        row.llc,
        number("bandwidth %", row.bandwidth)
    )
}

/// Returns the rows sorted by step, then thread, because the order within one placement has no meaning.
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
        x.len() == y.len()
            && x.iter()
                .zip(y)
                .all(|(x, y)| x.0 == y.0 && x.1.to_bits() == y.1.to_bits())
    };
    let clamp = |d: &DecisionRow| (d.clamp_least, d.clamp_most);
    (a.at_ns, a.weight, clamp(a), &a.target, &a.target_cpus)
        == (b.at_ns, b.weight, clamp(b), &b.target, &b.target_cpus)
        && (&a.rule, &a.unit) == (&b.rule, &b.unit)
        && same(&a.seen, &b.seen)
        && same(&a.alternatives, &b.alternatives)
}

fn difference(
    (name, kernel): (&impl Fn(u32) -> Option<String>, &KernelCpus),
    left: Option<&DecisionRow>,
    right: Option<&DecisionRow>,
) -> Difference {
    let (step, thread, at_ns) = left
        .or(right)
        .map_or((0, 0, 0), |d| (d.step, d.thread, d.at_ns));
    Difference {
        step,
        at_s: at_ns as f64 * 1e-9,
        thread: Some(thread),
        program: name(thread).unwrap_or_default(),
        recorded: left.map(|d| shown(kernel, d)),
        replayed: right.map(|d| shown(kernel, d)),
    }
}

fn shown(kernel: &KernelCpus, d: &DecisionRow) -> String {
    let list = |pairs: &[(std::sync::Arc<str>, f64)]| {
        pairs
            .iter()
            .map(|(name, value)| format!("{} {value}", kernel.group(name)))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let target = kernel.target(&d.target, &d.target_cpus);
    let mut text = format!(
        "{target} (CPUs {}): {}",
        kernel.list(&d.target_cpus),
        d.rule
    );
    if let Some(weight) = d.weight {
        text += &format!("; weight {weight}");
    }
    if let Some((least, most)) = d.clamp_least.zip(d.clamp_most) {
        text += &format!("; capacity {least} to {most}");
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
        let Self {
            recorded,
            replayed,
            same,
            elsewhere,
            ..
        } = self;
        writeln!(
            f,
            "{recorded} decisions in the record, {replayed} in the replay: {same} the same, {elsewhere} elsewhere"
        )?;
        if self.shares > 0 {
            writeln!(f, "caches are divided otherwise {} times", self.shares)?;
        }
        if self.clocks > 0 {
            writeln!(f, "clocks are limited otherwise {} times", self.clocks)?;
        }
        let Difference {
            at_s,
            thread,
            program,
            ..
        } = first;
        let whom = thread.map_or_else(
            || program.clone(),
            |thread| format!("thread {thread} of `{program}`"),
        );
        writeln!(f, "first difference at {at_s:.3} s, {whom}:")?;
        writeln!(
            f,
            "  record  {}",
            first.recorded.as_deref().unwrap_or("says nothing about it")
        )?;
        writeln!(
            f,
            "  replay  {}",
            first.replayed.as_deref().unwrap_or("says nothing about it")
        )
    }
}
