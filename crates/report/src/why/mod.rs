//! Explanations of the CPUs of threads, for `steer why`.
//!
//! Input: a [`Record`], a program or thread, and a time. Output: an [`Explanation`] with the thread's CPU, the last decision about
//! it with metrics and alternatives, and the next migration.

mod answer;
mod find;

pub(crate) use answer::metric as figure;
pub use answer::{Alternative, Decision, Explanation, NextMove, WhyFigure};

use countersteer_model::topology::{GroupBy, Topology};
use countersteer_model::units::CpuId;

use crate::error::ReportError;
use crate::record::{DecisionRow, Detail, KernelCpus, Record, ThreadIdentity, ThreadRow};

/// Explains the CPU of the thread `who` at `at_s` seconds after the start.
///
/// `who` is a thread, as in `thread7` or `7`, or the name of a program. A program stands for its first thread that was alive at
/// that time.
///
/// # Errors
/// Fails if the record has no such program or thread, if it has no tables, or if the time is outside the run.
pub fn why(record: &Record, who: &str, at_s: f64) -> Result<Explanation, ReportError> {
    if record.manifest.detail == Detail::Scores {
        return Err(ReportError::NotRecorded {
            what: "threads",
            detail: Detail::Scores.name().into(),
        });
    }
    let end_s = record.end().as_secs_f64();
    // The user may have rounded the time, so up to half a microsecond after the end counts as the end.
    if !(0.0..=end_s + 5e-7).contains(&at_s) {
        return Err(ReportError::OutsideRun {
            asked_s: at_s,
            end_s,
        });
    }
    let at_ns = nanos(at_s);
    let asked = find::identities(record, who)?;
    let (identity, state) =
        find::alive(record, &asked, at_ns).ok_or_else(|| not_alive(record, &asked[0], at_s))?;
    let topology = record.topology()?;
    let kernel = record.kernel_cpus();
    let (cpu, since_ns) = find::place(record, identity.id.0, state, at_ns);
    let core_type = topology
        .cpus
        .get(cpu as usize)
        .map(|c| topology.core_types[c.core_type.index()].name.clone());
    let decision = record
        .decisions
        .iter()
        .rev()
        .find(|d| d.thread == identity.id.0 && d.at_ns <= at_ns);
    Ok(Explanation {
        program: identity.name.to_string(),
        thread: identity.id.0,
        at_s,
        cpu: kernel.cpu(cpu),
        core_type: core_type.unwrap_or_default(),
        llc: topology
            .group_of(CpuId(cpu), GroupBy::Llc)
            .map_or_else(String::new, |g| g.name.clone()),
        since_s: since_ns as f64 * 1e-9,
        runnable: state.runnable,
        allowed: kernel.list(&state.allowed),
        policy: record.manifest.policy.clone(),
        decision: decision.map(|d| explained(record, (&topology, &kernel), d)),
        before: find::metrics(record, identity.id.0, at_ns, true),
        after: find::metrics(record, identity.id.0, at_ns, false),
        next_move: find::next_move(record, &kernel, identity.id.0, at_ns),
    })
}

/// Converts a time in seconds to ns.
pub(crate) fn nanos(at_s: f64) -> u64 {
    (at_s * 1e9).round().max(0.0) as u64
}

fn not_alive(record: &Record, who: &ThreadIdentity, asked_s: f64) -> ReportError {
    let mut rows = record
        .threads
        .iter()
        .filter(|t| t.thread == who.id.0)
        .map(|t| t.at_ns as f64 * 1e-9);
    let from_s = rows.next().unwrap_or(0.0);
    let to_s = rows.next_back().unwrap_or(from_s);
    ReportError::NotAlive {
        program: who.name.to_string(),
        asked_s,
        from_s,
        to_s,
    }
}

/// Returns the name of the alternative that contains the CPUs of the target; `None` if there is none. A policy may compare
/// core types and then select one core.
fn chosen<'a>(topology: &Topology, d: &'a DecisionRow) -> Option<&'a str> {
    let groups = d
        .alternatives
        .iter()
        .filter_map(|(name, _)| Some((&**name, topology.group_named(name)?)));
    let holding =
        groups.filter(|(name, g)| **name == *d.target || d.target_cpus.is_subset(&g.cpus));
    holding
        .min_by_key(|(name, g)| (**name != *d.target, g.cpus.len()))
        .map(|(name, _)| name)
}

fn explained(
    record: &Record,
    (topology, kernel): (&Topology, &KernelCpus),
    d: &DecisionRow,
) -> Decision {
    let chosen = chosen(topology, d);
    let figure = |(name, value): &(std::sync::Arc<str>, f64)| WhyFigure {
        name: name.to_string(),
        value: *value,
    };
    let mut alternatives: Vec<Alternative> = (d.alternatives.iter())
        .map(|(group, value)| Alternative {
            group: kernel.group(group),
            value: *value,
            chosen: Some(&**group) == chosen,
        })
        .collect();
    alternatives.sort_by(|a, b| b.value.total_cmp(&a.value));
    let same = |r: &&DecisionRow| r.thread == d.thread && r.target == d.target && r.rule == d.rule;
    let first = record
        .decisions
        .iter()
        .filter(|r| r.thread == d.thread && r.at_ns <= d.at_ns)
        .rev();
    // Policies repeat decisions every period. The time of the first of these is more informative.
    let since_ns = first
        .take_while(|r| same(r))
        .last()
        .map_or(d.at_ns, |r| r.at_ns);
    Decision {
        at_s: d.at_ns as f64 * 1e-9,
        since_s: since_ns as f64 * 1e-9,
        target: kernel.target(&d.target, &d.target_cpus),
        cpus: kernel.list(&d.target_cpus),
        weight: d.weight,
        rule: d.rule.to_string(),
        seen: d.seen.iter().map(figure).collect(),
        alternatives,
        unit: d.unit.to_string(),
    }
}

/// State of a thread at an observation.
pub(crate) type ThreadMoment<'a> = &'a ThreadRow;
