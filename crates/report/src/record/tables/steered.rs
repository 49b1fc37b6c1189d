//! Tables of what became of threads: who lived, what befell them, where they were put and ran.

use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use countersteer_model::engine::{ProgramInfo, ThreadEventKind};
use countersteer_model::told::{PHASES, Phase, Told};
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, ProgramId};

use super::Batch;
use crate::record::Record;
use crate::record::collector::Words;
use crate::record::columns::{BatchBuilder, Columns, maybe};
use crate::record::rows::{
    AdmissionRow, DecisionRow, EventRow, ProgramRow, ShareRow, SpanRow, StepRow, ThreadRow, ToldRow,
};

pub(super) fn encode_steps(record: &Record, _: &Topology, range: std::ops::Range<usize>) -> Batch {
    let first = record.first_step + range.start as u32;
    let rows = &record.steps[range];
    let admission = |r: &'_ StepRow| r.admission.as_ref().map(|a| Arc::clone(&a.metric));
    let metrics: Vec<Option<Arc<str>>> = rows.iter().map(admission).collect();
    // (value, group) is stored as (group, value), like all pairs.
    let swapped: Vec<Vec<(Arc<str>, f64)>> = (rows.iter())
        .map(|r| {
            r.admission
                .iter()
                .flat_map(|a| &a.rows)
                .map(|(v, g)| (Arc::clone(g), *v))
                .collect()
        })
        .collect();
    BatchBuilder::default()
        .u32("step", (first..).take(rows.len()))
        .u64("at_ns", rows.iter().map(|r| r.at_ns))
        .bool("finished", rows.iter().map(|r| r.finished))
        .bool("decided", rows.iter().map(|r| r.decided))
        .u32("changed", rows.iter().map(|r| r.changed))
        .u32("gone", rows.iter().map(|r| r.gone))
        .u32("refused", rows.iter().map(|r| r.refused))
        .u32("unheeded", rows.iter().map(|r| r.unsupported))
        .maybe_text("admission_metric", metrics.iter().map(Option::as_deref))
        .pairs(
            "admission",
            "group",
            "least",
            swapped.iter().map(Vec::as_slice),
        )
        .build(rows.len())
}

pub(super) fn decode_steps(
    record: &mut Record,
    words: &mut Words,
    batch: &RecordBatch,
) -> Result<(), String> {
    let c = Columns(batch);
    let at = c.u64("at_ns")?;
    let finished = c.bool("finished")?;
    let decided = c.bool("decided")?;
    let changed = c.u32("changed")?;
    let gone = c.u32("gone")?;
    let refused = c.u32("refused")?;
    let metric = c.text("admission_metric")?;
    let admission = c.pairs("admission")?;
    let unsupported = c.newer_u32("unheeded")?;
    for i in 0..batch.num_rows() {
        let table = metric.is_valid(i).then(|| AdmissionRow {
            metric: words.text(metric.value(i)),
            rows: admission
                .row(i, |w| words.text(w))
                .into_iter()
                .map(|(group, least)| (least, group))
                .collect(),
        });
        record.steps.push(StepRow {
            at_ns: at.value(i),
            finished: finished.value(i),
            decided: decided.value(i),
            changed: changed.value(i),
            gone: gone.value(i),
            refused: refused.value(i),
            unsupported: unsupported.map_or(0, |column| column.value(i)),
            admission: table,
        });
    }
    Ok(())
}

pub(super) fn encode_threads(
    record: &Record,
    _: &Topology,
    range: std::ops::Range<usize>,
) -> Batch {
    let rows = &record.threads[range];
    BatchBuilder::default()
        .u32("step", rows.iter().map(|r| r.step))
        .u64("at_ns", rows.iter().map(|r| r.at_ns))
        .u32("thread", rows.iter().map(|r| r.thread))
        .u32("program", rows.iter().map(|r| r.program))
        .text("name", rows.iter().map(|r| &r.name))
        .u32("cpu", rows.iter().map(|r| r.cpu))
        .bool("runnable", rows.iter().map(|r| r.runnable))
        .i8("nice", rows.iter().map(|r| r.nice))
        .text("allowed", rows.iter().map(|r| r.allowed.to_string()))
        .build(rows.len())
}

pub(super) fn decode_threads(
    record: &mut Record,
    words: &mut Words,
    batch: &RecordBatch,
) -> Result<(), String> {
    let c = Columns(batch);
    let step = c.u32("step")?;
    let at = c.u64("at_ns")?;
    let thread = c.u32("thread")?;
    let program = c.u32("program")?;
    let name = c.text("name")?;
    let cpu = c.u32("cpu")?;
    let runnable = c.bool("runnable")?;
    let nice = c.i8("nice")?;
    let allowed = c.text("allowed")?;
    for i in 0..batch.num_rows() {
        record.threads.push(ThreadRow {
            step: step.value(i),
            at_ns: at.value(i),
            thread: thread.value(i),
            program: program.value(i),
            name: words.text(name.value(i)),
            cpu: cpu.value(i),
            runnable: runnable.value(i),
            nice: nice.value(i),
            allowed: cpu_list(words, allowed.value(i))?,
        });
    }
    Ok(())
}

pub(super) fn encode_told(record: &Record, _: &Topology, range: std::ops::Range<usize>) -> Batch {
    let rows = &record.told[range];
    BatchBuilder::default()
        .u32("step", rows.iter().map(|r| r.step))
        .u64("at_ns", rows.iter().map(|r| r.at_ns))
        .u32("thread", rows.iter().map(|r| r.thread))
        .i8("priority", rows.iter().map(|r| r.told.priority))
        .u32(
            "qos_permille",
            rows.iter().map(|r| r.told.qos_permille.into()),
        )
        .text("phase", rows.iter().map(|r| r.told.phase.name()))
        .u32("workers", rows.iter().map(|r| r.told.workers))
        .build(rows.len())
}

pub(super) fn decode_told(
    record: &mut Record,
    _: &mut Words,
    batch: &RecordBatch,
) -> Result<(), String> {
    let c = Columns(batch);
    let step = c.u32("step")?;
    let at = c.u64("at_ns")?;
    let thread = c.u32("thread")?;
    let priority = c.i8("priority")?;
    let qos = c.u32("qos_permille")?;
    let phase = c.text("phase")?;
    let workers = c.u32("workers")?;
    for i in 0..batch.num_rows() {
        let known = PHASES.iter().find(|p| p.name() == phase.value(i));
        let phase: Phase =
            *known.ok_or_else(|| format!("phase `{}` is unknown", phase.value(i)))?;
        let told = Told::of(
            priority.value(i).into(),
            qos.value(i),
            phase as u32,
            workers.value(i),
        );
        record.told.push(ToldRow {
            step: step.value(i),
            at_ns: at.value(i),
            thread: thread.value(i),
            told,
        });
    }
    Ok(())
}

pub(super) fn encode_identities(
    record: &Record,
    _: &Topology,
    range: std::ops::Range<usize>,
) -> Batch {
    let rows = &record.programs[range];
    BatchBuilder::default()
        .u32("step", rows.iter().map(|r| r.step))
        .u64("at_ns", rows.iter().map(|r| r.at_ns))
        .u32("program", rows.iter().map(|r| r.info.id.0))
        .text("name", rows.iter().map(|r| &*r.info.name))
        .maybe_text("path", rows.iter().map(|r| r.info.path.as_deref()))
        .build(rows.len())
}

pub(super) fn decode_identities(
    record: &mut Record,
    words: &mut Words,
    batch: &RecordBatch,
) -> Result<(), String> {
    let c = Columns(batch);
    let step = c.u32("step")?;
    let at = c.u64("at_ns")?;
    let program = c.u32("program")?;
    let name = c.text("name")?;
    let path = c.text("path")?;
    for i in 0..batch.num_rows() {
        record.programs.push(ProgramRow {
            step: step.value(i),
            at_ns: at.value(i),
            info: ProgramInfo {
                id: ProgramId(program.value(i)),
                name: words.text(name.value(i)),
                path: path.is_valid(i).then(|| words.text(path.value(i))),
            },
        });
    }
    Ok(())
}

fn cpu_list(
    words: &mut Words,
    list: &str,
) -> Result<Arc<countersteer_model::cpuset::CpuSet>, String> {
    words
        .set(list)
        .ok_or_else(|| format!("`{list}` is no CPU list"))
}

const fn moved(kind: ThreadEventKind) -> (Option<u32>, Option<u32>) {
    match kind {
        ThreadEventKind::Migrate { from, to } => (Some(from.0), Some(to.0)),
        _ => (None, None),
    }
}

pub(super) fn encode_events(record: &Record, _: &Topology, range: std::ops::Range<usize>) -> Batch {
    let rows = &record.events[range];
    BatchBuilder::default()
        .u32("step", rows.iter().map(|r| r.step))
        .u64("at_ns", rows.iter().map(|r| r.at_ns))
        .u32("thread", rows.iter().map(|r| r.thread))
        .text("kind", rows.iter().map(|r| r.kind.name()))
        .maybe_u32("from_cpu", rows.iter().map(|r| moved(r.kind).0))
        .maybe_u32("to_cpu", rows.iter().map(|r| moved(r.kind).1))
        .build(rows.len())
}

pub(super) fn decode_events(
    record: &mut Record,
    _: &mut Words,
    batch: &RecordBatch,
) -> Result<(), String> {
    let c = Columns(batch);
    let step = c.u32("step")?;
    let at = c.u64("at_ns")?;
    let thread = c.u32("thread")?;
    let kind = c.text("kind")?;
    let from = c.u32("from_cpu")?;
    let to = c.u32("to_cpu")?;
    for i in 0..batch.num_rows() {
        let kind = match (kind.value(i), maybe(from, i), maybe(to, i)) {
            ("new", ..) => ThreadEventKind::New,
            ("exec", ..) => ThreadEventKind::Exec,
            ("exit", ..) => ThreadEventKind::Exit,
            ("wake", ..) => ThreadEventKind::Wake,
            ("sleep", ..) => ThreadEventKind::Sleep,
            ("phase", ..) => ThreadEventKind::Phase,
            ("migrate", Some(from), Some(to)) => ThreadEventKind::Migrate {
                from: CpuId(from),
                to: CpuId(to),
            },
            (other, ..) => {
                return Err(format!("event kind `{other}` is unknown or lacks its CPUs"));
            }
        };
        record.events.push(EventRow {
            step: step.value(i),
            at_ns: at.value(i),
            thread: thread.value(i),
            kind,
        });
    }
    Ok(())
}

pub(super) fn encode_decisions(
    record: &Record,
    _: &Topology,
    range: std::ops::Range<usize>,
) -> Batch {
    let rows = &record.decisions[range];
    BatchBuilder::default()
        .u32("step", rows.iter().map(|r| r.step))
        .u64("at_ns", rows.iter().map(|r| r.at_ns))
        .u32("thread", rows.iter().map(|r| r.thread))
        .text("target", rows.iter().map(|r| &r.target))
        .text(
            "target_cpus",
            rows.iter().map(|r| r.target_cpus.to_string()),
        )
        .maybe_u32("weight", rows.iter().map(|r| r.weight))
        .maybe_u32("clamp_least", rows.iter().map(|r| r.clamp.map(|c| c.0)))
        .maybe_u32("clamp_most", rows.iter().map(|r| r.clamp.map(|c| c.1)))
        .text("rule", rows.iter().map(|r| &r.rule))
        .pairs(
            "seen",
            "metric",
            "value",
            rows.iter().map(|r| r.seen.as_slice()),
        )
        .pairs(
            "alternatives",
            "group",
            "value",
            rows.iter().map(|r| r.alternatives.as_slice()),
        )
        .text("unit", rows.iter().map(|r| &r.unit))
        .build(rows.len())
}

pub(super) fn decode_decisions(
    record: &mut Record,
    words: &mut Words,
    batch: &RecordBatch,
) -> Result<(), String> {
    let c = Columns(batch);
    let step = c.u32("step")?;
    let at = c.u64("at_ns")?;
    let thread = c.u32("thread")?;
    let target = c.text("target")?;
    let cpus = c.text("target_cpus")?;
    let weight = c.u32("weight")?;
    let rule = c.text("rule")?;
    let unit = c.text("unit")?;
    let least = c.newer_u32("clamp_least")?;
    let most = c.newer_u32("clamp_most")?;
    let seen = c.pairs("seen")?;
    let alternatives = c.pairs("alternatives")?;
    for i in 0..batch.num_rows() {
        record.decisions.push(DecisionRow {
            step: step.value(i),
            at_ns: at.value(i),
            thread: thread.value(i),
            target: words.text(target.value(i)),
            target_cpus: cpu_list(words, cpus.value(i))?,
            weight: maybe(weight, i),
            clamp: least
                .and_then(|c| maybe(c, i))
                .zip(most.and_then(|c| maybe(c, i))),
            rule: words.text(rule.value(i)),
            seen: seen.row(i, |w| words.text(w)),
            alternatives: alternatives.row(i, |w| words.text(w)),
            unit: words.text(unit.value(i)),
        });
    }
    Ok(())
}

pub(super) fn encode_shares(record: &Record, _: &Topology, range: std::ops::Range<usize>) -> Batch {
    let rows = &record.shares[range];
    BatchBuilder::default()
        .u32("step", rows.iter().map(|r| r.step))
        .u64("at_ns", rows.iter().map(|r| r.at_ns))
        .text("class", rows.iter().map(|r| &r.class))
        .text("members", rows.iter().map(|r| &r.members))
        .text("llc", rows.iter().map(|r| &r.llc))
        .maybe_u32("first", rows.iter().map(|r| r.first))
        .maybe_u32("ways", rows.iter().map(|r| r.ways))
        .maybe_u32("bandwidth", rows.iter().map(|r| r.bandwidth))
        .build(rows.len())
}

pub(super) fn decode_shares(
    record: &mut Record,
    words: &mut Words,
    batch: &RecordBatch,
) -> Result<(), String> {
    let c = Columns(batch);
    let step = c.u32("step")?;
    let at = c.u64("at_ns")?;
    let class = c.text("class")?;
    let members = c.text("members")?;
    let llc = c.text("llc")?;
    let first = c.u32("first")?;
    let ways = c.u32("ways")?;
    let bandwidth = c.u32("bandwidth")?;
    for i in 0..batch.num_rows() {
        record.shares.push(ShareRow {
            step: step.value(i),
            at_ns: at.value(i),
            class: words.text(class.value(i)),
            members: words.text(members.value(i)),
            llc: words.text(llc.value(i)),
            first: maybe(first, i),
            ways: maybe(ways, i),
            bandwidth: maybe(bandwidth, i),
        });
    }
    Ok(())
}

pub(super) fn encode_spans(record: &Record, _: &Topology, range: std::ops::Range<usize>) -> Batch {
    let rows = &record.spans[range];
    BatchBuilder::default()
        .u32("step", rows.iter().map(|r| r.step))
        .u32("thread", rows.iter().map(|r| r.thread))
        .u32("cpu", rows.iter().map(|r| r.cpu))
        .u64("start_ns", rows.iter().map(|r| r.start_ns))
        .u64("end_ns", rows.iter().map(|r| r.end_ns))
        .build(rows.len())
}

pub(super) fn decode_spans(
    record: &mut Record,
    _: &mut Words,
    batch: &RecordBatch,
) -> Result<(), String> {
    let c = Columns(batch);
    let step = c.u32("step")?;
    let thread = c.u32("thread")?;
    let cpu = c.u32("cpu")?;
    let start = c.u64("start_ns")?;
    let end = c.u64("end_ns")?;
    record.spans.extend((0..batch.num_rows()).map(|i| SpanRow {
        step: step.value(i),
        thread: thread.value(i),
        cpu: cpu.value(i),
        start_ns: start.value(i),
        end_ns: end.value(i),
    }));
    Ok(())
}

pub(super) fn encode_programs(
    record: &Record,
    _: &Topology,
    range: std::ops::Range<usize>,
) -> Batch {
    let score = record.score();
    let scores = &score.programs[range.clone()];
    let outcomes = &record.manifest.outcome.programs[range];
    BatchBuilder::default()
        .text("name", scores.iter().map(|p| &p.name))
        .u32("runs", scores.iter().map(|p| p.runs as u32))
        .f64("completion_s", scores.iter().map(|p| p.completion_s))
        .f64("alone_fast_s", scores.iter().map(|p| p.alone_fast_s))
        .f64("alone_slow_s", scores.iter().map(|p| p.alone_slow_s))
        .f64("slowdown", scores.iter().map(|p| p.slowdown))
        .f64("ipc", scores.iter().map(|p| p.ipc))
        .f64("instructions", outcomes.iter().map(|p| p.instructions))
        .f64("cycles", outcomes.iter().map(|p| p.cycles))
        .build(scores.len())
}

/// The table of programs is there for queries; the manifest holds what it is computed from.
pub(super) fn skip(_: &mut Record, _: &mut Words, _: &RecordBatch) -> Result<(), String> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use countersteer_model::units::Nanos;

    use super::*;

    const MACHINE: &str = include_str!("../../../../../machines/core2-quad.toml");

    #[test]
    fn every_kind_of_event_is_read_as_it_was_written() {
        let manifest = crate::record::Manifest::new(
            ("m", MACHINE),
            ("w", ""),
            "linux",
            0,
            Nanos(1),
            [],
            Default::default(),
        );
        let mut record = Record::new(manifest);
        let migrate = ThreadEventKind::Migrate {
            from: CpuId(1),
            to: CpuId(2),
        };
        use ThreadEventKind::{Exec, Exit, New, Phase, Sleep, Wake};
        let kinds = [New, Exec, Exit, Wake, Sleep, migrate, Phase];
        record.events.extend(kinds.map(|kind| EventRow {
            step: 1,
            at_ns: 2,
            thread: 3,
            kind,
        }));
        let batch = encode_events(&record, &record.topology().unwrap(), 0..kinds.len()).unwrap();
        let written = std::mem::take(&mut record.events);
        decode_events(&mut record, &mut Words::default(), &batch).unwrap();
        assert_eq!(record.events, written);
    }

    #[test]
    fn tables_of_earlier_versions_are_read_without_what_they_lack() {
        let manifest = crate::record::Manifest::new(
            ("m", MACHINE),
            ("w", ""),
            "linux",
            0,
            Nanos(1),
            [],
            Default::default(),
        );
        let mut record = Record::new(manifest);
        record.steps.push(StepRow {
            unsupported: 3,
            ..StepRow::default()
        });
        let mut words = Words::default();
        let batch = encode_steps(&record, &record.topology().unwrap(), 0..1).unwrap();
        let old: Vec<usize> = (0..batch.num_columns())
            .filter(|c| batch.schema().field(*c).name() != "unheeded")
            .collect();
        let old = batch.project(&old).unwrap();
        decode_steps(&mut record, &mut words, &batch).unwrap();
        decode_steps(&mut record, &mut words, &old).unwrap();
        assert_eq!(
            record
                .steps
                .iter()
                .map(|s| s.unsupported)
                .collect::<Vec<_>>(),
            [3, 3, 0]
        );
        let decisions = encode_decisions(&record, &record.topology().unwrap(), 0..0).unwrap();
        let old: Vec<usize> = (0..decisions.num_columns())
            .filter(|c| !decisions.schema().field(*c).name().starts_with("clamp"))
            .collect();
        decode_decisions(&mut record, &mut words, &decisions.project(&old).unwrap()).unwrap();
    }
}
