//! Rows of a record's tables as they are held in memory, with the columns that they are stored in.
//!
//! `step` is the observation a row belongs to, as its position in the table of steps. Names and CPU lists are shared: a long
//! run repeats few of them millions of times.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use countersteer_model::cpuset::CpuSet;
use countersteer_model::engine::{ProgramInfo, ThreadEventKind};
use countersteer_model::hint::{Hint, PHASES, Phase};
use countersteer_model::sample::{Counts, Row, Sample, Samples};
use countersteer_model::units::{CpuId, ProgramId};

use super::columns::{BatchBuilder, Column, Columns, Reader, Values, columns, several};
use super::kinds::{Bool, CpuList, F64, I8, Maybe, Newer, Pairs, Text, U32, U64};
use super::words::Words;

/// An observation and what was applied after it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepRow {
    pub at_ns: u64,
    pub finished: bool,
    pub decided: bool,
    pub changed: u32,
    pub gone: u32,
    /// Threads that may not run where they were sent.
    pub refused: u32,
    /// Frequency hints and cache partitions that are unsupported or were rejected.
    pub unsupported: u32,
    /// The metric that the admission table compares, if one was set.
    pub admission_metric: Option<Arc<str>>,
    /// The groups of that table and their least values, as the policy gave them.
    pub admission: Vec<(Arc<str>, f64)>,
}

// The column `step` is the place of the row.
columns! { StepRow {
    at_ns: U64,
    finished: Bool,
    decided: Bool,
    changed: U32,
    gone: U32,
    refused: U32,
    unsupported as "unheeded": Newer(U32, 0),
    admission_metric: Maybe(Text),
    admission: Pairs("group", "least"),
} }

/// A thread that was alive at an observation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadRow {
    pub step: u32,
    pub at_ns: u64,
    pub thread: u32,
    pub program: u32,
    pub name: Arc<str>,
    /// Where it ran or last ran.
    pub cpu: u32,
    /// Running or waiting for a CPU.
    pub runnable: bool,
    pub nice: i8,
    /// CPUs that it was confined to.
    pub allowed: Arc<CpuSet>,
}

columns! { ThreadRow {
    step: U32,
    at_ns: U64,
    thread: U32,
    program: U32,
    name: Text,
    cpu: U32,
    runnable: Bool,
    nice: I8,
    allowed: CpuList,
} }

/// A program as it was from an observation on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramRow {
    pub step: u32,
    pub at_ns: u64,
    pub info: ProgramInfo,
}

columns! { ProgramRow { step: U32, at_ns: U64, info: several() } }

columns! { |info: &'a ProgramInfo| -> ProgramInfo {
    program: U32 => info.id.0,
    name: Text => &*info.name,
    path: Maybe(Text) => info.path.as_deref(),
} => ProgramInfo { id: ProgramId(program), name, path } }

/// The application hint of a thread at an observation.
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
    phase: Text => hint.phase.name(),
    workers: U32 => hint.workers,
} => Hint::of(priority.into(), qos_permille, phase_of(&phase)? as u32, workers) }

fn phase_of(name: &str) -> Result<Phase, String> {
    let known = PHASES.into_iter().find(|phase| phase.name() == name);
    known.ok_or_else(|| format!("phase `{name}` is unknown"))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRow {
    /// Row of steps: the observation that reported it.
    pub step: u32,
    pub at_ns: u64,
    pub thread: u32,
    pub kind: ThreadEventKind,
}

columns! { EventRow { step: U32, at_ns: U64, thread: U32, kind: several() } }

columns! { |kind: &'a ThreadEventKind| -> ThreadEventKind {
    kind: Text => kind.name(),
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

/// Samples of threads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SampleRows {
    /// By sample, the row of steps: the observation that reported it.
    pub steps: Vec<u32>,
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

    /// Samples that came with this step, which is none before the last one.
    pub fn extend(&mut self, step: u32, samples: &Samples) {
        self.samples.append(samples);
        self.steps.resize(self.samples.len(), step);
    }

    /// Adds a sample with the counts of another.
    pub(super) fn push(&mut self, step: u32, sample: Sample, counts: Counts<'_>) {
        self.steps.push(step);
        self.samples.push_with(sample, counts);
    }

    /// Adds all rows of others, leaving none there.
    pub(super) fn append(&mut self, other: &mut Self) {
        self.steps.append(&mut other.steps);
        self.samples.append(&other.samples);
        other.samples.clear();
    }

    /// Keeps rows of the first so many steps.
    pub fn keep_steps(&mut self, steps: u32) {
        let rows = self.steps.partition_point(|step| *step < steps);
        self.steps.truncate(rows);
        self.samples.truncate(rows);
    }

    /// Some of the samples.
    pub(super) fn range(&self, rows: Range<usize>) -> impl Iterator<Item = Row<'_>> + Clone {
        rows.filter_map(|row| self.samples.row(row))
    }
}

/// Metrics of a thread after a sample.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricRow {
    pub step: u32,
    pub at_ns: u64,
    pub thread: u32,
    /// By column of [`super::Record::metric_names`].
    pub values: Box<[Option<f64>]>,
}

// The other columns have the names of metrics.
columns! { MetricRow { step: U32, at_ns: U64, thread: U32, ..Self::default() } }

/// Where a policy put a thread, and why.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DecisionRow {
    /// Row of steps: the observation it answers.
    pub step: u32,
    pub at_ns: u64,
    pub thread: u32,
    /// Group, CPU list or `anywhere`.
    pub target: Arc<str>,
    pub target_cpus: Arc<CpuSet>,
    /// Linux weight, where it was set.
    pub weight: Option<u32>,
    /// Least of the capacity that its CPU was to be asked for, where that was said.
    pub clamp_least: Option<u32>,
    /// The most of it.
    pub clamp_most: Option<u32>,
    pub rule: Arc<str>,
    pub seen: Vec<(Arc<str>, f64)>,
    /// What each alternative was predicted to be worth, by group.
    pub alternatives: Vec<(Arc<str>, f64)>,
    pub unit: Arc<str>,
}

columns! { DecisionRow {
    step: U32,
    at_ns: U64,
    thread: U32,
    target: Text,
    target_cpus: CpuList,
    weight: Maybe(U32),
    clamp_least: Newer(Maybe(U32), None),
    clamp_most: Newer(Maybe(U32), None),
    rule: Text,
    seen: Pairs("metric", "value"),
    alternatives: Pairs("group", "value"),
    unit: Text,
} }

/// A class's part of a last-level cache, as a policy gave it. All rows of a step belong together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShareRow {
    /// Row of steps: the observation it answers.
    pub step: u32,
    pub at_ns: u64,
    /// The class; empty where everything was given back.
    pub class: Arc<str>,
    /// Who is in it, as in `programs 1,2`.
    pub members: Arc<str>,
    /// The cache; empty where the class has all of every one.
    pub llc: Arc<str>,
    /// Its first way, where the policy chose it.
    pub first: Option<u32>,
    /// Its ways; absent for all.
    pub ways: Option<u32>,
    /// Its memory bandwidth in per cent; absent for all.
    pub bandwidth: Option<u32>,
}

columns! { ShareRow {
    step: U32,
    at_ns: U64,
    class: Text,
    members: Text,
    llc: Text,
    first: Maybe(U32),
    ways: Maybe(U32),
    bandwidth: Maybe(U32),
} }

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanRow {
    /// Row of steps: the observation that reported it.
    pub step: u32,
    pub thread: u32,
    pub cpu: u32,
    pub start_ns: u64,
    pub end_ns: u64,
}

columns! { SpanRow { step: U32, thread: U32, cpu: U32, start_ns: U64, end_ns: U64 } }

/// Counts as they were read: whatever was asked for, by whatever name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadingRow {
    pub step: u32,
    pub start_ns: u64,
    pub at_ns: u64,
    /// Process, where the row is of one.
    pub pid: Option<u32>,
    /// Thread, where the row is of one.
    pub thread: Option<u32>,
    /// The thread's name, or what the row is of.
    pub name: Arc<str>,
    /// Where, if on one CPU.
    pub cpu: Option<u32>,
    /// On which type of core, as the kernel's PMUs name it.
    pub core_type: Arc<str>,
    /// By which set of events.
    pub set: u32,
    /// Time that the set had its turn while the owner ran there.
    pub enabled_ns: u64,
    /// Time that it really counted.
    pub running_ns: u64,
    /// The owner ended with it.
    pub last: bool,
    /// By column of [`super::Record::reading_counts`]; raw.
    pub counts: Box<[Option<u64>]>,
    /// By column of [`super::Record::reading_metrics`].
    pub metrics: Box<[Option<f64>]>,
}

// The other columns have the names of counts and metrics.
columns! { ReadingRow {
    step: U32,
    at_ns: U64,
    start_ns: U64,
    pid: Maybe(U32),
    thread: Maybe(U32),
    name: Text,
    cpu: Maybe(U32),
    core_type: Text,
    set: U32,
    enabled_ns: U64,
    running_ns: U64,
    last: Bool,
    ..Self::default()
} }

/// What a virtual counter said at the end of a period.
#[derive(Clone, Debug, PartialEq)]
pub struct VirtualRow {
    pub step: u32,
    pub at_ns: u64,
    /// What it is about: `machine`, `zone`, `cpu` or `thread`.
    pub scope: Arc<str>,
    /// The zone's or thread's name.
    pub place: Arc<str>,
    /// The thread, where it is about one.
    pub thread: Option<u32>,
    /// The CPU, where it is about one; the kernel's number.
    pub cpu: Option<u32>,
    pub name: Arc<str>,
    /// The value's unit.
    pub unit: Arc<str>,
    /// The value: what happened since the last reading, or what holds at the moment.
    pub value: f64,
}

columns! { VirtualRow {
    step: U32,
    at_ns: U64,
    scope: Text,
    place: Text,
    thread: Maybe(U32),
    cpu: Maybe(U32),
    name: Text,
    unit: Text,
    value: F64,
} }
