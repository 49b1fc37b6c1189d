//! Rows of a record's tables in memory, with the columns in which they are stored.
//!
//! `step` is the observation of a row, as its index in the table of steps. Names and CPU lists are shared: a long run repeats a
//! few of them millions of times.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use countersteer_model::cpuset::CpuSet;
use countersteer_model::engine::{ProgramInfo, ThreadEventKind};
use countersteer_model::hint::{Hint, PHASES, Phase};
use countersteer_model::sample::{Counts, Sample, SampleRow, Samples};
use countersteer_model::units::{CpuId, ProgramId};

use super::columns::{
    BatchBuilder, ColumnSet, ColumnStorage, RowReader, RowValues, columns, several,
};
use super::kinds::{Bool, CpuList, F64, I8, Maybe, Newer, Pairs, SharedText, U32, U64};
use super::words::Words;

/// Observation, with the result of the placement after it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepRow {
    pub at_ns: u64,
    pub finished: bool,
    pub decided: bool,
    pub changed: u32,
    pub gone: u32,
    /// Number of threads whose affinity mask contains none of the target CPUs.
    pub refused: u32,
    /// Number of frequency hints and cache partitions that were rejected or are unsupported.
    pub unsupported: u32,
    /// Metric that the admission table compares; `None` if no table was set.
    pub admission_metric: Option<Arc<str>>,
    /// Rows of the admission table in the policy's order: core group, and smallest value for it.
    pub admission: Vec<(Arc<str>, f64)>,
}

// The column `step` is the index of the row, so it is not stored.
columns! { StepRow {
    at_ns: U64,
    finished: Bool,
    decided: Bool,
    changed: U32,
    gone: U32,
    refused: U32,
    unsupported as "unheeded": Newer(U32, 0),
    admission_metric: Maybe(SharedText),
    admission: Pairs("group", "least"),
} }

/// State of a thread that was alive at an observation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadRow {
    pub step: u32,
    pub at_ns: u64,
    pub thread: u32,
    pub program: u32,
    pub name: Arc<str>,
    /// CPU on which the thread ran or last ran.
    pub cpu: u32,
    /// True if the thread was running or waiting for a CPU.
    pub runnable: bool,
    /// Nice value of the thread.
    pub nice: i8,
    /// CPUs in the thread's affinity mask.
    pub allowed: Arc<CpuSet>,
}

columns! { ThreadRow {
    step: U32,
    at_ns: U64,
    thread: U32,
    program: U32,
    name: SharedText,
    cpu: U32,
    runnable: Bool,
    nice: I8,
    allowed: CpuList,
} }

/// State of a program from an observation until its next row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramRow {
    pub step: u32,
    pub at_ns: u64,
    pub info: ProgramInfo,
}

columns! { ProgramRow { step: U32, at_ns: U64, info: several() } }

columns! { |info: &'a ProgramInfo| -> ProgramInfo {
    program: U32 => info.id.0,
    name: SharedText => &*info.name,
    path: Maybe(SharedText) => info.path.as_deref(),
} => ProgramInfo { id: ProgramId(program), name, path } }

/// Application hint of a thread at an observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HintRow {
    pub step: u32,
    pub at_ns: u64,
    pub thread: u32,
    pub hint: Hint,
}

columns! { HintRow { step: U32, at_ns: U64, thread: U32, hint: several() } }

columns! { |hint: &'a Hint| -> Hint {
    priority: I8 => hint.priority,
    qos_permille: U32 => hint.qos_permille.into(),
    phase: SharedText => hint.phase.name(),
    workers: U32 => hint.workers,
} => Hint::of(priority.into(), qos_permille, phase_of(&phase)? as u32, workers) }

fn phase_of(name: &str) -> Result<Phase, String> {
    let known = PHASES.into_iter().find(|phase| phase.name() == name);
    known.ok_or_else(|| format!("phase `{name}` is unknown"))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRow {
    /// Index of the observation that reported the event.
    pub step: u32,
    /// Time of the event, in ns.
    pub at_ns: u64,
    pub thread: u32,
    pub kind: ThreadEventKind,
}

columns! { EventRow { step: U32, at_ns: U64, thread: U32, kind: several() } }

columns! { |kind: &'a ThreadEventKind| -> ThreadEventKind {
    kind: SharedText => kind.name(),
    from_cpu: Maybe(U32) => moved(*kind).map(|(from, _)| from.0),
    to_cpu: Maybe(U32) => moved(*kind).map(|(_, to)| to.0),
} => event_kind(&kind, from_cpu, to_cpu)? }

const fn moved(kind: ThreadEventKind) -> Option<(CpuId, CpuId)> {
    match kind {
        ThreadEventKind::Migrate { from, to } => Some((from, to)),
        _ => None,
    }
}

fn event_kind(name: &str, from: Option<u32>, to: Option<u32>) -> Result<ThreadEventKind, String> {
    Ok(match (name, from.map(CpuId), to.map(CpuId)) {
        ("new", ..) => ThreadEventKind::New,
        ("exec", ..) => ThreadEventKind::Exec,
        ("exit", ..) => ThreadEventKind::Exit,
        ("wake", ..) => ThreadEventKind::Wake,
        ("sleep", ..) => ThreadEventKind::Sleep,
        ("phase", ..) => ThreadEventKind::Phase,
        ("migrate", Some(from), Some(to)) => ThreadEventKind::Migrate { from, to },
        _ => return Err(format!("event kind `{name}` is unknown or lacks its CPUs")),
    })
}

/// Samples of threads, each with its step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SampleRows {
    /// Index of the observation that reported each sample.
    pub steps: Vec<u32>,
    /// Samples with their counts.
    pub samples: Samples,
}

impl SampleRows {
    #[must_use]
    pub const fn len(&self) -> usize {
        self.steps.len()
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Adds the samples of a step, which must not be before the last one.
    pub fn extend(&mut self, step: u32, samples: &Samples) {
        self.samples.append(samples);
        self.steps.resize(self.samples.len(), step);
    }

    /// Adds a sample with the counts of another sample.
    pub(super) fn push(&mut self, step: u32, sample: Sample, counts: Counts<'_>) {
        self.steps.push(step);
        self.samples.push_with(sample, counts);
    }

    /// Moves all rows of another table to the end of this one.
    pub(super) fn append(&mut self, other: &mut Self) {
        self.steps.append(&mut other.steps);
        self.samples.append(&other.samples);
        other.samples.clear();
    }

    /// Removes the rows of all steps except the first `steps`.
    pub fn keep_steps(&mut self, steps: u32) {
        let rows = self.steps.partition_point(|step| *step < steps);
        self.steps.truncate(rows);
        self.samples.truncate(rows);
    }

    /// Keeps the samples that `keep` selects by index.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(usize, &SampleRow<'_>) -> bool) {
        let mut kept = Self::default();
        for (index, row) in self.samples.iter().enumerate() {
            if keep(index, &row) {
                kept.steps.push(self.steps[index]);
                kept.samples.push_row(row);
            }
        }
        *self = kept;
    }

    /// Iterates over a range of the samples.
    pub(super) fn range(&self, rows: Range<usize>) -> impl Iterator<Item = SampleRow<'_>> + Clone {
        rows.filter_map(|row| self.samples.row(row))
    }
}

/// Metrics of a thread after a sample.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedMetrics {
    pub step: u32,
    pub at_ns: u64,
    pub thread: u32,
    /// Values of the metrics, in the order of [`super::Record::metric_names`]; `None` if unavailable.
    pub values: Box<[Option<f64>]>,
}

// The other columns are named after the metrics.
columns! { RecordedMetrics { step: U32, at_ns: U64, thread: U32, ..Self::default() } }

/// Decision of a policy about a thread, with its reason.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DecisionRow {
    /// Index of the observation on which the policy decided.
    pub step: u32,
    /// Time of the observation, in ns.
    pub at_ns: u64,
    /// Id of the thread.
    pub thread: u32,
    /// Name of the target: a core group, a CPU list or `anywhere`.
    pub target: Arc<str>,
    /// CPUs of the target.
    pub target_cpus: Arc<CpuSet>,
    /// Linux weight of the thread; `None` if it was not set.
    pub weight: Option<u32>,
    /// Lower limit of the thread's frequency hint; `None` if no hint was set.
    pub clamp_least: Option<u32>,
    /// Upper limit of the thread's frequency hint; `None` if no hint was set.
    pub clamp_most: Option<u32>,
    /// Rule that led to the decision.
    pub rule: Arc<str>,
    /// Names and values of the metrics that the rule used.
    pub seen: Vec<(Arc<str>, f64)>,
    /// Predicted value of each alternative core group.
    pub alternatives: Vec<(Arc<str>, f64)>,
    /// Unit of these values.
    pub unit: Arc<str>,
}

columns! { DecisionRow {
    step: U32,
    at_ns: U64,
    thread: U32,
    target: SharedText,
    target_cpus: CpuList,
    weight: Maybe(U32),
    clamp_least: Newer(Maybe(U32), None),
    clamp_most: Newer(Maybe(U32), None),
    rule: SharedText,
    seen: Pairs("metric", "value"),
    alternatives: Pairs("group", "value"),
    unit: SharedText,
} }

/// Partition of a last-level cache for a class, set by a policy. The rows of one step together replace the earlier partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShareRow {
    /// Index of the observation on which the policy decided.
    pub step: u32,
    /// Time of the observation, in ns.
    pub at_ns: u64,
    /// Name of the class; empty if all partitions were removed.
    pub class: Arc<str>,
    /// Members of the class, as in `programs 1,2`.
    pub members: Arc<str>,
    /// Name of the last-level cache; empty if the class has all ways of every cache.
    pub llc: Arc<str>,
    /// Index of the first way; `None` if the policy left it to the engine.
    pub first: Option<u32>,
    /// Number of ways; `None` for all.
    pub ways: Option<u32>,
    /// Limit on memory bandwidth in percent; `None` without a limit.
    pub bandwidth: Option<u32>,
}

columns! { ShareRow {
    step: U32,
    at_ns: U64,
    class: SharedText,
    members: SharedText,
    llc: SharedText,
    first: Maybe(U32),
    ways: Maybe(U32),
    bandwidth: Maybe(U32),
} }

/// Limit on the frequency of a CPU, set by a policy. The rows of one step together replace the earlier limits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClockRow {
    /// Index of the observation on which the policy decided.
    pub step: u32,
    /// Time of the observation, in ns.
    pub at_ns: u64,
    /// Id of the CPU; `None` if all limits were removed.
    pub cpu: Option<u32>,
    /// Highest frequency in MHz.
    pub most_mhz: u32,
    /// Rule that led to the limit.
    pub rule: Arc<str>,
    /// Names and values of the metrics that the rule used.
    pub seen: Vec<(Arc<str>, f64)>,
}

columns! { ClockRow {
    step: U32,
    at_ns: U64,
    cpu: Maybe(U32),
    most_mhz: U32,
    rule: SharedText,
    seen: Pairs("metric", "value"),
} }

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanRow {
    /// Index of the observation that reported the run interval.
    pub step: u32,
    /// Id of the thread.
    pub thread: u32,
    /// CPU on which the thread ran.
    pub cpu: u32,
    /// Start of the interval, in ns.
    pub start_ns: u64,
    /// End of the interval, in ns.
    pub end_ns: u64,
}

columns! { SpanRow { step: U32, thread: U32, cpu: U32, start_ns: U64, end_ns: U64 } }

/// Raw counts of one owner in one interval, for all requested events by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadingRow {
    pub step: u32,
    pub start_ns: u64,
    pub at_ns: u64,
    /// Process id of the owner; `None` if it is no process or thread.
    pub pid: Option<u32>,
    /// TID of the owner; `None` if it is no thread.
    pub thread: Option<u32>,
    /// Name of the thread, or of the row's owner.
    pub name: Arc<str>,
    /// CPU of the sample; `None` for sums over CPUs.
    pub cpu: Option<u32>,
    /// Name of the core type in the kernel's PMUs.
    pub core_type: Arc<str>,
    /// Index of the event set.
    pub set: u32,
    /// Time for which the event set was enabled while the owner ran on this core type, in ns.
    pub enabled_ns: u64,
    /// Time for which the event set counted, in ns.
    pub running_ns: u64,
    /// True if the owner exited, so that this is its last row.
    pub last: bool,
    /// Raw counts in the order of [`super::Record::reading_counts`]; `None` if not counted.
    pub counts: Box<[Option<u64>]>,
    /// Values of the metrics in the order of [`super::Record::reading_metrics`]; `None` if unavailable.
    pub metrics: Box<[Option<f64>]>,
}

// The other columns are named after the events and metrics.
columns! { ReadingRow {
    step: U32,
    at_ns: U64,
    start_ns: U64,
    pid: Maybe(U32),
    thread: Maybe(U32),
    name: SharedText,
    cpu: Maybe(U32),
    core_type: SharedText,
    set: U32,
    enabled_ns: U64,
    running_ns: U64,
    last: Bool,
    ..Self::default()
} }

/// Value of a virtual counter at the end of a period.
#[derive(Clone, Debug, PartialEq)]
pub struct VirtualRow {
    pub step: u32,
    pub at_ns: u64,
    /// Kind of the value's subject: `machine`, `zone`, `cpu` or `thread`.
    pub scope: Arc<str>,
    /// Name of the zone or thread to which the value belongs.
    pub place: Arc<str>,
    /// TID of the thread; `None` if the value does not belong to a thread.
    pub thread: Option<u32>,
    /// Kernel's number of the CPU; `None` if the value does not belong to a CPU.
    pub cpu: Option<u32>,
    /// Name of the virtual counter.
    pub name: Arc<str>,
    /// Unit of the value.
    pub unit: Arc<str>,
    /// Change of the counter since the last sample, or its current level.
    pub value: f64,
}

columns! { VirtualRow {
    step: U32,
    at_ns: U64,
    scope: SharedText,
    place: SharedText,
    thread: Maybe(U32),
    cpu: Maybe(U32),
    name: SharedText,
    unit: SharedText,
    value: F64,
} }
