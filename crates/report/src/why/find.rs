//! Search for threads, CPUs and metrics in a record.

use countersteer_model::engine::ThreadEventKind;
use countersteer_model::sample::SampleRow;
use countersteer_model::units::ThreadId;

use super::ThreadMoment;
use super::answer::{NextMove, WhyFigure};

use crate::error::ReportError;
use crate::record::{KernelCpus, Record, ThreadIdentity};

/// Returns the threads that `who` may mean: those of a program or executable with this name, or one thread by id. Fails if
/// there are none.
pub(super) fn identities(record: &Record, who: &str) -> Result<Vec<ThreadIdentity>, ReportError> {
    let all = record.identities();
    let named: Vec<ThreadIdentity> = all.iter().filter(|t| &*t.name == who).cloned().collect();
    if !named.is_empty() {
        return Ok(named);
    }
    let runs = |t: &&ThreadIdentity| {
        record
            .manifest
            .executables
            .get(&t.id.0)
            .is_some_and(|e| e == who)
    };
    let named: Vec<ThreadIdentity> = all.iter().filter(runs).cloned().collect();
    if !named.is_empty() {
        return Ok(named);
    }
    let number: Option<u32> = who
        .strip_prefix("thread")
        .unwrap_or(who)
        .trim()
        .parse()
        .ok();
    let numbered = number
        .and_then(|n| all.iter().find(|t| t.id.0 == n))
        .cloned();
    numbered
        .map(|t| vec![t])
        .ok_or_else(|| unknown(record, &all, who))
}

fn unknown(record: &Record, all: &[ThreadIdentity], asked: &str) -> ReportError {
    const SHOWN: usize = 30;
    let mut names: Vec<&str> = Vec::new();
    let programs = all.iter().map(|t| &*t.name);
    let executables = record.manifest.executables.values().map(String::as_str);
    for name in programs.chain(executables) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let more = names.len().saturating_sub(SHOWN);
    let mut known = names
        .iter()
        .take(SHOWN)
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    if more > 0 {
        known += &format!(" and {more} more");
    }
    if let (Some(first), Some(last)) = (all.first(), all.last()) {
        known += &format!(" (threads {} to {})", first.id.0, last.id.0);
    }
    ReportError::UnknownProgram {
        asked: asked.into(),
        known,
    }
}

/// Returns the first of these threads that was alive at the last observation before `at_ns`, with its state at that
/// observation. `None` if none was alive.
pub(super) fn alive<'a, 'b>(
    record: &'a Record,
    asked: &'b [ThreadIdentity],
    at_ns: u64,
) -> Option<(&'b ThreadIdentity, ThreadMoment<'a>)> {
    let step = record
        .steps
        .partition_point(|s| s.at_ns <= at_ns)
        .checked_sub(1)? as u32;
    let start = record.threads.partition_point(|t| t.step < step);
    let end = record.threads.partition_point(|t| t.step <= step);
    let states = &record.threads[start..end];
    asked
        .iter()
        .find_map(|who| Some((who, states.iter().find(|s| s.thread == who.id.0)?)))
}

/// Returns the CPU of a thread at `at_ns`, and the time in ns at which the thread came to it. The source is spans or
/// migrations if they were recorded, otherwise observations.
pub(super) fn place(
    record: &Record,
    thread: u32,
    state: ThreadMoment<'_>,
    at_ns: u64,
) -> (u32, u64) {
    let mut here = (
        record
            .threads
            .iter()
            .find(|t| t.thread == thread)
            .map_or(state.cpu, |t| t.cpu),
        0,
    );
    for event in record
        .events
        .iter()
        .filter(|e| e.thread == thread && e.at_ns <= at_ns)
    {
        match event.kind {
            ThreadEventKind::Migrate { to, .. } => here = (to.0, event.at_ns),
            ThreadEventKind::New => here.1 = event.at_ns,
            _ => {}
        }
    }
    if here.0 == state.cpu
        || record
            .spans
            .iter()
            .any(|s| s.thread == thread && s.cpu == here.0)
    {
        return here;
    }
    // Without recorded migrations, the time is that of the first of the consecutive observations on this CPU.
    let rows = record
        .threads
        .iter()
        .rev()
        .filter(|t| t.thread == thread && t.at_ns <= at_ns);
    (
        state.cpu,
        rows.take_while(|t| t.cpu == state.cpu)
            .last()
            .map_or(state.at_ns, |t| t.at_ns),
    )
}

/// Returns the last metrics of a thread up to `at_ns`, or the first ones after it. They are computed from samples if the
/// policy used no metrics.
pub(super) fn metrics(record: &Record, thread: u32, at_ns: u64, before: bool) -> Vec<WhyFigure> {
    let mut rows = record
        .metrics
        .iter()
        .filter(|m| m.thread == thread && (m.at_ns <= at_ns) == before);
    let row = if before {
        rows.next_back()
    } else {
        rows.next()
    };
    let mut figures: Vec<WhyFigure> = (row.iter())
        .flat_map(|r| record.metric_names.iter().zip(&r.values))
        .filter_map(|(name, value)| {
            Some(WhyFigure {
                name: name.to_string(),
                value: (*value)?,
            })
        })
        .collect();
    if !figures.iter().any(|f| f.name == "ipc") {
        figures.extend(ipc(record, thread, at_ns, before).map(|value| WhyFigure {
            name: "ipc".into(),
            value,
        }));
    }
    figures
}

fn ipc(record: &Record, thread: u32, at_ns: u64, before: bool) -> Option<f64> {
    use countersteer_model::sample::Event::{Cycles, Instructions};
    let of = |sample: &SampleRow<'_>| {
        sample.thread() == Some(ThreadId(thread)) && (sample.end.0 <= at_ns) == before
    };
    let mut samples = record.samples.samples.iter().filter(of);
    let sample = if before {
        samples.next_back()
    } else {
        samples.next()
    };
    sample?.counts.ratio(Instructions, Cycles)
}

/// Returns the next migration of a thread after `at_ns`; `None` if there is none.
pub(super) fn next_move(
    record: &Record,
    kernel: &KernelCpus,
    thread: u32,
    at_ns: u64,
) -> Option<NextMove> {
    record
        .events
        .iter()
        .filter(|e| e.thread == thread && e.at_ns > at_ns)
        .find_map(|e| match e.kind {
            ThreadEventKind::Migrate { to, .. } => Some(NextMove {
                at_s: e.at_ns as f64 * 1e-9,
                cpu: kernel.cpu(to.0),
            }),
            _ => None,
        })
}
